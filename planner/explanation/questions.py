"""The alternatives that people ask about: one more constraint each, on the rows or the problem."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from automap.planner.cost.memory import NO_MARGIN
from automap.planner.dataflow.graph import Call
from automap.planner.explanation.question import Question, with_setting
from automap.planner.explanation.stream_questions import streams_and_tails
from automap.planner.explanation.study import Study
from automap.planner.job.job import allowing
from automap.planner.job.pins import call_keys, generate_pins, home_pool, model_of
from automap.planner.layout import OFFLOADS, RECOMPUTES
from automap.planner.search import Rows, SearchSpace, Selected
from automap.planner.search.model.problem import Problem
from automap.planner.spec import JobSpec


def questions(study: Study, plan: Selected, *, fewer_gpus: int | None) -> Iterator[Question]:
    """What people ask of this plan, in a fixed order."""
    yield from _together_or_apart(study, plan)
    yield from _shadows(study, plan)
    yield from _tensor_sizes(study, plan)
    yield from _engine_sizes(study, plan)
    yield from _recomputes(study, plan)
    yield from _offloads(study, plan)
    yield from streams_and_tails(study, plan)
    yield from _fewer(study, plan, fewer_gpus)
    yield from _without_margin(study)


def _together_or_apart(study: Study, plan: Selected) -> Iterator[Question]:
    homes = [i for i, copy in enumerate(study.tables.copies) if copy.shadow_of is None]
    if len(homes) < 2:
        return
    pairs = tuple(combinations(homes, 2))
    if not _are_together(study, plan):
        yield Question(
            "all_together",
            "all models on the same GPUs",
            _without_shadows,
            lambda problem: replace(problem, colocate=pairs),
            missing=_what_pins_away(study, list(study.job.models)),
        )
    every = tuple(combinations(range(len(study.tables.copies)), 2))
    shadowed = {
        (c.shadow_of, i) for i, c in enumerate(study.tables.copies) if c.shadow_of is not None
    }
    apart = tuple(pair for pair in every if pair not in shadowed)
    yield Question(
        "all_apart",
        "every model on GPUs of its own",
        change=lambda problem: replace(problem, separate=apart),
    )


def _are_together(study: Study, plan: Selected) -> bool:
    """Whether all copies of a plan are on the same GPUs."""
    ranges = {
        (plan.first_gpus[index], int(copy.layouts.num_gpus[row]))
        for index, copy in enumerate(study.tables.copies)
        if (row := plan.copy_rows[index]) is not None
    }
    return len(ranges) == 1


def _without_shadows(space: SearchSpace, copies: frozenset[int] | None = None) -> Rows:
    """All rows but those of the given shadow copies; None: of every shadow."""
    gone = {
        index: np.zeros(len(copy), dtype=bool)
        for index, copy in enumerate(space.tables.copies)
        if copy.shadow_of is not None and (copies is None or index in copies)
    }
    return space.rows_where(copies=gone)


def _shadows(study: Study, plan: Selected) -> Iterator[Question]:
    for index, copy in enumerate(study.tables.copies):
        if copy.shadow_of is None:
            continue
        if plan.copy_rows[index] is not None:
            yield Question(
                f"no_shadow:{copy.role}",
                f"no shadow of {copy.role}",
                partial(_without_shadows, copies=frozenset([index])),
                missing=_what_pins_away(study, [copy.role]),
            )
        else:
            yield Question(
                f"shadow:{copy.role}",
                f"a shadow of {copy.role} for generation",
                partial(_on_shadow, shadow=index),
            )


def _what_pins_away(study: Study, roles: list[str]) -> str:
    """The constraint by which a call of these roles can only run on a shadow, if there is one."""
    for role in roles:
        home = home_pool(study.job, role)
        for key, pool in generate_pins(study.job, role).items():
            if home not in (None, pool):
                return f"constraints.pools.{key} is {pool}, and the home of {role} is in {home}"
    return ""


def _on_shadow(space: SearchSpace, shadow: int) -> Rows:
    """Generation of the shadow's role runs on the shadow."""
    served = {table.call for table in space.tables.calls if table.copy == shadow}
    elsewhere = {
        number: np.zeros(len(table), dtype=bool)
        for number, table in enumerate(space.tables.calls)
        if table.call in served and table.copy != shadow
    }
    return space.rows_where(calls=elsewhere)


def _with_tensor_size(space: SearchSpace, index: int, size: int) -> Rows:
    layouts = space.tables.copies[index].layouts
    return space.rows_where(copies={index: layouts.tensor_parallel_size == size})


def _with_offload(space: SearchSpace, index: int, offload: bool) -> Rows:
    layouts = space.tables.copies[index].layouts
    return space.rows_where(copies={index: (layouts.offload > 0) == offload})


def _rows_up_to(space: SearchSpace, sizes: tuple[int, ...]) -> Rows:
    return space.on_gpus(sizes).rows


def _tensor_sizes(study: Study, plan: Selected) -> Iterator[Question]:
    """Every home with twice and with half its tensor size."""
    for index, copy in enumerate(study.tables.copies):
        row = plan.copy_rows[index]
        if row is None or copy.shadow_of is not None:
            continue
        now = int(copy.layouts.tensor_parallel_size[row])
        for size in _around(now):
            yield Question(
                f"tensor_parallel_size:{copy.role}:{size}",
                f"{copy.role} with tensor parallelism {size} instead of {now}",
                partial(_with_tensor_size, index=index, size=size),
                missing=_why_no_size(study, copy.role, size),
            )


def _around(size: int) -> list[int]:
    return [2 * size, *([size // 2] if size > 1 else [])]


def _why_no_size(study: Study, role: str, size: int) -> str:
    """What keeps a tensor size from being tried."""
    heads = study.job.models[role].architecture.num_attention_heads
    if heads % size:
        return f"{size} does not divide the {heads} attention heads of {role}"
    domain = max(min(pool.gpus_per_node, pool.nvlink_domain_gpus) for pool in study.job.pools)
    if size > domain and not study.job.spec.constraints.tensor_parallel_across_nodes:
        return (
            f"a tensor group of {size} would leave the NVLink domain of {domain} GPUs "
            "(constraints.tensor_parallel_across_nodes allows it)"
        )
    for key in study.job.spec.constraints.parallelism:
        if model_of(study.job, key) == role:
            return f"constraints.parallelism.{key} fixes sizes"
    return "no layout of that size divides the GPUs and the sequences"


def _engine_sizes(study: Study, plan: Selected) -> Iterator[Question]:
    """Every generation with twice and with half its tensor size."""
    for number, chosen in enumerate(plan.call_rows):
        call = study.job.dataflow.calls[number]
        if chosen is None or call.kind != "generate":
            continue
        now = int(study.tables.of(number, chosen[0]).engine.tensor_parallel_size[chosen[1]])
        for size in _around(now):
            assert call.model is not None
            yield Question(
                f"tensor_parallel_size:{call.id}:{size}",
                f"{call.id} with tensor parallelism {size} instead of {now}",
                respec=_fixing(study, call, "tensor_parallel_size", size),
                missing=_why_no_size(study, call.model, size),
            )


def _fixing(study: Study, call: Call, name: str, value: int | str) -> Callable[[JobSpec], JobSpec]:
    """A field of a call fixed; of its role, where the call's id is also that of another key."""
    if call.id in call_keys(study.job):
        return partial(with_setting, key=call.id, fixed={name: value})
    assert call.model is not None, "a function has nothing to fix"
    of_role = "generation_tensor_parallel_size" if name == "tensor_parallel_size" else name
    return partial(with_setting, key=call.model, fixed={of_role: value})


def _recomputes(study: Study, plan: Selected) -> Iterator[Question]:
    """Every train call with the other ways of recomputation."""
    for number, chosen in enumerate(plan.call_rows):
        call = study.job.dataflow.calls[number]
        if chosen is None or call.kind != "train":
            continue
        now = int(study.tables.of(number, chosen[0]).recompute[chosen[1]])
        for code, mode in enumerate(RECOMPUTES):
            if code != now and study.job.spec.constraints.allow_recompute:
                assert call.model is not None
                yield Question(
                    f"recompute:{call.id}:{mode}",
                    f"{call.id} with recomputation {mode} instead of {RECOMPUTES[now]}",
                    respec=_fixing(study, call, "recompute", mode),
                    missing=f"the search tries no setting with recomputation {mode}",
                )


def _offloads(study: Study, plan: Selected) -> Iterator[Question]:
    """Every home that offloads without it; every one that does not with it."""
    if not study.job.spec.constraints.allow_offload:
        return
    for index, copy in enumerate(study.tables.copies):
        row = plan.copy_rows[index]
        if row is None or copy.shadow_of is not None:
            continue
        now = OFFLOADS[int(copy.layouts.offload[row])]
        away = now != "none"
        yield Question(
            f"offload:{copy.role}:{'no' if away else 'yes'}",
            f"{copy.role} without offload" if away else f"{copy.role} with offload",
            partial(_with_offload, index=index, offload=not away),
            missing=f"the search tries no layout {'without' if away else 'with'} offload",
        )


def _fewer(study: Study, plan: Selected, fewer_gpus: int | None) -> Iterator[Question]:
    """The last nodes of the pools that the plan uses taken away: one, half, or as many as asked."""
    for index, pool in enumerate(study.problem.pools):
        used = _used(study, plan, index)
        nodes = -(-used // pool.gpus_per_node)
        if fewer_gpus is not None:
            counts = [fewer_gpus]
        else:
            steps = sorted({1, nodes // 2} - {0})
            counts = [step * pool.gpus_per_node for step in steps]
            if nodes == 1:  # a whole node less is none at all
                counts = [used // 2] if used > 1 else []
        for count in counts:
            left = used - count
            if used == 0:
                continue
            if left <= 0:
                asked = f"{count} fewer GPUs of {pool.name}"
                yield Question(
                    f"fewer_gpus:{pool.name}:{count}",
                    asked,
                    _no_rows,
                    missing=f"none are left: the plan uses only {used} GPUs of {pool.name}",
                )
                continue
            sizes = tuple(
                left if i == index else p.num_gpus for i, p in enumerate(study.problem.pools)
            )
            yield Question(
                f"fewer_gpus:{pool.name}:{count}",
                f"{count} fewer GPUs of {pool.name}",
                partial(_rows_up_to, sizes=sizes),
                partial(_on, sizes=sizes),
            )


def _no_rows(space: SearchSpace) -> Rows:
    """No row at all."""
    return space.rows_where({i: mask & False for i, mask in enumerate(space.rows.copies)})


def _without_margin(study: Study) -> Iterator[Question]:
    """GPUs filled by estimate, where plans keep memory to spare."""
    allowed = study.job.max_out_of_memory_probability
    if allowed < NO_MARGIN:
        yield Question(
            "no_memory_margin",
            f"no memory to spare, instead of a chance of at most {100 * allowed:.3g} % to run out",
            respec=partial(allowing, out_of_memory_probability=1.0),
            beyond=True,
        )


def _used(study: Study, plan: Selected, pool: int) -> int:
    """GPUs of a pool up to the last one that the plan uses."""
    first = study.problem.pools[pool].first_gpu
    ends = [
        start - first + int(copy.layouts.num_gpus[row])
        for copy, row, start in zip(
            study.tables.copies, plan.copy_rows, plan.first_gpus, strict=True
        )
        if row is not None and start is not None and int(copy.pool[row]) == pool
    ]
    return max(ends, default=0)


def _on(problem: Problem, sizes: tuple[int, ...]) -> Problem:
    pools = tuple(
        replace(pool, num_gpus=size) for pool, size in zip(problem.pools, sizes, strict=True)
    )
    return replace(problem, pools=pools)


def same_sizes(study: Study, plan_study: Study, plan: Selected) -> Rows:
    """The rows whose range is as large as in the plan, or the largest there is.

    The plan is one of another study of the same copies.
    """
    kept = {}
    for index, copy in enumerate(study.tables.copies):
        row = plan.copy_rows[index]
        if row is None or not len(copy):
            continue
        planned = plan_study.tables.copies[index]
        same = (copy.pool == planned.pool[row]) & (
            copy.layouts.num_gpus == planned.layouts.num_gpus[row]
        )
        if same.any():
            kept[index] = same
    return study.space.rows_where(copies=kept)
