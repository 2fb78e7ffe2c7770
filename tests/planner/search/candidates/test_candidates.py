"""What is priced: which roles may have a shadow, and jobs too large for their cluster."""

from typing import Any

import numpy as np
import pytest

from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.job.pins import shadowed_roles
from automap.planner.job.resolution import resolve
from automap.planner.layout import Layouts
from automap.planner.search.candidates import enumeration
from automap.planner.search.candidates.tables import front_rows
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.space.search_space import SearchSpace
from tests.helpers.small_jobs import small_job
from tests.helpers.specs import job_spec


def own_flow(edges: list[tuple[str, str, int]], *calls: str) -> Job:
    """An explicit dataflow of calls named role.kind or role.kind.suffix."""
    graph = {
        "calls": [
            {"id": call, "role": call.split(".")[0], "kind": call.split(".")[1]} for call in calls
        ],
        "edges": [{"source": s, "target": t, "distance": d} for s, t, d in edges],
    }
    models = {call.split(".")[0]: {"architecture": "llama-2-7b"} for call in calls}
    return resolve(job_spec(None, dataflow=graph, models=models))


def test_a_role_that_trains_and_generates_may_have_a_shadow() -> None:
    assert shadowed_roles(resolve(job_spec("ppo"))) == ["actor"]
    assert shadowed_roles(resolve(job_spec("remax"))) == ["actor"]
    assert shadowed_roles(resolve(job_spec("ppo", constraints__allow_shadow_copies=False))) == []


@pytest.mark.parametrize(
    ("edges", "calls"),
    [
        pytest.param(
            [("actor.train", "actor.generate", 0)],
            ("actor.train", "actor.generate"),
            id="after training",
        ),
        pytest.param(
            [("actor.train", "reward.forward", 0), ("reward.forward", "actor.generate", 0)],
            ("actor.train", "reward.forward", "actor.generate"),
            id="after training through another call",
        ),
        pytest.param(
            [("actor.generate.a", "actor.train", 0), ("actor.train", "actor.generate.b", 0)],
            ("actor.generate.a", "actor.train", "actor.generate.b"),
            id="one before, one after",
        ),
        pytest.param(
            [("actor.train", "actor.generate.a", 1), ("actor.train", "actor.generate.b", 2)],
            ("actor.generate.a", "actor.generate.b", "actor.train"),
            id="from different iterations",
        ),
        pytest.param(
            [], ("actor.generate", "actor.train.a", "actor.train.b"), id="after two trainings"
        ),
    ],
)
def test_no_shadow_where_one_sync_per_iteration_cannot_serve(
    edges: list[tuple[str, str, int]], calls: tuple[str, ...]
) -> None:
    job = own_flow(edges, *calls)
    assert shadowed_roles(job) == []
    tables = price_candidates(job)
    assert SearchSpace.of(job, tables).problem.syncs == ()


def test_shadows_of_an_own_dataflow_follow_its_edge() -> None:
    edges = [("actor.generate", "actor.train", 0), ("actor.train", "actor.generate", 3)]
    job = own_flow(edges, "actor.generate", "actor.train")
    (sync,) = SearchSpace.of(job, price_candidates(job)).problem.syncs
    assert (sync.train, sync.distance) == (1, 3)


def test_models_that_fit_nowhere_leave_empty_tables_and_no_shadow() -> None:
    roles = ("actor", "critic", "reference", "reward")
    models = {role: {"architecture": "llama-3.1-405b"} for role in roles}
    pools = [{"name": "p", "gpu": "a100-80gb-sxm", "num_nodes": 1}]
    job = resolve(job_spec("ppo", models=models, cluster__pools=pools))
    tables = price_candidates(job)
    assert {copy.id for copy in tables.copies} == set(roles)
    assert SearchSpace.of(job, tables).problem.syncs == ()
    assert {table.call for table in tables.calls} == set(range(len(job.dataflow.calls)))
    everything = price_candidates(job, fits_only=False)
    assert "actor.shadow" in [copy.id for copy in everything.copies]


def test_a_call_that_nothing_can_run_still_has_a_table() -> None:
    """Without a table it would count as a function that takes no GPU."""
    fixed = {"actor": {"num_gpus": 2, "generation_tensor_parallel_size": 8}}
    job = resolve(job_spec("grpo", constraints__parallelism=fixed))
    tables = price_candidates(job)
    generate = next(n for n, call in enumerate(job.dataflow.calls) if call.kind == "generate")
    by_copy = {tables.copies[t.copy].id: len(t) for t in tables.calls if t.call == generate}
    assert by_copy["actor"] == 0
    assert by_copy["actor.shadow"] > 0


@pytest.mark.parametrize("changes", [{}, {"workload__training_stack": "fsdp"}])
def test_every_setting_costs_what_it_costs_alone(changes: dict[str, Any]) -> None:
    """Layouts, settings and offload are priced apart and joined; a single row knows no parts."""
    job = resolve(small_job("ppo", **changes))
    tables, pricing = price_candidates(job), Pricing(job)
    random = np.random.default_rng(0)
    offloads = set()
    for table in tables.calls:
        call, copy = job.dataflow.calls[table.call], tables.copies[table.copy]
        if call.kind == "generate":
            continue
        for row in random.choice(len(table), 12):
            at = table.copy_row[[row]]
            layouts, pool = copy.layouts.take(at), job.pools[int(copy.pool[at[0]])]
            micro = table.micro_batch_size[[row]]
            if call.kind == "train":
                recompute = table.recompute[[row]]
                alone = pricing.train(
                    call, pool, layouts, micro_batch_size=micro, recompute=recompute
                )
            else:
                alone = pricing.forward(call, pool, layouts, micro_batch_size=micro)
            assert table.seconds[row] == pytest.approx(alone.seconds.total[0], abs=2e-6, rel=1e-9)
            assert table.transient_bytes[row] == alone.transient.total[0]
            offloads.add((call.kind, int(layouts.offload[0])))
    assert {("train", 0), ("train", 1), ("train", 2), ("forward", 2)} <= offloads


@pytest.mark.parametrize("seed", range(8))
def test_a_front_is_what_nothing_beats(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Even groups and uneven ones are sorted in two ways; owners that fall in a third.
    lengths = [random.integers(1, 5, 40), np.array([1, 300, 1, 2, 1, 1, 1, 1])][seed % 2]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    if seed >= 6:
        owner = random.permutation(owner)
    seconds, held = random.integers(0, 6, len(owner)) / 1.0, random.integers(0, 6, len(owner))
    kinds = random.integers(0, 2, len(owner)) if seed in (2, 3) else None
    same = owner[:, None] == owner[None, :]
    if kinds is not None:
        same &= kinds[:, None] == kinds[None, :]
    no_worse = (seconds[None, :] <= seconds[:, None]) & (held[None, :] <= held[:, None])
    equal = (seconds[None, :] == seconds[:, None]) & (held[None, :] == held[:, None])
    earlier = np.arange(len(owner))[None, :] < np.arange(len(owner))[:, None]
    beaten = (same & no_worse & (~equal | earlier)).any(axis=1)
    assert front_rows(owner, seconds, held, kinds).tolist() == np.flatnonzero(~beaten).tolist()


def test_a_pool_too_large_for_contexts_shares_no_candidates_with_one_that_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = {"workload__response_length": {"mean": 4000, "max": 8000}}
    large, small = (resolve(small_job(num_nodes=nodes, **lengths)) for nodes in (4, 2))
    assert enumeration.shares_candidates(large, small)
    monkeypatch.setattr(enumeration, "MANY_GPUS", 8)
    sizes = [set(layouts_of(job).context_parallel_size.tolist()) for job in (large, small)]
    assert sizes == [{1}, {1, 2}]  # four do not divide its 14 heads
    assert not enumeration.shares_candidates(large, small)


def layouts_of(job: Job) -> Layouts:
    return enumeration.home_layouts(job, "actor", job.pools[0])
