import os
import subprocess
import sys

from alembic import command
from sqlalchemy import CheckConstraint, inspect

import migrations
from service.database import Base, Database
from service.settings import Settings
from tests.service.conftest import Databases


def opened(databases: Databases, name: str) -> Database:
    return Database(Settings(database_url=databases.create(name)).database_url)


def test_up_gives_the_tables_and_down_removes_them(databases: Databases) -> None:
    database = opened(databases, "up_and_down")
    migrations.upgrade(database.engine)
    with database.engine.connect() as connection:
        assert migrations.current_revision(connection) == migrations.head_revision() is not None
        assert set(inspect(connection).get_table_names()) == {
            *Base.metadata.tables,
            "alembic_version",
        }
    migrations.downgrade(database.engine, "base")
    with database.engine.connect() as connection:
        assert migrations.current_revision(connection) is None
        assert inspect(connection).get_table_names() == ["alembic_version"]
    migrations.upgrade(database.engine)
    database.dispose()


def test_autogenerate_finds_no_difference(database: Database) -> None:
    with database.engine.connect() as connection:
        command.check(migrations.alembic_config(connection))


def test_check_constraints_are_those_of_the_tables(database: Database) -> None:
    # Autogenerate does not compare check constraints.
    with database.engine.connect() as connection:
        for name, table in Base.metadata.tables.items():
            migrated = {check["name"] for check in inspect(connection).get_check_constraints(name)}
            declared = {
                str(constraint.name)
                for constraint in table.constraints
                if isinstance(constraint, CheckConstraint)
            }
            assert migrated == declared


def test_servers_that_start_together_migrate_once(databases: Databases) -> None:
    environment = {**os.environ, "AUTOMAP_DATABASE_URL": databases.create("together")}
    code = "from service.server import migrate, Settings; migrate(Settings())"
    servers = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [server.wait(timeout=60) for server in servers] == [0, 0, 0]
