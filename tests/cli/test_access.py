"""`automap keys` and `automap audit`: in a database, and on a service that asks for keys."""

import json
import re
from pathlib import Path
from uuid import UUID

import pytest

from automap.service.cli.main import main as command
from tests.service.support.databases import migrated
from tests.service.support.servers import serving


def main(arguments: list[str]) -> object:
    """The command's exit code."""
    with pytest.raises(SystemExit) as ended:
        command(arguments)
    return ended.value.code


def test_keys_of_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = ["--database-url", f"sqlite:///{tmp_path}/automap.db"]

    def automap(*arguments: str) -> str:
        assert main([*arguments, *database]) == 0
        return capsys.readouterr().out

    key = automap("keys", "create", "--owner", "ada", "--note", "laptop").strip()
    assert key.startswith("am_")
    made = automap("keys", "create", "--owner", "bob", "--scopes", "read", "--expires-days", "1")
    (other,) = json.loads(automap("keys", "list", "--owner", "bob", "--json"))
    assert other["scopes"] == ["read"]
    assert other["expires_at"] is not None
    assert made.strip().startswith(other["prefix"])
    listed = automap("keys", "list")
    for text in ("ada", "laptop", "read", "good", other["prefix"]):
        assert text in listed
    assert key.partition("_")[2].partition("_")[2] not in listed
    assert "revoked" in automap("keys", "revoke", key)  # all of it, its beginning, or its id
    assert "revoked" in automap("keys", "revoke", other["prefix"])
    assert "revoked" in automap("keys", "revoke", other["id"])
    assert "good" not in automap("keys", "list")
    logged = json.loads(automap("audit", "--json"))
    about = [(each["route"], each["resource_id"]) for each in logged]
    first = str(UUID(key.split("_")[1]))
    assert about == [
        *[("automap keys revoke", each) for each in (other["id"], other["id"], first)],
        *[("automap keys create", each) for each in (other["id"], first)],
    ]
    assert {(each["owner"], each["method"], each["key_id"]) for each in logged} == {
        ("cli", "CLI", None)
    }
    assert "automap keys revoke" in automap("audit", "--owner", "cli", "--resource", first)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["keys", "make"], "unknown make"),
        (["keys", "create"], "--owner"),
        (["keys", "create", "am_x", "--owner", "ada"], "`revoke` takes the ID"),
        (["keys", "revoke"], "`revoke` takes the ID"),
        (["keys", "revoke", "nothing"], "id of no key"),
        (["keys", "revoke", "00000000-0000-0000-0000-000000000000"], "no key 00000000"),
        (["keys", "create", "--owner", "a b"], "--owner"),
        (["keys", "create", "--owner", "ada", "--scopes", "read,root"], "--scopes"),
        (["keys", "create", "--owner", "ada", "--expires-days", "1e300"], "--expires-days"),
        (["keys", "create", "--owner", "ada", "--expires-days", "-1"], "--expires-days: -1"),
        (["keys", "list", "--server", "http://localhost:1"], "give one of them"),
        (["audit", "--limit", "0"], "--limit"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    url = f"sqlite:///{tmp_path}/automap.db"
    migrated(url).dispose()
    assert main([*arguments, "--database-url", url]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_keys_and_log_of_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/automap.db"
    migrated(url).dispose()
    assert (
        main(["keys", "create", "--owner", "ada", "--scopes", "admin", "--database-url", url]) == 0
    )
    admin = capsys.readouterr().out.strip()
    with serving(url) as server:
        there = ["--server", server.address, "--api-key", admin]
        assert main(["keys", "create", "--owner", "bob", "--scopes", "read", *there]) == 0
        bob = capsys.readouterr().out.strip()
        assert main(["keys", "list", "--json", *there]) == 0
        assert [each["owner"] for each in json.loads(capsys.readouterr().out)] == ["bob", "ada"]
        # What a key may not do is said with the scope that it lacks.
        assert main(["keys", "list", "--server", server.address, "--api-key", bob]) == 2
        assert "admin" in capsys.readouterr().err
        assert main(["jobs", "--server", server.address]) == 2
        assert "give a key with --api-key, or in AUTOMAP_API_KEY" in capsys.readouterr().err
        assert main(["jobs", "--server", server.address, "--api-key", bob]) == 0
        assert main(["keys", "revoke", bob, *there]) == 0
        assert main(["jobs", "--server", server.address, "--api-key", bob]) == 2
        assert "revoked" in capsys.readouterr().err
        assert main(["audit", "--refused", "--json", *there]) == 0
        refused = json.loads(capsys.readouterr().out)
        assert [each["status"] for each in refused] == [401, 401, 403]
        assert main(["audit", *there]) == 0
        shown = capsys.readouterr().out
        (revoked,) = (line for line in shown.splitlines() if "DELETE" in line)
        about = str(UUID(bob.split("_")[1]))
        assert main(["audit", "--json", *there]) == 0
        logged = json.loads(capsys.readouterr().out)
        (request,) = (each["request_id"] for each in logged if each["method"] == "DELETE")
        for told in ("ada", "127.0.0.1", "200", "/v1/keys/{key_id}", about, request):
            assert told in revoked  # in a pipe all is on one line
        monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "80")
        assert main(["audit", *there]) == 0
        narrow = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert about in narrow
        assert max(map(len, narrow.splitlines())) <= 80
        shown += narrow
        for secret in (admin[36:], bob[36:]):
            assert secret not in shown
