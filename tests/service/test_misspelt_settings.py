"""A setting that is misspelt is warned of, and nothing else is."""

import logging
import os
from pathlib import Path

import pytest

from automap.service import server
from automap.service.server import OpenServiceError
from automap.service.settings import Settings, misspelt_settings
from tests.cli.commands import call


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AUTOMAP_RETENTION_DAY", "AUTOMAP_RETENTION_DAYS"),
        ("AUTOMAP_LOG_LEVELS", "AUTOMAP_LOG_LEVEL"),
        ("automap_lease_second", "AUTOMAP_LEASE_SECONDS"),
        ("AUTOMAP_SECRET_FOLDER", "AUTOMAP_SECRETS_FOLDER"),
    ],
)
def test_what_may_be_meant_is_said(name: str, meant: str) -> None:
    assert list(misspelt_settings([name])) == [
        f"the variable {name} is no setting and is ignored: did you mean {meant}?"
    ]


def test_what_is_like_no_setting_is_said_to_be_ignored() -> None:
    assert list(misspelt_settings(["AUTOMAP_X"])) == [
        "the variable AUTOMAP_X is no setting and is ignored"
    ]


def test_what_is_read_is_not_warned_of() -> None:
    settings = [f"AUTOMAP_{name}" for name in Settings.model_fields]
    others = ["AUTOMAP_API_KEY", "AUTOMAP_SECRETS_FOLDER", "PATH", "automap_port"]
    kubernetes = ["AUTOMAP_API_SERVICE_HOST", "AUTOMAP_API_PORT", "AUTOMAP_API_PORT_80_TCP_ADDR"]
    assert (
        list(misspelt_settings([*settings, *others, *kubernetes, "AUTOMAP_API_SERVICE_PORT"])) == []
    )
    assert list(misspelt_settings(["AUTOMAP_MINE"], passed_on=["AUTOMAP_MINE"])) == []
    assert list(misspelt_settings(os.environ)) == []


def test_a_server_and_commands_warn_at_their_start(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("AUTOMAP_RETENTION_DAY", "7")
    monkeypatch.setattr(server, "bound_sockets", lambda host, port: [])
    monkeypatch.setattr(server, "hide_environment", lambda: None)
    monkeypatch.setattr(server.logs, "set_up", lambda settings: None)
    url = f"sqlite:///{tmp_path}/automap.db"
    with caplog.at_level(logging.WARNING), pytest.raises(OpenServiceError):
        server.serve(Settings(host="0.0.0.0", database_url=url))
    assert "did you mean AUTOMAP_RETENTION_DAYS?" in caplog.text
    code, _, err = call(capsys, "db", "upgrade", "--database-url", url)
    assert code == 0
    assert "warning: the variable AUTOMAP_RETENTION_DAY is no setting" in err.splitlines()[-1]
