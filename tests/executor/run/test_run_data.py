"""What a run reads besides its prompts, and what is refused before anything is started."""

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from automap.executor.data import DataError, RunData
from automap.executor.errors import RunCancelledError
from automap.executor.run.__main__ import RefusedError, ray_for, refuse_unfit
from automap.executor.run.attempts import Run
from automap.executor.run.factories import check_functions
from automap.executor.settings import CheckpointSettings, RunSettings
from automap.executor.telemetry.events import Events, read_events
from automap.executor.workers.model_setup import model_setups, smallest_vocabulary
from automap.planner.job.resolution import resolve
from automap.planner.spec import WorkloadSpec
from tests.executor.data.prompt_files import ids, jsonl, tokenizer
from tests.executor.small_plans import Place, small_plan

PROMPTS = [{"prompt": [number, 1]} for number in range(5)]
TEXTS = [{"text": list(range(1, 2 + number))} for number in range(1, 12)]


def settings(folder: Path, *, prompts: Any = PROMPTS, **pretrain: Any) -> RunSettings:
    data: dict[str, Any] = {"path": jsonl(folder, prompts)}
    if pretrain:
        data["pretrain"] = pretrain
    return RunSettings.model_validate({"data": data, "seed": 5})


def workload(*, pretrain_loss: bool = True) -> WorkloadSpec:
    return WorkloadSpec.model_validate(
        {
            "prompts_per_iteration": 4,
            "prompt_length": {"mean": 2, "max": 4},
            "response_length": {"mean": 2, "max": 4},
            "pretrain_loss": pretrain_loss,
        }
    )


def data_of(given: RunSettings, *, pretrain_loss: bool = True) -> RunData:
    return RunData(given, workload(pretrain_loss=pretrain_loss), vocab_size=16)


def rows_of(data: RunData, count: int) -> list[list[int]]:
    assert data.pretrain is not None
    return [row.tolist() for row in data.pretrain.next_batch(count).ragged("tokens").rows()]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_pretrain_rows_are_endless_and_cut(tmp_path: Path, kind: str) -> None:
    path = jsonl(tmp_path, TEXTS, "texts.jsonl")
    if kind == "parquet":
        path = tmp_path / "texts.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(TEXTS), path)
    rows = rows_of(data_of(settings(tmp_path, path=path)), 22)
    wanted = sorted(row["text"][:8] for row in TEXTS)  # the longest prompt and response
    assert sorted(rows[:11]) == sorted(rows[11:]) == wanted
    assert rows[:11] != rows[11:]
    assert rows == rows_of(data_of(settings(tmp_path, path=path)), 22)
    shorter = rows_of(data_of(settings(tmp_path, path=path, max_tokens=3)), 22)
    assert shorter == [row[:3] for row in rows]


def test_pretrain_text_is_tokenised(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path)
    path = jsonl(tmp_path, [{"body": "a b c"}, {"body": "d e"}], "texts.jsonl")
    given = settings(tmp_path, path=path, column="body", tokenizer=folder)
    assert sorted(rows_of(data_of(given), 2)) == [ids("<s> a b c"), ids("<s> d e")]


def test_both_files_go_on_from_their_positions(tmp_path: Path) -> None:
    given = settings(tmp_path, path=jsonl(tmp_path, TEXTS, "texts.jsonl"))
    data = data_of(given)
    data.prompts.next_batch(3)
    rows_of(data, 13)
    state = data.state()
    assert (state["pretrain"].epoch, state["pretrain"].position) == (1, 2)
    following = rows_of(data, 5), data.prompts.next_batch(3).tensor("prompt_id").tolist()
    again = data_of(given)
    again.load_state(state)
    assert following == (
        rows_of(again, 5),
        again.prompts.next_batch(3).tensor("prompt_id").tolist(),
    )
    with pytest.raises(DataError, match=r"data\.pretrain: the checkpoint is of a run without it"):
        again.load_state({"prompts": state["prompts"]})
    jsonl(tmp_path, TEXTS[1:], "texts.jsonl")
    with pytest.raises(DataError, match=r"data\.pretrain\.path: .* is not the file of the check"):
        data_of(given).load_state(state)


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([], {}, r"data\.pretrain\.path: .*texts\.jsonl has no rows"),
        ([{"text": [1, 2]}], {"column": "t"}, r"data\.pretrain\.column: no column 't' in .*'text'"),
        ([{"text": "a b"}], {}, r"line 1: the pre-train row is text: set data\.tokenizer"),
        ([{"text": [1, 2]}, {"text": [3]}], {}, r"line 2: the pre-train row has 1 token; it needs"),
        ([{"text": [1, 2]}, {"text": [1, 16]}], {}, r"line 2: token id 16 is outside .* 0 to 15"),
        (
            [{"text": [1, 2]}],
            {"tokenizer": "/no"},
            r"data\.pretrain\.tokenizer: there is no folder",
        ),
    ],
)
def test_pretrain_data_that_cannot_be_used(
    tmp_path: Path, rows: list[Any], changes: dict[str, Any], message: str
) -> None:
    given = settings(tmp_path, path=jsonl(tmp_path, rows, "texts.jsonl"), **changes)
    with pytest.raises(DataError, match=message):
        data_of(given).check_rows()


def test_pretrain_data_and_the_workloads_loss_belong_together(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.pretrain: workload\.pretrain_loss is true and nee"):
        data_of(settings(tmp_path))
    given = settings(tmp_path, path=jsonl(tmp_path, TEXTS, "texts.jsonl"))
    with pytest.raises(DataError, match=r"data\.pretrain: workload\.pretrain_loss is false"):
        data_of(given, pretrain_loss=False)


def test_a_token_beyond_the_vocabulary_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """In any row, not in the first alone; of tiny-llama, whose vocabulary is 256."""
    plan = small_plan("grpo", {"actor": Place(0, 1), "reward": None}, kl="none")
    given = settings(tmp_path, prompts=[*PROMPTS, {"prompt": [3, 256]}])
    given = RunSettings.model_validate(
        {
            **given.model_dump(),
            "functions": {"reward": {"path": "automap.executor.tiny.tasks:count_token"}},
        }
    )
    path = re.escape(str(given.data.path))
    setups = model_setups(resolve(plan.spec), plan.placement(), given)
    assert smallest_vocabulary(setups) == 256
    with pytest.raises(RefusedError, match=rf"^{path}, line 6: token id 256 is outside .* 0 to 25"):
        refuse_unfit(plan, given)
    given.data.path.write_text(json.dumps(PROMPTS[0]) + "\n")
    refuse_unfit(plan, given)


REWARDS = """
import os, sys
print("a module may print")
def lengths(prompt_tokens, *, scale=1): return [len(each) for each in prompt_tokens]
def wants_answers(answers): return []
def wants_all(**given): return []
def unnamed(prompt_tokens, /): return []
"""


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        (REWARDS, "length", "has no function length; it has lengths, wants_answers, wants_all"),
        (REWARDS, "wants_answers", "wants answers; there are prompt_tokens, .*data.answer_column"),
        (REWARDS, "unnamed", "takes prompt_tokens by position alone"),
        ("import no_such_module", "f", "cannot import .*No module named 'no_such_module'; give a"),
        ("def f(:", "f", "cannot import .*SyntaxError"),
        ("import os; os._exit(7)", "f", "ended with exit code 7"),
        ("import time; time.sleep(60)", "f", "was not imported within 5 s"),
        (None, "f", "cannot import .*FileNotFoundError.*a file.py that exists"),
        (REWARDS, "lengths", None),
        (REWARDS, "wants_all", None),
    ],
)
def test_a_function_that_cannot_score_is_refused_before_anything_starts(
    tmp_path: Path, code: str | None, name: str, message: str | None
) -> None:
    """Its field, its value, and what would do; the processes that score would say it last."""
    plan = small_plan("grpo", {"actor": Place(0, 1), "reward": None}, kl="none")
    file = tmp_path / "mine.py"
    if code is not None:
        file.write_text(code)
    named = {"functions": {"reward": {"path": f"{file}:{name}"}}, "start_timeout_seconds": 5}
    given = RunSettings.model_validate({**settings(tmp_path).model_dump(), **named})
    if message is None:
        refuse_unfit(plan, given)
        return
    with pytest.raises(RefusedError, match=rf"^functions\.reward\.path: {file}:{name}.*{message}"):
        refuse_unfit(plan, given)


def test_only_a_program_of_ones_own_gives_functions_something_else(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(REWARDS)
    named = {"functions": {"reward": {"path": f"{file}:wants_answers"}}, "program": "mine:PROGRAM"}
    check_functions(RunSettings.model_validate({**settings(tmp_path).model_dump(), **named}))


@pytest.mark.parametrize("address", ["127.0.0.1:port", "127.0.0.1:1"])
def test_a_cluster_that_cannot_be_joined_refuses_the_run(address: str) -> None:
    plan = small_plan("grpo", {"actor": Place(0, 1), "reward": None}, kl="none")
    began = time.monotonic()
    with (
        pytest.raises(RefusedError, match=rf"^--ray-address: cannot join .* '{address}' \("),
        ray_for(address, plan),
    ):
        pytest.fail("it was joined")
    assert time.monotonic() - began < 60, "Ray would go on asking for minutes"


@pytest.mark.parametrize(("every", "iterations"), [(None, 2), (1, 2), (None, 1)])
def test_a_run_without_checkpoints_says_so(
    tmp_path: Path, every: int | None, iterations: int
) -> None:
    plan = small_plan("grpo", {"actor": Place(0, 1), "reward": None}, kl="none")
    given = settings(tmp_path).model_copy(
        update={
            "checkpoint": CheckpointSettings(every_iterations=every),
            "iterations": iterations,
        }
    )
    cancel, events = threading.Event(), Events()
    events.keep(tmp_path / "events.jsonl")
    cancel.set()
    with pytest.raises(RunCancelledError):
        Run(plan, given, tmp_path, events, cancel=cancel).run()
    events.close()
    told = [each["message"] for each in read_events(tmp_path / "events.jsonl", "log")]
    warned = [each for each in told if "checkpoint.every_iterations is not set" in each]
    assert len(warned) == (every is None and iterations > 1)
