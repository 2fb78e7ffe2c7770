"""`automap plans` against a real service."""

import json
from collections.abc import Iterator

import pytest

from automap.service.storage.database import Database
from tests.cli.commands import call
from tests.service.support.servers import serving
from tests.service.support.workers import add_plan

UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """The address of a service, and its older and its newer plan, which is labelled."""
    url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/automap.db"
    with serving(url) as running:
        database = Database(url)
        older, newer = (str(add_plan(database)) for _ in range(2))
        database.dispose()
        described = {"labels": {"team": "math"}, "name": "the newer one"}
        assert running.client.patch(f"/v1/plans/{newer}", json=described).status_code == 200
        yield running.address, older, newer


@pytest.mark.slow
def test_plans_are_listed_newest_first_in_eighty_columns(
    served: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    server, older, newer = served
    code, out, err = call(capsys, "plans", "--server", server)
    assert (code, err) == (0, "")
    assert out.index(newer) < out.index(older)
    assert "succeeded" in out
    assert max(map(len, out.splitlines())) <= 80


def test_plans_are_found_sorted_and_cut(
    served: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    server, older, newer = served
    for chosen in (["--label", "team:math"], ["--find", "NEWER"], ["--sort", "-name"]):
        _, out, _ = call(capsys, "plans", "--server", server, "--json", *chosen)
        found = [item["id"] for item in json.loads(out)["items"]]
        assert found == ([older, newer] if chosen[0] == "--sort" else [newer]), chosen
    _, out, _ = call(capsys, "plans", "--server", server, "--status", "failed", "--json")
    assert json.loads(out)["items"] == []
    nothing = call(capsys, "plans", "--server", server, "--owner", "nobody")
    assert nothing == (0, "", "no plan was found\n")
    _, out, err = call(capsys, "plans", "--server", server, "--limit", "1")
    assert older not in out
    assert "there are more: --limit N" in err


def test_a_plan_is_shown_and_deleted(
    served: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    server, older, _ = served
    code, out, _ = call(capsys, "plans", older, "--server", server)
    assert code == 0
    assert "One iteration" in out
    code, _, err = call(capsys, "plans", older, "--server", server, "--cancel")
    assert (code, "has succeeded already" in err) == (2, True)
    code, out, _ = call(capsys, "plans", older, "--server", server, "--delete")
    assert (code, out) == (0, f"deleted {older}, with the records of its jobs\n")
    code, _, err = call(capsys, "plans", older, "--server", server)
    assert code == 2
    assert "There is no plan" in err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["seven"], "'seven' is no id; `automap plans` lists those there are"),
        (["--status", "done"], "query.status"),
        (["--sort", "age"], "query.sort"),
        (["--limit", "201"], "use a number of at most 200"),
        ([UNKNOWN, "--delete"], "There is no plan"),
        ([UNKNOWN, "--cancel"], "There is no plan"),
        ([UNKNOWN, "--cancel", "--delete"], "--cancel and --delete: give one"),
    ],
)
def test_what_is_wrong_is_said(
    served: tuple[str, str, str],
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    said: str,
) -> None:
    code, _, err = call(capsys, "plans", *wrong, "--server", served[0])
    assert code == 2
    assert said in err
