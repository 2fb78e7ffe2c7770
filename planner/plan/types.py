"""Placements, estimates and plans: the JSON that files, HTTP, database and executor share."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from automap.planner.documented import Documented
from automap.planner.errors import FieldValueError, Reason
from automap.planner.layout import layers_per_stage
from automap.planner.spec import CallKind, JobSpec, Objective, TargetName

Source = Literal["measured", "interpolated", "analytical"]
Size = Annotated[int, Field(ge=1, le=10**7)]
Bytes = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ResultModel(Documented, BaseModel):
    """Frozen, and an unknown field is an error; docstrings under fields go into the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Parallelism(ResultModel):
    """How one model is split over a range of GPUs.

    num_gpus = tensor × pipeline × context × data. Ranks run tensor first, then context, then data,
    then pipeline.
    """

    tensor_parallel_size: Size = 1
    pipeline_parallel_size: Size = 1
    virtual_pipeline_parallel_size: Size = 1
    context_parallel_size: Size = 1
    data_parallel_size: Size = 1
    expert_parallel_size: Size = 1
    sharding: Literal["none", "optimizer", "gradient", "full"] = "none"

    @property
    def num_gpus(self) -> int:
        """GPUs that the sizes multiply to."""
        return (
            self.tensor_parallel_size
            * self.pipeline_parallel_size
            * self.context_parallel_size
            * self.data_parallel_size
        )

    def uneven_stages(self, num_layers: int) -> list[int] | None:
        """Layers on each pipeline stage of a model, in order; None: all have equally many."""
        stages = layers_per_stage(num_layers, self.pipeline_parallel_size)
        return list(stages) if len(set(stages)) > 1 else None

    def in_short(self) -> str:
        """The sizes above one, tensor and data always: tp8 pp2 dp8; pp2x4 has 4 virtual stages."""
        virtual = self.virtual_pipeline_parallel_size
        parts = [
            ("tp", self.tensor_parallel_size, ""),
            ("pp", self.pipeline_parallel_size, f"x{virtual}" if virtual > 1 else ""),
            ("cp", self.context_parallel_size, ""),
            ("dp", self.data_parallel_size, ""),
            ("ep", self.expert_parallel_size, ""),
        ]
        always = ("tp", "dp")
        return " ".join(f"{name}{n}{more}" for name, n, more in parts if n > 1 or name in always)


class CopyPlacement(ResultModel):
    """One set of a model's weights on one range of GPUs of one pool."""

    id: str
    role: str
    kind: Literal["home", "shadow"]
    pool: str
    first_gpu: Annotated[int, Field(ge=0)]
    """Index of the copy's first GPU, counted from the start of the pool."""
    num_gpus: Size
    layout: Parallelism
    offload: Literal["none", "optimizer", "weights"] = "none"

    @model_validator(mode="after")
    def _sizes_multiply(self) -> Self:
        if self.layout.num_gpus != self.num_gpus:
            raise FieldValueError(
                "num_gpus",
                f"copy {self.id}: tensor × pipeline × context × data = {self.layout.num_gpus} "
                f"but num_gpus is {self.num_gpus}",
                remedy=f"set it to {self.layout.num_gpus}, or change the layout",
            )
        return self


class GenerationTail(ResultModel):
    """The drain phase of a generation: its last responses, on fewer GPUs or laid out anew."""

    num_gpus: Size
    """GPUs that go on, counted from the copy's first; the others are free for other calls."""
    tensor_parallel_size: Size | None = None
    """Tensor size of the tail, larger than before; null: as before."""
    ended_share: Annotated[float, Field(gt=0, lt=1)]
    """Share of the responses that have ended when the others move to the tail."""


class CallPlacement(ResultModel):
    """One call, bound to a copy. A reward function has no copy."""

    id: str
    role: str
    kind: CallKind
    copy_id: str | None = Field(default=None, alias="copy")
    parallelism: Parallelism | None = None
    """Layout that the call runs in: for generate the engine's, otherwise the copy's. None: a
    function."""
    micro_batch_size: Size | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    kv_cache_bytes: Bytes | None = None
    """Generate: cache bytes per GPU that the engine may use."""
    tail: GenerationTail | None = None
    """Generate: what goes on with fewer GPUs; null: all responses end where they began."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Placement(ResultModel):
    """A plan without seconds. On shared GPUs, calls run in the order of `calls`."""

    schema_version: Literal[1] = 1
    copies: list[CopyPlacement]
    calls: list[CallPlacement]


class SecondsByPart(ResultModel):
    """Seconds of a call by part, which sum to its duration."""

    compute: float = 0.0
    communication: float = 0.0
    bubble: float = 0.0
    optimizer: float = 0.0
    transition: float = 0.0
    """Seconds of reshard, offload and reload."""
    overhead: float = 0.0
    """Seconds of engine steps, kernel launches and other host work, of a framework's driver that
    hands it its batch, and on cores of the way to the processes and back."""
    between: float = 0.0
    """Seconds from its end to the next call, as runs have taught (automap calibrate), Automap's
    executor took on cores, or iterations of the framework that is to run the plan: no part of what
    a run measures of the call."""


class BytesByKind(ResultModel):
    """Bytes per GPU, on the worst GPU of the call."""

    weights: Bytes = 0
    gradients: Bytes = 0
    optimizer: Bytes = 0
    activations: Bytes = 0
    logits: Bytes = 0
    kv_cache: Bytes = 0
    communication_buffers: Bytes = 0
    workspace: Bytes = 0

    @property
    def total(self) -> int:
        """Bytes of all kinds together."""
        return sum(getattr(self, name) for name in type(self).model_fields)


class Interval(ResultModel):
    """An 80 % prediction interval: four of five measured values are expected inside."""

    low: Annotated[float, Field(ge=0)]
    high: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(
                f"an interval from {self.low} to {self.high}: low must not exceed high"
            )
        return self


class CopyPlan(CopyPlacement):
    """A copy with the bytes per GPU that it holds through the iteration."""

    resident_bytes: Bytes
    host_bytes: Bytes
    """Bytes of host memory per GPU."""
    bytes_by_kind: BytesByKind
    engine: str | None = None
    """What trains or scores it, of the target's engines; null: a shadow, which only generates, or
    a plan of a version that did not say."""
    layers_per_stage: list[int] | None = None
    """Layers on each pipeline stage of its layout, in order; null: all have equally many, or a plan
    of a version that did not say."""


class CallPlan(CallPlacement):
    """A call with its time and bytes."""

    stage: int = 0
    """Cyclic schedules: whole periods after the iteration's start; 0 under the barrier."""
    start_seconds: float
    """Start within the iteration; in a cyclic schedule the phase, from 0 to iteration_seconds."""
    end_seconds: float
    bulk_end_seconds: float | None = None
    """When a tail begins on fewer GPUs, and the others are free; null: there is no such tail."""
    streamed_from: list[str] = []
    """Generate calls of the iteration that this call begins before the end of: it takes their
    responses in chunks as they finish."""
    layers_per_stage: list[int] | None = None
    """Layers on each pipeline stage of `parallelism`, in order; null: all have equally many, or a
    plan of a version that did not say."""
    seconds_by_part: SecondsByPart
    bytes_by_kind: BytesByKind
    """Bytes per GPU that the call adds while it runs (transient)."""
    peak_bytes: Bytes
    """Bytes on the fullest GPU of the range: all copies' residents plus the call's transient
    bytes."""
    capacity_bytes: Bytes
    source: Source
    """The weakest origin of any part of the seconds. Measured and interpolated operators and
    collectives come from tables, all else is a formula: memory-bound kernels, the optimizer,
    transfers across nodes. So nearly every call is analytical, however much of it was measured."""
    seconds_interval: Interval | None = None
    """80 % interval of the call's duration; missing in plans of versions that did not say."""
    peak_bytes_interval: Interval | None = None
    """80 % interval of peak_bytes; missing in plans of versions that did not say, and where no GPU
    is used."""
    model_flops_utilization: float | None = None
    """MFU: FLOPs that the model needs over what the GPUs of the copy could do in the call's seconds
    at their dense peak in its precision. Attention counts, recomputation does not. Null: no GPU is
    used, or a plan of a version that did not say."""
    tokens_per_second_per_gpu: float | None = None
    """Tokens generated, or trained on or scored in all epochs, prompts included, per second of the
    call and GPU of its copy. Null: as above."""
    out_of_memory_probability: Probability | None = None
    """Chance that the peak exceeds capacity_bytes, by the law of its interval: log-normal about
    peak_bytes. Missing where the interval is."""

    @property
    def measurable_seconds(self) -> float:
        """What a run measures of it: its duration without what lies between it and the next."""
        return self.end_seconds - self.start_seconds - self.seconds_by_part.between


class WeightSync(ResultModel):
    """Updated weights from a home to its shadow, once per iteration."""

    role: str
    source_copy: str
    target_copy: str
    stage: int = 0
    start_seconds: float
    end_seconds: float
    bytes_per_receiver: Bytes


class ContinuousReport(ResultModel):
    """A generation that never drains (search.continuous_rollouts), in its steady state."""

    call: str
    """The generate call."""
    training_slack: int
    """Iterations by which training may be behind the batch that has just finished."""
    admitted_responses: int
    """Bound on responses that are in flight or finished and not yet trained on: (staleness + 1) ×
    an iteration's."""
    most_in_flight: int
    """In flight right after a weight sync; the number falls while a batch fills."""
    least_in_flight: int
    """In flight right before one."""
    slots_per_replica: int
    """Responses that a replica runs at once at most, by its cache and the engine's own limit: the
    engine's maximum of sequences."""
    running_per_replica: float
    """Mean of those that it does run."""
    flight_seconds: float
    """Seconds for which the longest response of an iteration is in flight. Where the target has
    batches wait for what would be too old, it has (staleness − training_slack + ½) × seconds."""
    least_full_staleness: int | None
    """The least search.staleness that holds up no replica: as many are always in flight as fill its
    slots, and no batch waits for its longest response. Below it throughput falls. Null: more than a
    spec may ask for."""
    responses_per_second: float
    """Generated by the replicas together, while no weight sync pauses them."""
    recomputed_tokens: float
    """Tokens that an iteration prefills again, over all replicas: caches that a weight sync
    dropped, and those that returns from the environment find gone."""
    seconds: float
    """Seconds in which an iteration's responses finish."""
    gain: float
    """How many times faster the generation is than batch by batch on the same GPUs, both with as
    much cache as helps and as there is room for."""


class Strategy(ResultModel):
    """A named way to place a job, and what it would cost beside the plan."""

    name: str
    feasible: bool
    iteration_seconds: float | None = None
    times_slower: float | None = None
    """iteration_seconds over the plan's."""
    price_per_iteration: float | None = None
    claimed_seconds: float | None = None
    """Seconds of an iteration by the strategy's own cost model; null: it has none."""
    reason: str = ""
    """Why it cannot run, or how it differs from the plan."""
    placement: Placement | None = None


class RobustReport(ResultModel):
    """How a plan of least worst-case regret was chosen (search.robust).

    Regret is what a plan takes over the best plan under the same true seconds, as a share.
    """

    worst_regret: float
    """The largest regret over the scenarios."""
    lower_bound: float
    """Largest regret over these scenarios that no plan of the searched space is below, proven."""
    nominal_regret: float
    """The largest regret of the plan that is best when all estimates are right."""
    nominal_loss: float
    """Share by which this plan is slower (or dearer) than that one when all estimates are right."""
    scenarios: int
    """The estimates, and corners of their 80 % intervals."""
    candidates: int
    """Plans among which it was chosen."""
    rounds: int
    margin: float
    """Share within which the best objective of every scenario is known."""
    unproven: int
    """Searches that ended by their limit; the bounds do not rest on what they left open."""


class SearchReport(ResultModel):
    """How the plan was found and how good it provably is."""

    status: Literal["optimal", "feasible", "given"]
    """`given`: the placement was the caller's, or a named strategy's; nothing is proven of it."""
    strategy: str | None = None
    """The named strategy that placed the job; null: the search, or the caller."""
    target: TargetName | None = None
    """What the plan was searched for; null: a plan of a version that did not say."""
    objective: Objective
    objective_value: float
    """Seconds, price units (of an iteration, or of the whole run) or GPUs."""
    lower_bound: float
    """Objective value that no plan of the searched space is below, proven; integer rounding is
    already subtracted."""
    pricing_seconds: float
    """Wall-clock seconds to resolve the spec and price every candidate."""
    solving_seconds: float
    """Wall-clock seconds from the strategies that start the search to the choice between equal
    plans."""
    candidates_priced: int
    """Settings of calls that were priced; what a bound rules out before is not among them."""
    options: int
    """Choices that were left to CP-SAT after sound pruning."""
    stopped: str | None = None
    """Why the search ended, in words; missing in plans of versions that did not say."""
    within_gap: bool = False
    """True: the search ended because no plan is better by more than search.optimality_gap."""
    within_tolerance: float | None = None
    """Share of the proven optimum by which this plan, chosen because it is simpler or leaves more
    memory free, misses it at most (search.simplicity_tolerance); null: nothing was given up."""
    warm_start: str | None = None
    robust: RobustReport | None = None
    """Null: the plan is best when all estimates are right."""
    space: str
    """The space of plans over which the bound holds, in words."""
    proof: str | None = None
    """A digest of the spec, the versions and the bound that was proven: only where it agrees is the
    bound taken on trust later. Null: nothing was proven, or a version before gave none."""


class Provenance(ResultModel):
    """What is needed to repeat a plan."""

    code_version: str
    """The release that made the plan, for its reader."""
    cost_model_version: str | None = None
    """Version of the prices and the search space, which decides whether the plan and its proof
    still hold here; null: a plan from before these had a version, held to `code_version`."""
    profile_versions: dict[str, str]
    """GPU type → content hash of its operator tables."""
    operator_tables: dict[str, str | None] = {}
    """GPU type → the GPU whose measured operator times it is priced with; null: none was measured,
    everything is a formula. Another GPU's times are scaled by the peaks of the two."""
    measured_profiles: dict[str, str] = {}
    """Pool → the version and folder of a profile measured by automap profile, where it has one."""
    corrections: dict[str, dict[str, float]] = {}
    """Pool → term → what runs have taught of it: prices are the cost model's times these factors,
    plus `between_calls_seconds` for what lies between a call and the next; none without a
    calibrated profile (automap calibrate)."""
    catalogue_version: str
    spreads: dict[str, float] = {}
    """Kind of quantity → |ln(measured ÷ estimate)| that 80 % of published measurements do not
    exceed; the intervals of this plan are made of these."""


class AssumedNetwork(ResultModel):
    """The network of a pool of which the spec says nothing, and what a slower one would cost."""

    pool: str
    node: str
    """The catalogue's node type whose network is assumed."""
    inter_node_bytes_per_second: float
    """Per GPU and direction."""
    iteration_seconds_at_a_quarter: float
    """Seconds of this very plan where that is a quarter; another plan may then be faster."""


class Plan(ResultModel):
    """A schedule of one iteration, priced and checked."""

    schema_version: Literal[1] = 1
    name: str
    algorithm: str | None
    copies: list[CopyPlan]
    calls: list[CallPlan]
    transitions: list[WeightSync]
    iteration_seconds: float
    iteration_seconds_interval: Interval | None = None
    """Every call and weight sync at its lower, or at its upper bound: as if all errors had one
    cause. Missing in plans of versions that did not say."""
    out_of_memory_probability: Probability | None = None
    """Chance that some call runs out of memory: the largest of its calls', as all errors are taken
    to have one cause. A searched plan's is at most search.max_out_of_memory_probability. Missing in
    plans of versions that did not say."""
    lower_bound_seconds: float
    relative_gap: float
    """Gap of the objective: (value − proven bound) ÷ value; 0 when proven optimal."""
    search_seconds: float
    """Wall-clock seconds: pricing_seconds + solving_seconds, without the final check. They may
    exceed the spec's time_limit_seconds, which counts the solver's work alone."""
    tokens_per_second: float
    tokens_per_iteration: float
    gpus_used: int
    """GPUs of all nodes that the plan touches; these are paid for."""
    price_per_iteration: float
    price_per_million_tokens: float
    run_seconds: float
    """Seconds of the whole run: iterations, start-up, checkpoints."""
    run_price: float
    staleness: int
    iteration_barrier: bool
    continuous: ContinuousReport | None = Field(default=None, exclude_if=lambda each: each is None)
    """Null: generations drain, batch by batch."""
    search: SearchReport
    runs_with: list[str] = []
    """Targets that run the plan as it is: every layout, setting and schedule of it, and with the
    software of each it fits."""
    alternatives: list[Strategy]
    assumptions: list[str]
    """Approximations that this plan rests on, in words."""
    warnings: list[str] = []
    """Assumptions that ask for something to be done before the plan is used."""
    assumed_networks: list[AssumedNetwork] = []
    """Networks between the nodes of this plan that the spec leaves to the catalogue."""
    provenance: Provenance
    spec: JobSpec

    def placement(self) -> Placement:
        """This plan without its seconds: what estimate takes and the executor runs."""
        order = sorted(self.calls, key=lambda call: (call.stage, call.start_seconds))
        return Placement(
            copies=[
                CopyPlacement.model_validate(
                    copy.model_dump(include=set(CopyPlacement.model_fields))
                )
                for copy in self.copies
            ],
            calls=[
                CallPlacement.model_validate(
                    call.model_dump(include=set(CallPlacement.model_fields))
                )
                for call in order
            ],
        )


class Infeasible(ResultModel):
    """The answer for a job that no placement fits."""

    reasons: list[Reason]


def placement_json_schema() -> dict[str, Any]:
    """The published JSON Schema of a placement."""
    return Placement.model_json_schema(by_alias=True)
