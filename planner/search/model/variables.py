"""The variables of the CP-SAT model and what ties them to the chosen options.

formulation.py states the model in mathematical form; (1) alignment and the durations of weight
syncs (3) are here, the other constraints there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.problem import CallOption, Problem
from automap.planner.units import MIB

LinearExpr = cp_model.LinearExprT


def bytes_to_mib(num_bytes: float) -> int:
    """Memory for the solver: whole MiB, rounded up."""
    return math.ceil(num_bytes / MIB)


def seconds_to_ticks(seconds: float, tick_seconds: float) -> int:
    """Time for the solver: whole ticks, rounded up; a hair of float noise is not a tick.

    At least one: a call without length could share its start with another and have no order.
    """
    return max(math.ceil(seconds / tick_seconds - 1e-3), 1)


@dataclass(slots=True)
class CopyVariables:
    """x, f, n, e and the bytes of one copy."""

    takes: list[cp_model.IntVar]
    first: cp_model.IntVar
    count: cp_model.IntVar
    end: cp_model.IntVar
    resident: cp_model.IntVar
    host: cp_model.IntVar
    present: cp_model.LiteralT
    range: cp_model.IntervalVar


@dataclass(slots=True)
class CallVariables:
    """z, s, d of one call; `bound[c]` is true when it runs on copy c."""

    takes: list[cp_model.IntVar]
    start: cp_model.IntVar
    duration: cp_model.IntVar
    end: cp_model.IntVar
    transient: cp_model.IntVar
    bound: dict[int, cp_model.LiteralT]
    chunk_ready: list[cp_model.IntVar]
    """From the start until each chunk but the last is out; none where nothing is streamed."""
    main_phase: cp_model.IntVar | None = None
    """How long all GPUs of the range are held; None where that is the whole duration."""
    tail: cp_model.IntVar | None = None
    """How many of them are held to the end."""
    stage: cp_model.IntVar | None = None


@dataclass(slots=True)
class SyncVariables:
    """Start and duration of one weight sync; `present` with its shadow."""

    start: cp_model.IntVar
    duration: cp_model.IntVar
    """Never 0, for the same reason as a copy's count."""
    end: cp_model.IntVar
    load: cp_model.IntVar
    """The duration, or 0 without a shadow."""
    present: cp_model.LiteralT
    stage: cp_model.IntVar | None = None


@dataclass(slots=True)
class Formulation:
    """The CP-SAT model with the variables that decoding, hints and cuts need."""

    problem: Problem
    tick_seconds: float
    horizon: int
    """Upper bound of the period in ticks."""
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    unit: int = 1
    """GPUs per step of the GPU axis: the largest that every range is a multiple of."""
    copies: list[CopyVariables] = field(default_factory=list)
    calls: list[CallVariables] = field(default_factory=list)
    syncs: list[SyncVariables] = field(default_factory=list)
    shared: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    """Per pair of copies, the larger index first: true where both are there and share a GPU."""
    period: cp_model.IntVar = field(init=False)

    def ticks(self, seconds: float) -> int:
        """Seconds in ticks, rounded up."""
        return seconds_to_ticks(seconds, self.tick_seconds)

    @property
    def axis(self) -> int:
        """Length of the GPU axis in units."""
        return self.problem.num_gpus // self.unit

    def always(self) -> cp_model.IntVar:
        """A literal that is true."""
        return self.model.new_constant(1)


def largest_unit(problem: Problem) -> int:
    """Steps of the GPU axis that lose nothing: every start and size is a multiple."""
    sizes = [option.num_gpus for copy in problem.copies for option in copy.options]
    options = [option for call in problem.calls for option in call.options]
    sizes += [option.tail.num_gpus for option in options if option.tail is not None]
    starts = [value for pool in problem.pools for value in (pool.first_gpu, pool.num_gpus)]
    nodes = [pool.gpus_per_node for pool in problem.pools]
    return math.gcd(*sizes, *starts, *nodes)


def add_copy(formulation: Formulation, index: int) -> CopyVariables:
    """x, f, n, e and the bytes of a copy; a home takes one option, a shadow at most one."""
    model, copy = formulation.model, formulation.problem.copies[index]
    takes = [model.new_bool_var(f"x[{copy.id},{o}]") for o in range(len(copy.options))]
    present: cp_model.LiteralT
    if copy.shadow_of is None:
        present = formulation.always()
        model.add_exactly_one(takes)
    else:
        present = model.new_bool_var(f"present[{copy.id}]")
        model.add_exactly_one([*takes, ~present])
    first = model.new_int_var(0, formulation.axis, f"f[{copy.id}]")
    end = model.new_int_var(0, formulation.axis, f"e[{copy.id}]")
    count = _count(formulation, index, takes, present)
    home = copy.shadow_of is None
    residents = [bytes_to_mib(option.resident_bytes) for option in copy.options]
    resident = _chosen(model, takes, residents, f"r[{copy.id}]", always=home)
    hosts = [bytes_to_mib(option.host_bytes) for option in copy.options]
    host = _chosen(model, takes, hosts, f"b[{copy.id}]", always=home)
    model.add(end == first + count)
    if copy.shadow_of is not None:
        model.add(first == 0).only_enforce_if(~present)
    span = model.new_optional_interval_var(first, count, end, present, f"range[{copy.id}]")
    return CopyVariables(takes, first, count, end, resident, host, present, span)


def _count(
    formulation: Formulation,
    index: int,
    takes: list[cp_model.IntVar],
    present: cp_model.LiteralT,
) -> cp_model.IntVar:
    """n_c, never 0: CP-SAT 9.15 was wrong about optional rectangles without width (ADR 4)."""
    copy = formulation.problem.copies[index]
    counts = [option.num_gpus // formulation.unit for option in copy.options]
    domain = cp_model.Domain.from_values(counts or [1])
    count = formulation.model.new_int_var_from_domain(domain, f"n[{copy.id}]")
    total = cp_model.LinearExpr.weighted_sum(takes, counts)
    formulation.model.add(count == total).only_enforce_if(present)
    return count


def _chosen(
    model: cp_model.CpModel,
    takes: list[cp_model.IntVar],
    values: list[int],
    name: str,
    *,
    always: bool = True,
) -> cp_model.IntVar:
    """A variable with the value of the taken option; 0 when none is, which `always` rules out.

    Its domain is an interval: with the values themselves presolve makes a literal for each.
    """
    least = min(values, default=0) if always else min([0, *values])
    variable = model.new_int_var(least, max(values, default=0), name)
    model.add(variable == cp_model.LinearExpr.weighted_sum(takes, values))
    return variable


def align(formulation: Formulation, index: int) -> None:
    """(1) Options of one size in one pool share their alignment."""
    model, problem = formulation.model, formulation.problem
    copy, variables = problem.copies[index], formulation.copies[index]
    classes: dict[tuple[int, int], list[cp_model.IntVar]] = {}
    for option, take in zip(copy.options, variables.takes, strict=True):
        pool = problem.pools[option.pool]
        inside = option.num_gpus if option.num_gpus < pool.gpus_per_node else 0
        classes.setdefault((option.pool, inside), []).append(take)
    for (pool_index, inside), takes in classes.items():
        pool, unit = problem.pools[pool_index], formulation.unit
        last = pool.first_gpu + pool.num_gpus
        starts = [
            node + offset
            for node in range(pool.first_gpu, last, pool.gpus_per_node)
            for offset in (
                range(0, pool.gpus_per_node - inside + 1, inside) if inside else range(1)
            )
        ]
        domain = cp_model.Domain.from_values([start // unit for start in starts])
        for take in takes if len(takes) == 1 else [_any(model, takes)]:
            model.add_linear_expression_in_domain(variables.first, domain).only_enforce_if(take)
            model.add(variables.end <= last // unit).only_enforce_if(take)


def _any(model: cp_model.CpModel, takes: list[cp_model.IntVar]) -> cp_model.IntVar:
    """A literal equal to the sum of mutually exclusive literals."""
    literal = model.new_bool_var("")
    model.add(sum(takes) == literal)
    return literal


def add_call(formulation: Formulation, index: int) -> CallVariables:
    """z, s, d and the transient bytes of a call; its option belongs to one its copy takes."""
    model, call = formulation.model, formulation.problem.calls[index]
    start = model.new_int_var(0, formulation.horizon, f"s[{call.id}]")
    end = model.new_int_var(0, 2 * formulation.horizon, f"end[{call.id}]")
    takes = [model.new_bool_var(f"z[{call.id},{j}]") for j in range(len(call.options))]
    if call.options:
        model.add_exactly_one(takes)
        durations = [formulation.ticks(option.seconds) for option in call.options]
        duration = _chosen(model, takes, durations, f"d[{call.id}]")
    else:
        duration = model.new_constant(formulation.ticks(call.fixed_seconds))
    transient = _chosen(
        model, takes, [bytes_to_mib(o.transient_bytes) for o in call.options], f"m[{call.id}]"
    )
    model.add(end == start + duration)
    chunks = zip(*(option.chunk_ready_seconds for option in call.options), strict=True)
    chunk_ready = [
        _chosen(model, takes, [formulation.ticks(ready) for ready in chunk], "") for chunk in chunks
    ]
    variables = CallVariables(takes, start, duration, end, transient, {}, chunk_ready)
    if any(option.tail is not None for option in call.options):
        variables.main_phase, variables.tail = _tail(formulation, call.options, takes)
    _bind(formulation, call.options, variables)
    return variables


def _tail(
    formulation: Formulation, options: Sequence[CallOption], takes: list[cp_model.IntVar]
) -> tuple[cp_model.IntVar, cp_model.IntVar]:
    """(ticks on the whole range, units held to the end); without a tail the whole range is."""
    copies = formulation.problem.copies
    counts, main_phases = [], []
    for option in options:
        whole = copies[option.copy].options[option.copy_option].num_gpus
        count, seconds = option.held(whole)[-1][0], option.held(whole)[0][1]
        counts.append(count // formulation.unit)
        main_phases.append(formulation.ticks(seconds))
    return (
        _chosen(formulation.model, takes, main_phases, ""),
        _chosen(formulation.model, takes, counts, ""),
    )


def _bind(
    formulation: Formulation, options: Sequence[CallOption], variables: CallVariables
) -> None:
    """A call's option belongs to the option that its copy takes."""
    model = formulation.model
    by_copy: dict[int, dict[int, list[cp_model.IntVar]]] = {}
    for option, take in zip(options, variables.takes, strict=True):
        by_copy.setdefault(option.copy, {}).setdefault(option.copy_option, []).append(take)
    for copy, by_option in by_copy.items():
        chosen = formulation.copies[copy].takes
        if len(by_copy) == 1:
            variables.bound[copy] = formulation.always()
        else:
            bound = model.new_bool_var("")
            model.add(bound == sum(take for takes in by_option.values() for take in takes))
            variables.bound[copy] = bound
        for copy_option, take in enumerate(chosen):
            settings = by_option.get(copy_option, [])
            if len(by_copy) == 1:
                model.add(sum(settings) == take)
            else:
                model.add(sum(settings) <= take)


def add_sync(formulation: Formulation, index: int) -> SyncVariables:
    """(3) Duration: the slower side, where there is a shadow."""
    model, sync = formulation.model, formulation.problem.syncs[index]
    shadow = formulation.copies[sync.shadow]
    start = model.new_int_var(0, formulation.horizon, f"s[sync {index}]")
    duration = model.new_int_var(1, formulation.horizon, f"d[sync {index}]")
    load = model.new_int_var(0, formulation.horizon, f"load[sync {index}]")
    end = model.new_int_var(0, 2 * formulation.horizon, f"end[sync {index}]")
    model.add(end == start + duration)
    for side in (sync.home, sync.shadow):
        options = formulation.problem.copies[side].options
        ticks = [formulation.ticks(option.sync_seconds) for option in options]
        takes = formulation.copies[side].takes
        model.add(duration >= cp_model.LinearExpr.weighted_sum(takes, ticks)).only_enforce_if(
            shadow.present
        )
    model.add(load == duration).only_enforce_if(shadow.present)
    model.add(load == 0).only_enforce_if(~shadow.present)
    model.add(start == 0).only_enforce_if(~shadow.present)
    return SyncVariables(start, duration, end, load, shadow.present)


def timed_nodes(formulation: Formulation) -> "list[CallVariables | SyncVariables]":
    """Everything that has a start and a duration: calls, then syncs."""
    return [*formulation.calls, *formulation.syncs]
