"""What an iteration of a job processes, in which precision and with which software."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from automap.planner.errors import FieldValueError
from automap.planner.spec.base import PositiveInt, SpecModel
from automap.planner.spec.lengths import LengthSpec

TrainingStack = Literal[
    "megatron-core",
    "nemo-rl",
    "fsdp",
    "verl",
    "verl-megatron",
    "automap-megatron",
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
    "verl-megatron",
    "automap-megatron",
    "fsdp-eager",
)
"""Training stacks that train in 8 bits; the others are older, or keep everything in bf16."""


RolloutEngine = Literal["vllm", "sglang", "trtllm"]
RolloutPrecision = Literal["bf16", "fp16", "fp32", "fp8", "int4", "nvfp4", "mxfp4"]


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
    rollout_precision: RolloutPrecision | None = Field(
        default=None,
        description="Precision of the rollout weights; default: the training precision. In 4 bits "
        "there are int4 (a 16-bit scale per 128 weights), nvfp4 (an 8-bit scale per 16) and mxfp4 "
        "(an 8-bit scale per 32, in routed experts alone), in which a plan can be priced, but not "
        "run",
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
    training_stack: TrainingStack | None = Field(
        default=None,
        description="Software that trains and scores, whose speed and memory the prices assume. "
        "Default: that of the engine that the plan chooses for each model (automap-megatron or "
        "fsdp). "
        "Named, all models are priced as it and only engines of its kind are chosen: "
        "megatron-core (with Transformer Engine) and fsdp (PyTorch, compiled, FlashAttention-2) "
        "as of 2024; nemo-rl and verl, the one and the other as these frameworks call it, as of "
        "2025; verl-megatron, verl's other engine, and automap-megatron, which overlap no "
        "gradients; fsdp-eager (not "
        "compiled, Triton attention) of 2023; megatron-2021 and "
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
            raise FieldValueError(
                "updates_per_epoch",
                f"{self.updates_per_epoch} exceeds the {sequences} sequences of an iteration "
                "(prompts_per_iteration × responses_per_prompt)",
                remedy=f"use at most {sequences}",
            )
        return self

    @model_validator(mode="after")
    def _stack_has_the_precision(self) -> Self:
        if self.training_stack == "pytorch-bf16" and self.precision != "bf16":
            raise FieldValueError(
                "training_stack",
                f"pytorch-bf16 keeps all state in bf16, so precision={self.precision} is not had",
                remedy="use precision: bf16, or training_stack: fsdp-eager",
            )
        return self

    @model_validator(mode="after")
    def _products_have_a_kernel(self) -> Self:
        if self.training_precision in (None, self.precision):
            return self
        if self.training_precision != "fp8":
            raise FieldValueError(
                "training_precision",
                f"{self.training_precision} contradicts precision={self.precision}",
                remedy="leave it out, or use fp8 for an 8-bit recipe",
            )
        if self.training_stack not in (None, *EIGHT_BIT_STACKS) or self.precision == "fp32":
            raise FieldValueError(
                "training_precision",
                f"fp8 cannot be had with training_stack={self.training_stack} and "
                f"precision={self.precision}",
                remedy=f"use one of {', '.join(EIGHT_BIT_STACKS)}, and precision: bf16",
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
