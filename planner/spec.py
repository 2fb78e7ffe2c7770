"""The job spec: one pydantic model for HTTP, command line and files."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from planner.architecture import ModelArchitecture
from planner.lengths import LengthSpec

AlgorithmName = Literal["ppo", "grpo", "remax", "safe_rlhf", "rloo", "reinforce_plus_plus", "dapo"]
CallKind = Literal["generate", "forward", "train"]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$")]
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
Pair = Annotated[tuple[str, str], Field(strict=False)]
"""Files and HTTP have lists, never tuples."""
PositiveFloat = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


UNSTATED_CONCURRENCY = 64
"""Responses that a function is priced to score at once: it may call a service that batches."""


class SpecModel(BaseModel):
    """Frozen; an unknown field is an error, and so is `true` or `"16"` where a number belongs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LoraSpec(SpecModel):
    """Low-rank adapters on every linear layer; the base weights are frozen."""

    rank: Annotated[int, Field(ge=1, le=1024)] = 16


class RemoteSpec(SpecModel):
    """A service outside the cluster that scores responses; a run reaches it through a function."""

    seconds_per_response: Annotated[float, Field(ge=0, le=1e6)] = Field(
        default=0.0, description="Seconds from a request to its answer, one response each"
    )
    requests_per_second: PositiveFloat | None = Field(
        default=None,
        description="Responses that the service scores in a second, however many are asked for at "
        "once; default: no such limit",
    )
    concurrency: PositiveInt | None = Field(
        default=None,
        description="Requests that are open at once, a process each; default: priced as "
        f"{UNSTATED_CONCURRENCY}, run in one process",
    )

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.seconds_per_response == 0 and self.requests_per_second is None:
            raise ValueError(
                "a remote service takes time: give seconds_per_response, requests_per_second, or "
                "both"
            )
        return self


class ModelSpec(SpecModel):
    """One model of the job, or a reward that is a function or a remote service: it needs no GPU."""

    architecture: str | ModelArchitecture | None = Field(
        default=None,
        description="Catalogue name, path to a config.json (command line only), or sizes",
    )
    lora: LoraSpec | None = None
    function: bool = Field(default=False, description="True: a Python function on the host, no GPU")
    seconds_per_response: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    concurrency: PositiveInt | None = Field(
        default=None,
        description="Responses the function scores at once, a process each; default: priced as "
        f"{UNSTATED_CONCURRENCY}, run in one process",
    )

    remote: RemoteSpec | None = Field(
        default=None, description="The model is a service outside the cluster, no GPU"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = (self.architecture is not None, self.function, self.remote is not None)
        if sum(kinds) != 1:
            raise ValueError(
                "give exactly one of an architecture, function: true and a remote service"
            )
        if not self.needs_gpus and self.lora is not None:
            what = "function" if self.function else "remote service"
            raise ValueError(f"a {what} has no weights here: remove lora")
        stray = {"seconds_per_response", "concurrency"} & self.model_fields_set
        if self.remote is not None and stray:
            raise ValueError(f"{', '.join(sorted(stray))} of a remote service belong under remote")
        return self

    @property
    def needs_gpus(self) -> bool:
        """True for a model with weights in the cluster."""
        return self.architecture is not None

    @property
    def open_requests(self) -> int | None:
        """Responses that a function or a remote service scores at once; None: not stated."""
        return self.concurrency if self.remote is None else self.remote.concurrency


TrainingStack = Literal[
    "megatron-core",
    "nemo-rl",
    "fsdp",
    "verl",
    "fsdp-eager",
    "megatron-2021",
    "megatron-deepspeed",
    "pytorch-bf16",
]
EIGHT_BIT_STACKS: tuple[TrainingStack, ...] = (
    "megatron-core",
    "nemo-rl",
    "fsdp",
    "verl",
    "fsdp-eager",
)
"""Those that train in 8 bits; the others are older, or keep everything in bf16."""


RolloutEngine = Literal["vllm", "sglang", "trtllm"]


class WorkloadSpec(SpecModel):
    """What one iteration processes. Batches count sequences, lengths count tokens."""

    prompts_per_iteration: PositiveInt
    responses_per_prompt: PositiveInt = 1
    prompt_length: LengthSpec
    response_length: LengthSpec
    updates_per_epoch: PositiveInt = 1
    epochs: PositiveInt = 1
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    training_precision: Literal["bf16", "fp16", "fp32", "fp8"] | None = Field(
        default=None,
        description="Precision of the layers' matrix products in the models that train; default: "
        "precision, in which weights, activations and everything else stay. With fp8 a plan can "
        "be priced, but not run",
    )
    rollout_precision: Literal["bf16", "fp16", "fp32", "fp8"] | None = Field(
        default=None,
        description="Precision of the rollout weights; default: the training precision",
    )
    rollout_cache_precision: Literal["bf16", "fp8"] = Field(
        default="bf16",
        description="Precision of the key-value cache; bf16 stands for any of two bytes. A plan "
        "with fp8 can be priced, but not run",
    )
    rollout_engine: RolloutEngine = Field(
        default="vllm",
        description="Software that generates, whose speed the prices assume: vllm, sglang or "
        "trtllm (TensorRT-LLM). Plans run on vllm only",
    )
    optimizer: Literal["adam", "sgd"] = "adam"
    training_stack: TrainingStack = Field(
        default="megatron-core",
        description="Software that trains and scores, whose speed and memory the prices assume: "
        "megatron-core (with Transformer Engine) and fsdp (PyTorch, compiled, FlashAttention-2) "
        "as of 2024; nemo-rl and verl, the one and the other as these frameworks call it, as of "
        "2025; fsdp-eager (not compiled, Triton attention) of 2023; megatron-2021 and "
        "megatron-deepspeed, both before flash attention; pytorch-bf16 (all state in bf16)",
    )
    old_log_probs: Literal["recompute", "rollout"] = "recompute"
    kl: Literal["none", "reward", "loss"] = "reward"
    expected_acceptance: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="Share of prompts that dynamic sampling keeps (dapo)"
    )
    pretrain_loss: bool = Field(default=False, description="PPO-ptx: a pre-train batch in the loss")
    packed_sequences: bool = Field(
        default=True,
        description="Training and scoring remove padding; false: every row at the maximum",
    )
    turns: PositiveInt = 1
    environment_seconds_per_turn: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    iterations: PositiveInt = 1
    startup_seconds: Annotated[float, Field(ge=0, le=1e7)] = 0.0
    checkpoint_every_iterations: PositiveInt | None = None
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e7)] = 0.0

    @model_validator(mode="after")
    def _updates_have_sequences(self) -> Self:
        sequences = self.prompts_per_iteration * self.responses_per_prompt
        if self.updates_per_epoch > sequences:
            raise ValueError(
                f"updates_per_epoch={self.updates_per_epoch} exceeds the {sequences} sequences of "
                "an iteration (prompts_per_iteration × responses_per_prompt); use at most "
                f"{sequences}"
            )
        return self

    @model_validator(mode="after")
    def _stack_has_the_precision(self) -> Self:
        if self.training_stack == "pytorch-bf16" and self.precision != "bf16":
            raise ValueError(
                "training_stack=pytorch-bf16 keeps all state in bf16, so it cannot have precision="
                f"{self.precision}; use precision: bf16, or training_stack: fsdp-eager"
            )
        return self

    @model_validator(mode="after")
    def _products_have_a_kernel(self) -> Self:
        if self.training_precision in (None, self.precision):
            return self
        if self.training_precision != "fp8":
            raise ValueError(
                f"training_precision={self.training_precision} contradicts precision="
                f"{self.precision}; leave it out, or use fp8 for an 8-bit recipe"
            )
        if self.training_stack not in EIGHT_BIT_STACKS or self.precision == "fp32":
            raise ValueError(
                f"training_precision=fp8 cannot be had with training_stack={self.training_stack} "
                f"and precision={self.precision}; use one of {', '.join(EIGHT_BIT_STACKS)}, and "
                "precision: bf16"
            )
        return self

    @property
    def num_sequences(self) -> int:
        """Sequences of one iteration."""
        return self.prompts_per_iteration * self.responses_per_prompt

    @property
    def sequences_per_update(self) -> int:
        """Sequences of one optimizer step, rounded up."""
        return -(-self.num_sequences // self.updates_per_epoch)


class PoolSpec(SpecModel):
    """Equal nodes of one GPU type. What is left out defaults from the catalogue's node type."""

    name: Name
    gpu: str
    num_nodes: Annotated[int, Field(ge=1, le=100_000)]
    gpus_per_node: Annotated[int, Field(ge=1, le=128)] | None = None
    price_per_gpu_hour: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None,
        description="US dollars per GPU and hour, or another currency for all pools: every price "
        "of a plan is in the same. Default: a list price of 2025",
    )
    nvlink_domain_gpus: PositiveInt | None = Field(
        default=None, description="GPUs joined by NVLink; may span nodes (72 in a GB200 rack)"
    )
    intra_node_bytes_per_second: PositiveFloat | None = Field(
        default=None,
        description="Bytes per second (450 GB/s are 450e9), per GPU and direction, inside the "
        "NVLink domain (or over PCIe)",
    )
    inter_node_bytes_per_second: PositiveFloat | None = Field(
        default=None,
        description="Bytes per second (25 GB/s are 25e9), per GPU and direction, across nodes",
    )
    host_memory_bytes: Annotated[int, Field(ge=1, le=10**15)] | None = Field(
        default=None, description="Bytes per node"
    )
    host_link_bytes_per_second: PositiveFloat | None = Field(
        default=None, description="Bytes per second, host to GPU copies, per GPU and direction"
    )
    profile: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description="Folder written by automap profile, whose measured times apply; over HTTP the "
        "version of a stored profile. Default: the service's default for the GPU type if it has "
        "one, else the shipped tables, which `shipped` asks for",
    )


class ClusterSpec(SpecModel):
    """One or more pools of GPUs."""

    pools: Annotated[list[PoolSpec], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"pool names must differ, got {names}")
        return self


StrategyName = Literal[
    "colocate_all",
    "split",
    "standalone",
    "hybridflow",
    "verl",
    "deepspeed_chat",
    "openrlhf",
    "nemo_aligner",
    "app_interleaving",
    "app_separation",
    "real_heuristic",
    "real_mcmc",
    "rlinf",
    "one_step_off",
    "fully_async",
]
"""The published ways to place a job; planner.search.baselines has them."""


Objective = Literal["throughput", "price", "run_price", "fewest_gpus"]
OTHER_OBJECTIVE_NAMES: dict[object, Objective] = {
    "time": "throughput",
    "iteration_seconds": "throughput",
    "price_per_iteration": "price",
    "price_per_million_tokens": "price",
    "price_of_run": "run_price",
}
"""What the objectives are called elsewhere. An iteration has as many tokens whatever the plan, so
the same plan is the cheapest per iteration and per million tokens."""


def _own_name(given: object) -> object:
    return OTHER_OBJECTIVE_NAMES.get(given, given) if isinstance(given, str) else given


class SearchSpec(SpecModel):
    """What to optimise and how long to look. The same spec, seed and limit give the same plan."""

    objective: Annotated[
        Objective,
        BeforeValidator(
            _own_name,
            json_schema_input_type=Literal[  # with the other names
                "throughput",
                "price",
                "run_price",
                "fewest_gpus",
                "time",
                "iteration_seconds",
                "price_per_iteration",
                "price_per_million_tokens",
                "price_of_run",
            ],
        ),
    ] = Field(
        default="throughput",
        description="throughput (also time, iteration_seconds): least seconds per iteration; price "
        "(also price_per_iteration, price_per_million_tokens): least price per iteration, and so "
        "per million tokens; run_price (also price_of_run): least price of the whole run, "
        "start-up and checkpoints included; fewest_gpus: fewest paid GPUs with which an iteration "
        "meets target_iteration_seconds",
    )
    target_iteration_seconds: PositiveFloat | None = Field(
        default=None,
        description="Seconds; fewest_gpus only: the slowest iteration that is good enough. "
        "Default: any",
    )
    staleness: Annotated[int, Field(ge=0, le=16)] = Field(
        default=0,
        description="Iterations by which rollout weights may lag behind training; 0: on-policy. "
        "Above 0 iterations overlap, whatever iteration_barrier says",
    )
    iteration_barrier: bool = Field(
        default=True,
        description="Every call of an iteration ends before the next begins; staleness lifts it. "
        "Without a barrier the plan is a cyclic schedule, in which iterations overlap",
    )
    streaming: bool = Field(
        default=False,
        description="Let scores, log-probabilities and values be computed on other GPUs while the "
        "generation whose responses they are for still runs. Such a plan can be priced, but not "
        "run",
    )
    stream_chunks: Annotated[int, Field(ge=2, le=64)] = Field(
        default=8,
        description="Equal parts of the responses in which they are handed over where edges are "
        "streamed; nothing waits for less than a part",
    )
    generation_tail: bool = Field(
        default=False,
        description="Let a generation's last responses go on together on a part of its GPUs, so "
        "that other calls can have the rest. Such a plan can be priced, but not run",
    )
    generation_tensor_schedule: bool = Field(
        default=False,
        description="Let a generation go on with a larger tensor size once most of its responses "
        "have ended. Such a plan can be priced, but not run",
    )
    time_limit_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=30.0,
        description="About so many seconds of search, then the best plan so far is returned with "
        "its gap. Counted in solver work, at the pace of a 2020s core, and not by the clock: so a "
        "search that is cut short always ends with the same plan, and a slow or busy machine takes "
        "longer. Pricing the candidates and deciding between equal plans come on top; "
        "search_seconds of the plan is what the clock said",
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0,
        description="Of the solver's random choices. The same spec and seed give the same plan",
    )
    strategy: StrategyName | None = Field(
        default=None,
        description="Place the job as this published strategy would, instead of searching: what "
        "to compare with. The plan then claims no optimum. Default: search",
    )
    explain_infeasible: bool = Field(
        default=False,
        description="Where no placement fits, also plan the smallest changes with which one does: "
        "what they would cost. Takes up to two more time limits",
    )
    robust: bool = Field(
        default=False,
        description="Choose the plan whose largest regret is least when the estimates are wrong by "
        "up to their own 80 % intervals, instead of the one that is best if all are right. Takes "
        "up to one more time limit",
    )
    num_workers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2, description="Threads that price candidates; the proof runs in one, so it repeats"
    )

    @model_validator(mode="after")
    def _target_only_for_fewest(self) -> Self:
        if self.target_iteration_seconds is not None and self.objective != "fewest_gpus":
            raise ValueError("target_iteration_seconds only applies to objective: fewest_gpus")
        return self

    @model_validator(mode="after")
    def _robust_is_searched(self) -> Self:
        if self.robust and (
            self.objective in ("run_price", "fewest_gpus") or self.strategy is not None
        ):
            raise ValueError(
                "robust compares seconds or prices of an iteration of searched plans; leave it out "
                "with objective: run_price, objective: fewest_gpus and with strategy"
            )
        return self

    @property
    def cyclic(self) -> bool:
        """True when iterations may overlap: the plan is a cyclic schedule."""
        return self.staleness > 0 or not self.iteration_barrier


class ParallelismConstraint(SpecModel):
    """Sizes that every copy of a role must have; what is left out stays free."""

    num_gpus: PositiveInt | None = None
    tensor_parallel_size: PositiveInt | None = None
    pipeline_parallel_size: PositiveInt | None = None
    data_parallel_size: PositiveInt | None = None
    context_parallel_size: PositiveInt | None = None
    expert_parallel_size: PositiveInt | None = None
    sharding: Literal["none", "optimizer", "gradient", "full"] | None = None
    micro_batch_size: PositiveInt | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    generation_tensor_parallel_size: PositiveInt | None = None


class ConstraintsSpec(SpecModel):
    """What the plan must respect."""

    pools: dict[str, str] = Field(default={}, description="role → pool: pin a role to a pool")
    colocate: list[Pair] = Field(default=[], description="role pairs whose homes share a range")
    separate: list[Pair] = Field(default=[], description="role pairs on disjoint GPUs")
    parallelism: dict[str, ParallelismConstraint] = Field(
        default={}, description="role → fixed sizes"
    )
    keep_free_gpus: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="pool → GPUs that stay unused (the last ones)"
    )
    require_even_batch: bool = Field(
        default=False, description="Data parallelism × micro-batch must divide the batch"
    )
    tensor_parallel_across_nodes: bool = Field(
        default=False, description="Let tensor and expert groups leave the NVLink domain"
    )
    allow_offload: bool = True
    allow_recompute: bool = True
    allow_shadow_copies: bool = True


class DataflowCallSpec(SpecModel):
    """One call of an explicit dataflow."""

    id: Name
    role: Name
    kind: CallKind
    expected_rounds: PositiveFloat = Field(
        default=1.0, description="Mean repetitions per iteration"
    )


class DataflowEdgeSpec(SpecModel):
    """`target` needs what `source` makes, `distance` iterations earlier."""

    source: Name
    target: Name
    distance: Annotated[int, Field(ge=0, le=16)] = 0
    streamed: bool | None = Field(
        default=None,
        description="Let the target take the source's responses while the source still generates; "
        "default: as search.streaming says",
    )


class DataflowSpec(SpecModel):
    """A user's own dataflow: calls and edges, never code."""

    calls: Annotated[list[DataflowCallSpec], Field(min_length=1, max_length=64)]
    edges: Annotated[list[DataflowEdgeSpec], Field(max_length=1024)] = []


class JobSpec(SpecModel):
    """Everything the planner needs to know about a job."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    algorithm: AlgorithmName | None = None
    dataflow: DataflowSpec | None = None
    models: Annotated[dict[Name, ModelSpec], Field(min_length=1, max_length=32)]
    workload: WorkloadSpec
    cluster: ClusterSpec | Name
    search: SearchSpec = SearchSpec()
    constraints: ConstraintsSpec = ConstraintsSpec()

    @model_validator(mode="after")
    def _algorithm_or_dataflow(self) -> Self:
        if (self.algorithm is None) == (self.dataflow is None):
            raise ValueError("give either algorithm or dataflow, not both or neither")
        return self


def unrunnable_field(spec: JobSpec) -> str | None:
    """The field that lets plans of this spec do what can be priced, but not run; None: none."""
    for name in ("streaming", "generation_tail", "generation_tensor_schedule"):
        if getattr(spec.search, name):
            return f"search.{name}"
    edges = [] if spec.dataflow is None else spec.dataflow.edges
    return next((f"dataflow.edges.{i}.streamed" for i, e in enumerate(edges) if e.streamed), None)


def job_spec_json_schema() -> dict[str, Any]:
    """The published JSON Schema of a job spec."""
    return JobSpec.model_json_schema()
