"""The run report: what every call took and moved, beside what the plan had predicted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from automap.executor.telemetry.call_records import BytesKind, CallRecord, RecordKind
from automap.planner import Plan
from automap.planner.documented import Documented
from automap.planner.plan import CallPlan, CopyPlan, WeightSync

Count = Annotated[int, Field(ge=0)]
RunState = Literal["running", "succeeded", "failed", "cancelled"]
_TOKENS = "perf/total_num_tokens"
_RESPONSE_TOKENS = "response_length/mean"
_ADD_UP: frozenset[BytesKind] = frozenset(
    {"reshard_received", "weight_sync_received", "fetched", "put"}
)
"""Bytes that the calls of an iteration moved one after the other; the others are held."""


class ReportModel(Documented, BaseModel):
    """Frozen, and an unknown field is an error; docstrings under fields go into the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DeviceFingerprint(ReportModel):
    """What the worker processes ran on."""

    name: str
    """Name of the GPU, or of the processor."""
    kind: Literal["cuda", "cpu"]
    num_devices: Annotated[int, Field(ge=1)]
    memory_bytes: Count
    """Memory of one GPU, or of the host."""
    compute_capability: str | None = None
    cuda_version: str | None = None
    """Version of the CUDA toolkit that torch was built with."""


class RunProvenance(ReportModel):
    """What is needed to repeat a run."""

    code_version: str
    versions: dict[str, str | None]
    """Versions of torch, ray, vllm, megatron-core, transformers and python; null: not installed."""
    device: DeviceFingerprint


class RunOutcome(ReportModel):
    """How a run stands or ended."""

    state: RunState
    cause: str = ""
    """Why it did not succeed: error, call and rank in words."""
    restarts: Count = 0
    """Times it began again, from a checkpoint if there was one: by itself or by a new command."""
    started_at: AwareDatetime | None = None
    """When the first attempt began."""
    ended_at: AwareDatetime | None = None


class Spread(ReportModel):
    """Median and range over the iterations after the warm-up."""

    median: float
    min: float
    max: float
    count: Annotated[int, Field(ge=1)]


class Comparison(ReportModel):
    """A quantity per iteration: predicted, in the warm-up, and measured."""

    predicted: float | None = None
    """Null: the plan does not know of it."""
    warm_up: list[float] = []
    """The first iteration, and the first one after every restart: compilation, cold caches."""
    measured: Spread | None = None
    """Null: no iteration after the warm-up is complete."""

    @property
    def ratio(self) -> float | None:
        """Measured median over predicted."""
        if self.measured is None or not self.predicted:
            return None
        return self.measured.median / self.predicted


class BytesComparison(ReportModel):
    """Bytes on the worst rank: predicted, and the most that any iteration measured."""

    predicted: Count | None = None
    measured: Count | None = None


class CallReport(ReportModel):
    """One call of the plan, or one that the run adds (operations, checkpoints)."""

    id: str
    role: str
    kind: RecordKind
    seconds: Comparison
    """All rounds of an iteration together, with the reshard of a generate call."""
    transition_seconds: Comparison | None = None
    """The reshard's part of it."""
    bytes: dict[BytesKind, BytesComparison] = {}


class RunReport(ReportModel):
    """A run of a plan, in numbers; stored with the plan."""

    schema_version: Literal[1] = 1
    name: str
    """Name of the plan."""
    plan_id: str | None = None
    algorithm: str | None
    outcome: RunOutcome
    iterations: Count
    """Completed ones, of all attempts."""
    provenance: RunProvenance
    calls: list[CallReport]
    """In the plan's order, then what the run adds."""
    iteration_seconds: Comparison
    tokens_per_second: Comparison
    """Prompt and response tokens, all devices together."""
    response_tokens: Comparison = Comparison()
    """Tokens of a response, in the mean; missing in reports of early versions."""
    metrics: dict[str, float | None] = {}
    """Metrics of the last iteration; null stands for NaN and infinity."""


def weight_sync_id(sync: WeightSync) -> str:
    """The call id of a plan's weight sync, which has none of its own."""
    return f"{sync.role}.sync"


def build_report(
    plan: Plan,
    records: Sequence[CallRecord],
    *,
    outcome: RunOutcome,
    provenance: RunProvenance,
    metrics: Mapping[int, Mapping[str, float | None]] | None = None,
    warm_up: Collection[int] = (1,),
) -> RunReport:
    """Measured beside predicted.

    Args:
        plan: What was run.
        records: Calls of all attempts. Iterations without a record of kind `iteration` did not
            complete and are left out.
        outcome: How the run ended.
        provenance: Software and devices.
        metrics: Iteration → metrics; None stands for NaN and infinity.
        warm_up: Iterations that are kept apart: the first after every start of the processes.
    """
    metrics = metrics or {}
    completed = {record.iteration for record in records if record.kind == "iteration"}
    kept = [record for record in records if record.iteration in completed]
    whole = _Measured([record for record in kept if record.kind == "iteration"], warm_up)
    rates = {
        iteration: tokens / seconds
        for iteration, seconds in whole.seconds().items()
        if seconds > 0 and (tokens := (metrics.get(iteration) or {}).get(_TOKENS))
    }
    lengths = {
        iteration: length
        for iteration in completed
        if (length := (metrics.get(iteration) or {}).get(_RESPONSE_TOKENS)) is not None
    }
    last = metrics.get(max(completed, default=0)) or {}
    return RunReport(
        name=plan.name,
        algorithm=plan.algorithm,
        outcome=outcome,
        iterations=len(completed),
        provenance=provenance,
        calls=_call_reports(plan, kept, warm_up),
        iteration_seconds=_comparison(plan.iteration_seconds, whole.seconds(), warm_up),
        tokens_per_second=_comparison(plan.tokens_per_second, rates, warm_up),
        response_tokens=_comparison(
            plan.spec.workload.response_length.mean_tokens, lengths, warm_up
        ),
        metrics={
            name: value if value is not None and isfinite(value) else None
            for name, value in last.items()
        },
    )


class _Measured:
    """The records of one call."""

    def __init__(self, records: Sequence[CallRecord], warm_up: Collection[int]) -> None:
        self.records = records
        self.warm_up = warm_up

    def seconds(self, *, reshard: bool | None = None) -> dict[int, float]:
        """Iteration → seconds; of the reshards alone, or of all."""
        sums: dict[int, float] = {}
        for record in self.records:
            if reshard is None or (record.kind == "reshard") == reshard:
                sums[record.iteration] = sums.get(record.iteration, 0.0) + record.seconds
        return sums

    def comparison(self, predicted: float | None, *, reshard: bool | None = None) -> Comparison:
        """Beside what was predicted."""
        return _comparison(predicted, self.seconds(reshard=reshard), self.warm_up)

    def bytes(self) -> dict[BytesKind, int]:
        """The most in any iteration; what is received or moved adds up over an iteration."""
        peaks: dict[BytesKind, int] = {}
        sums: dict[tuple[BytesKind, int], int] = {}
        for record in self.records:
            for kind, amount in record.bytes.items():
                if kind in _ADD_UP:
                    key = (kind, record.iteration)
                    sums[key] = sums.get(key, 0) + amount
                else:
                    peaks[kind] = max(peaks.get(kind, 0), amount)
        for (kind, _), amount in sums.items():
            peaks[kind] = max(peaks.get(kind, 0), amount)
        return peaks


def _comparison(
    predicted: float | None, by_iteration: Mapping[int, float], warm_up: Collection[int]
) -> Comparison:
    values = [value for iteration, value in by_iteration.items() if iteration not in warm_up]
    return Comparison(
        predicted=predicted,
        warm_up=[value for iteration, value in by_iteration.items() if iteration in warm_up],
        measured=Spread(median=median(values), min=min(values), max=max(values), count=len(values))
        if values
        else None,
    )


def _call_reports(
    plan: Plan, records: Iterable[CallRecord], warm_up: Collection[int]
) -> list[CallReport]:
    by_id: dict[str, list[CallRecord]] = {}
    for record in records:
        if record.kind != "iteration":
            by_id.setdefault(record.call_id, []).append(record)
    homes = {copy.id: copy for copy in plan.copies}
    reports: list[CallReport] = []
    for call in sorted(plan.calls, key=lambda call: (call.stage, call.start_seconds)):
        measured = _Measured(by_id.pop(call.id, []), warm_up)
        reports.append(_planned_call(plan, call, homes.get(call.copy_id or ""), measured))
    for sync in plan.transitions:
        measured = _Measured(by_id.pop(weight_sync_id(sync), []), warm_up)
        reports.append(
            CallReport(
                id=weight_sync_id(sync),
                role=sync.role,
                kind="weight_sync",
                seconds=measured.comparison(sync.end_seconds - sync.start_seconds),
                bytes=_compared({"weight_sync_received": sync.bytes_per_receiver}, measured),
            )
        )
    for call_id, added in by_id.items():
        measured = _Measured(added, warm_up)
        reports.append(
            CallReport(
                id=call_id,
                role=added[0].role,
                kind=added[0].kind,
                seconds=measured.comparison(None),
                bytes=_compared({}, measured),
            )
        )
    return reports


def _planned_call(
    plan: Plan, call: CallPlan, copy: CopyPlan | None, measured: _Measured
) -> CallReport:
    predicted: dict[BytesKind, int] = {}
    if copy is not None:
        predicted["peak_memory"] = call.peak_bytes
    if copy is not None and call.kind == "generate":
        # Beside what trains a plan counts what of the generation shard that does not hold, or all
        # of it where the engine has its own.
        predicted["generation_weights"] = copy.bytes_by_kind.weights + call.bytes_by_kind.weights
    received = reshard_bytes(plan, call, copy)
    transition = call.seconds_by_part.transition
    resharded = measured.seconds(reshard=True)
    if received is not None:
        predicted["reshard_received"] = received
    return CallReport(
        id=call.id,
        role=call.role,
        kind=call.kind,
        seconds=measured.comparison(call.measurable_seconds),
        transition_seconds=measured.comparison(transition, reshard=True)
        if transition or resharded
        else None,
        bytes=_compared(predicted, measured),
    )


def _compared(
    predicted: Mapping[BytesKind, int], measured: _Measured
) -> dict[BytesKind, BytesComparison]:
    found = measured.bytes()
    return {
        kind: BytesComparison(predicted=predicted.get(kind), measured=found.get(kind))
        for kind in [*predicted, *(kind for kind in found if kind not in predicted)]
    }


def reshard_bytes(plan: Plan, call: CallPlan, copy: CopyPlan | None) -> int | None:
    """Weights that a GPU must receive before a generate call; None where the plan does not say.

    (s ÷ (t_g·p_g) − 1) times what it holds, in s parts: HybridFlow's (d_g − 1)/(t·p)·M
    (arXiv:2409.19256, Table 2); fully sharded copies have t·p·d parts. Where these train, they hold
    fp32 masters, which are sent in the precision of the computation. Experts split otherwise.
    """
    if call.kind != "generate" or call.parallelism is None or copy is None:
        return None
    home, engine = copy.layout, call.parallelism
    if home.expert_parallel_size > 1 or engine.expert_parallel_size > 1:
        return None
    parts = home.tensor_parallel_size * home.pipeline_parallel_size
    if home.sharding == "full":
        parts *= home.data_parallel_size * home.context_parallel_size
    needed = engine.tensor_parallel_size * engine.pipeline_parallel_size
    held = copy.bytes_by_kind.weights
    trains = any(each.kind == "train" and each.copy_id == copy.id for each in plan.calls)
    lora = plan.spec.models[copy.role].lora
    if home.sharding == "full" and trains and lora is None:
        held = held if plan.spec.workload.precision == "fp32" else held // 2
    return round(max(0.0, parts / needed - 1) * held)
