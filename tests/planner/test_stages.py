"""Pipeline stages of unlike lengths: how layers are cut, and that plans state and check it."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.planner import catalogue
from automap.planner.check.check import violations
from automap.planner.cost.stage_layers import stage_layers
from automap.planner.job.resolution import resolve
from automap.planner.layout import layers_per_stage
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from tests.helpers.small_jobs import small_job


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (8, 1, (8,)),
        (5, 2, (3, 2)),
        (5, 4, (1, 1, 2, 1)),
        (7, 4, (2, 2, 2, 1)),
        (61, 8, (7, 8, 8, 8, 8, 8, 8, 6)),
        (61, 16, (3, *[4] * 14, 2)),
        (94, 4, (23, 24, 24, 23)),
        (9, 7, (1, 1, 1, 1, 2, 2, 1)),
    ],
)
def test_the_ends_share_what_equal_middle_stages_leave(
    layers: int, stages: int, expected: tuple[int, ...]
) -> None:
    assert layers_per_stage(layers, stages) == expected


@given(layers=st.integers(1, 130), data=st.data())
def test_no_stage_is_longer_than_it_must_be_and_the_last_is_the_shortest(
    layers: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, layers))
    stages = layers_per_stage(layers, count)
    assert sum(stages) == layers
    assert max(stages) == -(-layers // count)
    assert stages[-1] == min(stages) > 0
    assert stages[0] - stages[-1] <= 1
    if layers - max(stages) * (count - 2) > 1:  # else an end would be empty
        assert set(stages[1:-1]) <= {max(stages)}


@pytest.mark.parametrize("stages", [0, 6])
def test_stages_without_layers_are_refused(stages: int) -> None:
    with pytest.raises(ValueError, match=f"5 layers cannot be cut into {stages} pipeline stages"):
        layers_per_stage(5, stages)


def test_the_priced_stages_are_those_that_are_cut() -> None:
    arch = catalogue.architecture("deepseek-v3", field="architecture")
    counts = np.arange(1, arch.num_layers + 1)
    found = stage_layers(arch, counts)
    priced = list(sum(found))
    for row, count in enumerate(counts.tolist()):
        cut = layers_per_stage(arch.num_layers, count)
        assert (priced[0][row], priced[2][row]) == (cut[0], cut[-1])
        if count > 2:
            assert priced[1][row] == max(cut[1:-1])


@cache
def uneven_plan() -> Plan:
    """An actor of 22 layers that trains on four stages and generates on two, four on its range."""
    shape = catalogue.architecture("qwen2.5-0.5b", field="architecture").model_dump()
    shape = {name: value for name, value in shape.items() if value is not None}
    model = {"architecture": {**shape, "num_layers": 22}}
    sizes = {
        "actor": {"pipeline_parallel_size": 4},
        "actor.generate": {"pipeline_parallel_size": 4},
    }
    roles = ("actor", "reference", "reward")
    return make_plan(small_job(models=dict.fromkeys(roles, model), constraints__parallelism=sizes))


def test_a_plan_states_stages_that_are_not_equally_long() -> None:
    plan = uneven_plan()
    stated = [5, 6, 6, 5]
    for copy in plan.copies:
        uneven = copy.layout.pipeline_parallel_size == 4
        assert copy.layers_per_stage == (stated if uneven else None)
    calls = {call.id: call for call in plan.calls}
    assert calls["actor.train"].layers_per_stage == stated
    assert calls["actor.generate"].layers_per_stage == stated
    assert plan.runs_with == ["automap"]


@pytest.mark.parametrize("layers", [None, [6, 5, 6, 5], [5, 6, 6], [5, 6, 6, 6]])
def test_the_check_finds_stages_that_are_stated_otherwise(layers: list[int] | None) -> None:
    plan = uneven_plan()
    job = resolve(plan.spec)
    assert violations(job, plan) == []
    copies = [copy.model_copy(update={"layers_per_stage": layers}) for copy in plan.copies[:1]]
    changed = plan.model_copy(update={"copies": [*copies, *plan.copies[1:]]})
    (line,) = violations(job, changed)
    assert line.endswith(f"states layers_per_stage {layers}, but 22 layers lie as [5, 6, 6, 5]")
    calls = [call.model_copy(update={"layers_per_stage": layers}) for call in plan.calls]
    found = violations(job, plan.model_copy(update={"calls": calls}))
    assert any(line.startswith("call actor.train states") for line in found)
