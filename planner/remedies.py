"""The smallest changes with which an impossible job becomes possible, one of each kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt

from planner.errors import Reason, SpecError
from planner.job import Job
from planner.lengths import LengthSpec
from planner.needs import least_need
from planner.resolve import resolve
from planner.search.candidates import price
from planner.search.space import skeleton
from planner.shortfall import fits_somewhere
from planner.spec import ConstraintsSpec, JobSpec, LoraSpec, PoolSpec

MOST_NODES = 4096
"""Larger pools are not proposed."""
SHORTEST_RESPONSE = 64
LORA_RANK = 16


@dataclass(frozen=True, slots=True)
class _Change:
    """A change to a spec; `text` completes "it would fit if you …"."""

    apply: Callable[[JobSpec], JobSpec]
    text: str


def remedies(spec: JobSpec, *, suspects: tuple[str, ...] = ()) -> list[Reason]:
    """Every kind of change that makes the job possible by itself, with its smallest amount.

    Where none does, one reason that says so, and what several together would do. `suspects` are
    ids of calls that did not fit even alone: they are priced first, as they decide quickly.
    """
    trial = _Trial(suspects)
    found = [_remedy(text) for text in trial.single_changes(spec)]
    return found or [trial.changed_together(spec)]


def gpus_text(count: int) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} GPU" + ("" if count == 1 else "s")


def _remedy(text: str) -> Reason:
    return Reason(summary=f"it would fit if you {text}", remedy=text)


class _Trial:
    """Tries changes; `suspects` are calls that are asked first whether they fit alone."""

    def __init__(self, suspects: tuple[str, ...]) -> None:
        self.suspects = suspects

    def single_changes(self, spec: JobSpec) -> Iterator[str]:
        """The changes that help by themselves, in words."""
        yield from (each.text for each in _permissions(spec) if self.fits(each.apply(spec)))
        yield from self._fewer_kept_free(spec)
        length = self._longest_response(spec)
        if length is not None:
            short = _with_response(spec, length).workload.response_length
            mean = "" if short.mean is None else f" and the mean to {short.mean:g}"
            yield f"shorten workload.response_length.max to {length} tokens{mean}"
        yield from (each.text for each in _adapters(spec) if self.fits(each.apply(spec)))
        yield from self._more_gpus(spec)

    def changed_together(self, spec: JobSpec) -> Reason:
        """No single change helps: all at once, without and with more nodes."""
        changes = [*_permissions(spec), *_nothing_kept_free(spec), *_adapters(spec)]
        texts = [change.text for change in changes]
        for change in changes:
            spec = change.apply(spec)
        alone = (
            "no single change makes it fit: neither what the constraints forbid, nor responses of "
            f"at most {SHORTEST_RESPONSE} tokens, adapters, or up to {MOST_NODES} nodes"
        )
        grown = []
        if not self.fits(spec):
            grown = list(self._more_gpus(spec))[:1]
            if not grown:
                return Reason(summary=f"{alone}; nor do these together")
        return Reason(summary=f"{alone}; together they do", remedy=", and ".join([*texts, *grown]))

    def fits(self, spec: JobSpec) -> bool:
        """True when some placement fits; a spec that contradicts itself fits nowhere."""
        try:
            job = resolve(spec)
        except SpecError:
            return False
        return self._first_excess(job) is None and self._fit_together(job)

    def _first_excess(self, job: Job) -> tuple[str, int] | None:
        """A suspect that does not fit alone, and by how many bytes; None when all do."""
        for call in sorted(job.dataflow.calls, key=lambda call: call.kind == "generate"):
            need = least_need(job, call) if call.id in self.suspects else None
            if need is not None and need.over_bytes > 0:
                return call.id, need.over_bytes
        return None

    def _fit_together(self, job: Job) -> bool:
        tables = price(job)
        return fits_somewhere(skeleton(job, tables), tables)

    def _fewer_kept_free(self, spec: JobSpec) -> Iterator[str]:
        """The most GPUs that can stay free, pool by pool, the others as they are."""
        for pool, kept in spec.constraints.keep_free_gpus.items():
            if not kept or not self.fits(_keeping_free(spec, pool, 0)):
                continue
            low, high = 0, kept
            while high - low > 1:
                middle = (low + high) // 2
                if self.fits(_keeping_free(spec, pool, middle)):
                    low = middle
                else:
                    high = middle
            yield f"set constraints.keep_free_gpus.{pool} to {low}, {kept} now"

    def _longest_response(self, spec: JobSpec) -> int | None:
        """The longest maximum response that fits, by bisection; None when none above 64 does."""
        low, high = SHORTEST_RESPONSE, spec.workload.response_length.max_tokens
        if low >= high or not self.fits(_with_response(spec, low)):
            return None
        while high - low > max(low // 16, 1):
            # The geometric mean: from ten million tokens to a few hundred in eight steps.
            middle = max(isqrt(low * high), low + 1)
            if self.fits(_with_response(spec, middle)):
                low = middle
            else:
                high = middle
        return low

    def _more_gpus(self, spec: JobSpec) -> Iterator[str]:
        """The fewest nodes with which the job fits, for every pool; the other pools stay."""
        for pool in _pools(spec):
            nodes = self._fewest_nodes(spec, pool)
            if nodes is None:
                continue
            per_node = next(p.gpus_per_node for p in resolve(spec).pools if p.name == pool.name)
            yield (
                f"add {gpus_text((nodes - pool.num_nodes) * per_node)}: {nodes} nodes "
                f"({gpus_text(nodes * per_node)}) in pool {pool.name}, {pool.num_nodes} now"
            )

    def _fewest_nodes(self, spec: JobSpec, pool: PoolSpec) -> int | None:
        """Doubled until it fits, then bisected; None where that leads nowhere."""
        low, high = pool.num_nodes, 2 * pool.num_nodes
        seen: dict[str, int] = {}
        while True:
            job = resolve(_with_nodes(spec, pool, high))
            excess = self._first_excess(job)
            if excess is None and self._fit_together(job):
                break
            if high > MOST_NODES // 2:
                return None
            if excess is not None:
                call, over = excess
                # A GPU's share at best halves with every doubling: it nears 2 × over − before.
                if call in seen and 2 * over >= seen[call]:
                    return None
                seen[call] = over
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits(_with_nodes(spec, pool, middle)):
                high = middle
            else:
                low = middle
        return high


def _permissions(spec: JobSpec) -> list[_Change]:
    """What the constraints forbid, allowed again."""
    given, changes = spec.constraints, []
    if not given.allow_offload:
        text = "allow offload to host memory (constraints.allow_offload: true)"
        changes.append(_Change(_constrained("allow_offload", True), text))
    if not given.allow_recompute:
        text = "allow recomputation (constraints.allow_recompute: true)"
        changes.append(_Change(_constrained("allow_recompute", True), text))
    for field in ("pools", "parallelism", "colocate", "separate"):
        if getattr(given, field):
            empty = ConstraintsSpec.model_fields[field].default
            changes.append(_Change(_constrained(field, empty), f"leave out constraints.{field}"))
    return changes


def _constrained(field: str, value: object) -> Callable[[JobSpec], JobSpec]:
    def apply(spec: JobSpec) -> JobSpec:
        constraints = spec.constraints.model_copy(update={field: value})
        return spec.model_copy(update={"constraints": constraints})

    return apply


def _nothing_kept_free(spec: JobSpec) -> list[_Change]:
    if not any(spec.constraints.keep_free_gpus.values()):
        return []
    return [_Change(_constrained("keep_free_gpus", {}), "leave out constraints.keep_free_gpus")]


def _keeping_free(spec: JobSpec, pool: str, count: int) -> JobSpec:
    kept = {**spec.constraints.keep_free_gpus, pool: count}
    return _constrained("keep_free_gpus", kept)(spec)


def _adapters(spec: JobSpec) -> list[_Change]:
    """Adapters on every model that trains, unless all have them."""
    job = resolve(spec)
    roles = [
        role for role, model in job.models.items() if model.trainable and model.lora_rank is None
    ]
    if not roles:
        return []

    def apply(spec: JobSpec) -> JobSpec:
        lora = LoraSpec(rank=LORA_RANK)
        adapted = {role: spec.models[role].model_copy(update={"lora": lora}) for role in roles}
        return spec.model_copy(update={"models": {**spec.models, **adapted}})

    fields = " and ".join(f"models.{role}.lora" for role in roles)
    text = f"train adapters instead of all parameters: {fields}: {{rank: {LORA_RANK}}}"
    return [_Change(apply, text)]


def _with_response(spec: JobSpec, longest: int) -> JobSpec:
    """The spec with responses cut off at `longest` tokens."""
    cut = _cut(spec.workload.response_length, longest)
    workload = spec.workload.model_copy(update={"response_length": cut})
    return spec.model_copy(update={"workload": workload})


def _cut(length: LengthSpec, longest: int) -> LengthSpec:
    """The lengths in their own form, none above `longest` tokens: what a user would write."""
    if length.histogram is not None:
        return LengthSpec(histogram=[(min(x, float(longest)), w) for x, w in length.histogram])
    given = {name: getattr(length, name) for name in ("p50", "p90", "p99")}
    if length.mean is not None:
        given["mean"] = max(float(int(length.truncated(longest).mean_tokens)), 1.0)
    kept = {name: min(value, float(longest)) for name, value in given.items() if value is not None}
    return LengthSpec(**kept, max=longest)


def _pools(spec: JobSpec) -> list[PoolSpec]:
    assert not isinstance(spec.cluster, str)
    return spec.cluster.pools


def _with_nodes(spec: JobSpec, pool: PoolSpec, num_nodes: int) -> JobSpec:
    assert not isinstance(spec.cluster, str)
    pools = [
        each.model_copy(update={"num_nodes": num_nodes}) if each.name == pool.name else each
        for each in spec.cluster.pools
    ]
    return spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"pools": pools})})
