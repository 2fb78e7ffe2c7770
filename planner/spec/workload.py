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
    "transformers",
    "verl",
    "transformers-filled",
    "verl-megatron",
    "automap-megatron",
    "automap-fsdp",
    "torchtitan",
    "fsdp-eager",
    "megatron-2021",
    "megatron-2022",
    "megatron-deepspeed",
    "pytorch-bf16",
]
EIGHT_BIT_STACKS: tuple[TrainingStack, ...] = (
    "megatron-core",
    "nemo-rl",
    "fsdp",
    "transformers",
    "verl",
    "transformers-filled",
    "verl-megatron",
    "automap-megatron",
    "automap-fsdp",
    "torchtitan",
    "fsdp-eager",
)
"""Training stacks that train in 8 bits; the others are older, or keep everything in bf16."""


EIGHT_BIT_WEIGHT_STACKS: tuple[TrainingStack, ...] = (
    "megatron-core",
    "nemo-rl",
    "verl-megatron",
    "automap-megatron",
)
"""Training stacks that can keep the weights of the layers in 8 bits alone (Transformer Engine)."""
SelectiveRecompute = Literal[
    "core_attention", "modules", "products", "alternate_products", "alternate_blocks"
]

MEMORY_SETTINGS = (
    "gradient_precision",
    "gradient_accumulation_precision",
    "fp8_param_gather",
    "selective_recompute",
)
"""Fields of the workload that set what training software keeps, beside its precision."""

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
        "automap-fsdp). "
        "Named, all models are priced as it and only engines of its kind are chosen: "
        "megatron-core (with Transformer Engine) and fsdp (PyTorch, compiled, FlashAttention-2) "
        "as of 2024; transformers, FSDP or ZeRO over Transformers' modules without a compiler; "
        "transformers-filled, that with micro-batches filled evenly with tokens; nemo-rl and verl, "
        "Megatron-core and that as these frameworks call it, filled as well, as of 2025; "
        "verl-megatron, verl's other engine, and automap-megatron, which overlap no gradients; "
        "automap-fsdp, transformers-filled as automap's executor runs it; "
        "torchtitan of 2024; fsdp-eager "
        "(not compiled, Triton attention) of 2023; "
        "before flash attention megatron-2021, megatron-2022 with sequence parallelism, and "
        "megatron-deepspeed; pytorch-bf16 (all state in bf16)",
    )
    gradient_precision: Literal["bf16", "fp16", "fp32"] | None = Field(
        default=None,
        description="Precision in which gradients are kept and reduced (Megatron-core: "
        "grad_reduce_in_fp32); default: the stack's, fp32 of Megatron-core and FSDP",
    )
    gradient_accumulation_precision: Literal["bf16", "fp16", "fp32"] | None = Field(
        default=None,
        description="Precision in which gradients of micro-batches are summed (DeepSpeed: "
        "grad_accum_dtype). Wider than gradient_precision it is a buffer beside the gradients, "
        "whole on each rank up to sharding optimizer; default: the stack's, the gradients' own",
    )
    fp8_param_gather: bool = Field(
        default=False,
        description="With training_precision fp8, keep the weights of the layers in 8 bits alone "
        "(Megatron-core's option of that name); the optimizer's masters are their precise copy",
    )
    optimizer_cpu_offload: bool = Field(
        default=False,
        description="The optimizer's masters and moments stay on the host and are updated there, "
        "one thread a GPU (Megatron-core's option of that name, with use_precision_aware_optimizer "
        "and optimizer_offload_fraction 1)",
    )
    selective_recompute: SelectiveRecompute | None = Field(
        default=None,
        description="What recompute: selective makes again: core_attention (Megatron-core's "
        "default), modules (norms and activation functions), all but products, every other "
        "product as well (alternate_products, torchtitan's op), or every other layer "
        "(alternate_blocks); default: the stack's",
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

    @model_validator(mode="after")
    def _gradients_are_no_narrower_than_their_sum(self) -> Self:
        for name in ("gradient_precision", "gradient_accumulation_precision"):
            if getattr(self, name) not in (None, "fp32", self.precision):
                raise FieldValueError(
                    name,
                    f"{getattr(self, name)} contradicts precision={self.precision}",
                    remedy=f"use {self.precision} or fp32",
                )
        if self.gradient_precision == "fp32" != (self.gradient_accumulation_precision or "fp32"):
            raise FieldValueError(
                "gradient_accumulation_precision",
                f"{self.gradient_accumulation_precision} is narrower than the gradients in fp32",
                remedy="leave it out",
            )
        return self

    @model_validator(mode="after")
    def _weights_in_8_bits_have_products_in_8_bits(self) -> Self:
        stacks = EIGHT_BIT_WEIGHT_STACKS
        low = self.training_precision == "fp8" and self.training_stack in (None, *stacks)
        if self.fp8_param_gather and not low:
            raise FieldValueError(
                "fp8_param_gather",
                f"true needs training_precision=fp8 and one of {', '.join(stacks)}",
                remedy="leave it out",
            )
        return self

    @model_validator(mode="after")
    def _an_optimizer_on_the_host_is_adam(self) -> Self:
        if self.optimizer_cpu_offload and self.optimizer != "adam":
            raise FieldValueError(
                "optimizer_cpu_offload",
                f"Megatron-core keeps masters on the GPUs with optimizer={self.optimizer}",
                remedy="use optimizer: adam, or leave it out",
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
