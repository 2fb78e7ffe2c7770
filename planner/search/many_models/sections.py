"""Sections of time: a chain of calls cuts the period, and every section has its own GPUs.

The calls c_1 → c_2 → … of a chain follow one another, so their starts and ends cut [0, P] into
sections: before c_1, c_1 itself, until c_2 starts, and so on. With b the beginning of section i, L
its length and s, e clipped to it, a call (or weight sync) k runs x_ki = e − s seconds in it and
starts h_ki = s − b seconds after its beginning. Every schedule satisfies

    Σ_i x_ki = d_k,  Σ_i h_ki = s_k,  h_ki + x_ki ≤ L_i,  h_vi ≥ h_ui + x_ui  along edges u → v
    Σ_k n_k x_ki ≤ N L_i  for the GPUs of a pool,  Σ_{k on a copy} x_ki ≤ L_i

where x_ki is split among the options of k. In the section that a call c of the chain is, another
one runs on m GPUs only if c leaves them: with any m

    Σ_{options of k on m or more} x_ki ≤ Σ_{options of c on at most N − m} d_c

Of these the violated ones are added (`exclude`). What the dataflow orders before or after a call of
the chain runs in no section on its other side. So what waits for one section's work cannot use its
GPUs before, which the stretches of bounds.py, that hold whole calls only, do not see.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from automap.planner.layout import FloatArray
from automap.planner.search.many_models.linear_program import LinearProgram, Terms
from automap.planner.search.model.bounds import Bounds

VIOLATED = 1e-6
"""By how much of the horizon a row must be violated to be added."""
MOST_CALLS = 4
"""Calls of a chain: those that take the most seconds and GPU-seconds."""


@dataclass(frozen=True, slots=True)
class Part:
    """An option of a call or sync: the variable that says how much of it is taken, and its size."""

    takes: int
    seconds: float
    copy: int | None = None
    pool: int = 0
    num_gpus: int = 0


@dataclass(slots=True)
class Timed:
    """A call or weight sync."""

    start: int
    seconds: int
    parts: list[Part]
    home: int | None = None
    """Of a sync: the copy that it takes besides that of its parts."""
    sections: range = range(0)
    """Where the dataflow lets it run."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Section → variable of its start, from the section's beginning."""
    pieces: dict[int, list[tuple[Part, int, float]]] = field(default_factory=dict)
    """Section → (part, variable, factor): the seconds that a part runs there."""

    def until_end(self) -> Terms:
        """What its end takes away from a length that begins there."""
        return {self.start: -1.0, self.seconds: -1.0}


@dataclass(slots=True)
class Program:
    """The linear relaxation so far."""

    linear: LinearProgram
    bounds: Bounds
    horizon_seconds: float
    period: int
    copies: list[range]
    """Per copy the variables of its options."""
    calls: list[Timed] = field(default_factory=list)


def chain(bounds: Bounds) -> list[int]:
    """Calls that follow one another and at which it is worth to cut the period."""
    problem = bounds.problem
    weights = []
    for number, choice in enumerate(problem.calls):
        minimum = bounds.minimum(number, list(choice.options))
        weights.append(minimum.seconds + minimum.weights[0])
    best: dict[int, tuple[float, list[int]]] = {}
    for call in reversed(bounds.order):
        weight, after = max((best[later] for later in bounds.following[call]), default=(0.0, []))
        best[call] = (weights[call] + weight, [call, *after])
    longest = max(best.values())[1]
    kept = {*sorted(longest, key=lambda call: -weights[call])[:MOST_CALLS]}
    return [call for call in longest if call in kept]


Beside = tuple[int, Timed, Timed]
"""A section, the call of the chain that it is, and a call or sync that can run beside it."""


def cut(program: Program) -> list[Beside]:
    """Add the sections of a chain; none where calls are streamed or have tails."""
    problem = program.bounds.problem
    streamed = any(edge.streamed for edge in problem.precedences)
    tails = any(option.tail is not None for call in problem.calls for option in call.options)
    if streamed or tails or not problem.calls:
        return []
    cuts = chain(program.bounds)
    lengths = _lengths(program, cuts)
    edges = [(e.source, e.target) for e in problem.precedences if e.distance == 0]
    nodes = [*program.calls]
    for call, timed in enumerate(nodes):
        timed.sections = _allowed(program.bounds, cuts, call)
    for sync, users in _syncs(program):
        stops = [nodes[user].sections.stop - (user in cuts) for user in users]
        last = min(stops, default=len(lengths))
        sync.sections = range(last)
        edges += [(len(nodes), user) for user in users]
        nodes.append(sync)
    for timed in nodes:
        _split(program, timed, lengths)
    for source, target in edges:
        _follows(program, nodes[source], nodes[target])
    for section, length in enumerate(lengths):
        _share(program, nodes, section, length)
    return [
        (2 * number + 1, nodes[call], timed)
        for number, call in enumerate(cuts)
        for timed in nodes
        if timed is not nodes[call] and 2 * number + 1 in timed.pieces
    ]


def exclude(program: Program, beside: list[Beside], values: FloatArray) -> bool:
    """Add what a solution violates of the GPUs that the calls of the chain leave."""
    added = False
    for section, whole, timed in beside:
        pool, size, lacking = _worst(program, whole, timed, section, values)
        if lacking > VIOLATED * program.horizon_seconds:
            program.linear.at_least(_beside(program, whole, timed, section, pool, size), 0.0)
            added = True
    return added


def _worst(
    program: Program, whole: Timed, timed: Timed, section: int, values: FloatArray
) -> tuple[int, int, float]:
    """(pool, size, by how much) a call runs on ranges of the size or more that are not left."""
    worst = 0, 0, 0.0
    pools, pieces = program.bounds.problem.pools, timed.pieces[section]
    given = np.array([part.seconds * values[part.takes] for part in whole.parts])
    runs = np.array([each * values[variable] for _, variable, each in pieces])
    counts = np.array([part.num_gpus for part, _, _ in pieces])
    for number in sorted({part.pool for part, _, _ in pieces if part.num_gpus}):
        here = np.array([part.pool == number for part, _, _ in pieces])
        sizes = np.unique(counts[here])
        taken = [part.num_gpus if part.pool == number else 0 for part in whole.parts]
        left = pools[number].num_gpus - np.array(taken)
        lacking = (runs * here) @ (counts[:, None] >= sizes) - given @ (left[:, None] >= sizes)
        at = int(lacking.argmax())
        if lacking[at] > worst[2]:
            worst = number, int(sizes[at]), float(lacking[at])
    return worst


def _beside(
    program: Program, whole: Timed, timed: Timed, section: int, pool: int, size: int
) -> Terms:
    """What a call leaves, less what another one runs on a range of `size` or more."""
    terms: Terms = {}
    for part in whole.parts:
        taken = part.num_gpus if part.pool == pool else 0
        if program.bounds.problem.pools[pool].num_gpus - taken >= size:
            terms[part.takes] = part.seconds
    for part, variable, each in timed.pieces[section]:
        if part.pool == pool and part.num_gpus >= size:
            terms[variable] = -each
    return terms


def _lengths(program: Program, cuts: list[int]) -> list[int]:
    """Variables of the sections' lengths: before a call of the chain, it, after it."""
    linear, lengths = program.linear, []
    before: Terms = {}
    for call in [*cuts, None]:
        end = program.period if call is None else program.calls[call].start
        (gap,) = linear.variables(1, program.horizon_seconds)
        linear.at_least({gap: -1.0, end: 1.0, **before}, 0.0, equal=True)
        lengths.append(gap)
        if call is not None:
            lengths.append(program.calls[call].seconds)
            before = program.calls[call].until_end()
    return lengths


def _allowed(bounds: Bounds, cuts: list[int], call: int) -> range:
    """The sections in which a call can run."""
    first, last = 0, 2 * len(cuts)
    for number, other in enumerate(cuts):
        if call == other:
            return range(2 * number + 1, 2 * number + 2)
        if call in bounds.following[other]:
            first = 2 * number + 2
        elif other in bounds.following[call]:
            last = min(last, 2 * number)
    return range(first, last + 1)


def _syncs(program: Program) -> list[tuple[Timed, list[int]]]:
    """Every weight sync, and the calls that surely wait for it."""
    problem, linear, found = program.bounds.problem, program.linear, []
    for sync in problem.syncs:
        options, takes = problem.copies[sync.shadow].options, program.copies[sync.shadow]
        if not options:
            continue
        (start,), (seconds,) = (linear.variables(1, program.horizon_seconds) for _ in range(2))
        parts = [
            Part(take, option.sync_seconds, sync.shadow, option.pool, option.num_gpus)
            for option, take in zip(options, takes, strict=True)
        ]
        terms = {each.takes: -each.seconds for each in parts}
        linear.at_least({seconds: 1.0, **terms}, 0.0, equal=True)
        users = [
            number
            for number, call in enumerate(problem.calls)
            if any(option.copy == sync.shadow for option in call.options)
        ]
        # A shadow that serves one call is there for it alone; of several one may run elsewhere.
        if len(users) > 1:
            users = [
                user
                for user in users
                if all(option.copy == sync.shadow for option in problem.calls[user].options)
            ]
        for user in users:
            wait = {start: -1.0, seconds: -1.0}
            linear.at_least({program.calls[user].start: 1.0, **wait}, 0.0)
        found.append((Timed(start, seconds, parts, sync.home), users))
    return found


def _split(program: Program, timed: Timed, lengths: list[int]) -> None:
    """What a call or sync runs in each section, and how long after its beginning it starts."""
    linear, sections = program.linear, timed.sections
    if len(sections) == 1:
        timed.pieces[sections[0]] = [(part, part.takes, part.seconds) for part in timed.parts]
    else:
        timed.pieces = {section: [] for section in sections}
        for part in timed.parts:
            variables = linear.variables(len(sections), part.seconds)
            terms = dict.fromkeys(variables, 1.0)
            linear.at_least({part.takes: -part.seconds, **terms}, 0.0, equal=True)
            for section, variable in zip(sections, variables, strict=True):
                timed.pieces[section].append((part, variable, 1.0))
    offsets = linear.variables(len(sections), program.horizon_seconds)
    timed.offsets = dict(zip(sections, offsets, strict=True))
    for section in sections:
        end = {timed.offsets[section]: -1.0, **_seconds(timed, section, -1.0)}
        linear.at_least({lengths[section]: 1.0, **end}, 0.0)
    start = {**dict.fromkeys(lengths[: sections.start], -1.0), **dict.fromkeys(offsets, -1.0)}
    linear.at_least({timed.start: 1.0, **start}, 0.0, equal=True)


def _seconds(timed: Timed, section: int, factor: float) -> Terms:
    """The seconds that a call or sync runs in a section, times a factor."""
    return {variable: factor * each for _, variable, each in timed.pieces.get(section, ())}


def _follows(program: Program, source: Timed, target: Timed) -> None:
    """A target starts in no section before its source has ended what it runs there."""
    for section in target.sections:
        if section in source.offsets:
            ended = {source.offsets[section]: -1.0, **_seconds(source, section, -1.0)}
            program.linear.at_least({target.offsets[section]: 1.0, **ended}, 0.0)


def _share(program: Program, nodes: list[Timed], section: int, length: int) -> None:
    """The GPUs of each pool, and each copy, during a section."""
    pools = program.bounds.problem.pools
    areas: dict[int, Terms] = defaultdict(dict)
    uses: dict[int, list[Terms]] = defaultdict(list)
    for timed in nodes:
        on: dict[int, Terms] = defaultdict(dict)
        for part, variable, factor in timed.pieces.get(section, ()):
            if part.copy is not None:
                areas[part.pool][variable] = -factor * part.num_gpus / pools[part.pool].num_gpus
                on[part.copy][variable] = -factor
        if timed.home is not None:
            on[timed.home] = {key: each for terms in on.values() for key, each in terms.items()}
        for copy, terms in on.items():
            uses[copy].append(terms)
    for terms in areas.values():
        program.linear.at_least({length: 1.0, **terms}, 0.0)
    for users in uses.values():
        if len(users) > 1:
            merged = {key: each for terms in users for key, each in terms.items()}
            program.linear.at_least({length: 1.0, **merged}, 0.0)
