"""Random small placement problems with whole seconds and MiB, for the oracle."""

import random
from dataclasses import replace

from automap.planner.search.model.problem import (
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    PoolSlice,
    Precedence,
    Problem,
    Tail,
    WeightSyncChoice,
)

MIB = 2**20


def streamed_problem(seed: int, *, barrier: bool) -> Problem:
    """A random problem in which all that follows the first call but the last takes two chunks.

    What is taken in chunks lasts an even number of seconds, so that all times are whole.
    """
    draw = random.Random(-seed)
    problem = random_problem(seed, barrier=barrier)
    last = len(problem.calls) - 1
    edges = tuple(
        replace(edge, chunks=2)
        if (edge.source, edge.distance) == (0, 0) and edge.target != last
        else edge
        for edge in problem.precedences
    )
    targets = {edge.target for edge in edges if edge.streamed}
    calls = []
    for number, call in enumerate(problem.calls):
        options = call.options
        if number == 0:
            options = tuple(
                replace(option, chunk_ready_seconds=(float(draw.randint(1, int(option.seconds))),))
                for option in options
            )
        if number in targets:
            options = tuple(replace(o, seconds=_even(o.seconds)) for o in options)
            call = replace(call, fixed_seconds=_even(call.fixed_seconds))
        calls.append(replace(call, options=options))
    return replace(problem, calls=tuple(calls), precedences=edges)


def tailed_problem(seed: int, *, barrier: bool) -> Problem:
    """A streamed problem in which options of the first call may also go on with fewer GPUs."""
    draw = random.Random(-seed - 1)
    problem = streamed_problem(seed, barrier=barrier)
    first = problem.calls[0]
    options = list(first.options)
    for option in first.options:
        count = problem.copies[option.copy].options[option.copy_option].num_gpus
        if count > 1 and option.seconds > 1:
            main_phase = float(draw.randint(1, int(option.seconds / 2)))
            tail = Tail(count // draw.choice([2, count]), main_phase)
            longer = option.seconds + draw.randint(0, 1)
            chunks = tuple(min(ready, main_phase) for ready in option.chunk_ready_seconds)
            options.append(replace(option, seconds=longer, tail=tail, chunk_ready_seconds=chunks))
    calls = (replace(first, options=tuple(options)), *problem.calls[1:])
    return replace(problem, calls=calls)


def agents_problem(seed: int) -> Problem:
    """Seven or eight calls of four models in a random dataflow on 8 GPUs; memory never binds.

    Two models generate and train: the first has a shadow for both of its generations, the second
    one for its only generation.
    """
    draw = random.Random(seed)
    owners = [0, 1, 2, 0, 3, 1, 0] + ([2] if draw.random() < 0.5 else [])
    shadows = {0: 4, 1: 5}
    copies = []
    for number, shadow_of in enumerate([None, None, None, None, 0, 1]):
        sizes = draw.sample([1, 2, 4, 8], draw.randint(2, 3))
        sync = float(draw.randint(1, 2)) if number in (0, 1, 4, 5) else 0.0
        options = tuple(CopyOption(0, size, 0, 0, sync, row) for row, size in enumerate(sizes))
        copies.append(CopyChoice(f"copy {number}", f"model {number % 4}", shadow_of, options))
    calls = []
    for number, owner in enumerate(owners):
        trains = number in (5, 6)
        homes = [owner] if owner not in shadows or trains else [owner, shadows[owner]]
        work = draw.randint(8, 40)
        calls.append(
            CallChoice(
                f"call {number}",
                tuple(
                    CallOption(copy, at, float(-(-work // o.num_gpus) + draw.randint(0, 2)), 0, at)
                    for copy in homes
                    for at, o in enumerate(copies[copy].options)
                ),
            )
        )
    edges = [
        Precedence(source, target, 0)
        for target in range(1, len(calls))
        for source in range(target)
        if draw.random() < 0.35
    ]
    edges += [Precedence(6, 0, 1), Precedence(5, 1, 1)]
    syncs = (WeightSyncChoice(0, 4, 6, 1, 0), WeightSyncChoice(1, 5, 5, 1, 0))
    pool = PoolSlice("pool", 0, 8, 4, 2**40, 2**40, 0.0)
    return Problem((pool,), tuple(copies), tuple(calls), tuple(edges), syncs, True)


def _even(seconds: float) -> float:
    return 2.0 * round(seconds / 2 + 0.25)


def random_problem(seed: int, *, barrier: bool) -> Problem:
    """One or two pools of 2–4 GPUs, two or three homes, perhaps a shadow, three or four calls."""
    draw = random.Random(seed)
    pools = _pools(draw)
    homes = draw.choice([1, 2, 2, 3] if barrier else [1, 2, 2])
    longest = 9 if barrier else 3
    copies = [_copy(draw, pools, f"m{i}", None, 3 if barrier else 2) for i in range(homes)]
    shadow = draw.random() < 0.4
    if shadow:
        copies.append(_copy(draw, pools, "m0.shadow", 0, 3 if barrier else 2))
    calls, precedences = [], []
    kinds = [(0, "generate"), *((i, "forward") for i in range(1, homes)), (0, "train")]
    for model, kind in kinds:
        bound = [model, homes] if shadow and kind == "generate" else [model]
        calls.append(_call(draw, copies, bound, f"m{model}.{kind}", longest))
    if draw.random() < 0.2:
        calls[1] = CallChoice(calls[1].id, (), float(draw.randint(1, longest)))
    last = len(calls) - 1
    for call in range(1, len(calls)):
        if draw.random() < 0.8:
            precedences.append(Precedence(0, call, 0))
        if 0 < call < last and draw.random() < 0.7:
            precedences.append(Precedence(call, last, 0))
    staleness = draw.randint(0, 2)
    precedences.append(Precedence(last, 0, 1 + staleness))
    syncs = (
        (WeightSyncChoice(0, homes, last, 1 + staleness, draw.randint(0, 2) * MIB),)
        if shadow
        else ()
    )
    pairs = [(i, j) for i in range(homes) for j in range(i)]
    forced = draw.sample(pairs, 1) if pairs and draw.random() < 0.25 else []
    return Problem(
        tuple(pools),
        tuple(copies),
        tuple(calls),
        tuple(precedences),
        syncs,
        barrier,
        colocate=tuple(forced) if seed % 2 else (),
        separate=() if seed % 2 else tuple(forced),
    )


def _pools(draw: random.Random) -> list[PoolSlice]:
    pools, first = [], 0
    for index in range(draw.choice([1, 1, 2])):
        per_node = draw.choice([2, 4])
        nodes = draw.choice([1, 2]) if per_node == 2 else 1
        pools.append(
            PoolSlice(
                f"p{index}",
                first,
                per_node * nodes,
                per_node,
                draw.randint(8, 14) * MIB,
                draw.randint(3, 12) * MIB,
                1.0,
            )
        )
        first += per_node * nodes
    return pools


def _copy(
    draw: random.Random, pools: list[PoolSlice], name: str, home: int | None, most: int
) -> CopyChoice:
    options = []
    for row in range(draw.randint(1, most)):
        pool = draw.randrange(len(pools))
        sizes = [n for n in (1, 2, 4) if n <= pools[pool].num_gpus]
        options.append(
            CopyOption(
                pool,
                draw.choice(sizes),
                draw.randint(1, 6) * MIB,
                draw.randint(0, 3) * MIB,
                float(draw.randint(0, 2)),
                row,
            )
        )
    return CopyChoice(name, name.split(".", maxsplit=1)[0], home, tuple(options))


def _call(
    draw: random.Random, copies: list[CopyChoice], bound: list[int], name: str, longest: int
) -> CallChoice:
    options = []
    for copy in bound:
        for index in range(len(copies[copy].options)):
            for _ in range(draw.choice([1, 1, 2])):
                options.append(
                    CallOption(
                        copy, index, float(draw.randint(1, longest)), draw.randint(0, 7) * MIB, 0
                    )
                )
    return CallChoice(name, tuple(options))
