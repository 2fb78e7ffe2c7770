"""Files, code and addresses that settings name are used below allowed folders alone."""

from pathlib import Path
from typing import Any

import pytest

from automap.executor.data.encoding import load_tokenizer
from automap.executor.data.files import open_rows
from automap.executor.engines.tensor_folder import TensorFolder
from automap.executor.folders import VARIABLE, NotAllowedError, RunFolders, folders_of, outside
from automap.executor.run.__main__ import main
from automap.executor.runtime.runnable import opened_code
from automap.executor.settings import RunSettings
from automap.executor.workers.reward_functions import RewardFunctionError, load_function
from tests.executor.small_plans import Place, small_plan

SHIPPED = "automap.executor.tiny.tasks:count_token"
PROGRAM = "automap.planner.dataflow.algorithms.grpo:grpo"


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A folder that is allowed, beside one that is not, with links from the one into the other."""
    for name in ("team", "team-secrets"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.jsonl").write_text('{"prompt": [1, 2]}\n')
        (folder / "reward.py").write_text("def score(response_tokens):\n    return [1.0]\n")
    for name in ("rows.jsonl", "reward.py"):
        (tmp_path / "team" / f"linked-{name}").symlink_to(tmp_path / "team-secrets" / name)
    return tmp_path / "team"


def settings(**changes: Any) -> RunSettings:
    return RunSettings.model_validate({"data": {"path": "/nowhere.jsonl"}, **changes})


def refused(folders: RunFolders, **changes: Any) -> list[str]:
    return [each.field for each in outside(settings(**changes), folders)]


def folders(team: Path, *, code: bool = True) -> RunFolders:
    return RunFolders(code=[str(team)] if code else [], data=[str(team)])


def test_every_setting_that_names_something_is_looked_at(team: Path) -> None:
    given = {
        "models": {"actor": "/elsewhere/model"},
        "functions": {"reward": {"path": "/elsewhere/reward.py:score"}},
        "program": "os:system",
        "metrics": {"mlflow_tracking_uri": "http://169.254.169.254/"},
        "data": {
            "path": "/elsewhere/rows.jsonl",
            "tokenizer": "/elsewhere/tokenizer",
            "pretrain": {"path": "/elsewhere/text.jsonl", "tokenizer": "/elsewhere/tokenizer"},
        },
    }
    found = refused(folders(team), **given)
    assert sorted(found) == [
        "data.path",
        "data.pretrain.path",
        "data.pretrain.tokenizer",
        "data.tokenizer",
        "functions.reward.path",
        "metrics.mlflow_tracking_uri",
        "models.actor",
        "program",
    ]
    # A field that is added to the settings and names a file must be among them.
    assert len(found) == len([*_places(RunSettings.model_json_schema())])


def _places(schema: dict[str, Any]) -> Any:
    """Fields of files, code and addresses, by their schema; a file for each use of data."""

    def walk(part: Any, name: str) -> Any:
        if isinstance(part, list):
            for each in part:
                yield from walk(each, name)
        elif isinstance(part, dict):
            if "$ref" in part:
                part = schema["$defs"][part["$ref"].rpartition("/")[2]]
            if part.get("format") == "path" or (
                name in ("path", "program", "mlflow_tracking_uri") and part.get("type") == "string"
            ):
                yield name
            for key, value in part.get("properties", {}).items():
                yield from walk(value, key)
            for key in ("anyOf", "additionalProperties"):
                yield from walk(part.get(key), name)

    return walk({name: schema[name] for name in ("properties",)}, "")


@pytest.mark.parametrize(
    "path", ["../team-secrets/rows.jsonl", "linked-rows.jsonl", "x/../../team-secrets/rows.jsonl"]
)
def test_links_and_dots_lead_nowhere_else(
    team: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (team / "x").mkdir()
    allowed = folders(team)
    assert refused(allowed, data={"path": str(team / path)}) == ["data.path"]
    assert refused(allowed, data={"path": str(team / "rows.jsonl")}) == []
    assert refused(allowed, data={"path": f"{team}/x/../rows.jsonl"}) == []
    wanted = {"data.prompt_column": "prompt"}
    open_rows(team / path, wanted, field="data.path")  # without a rule all is open
    monkeypatch.setenv(VARIABLE, allowed.as_json())
    with pytest.raises(NotAllowedError, match=r"data\.path: .*AUTOMAP_ALLOWED_FOLDERS.*team"):
        open_rows(team / path, wanted, field="data.path")
    assert len(open_rows(team / "rows.jsonl", wanted, field="data.path")) == 1


def test_code_comes_from_allowed_folders_and_what_is_shipped(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_code, without = folders(team), folders(team, code=False)
    own = f"{team}/reward.py:score"
    assert refused(with_code, data={"path": f"{team}/a"}, functions={"r": {"path": own}}) == []
    assert refused(without, data={"path": f"{team}/a"}, functions={"r": {"path": own}}) == [
        "functions.r.path"
    ]
    bad = ["os:system", f"{team}/linked-reward.py:score", "automap.executor.tiny.tasks:json"]
    bad += ["automap.executor.tiny.tasks:write_prompts", "automap.executor.tiny.tasks2:copy"]
    for path in bad:
        assert refused(with_code, data={"path": f"{team}/a"}, functions={"r": {"path": path}}) == [
            "functions.r.path"
        ], path
    for path in (SHIPPED, "executor.tasks:copy"):
        assert refused(without, data={"path": f"{team}/a"}, functions={"r": {"path": path}}) == []
    assert refused(without, data={"path": f"{team}/a"}, program=PROGRAM) == []
    monkeypatch.setenv(VARIABLE, with_code.as_json())
    assert load_function(own)([1]) == [1.0]
    load_function(SHIPPED)
    for path in bad:
        with pytest.raises(RewardFunctionError, match="operator allows"):
            load_function(path)
    with pytest.raises(NotAllowedError, match="program: os:system"):
        opened_code("os:system", field="program")


def test_weights_and_tokenizers_are_looked_at_where_they_are_opened(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, folders(team).as_json())
    with pytest.raises(NotAllowedError, match="team-secrets"):
        TensorFolder(team.parent / "team-secrets")
    with pytest.raises(NotAllowedError, match=r"data\.tokenizer"):
        load_tokenizer(team.parent / "team-secrets")


def test_a_tracker_is_a_folder_or_the_operators(team: Path) -> None:
    data = {"path": f"{team}/rows.jsonl"}
    for tracker in ("http://tracker", "file:///etc", "databricks", "sqlite:////x.db", "/etc", "."):
        assert refused(folders(team), data=data, metrics={"mlflow_tracking_uri": tracker}) == [
            "metrics.mlflow_tracking_uri"
        ], tracker
    allowed = {"mlflow_tracking_uri": f"{team}/runs"}
    assert refused(folders(team), data=data, metrics=allowed) == []


def test_folders_travel_as_a_document(team: Path) -> None:
    assert folders_of(folders(team).as_json()) == folders(team)
    for text in ("", "[]", "{}", '{"code": []}'):
        with pytest.raises(NotAllowedError, match="cannot be read"):
            folders_of(text)


def test_a_run_refuses_before_it_opens_anything(
    team: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, given, rule = (team / f"{name}.json" for name in ("plan", "settings", "folders"))
    plan.write_text(
        small_plan(
            "grpo", {"actor": Place(0, 1), "reference": Place(1, 1), "reward": None}
        ).model_dump_json(by_alias=True)
    )
    given.write_text(settings(program="os:system").model_dump_json())
    rule.write_text(folders(team).as_json())
    monkeypatch.setenv(VARIABLE, "{}")
    arguments = ["--plan", plan, "--settings", given, "--folders", rule, "--output", team / "run"]
    assert main([str(each) for each in arguments]) == 2
    printed = capsys.readouterr().out
    assert "program: os:system is in a module" in printed
    assert "data.path: /nowhere.jsonl lies in none of the folders" in printed
