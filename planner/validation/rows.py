"""The rows of published measurements, one frozen model per kind of table.

A cell is text; an empty one means that the source does not state it. Units are base units: seconds,
bytes, bytes per second, FLOP per second; sizes count elements. Limits are wide: they catch wrong
units (a step of a million seconds, gigabytes where bytes belong), not doubtful measurements.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from automap.planner import catalogue
from automap.planner.errors import SpecError

Quality = Literal["A", "B", "C"]
Precision = Literal["bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4", "mxfp4", "fp4", "int8", "int4"]


def _empty_is_none(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _known_gpu(name: str) -> str:
    """The catalogue's own name of the GPU."""
    try:
        return catalogue.gpu_type(name).name
    except SpecError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from None


OTHER_UNIT = 10.0
"""Ratio of two figures of one run from which on they must be in different units."""
Empty = BeforeValidator(_empty_is_none)
Positive = Field(gt=0, allow_inf_nan=False)
Size = Annotated[Annotated[int, Field(ge=1, le=10**7)] | None, Empty]
NodeSize = Annotated[Annotated[int, Field(ge=1, le=128)] | None, Empty]
Count = Annotated[Annotated[int, Field(ge=0, le=10**7)] | None, Empty]
Flag = Annotated[Annotated[int, Field(ge=0, le=1)] | None, Empty]
Number = Annotated[Annotated[float, Positive] | None, Empty]
StepSeconds = Annotated[Annotated[float, Positive, Field(ge=1e-5, le=1e5)] | None, Empty]
KernelSeconds = Annotated[Annotated[float, Positive, Field(ge=1e-7, le=1e3)] | None, Empty]
DeviceBytes = Annotated[Annotated[float, Positive, Field(ge=1e8, le=1e12)] | None, Empty]
MessageBytes = Annotated[Annotated[float, Positive, Field(ge=1, le=1e13)] | None, Empty]
Text = Annotated[Annotated[str, Field(max_length=10_000)] | None, Empty]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
Gpu = Annotated[Name, AfterValidator(_known_gpu)]
OptionalPrecision = Annotated[Precision | None, Empty]
Sharding = Annotated[Literal["none", "optimizer", "gradient", "full"] | None, Empty]
Recompute = Annotated[Literal["none", "selective", "full"] | None, Empty]


class Row(BaseModel):
    """Columns of every table. `gpu_type` becomes the catalogue's name; `row_id` is unique."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]
    quantities: ClassVar[tuple[str, ...]]
    """The measured columns that are predicted."""

    row_id: Name
    source: Name
    year: Size
    gpu_type: Gpu
    precision: OptionalPrecision
    quality: Quality
    notes: Text

    @property
    def note(self) -> str:
        """The notes, empty where there are none."""
        return self.notes or ""


def contradiction(column: str, message: str) -> PydanticCustomError:
    """A mistake that several columns make together, reported at one of them."""
    return PydanticCustomError("contradiction", "{reason}", {"column": column, "reason": message})


def _check_unit(column: str, stated: float | None, follows: float, source: str) -> None:
    """Refuse seconds that are in another unit than what else the row states of the same run."""
    if stated is not None and not 1 / OTHER_UNIT < stated / follows < OTHER_UNIT:
        raise contradiction(column, f"{stated:g} s, but {source} says {follows:.3g} s")


class RunRow(Row):
    """A run of a model on GPUs: its architecture and its layout, as far as they are stated."""

    model: Name
    num_parameters: Number
    num_layers: Size
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    gated_mlp: Flag
    tied_embeddings: Flag
    num_experts: Count
    num_experts_per_token: Count
    moe_intermediate_size: Count
    num_shared_experts: Count
    num_dense_layers: Count
    num_gpus: Annotated[int, Field(ge=1, le=10**5)]
    gpus_per_node: NodeSize
    tensor_parallel_size: Size
    pipeline_parallel_size: Size
    virtual_pipeline_parallel_size: Size
    data_parallel_size: Size
    context_parallel_size: Size
    expert_parallel_size: Size
    sequence_parallel: Flag
    sharding: Sharding
    recompute: Recompute
    micro_batch_size: Size
    global_batch_size: Size
    sequence_length: Size

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        sizes = {
            "tensor": self.tensor_parallel_size,
            "pipeline": self.pipeline_parallel_size,
            "context": self.context_parallel_size,
            "data": self.data_parallel_size,
        }
        product = 1
        for size in sizes.values():
            product *= size or 1
        stated = None not in sizes.values()
        # Sizes left out are at least 1, so what is stated may never exceed the GPUs.
        if product > self.num_gpus or (stated and product != self.num_gpus):
            listed = " × ".join(f"{name} {size}" for name, size in sizes.items() if size)
            raise contradiction(
                "num_gpus", f"{listed} is {product} GPUs, but num_gpus is {self.num_gpus}"
            )
        at_once = (self.micro_batch_size or 1) * (self.data_parallel_size or 1)
        if self.global_batch_size is not None and at_once > self.global_batch_size:
            raise contradiction(
                "global_batch_size",
                f"{self.global_batch_size} sequences are fewer than micro_batch_size × "
                f"data_parallel_size = {at_once}",
            )
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        if heads and groups and heads % groups:
            raise contradiction(
                "num_key_value_heads", f"{groups} does not divide num_attention_heads {heads}"
            )
        experts, chosen = self.num_experts or 0, self.num_experts_per_token or 0
        if chosen > experts:
            raise contradiction(
                "num_experts_per_token", f"{chosen} of num_experts {experts} is impossible"
            )
        return self


class TrainingRow(RunRow):
    """One training run: the seconds of an optimizer step."""

    kind: ClassVar[str] = "training"
    quantities: ClassVar[tuple[str, ...]] = ("iteration_seconds",)

    workload: Literal["pretrain", "sft", "lora", "qlora", "layer"]
    iteration_seconds: StepSeconds
    basis: Annotated[Literal["measured", "from_tokens_per_second", "from_tflops"] | None, Empty]
    tokens_per_second_per_gpu: Number
    model_flops_per_gpu_per_second: Number
    peak_memory_bytes: DeviceBytes

    @model_validator(mode="after")
    def _seconds_agree(self) -> Self:
        if self.tokens_per_second_per_gpu and self.global_batch_size and self.sequence_length:
            each = self.global_batch_size * self.sequence_length / self.num_gpus
            follows = each / self.tokens_per_second_per_gpu
            _check_unit(
                "iteration_seconds", self.iteration_seconds, follows, "tokens_per_second_per_gpu"
            )
        return self


class MemoryRow(RunRow):
    """One training run: the peak bytes of its fullest GPU, or that it ran out of memory."""

    kind: ClassVar[str] = "memory"
    quantities: ClassVar[tuple[str, ...]] = ("peak_memory_bytes", "out_of_memory")

    workload: Literal["pretrain", "sft", "lora", "qlora", "layer"]
    peak_memory_bytes: DeviceBytes
    out_of_memory: Flag
    measured_by: Annotated[Literal["torch", "nvidia-smi", "formula"] | None, Empty]


class GenerationRow(RunRow):
    """One run of an inference engine."""

    kind: ClassVar[str] = "generation"
    quantities: ClassVar[tuple[str, ...]] = (
        "decode_step_seconds",
        "prefill_seconds",
        "output_tokens_per_second",
    )

    engine: Text
    engine_version: Text
    quantization: Text
    load: Literal["static", "serving", "max_load"]
    prompt_length: Size
    response_length: Size
    concurrency: Size
    decode_step_seconds: Annotated[Annotated[float, Field(ge=1e-5, le=10)] | None, Empty]
    prefill_seconds: StepSeconds
    output_tokens_per_second: Number


class RlhfRow(RunRow):
    """One run of an RL framework: the seconds of an iteration, or a relative throughput."""

    kind: ClassVar[str] = "rlhf"
    quantities: ClassVar[tuple[str, ...]] = (
        "iteration_seconds",
        "generation_share",
        "log_prob_share",
        "training_share",
        "relative_throughput",
    )

    algorithm: Text
    system: Name
    synchrony: Annotated[Literal["sync", "async"] | None, Empty]
    actor_model: Text
    critic_model: Text
    reference_model: Text
    reward_model: Text
    placement: Text
    actor_num_gpus: Size
    critic_num_gpus: Size
    generation_tensor_parallel_size: Size
    generation_pipeline_parallel_size: Size
    prompt_length: Number
    max_response_length: Size
    average_response_length: Number
    average_sequence_length: Number
    num_rollouts: Size
    iteration_seconds: StepSeconds
    generation_seconds: StepSeconds
    log_prob_seconds: StepSeconds
    training_seconds: StepSeconds
    weight_sync_seconds: StepSeconds
    tokens_per_second_per_gpu: Number
    flops_per_second: Number
    baseline: Text
    relative_throughput: Number

    @property
    def stage_seconds(self) -> float | None:
        """Seconds of the three stages together; None unless all are stated and run in turn."""
        stages = (self.generation_seconds, self.log_prob_seconds, self.training_seconds)
        stated = [seconds for seconds in stages if seconds is not None]
        return sum(stated) if len(stated) == len(stages) and self.synchrony == "sync" else None

    @property
    def generation_share(self) -> float | None:
        """Share of generation in the seconds of the three stages."""
        return self._share(self.generation_seconds)

    @property
    def log_prob_share(self) -> float | None:
        """Share of the log-probabilities in the seconds of the three stages."""
        return self._share(self.log_prob_seconds)

    @property
    def training_share(self) -> float | None:
        """Share of training in the seconds of the three stages."""
        return self._share(self.training_seconds)

    def _share(self, seconds: float | None) -> float | None:
        whole = self.stage_seconds
        return None if whole is None or seconds is None else seconds / whole


class CollectiveRow(Row):
    """One collective at one size; `size_bytes` is the whole buffer, as in nccl-tests."""

    kind: ClassVar[str] = "collectives"
    quantities: ClassVar[tuple[str, ...]] = ("seconds",)

    collective: Literal[
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
    ]
    num_gpus: Annotated[int, Field(ge=2, le=10**5)]
    gpus_per_node: NodeSize
    num_nodes: Annotated[int, Field(ge=1, le=10**5)]
    fabric: Text
    size_bytes: MessageBytes
    seconds: KernelSeconds
    bus_bandwidth_bytes_per_second: Number

    @model_validator(mode="after")
    def _gpus_on_nodes(self) -> Self:
        if self.num_gpus % self.num_nodes:
            raise contradiction(
                "num_nodes", f"{self.num_nodes} does not divide num_gpus {self.num_gpus}"
            )
        if self.size_bytes and self.bus_bandwidth_bytes_per_second:
            # The bus bandwidth is of 1/2 to 2 times the buffer, by collective and group.
            follows = self.size_bytes / self.bus_bandwidth_bytes_per_second
            _check_unit("seconds", self.seconds, follows, "bus_bandwidth_bytes_per_second")
        return self


class GemmRow(Row):
    """One matrix product C[m, n] = A[m, k]·B[k, n]."""

    kind: ClassVar[str] = "gemm"
    quantities: ClassVar[tuple[str, ...]] = ("seconds",)

    m: Annotated[int, Field(ge=1, le=10**9)]
    n: Annotated[int, Field(ge=1, le=10**9)]
    k: Annotated[int, Field(ge=1, le=10**9)]
    seconds: KernelSeconds


ROW_TYPES: tuple[type[Row], ...] = (
    TrainingRow,
    MemoryRow,
    GenerationRow,
    RlhfRow,
    CollectiveRow,
    GemmRow,
)
