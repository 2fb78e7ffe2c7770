"""What verl is told of actor, reference and critic: sizes, memory, and what is computed at once."""

from dataclasses import replace

from automap.planner.exports.batches import Batches, micro_batches
from automap.planner.exports.layouts import SIZES, VIRTUAL, stages_of
from automap.planner.exports.lines import Lines
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.exports.subject import Subject
from automap.planner.exports.workload import add_host_optimizer
from automap.planner.plan.types import CopyPlan

OPTIMIZERS = {
    ("megatron", "adam"): "adam",
    ("megatron", "sgd"): "sgd",
    ("fsdp", "adam"): "AdamW",
    ("fsdp", "sgd"): "SGD",
}
"""(engine, `workload.optimizer`) → its name there."""
ATTENTION_MODULES = ("linear_qkv",)
LATENT_MODULES = (
    "linear_q_proj",
    "linear_q_down_proj",
    "linear_q_up_proj",
    "linear_kv_down_proj",
    "linear_kv_up_proj",
)
"""Megatron-core's names of what attention has before its output; those a model lacks have no
adapters."""


def add_role(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    """Everything of one role but its micro-batches."""
    workload, role = subject.job.spec.workload, copy.role
    (_add_megatron if subject.engine == "megatron" else _add_fsdp)(subject, copy, lines)
    because = f"workload.precision: {workload.precision}"
    lines.add("precision", PRECISIONS[workload.precision], because, role=role)
    because = f"copy {copy.id}: offload {copy.offload}"
    lines.add("offload_weights", copy.offload == "weights", because, role=role)
    if role == "reference":
        return
    lines.add("offload_optimizer", copy.offload != "none", because, role=role)
    packed = f"workload.packed_sequences: {workload.packed_sequences}"
    lines.add("packed", workload.packed_sequences, packed, role=role)
    chosen = OPTIMIZERS[subject.engine, workload.optimizer]
    lines.add("optimizer", chosen, f"workload.optimizer: {workload.optimizer}", role=role)
    lora = subject.job.models[role].lora_rank
    lines.add("lora_rank", lora or 0, f"models.{role}.lora: rank {lora or 0}", role=role)
    if lora and subject.engine == "megatron":
        latent = subject.job.models[role].architecture.latent_attention is not None
        mixer = LATENT_MODULES if latent else ATTENTION_MODULES
        modules = [*mixer, "linear_proj", "linear_fc1", "linear_fc2"]
        lines.add("lora_modules", modules, f"models.{role}.lora: every layer", role=role)
    prompts, updates = workload.prompts_per_iteration, workload.updates_per_epoch
    why = f"{prompts} prompts in updates: {updates}"
    lines.add("mini_batch", prompts // updates, why, role=role)
    lines.add("epochs", workload.epochs, f"workload.epochs: {workload.epochs}", role=role)


def _add_megatron(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    layout, role = copy.layout, copy.role
    because = f"copy {copy.id}: {layout.in_short()}"
    for size in SIZES:
        value: int | None = getattr(layout, size)
        if size == VIRTUAL:
            value = None if subject.virtual_stages == 1 else subject.virtual_stages
        lines.add(size, value, because, role=role)
    if subject.job.models[role].architecture.num_experts:
        # Experts are split over the expert groups first, each over what is left of the tensor size.
        each = max(layout.tensor_parallel_size // layout.expert_parallel_size, 1)
        lines.add("expert_tensor_parallel_size", each, because, role=role)
    if role == "reference":
        return
    layers = stages_of(subject, copy)
    if layers is not None:
        stages = f"copy {copy.id}: stages of {', '.join(map(str, layers))} layers"
        lines.add("first_stage_layers", layers[0], stages, role=role)
        lines.add("last_stage_layers", layers[-1], stages, role=role)
    sharding = f"copy {copy.id}: sharding {layout.sharding}"
    # Only the distributed optimizer updates on the host, also that of one replica.
    on_host = subject.job.spec.workload.optimizer_cpu_offload
    lines.add("sharded_optimizer", on_host or layout.sharding == "optimizer", sharding, role=role)
    add_host_optimizer(subject, lines, role=role)
    packed = subject.job.spec.workload.packed_sequences
    lines.add("packed_engine", packed, f"workload.packed_sequences: {packed}", role=role)
    train = subject.call(role, "train")
    recompute = (train.recompute if train else None) or "none"
    because = f"{role}.train: recompute {recompute}"
    lines.add("recompute", None if recompute == "none" else recompute, because, role=role)
    if recompute == "selective":
        lines.add("recompute_modules", ["core_attn"], because, role=role)
    if recompute == "full":
        lines.add("recompute_method", "uniform", because, role=role)
        lines.add("recompute_layers", 1, because, role=role)


def _add_fsdp(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    layout, role = copy.layout, copy.role
    because = f"copy {copy.id}: {layout.in_short()}"
    lines.add("context_parallel_size", layout.context_parallel_size, because, role=role)
    because = f"copy {copy.id}: sharding {layout.sharding}"
    lines.add("sharding_group", -1, because, role=role)
    lines.add("reshard_after_forward", layout.sharding != "gradient", because, role=role)
    if role == "reference":
        lines.add("master_precision", "bf16", "it is not trained", role=role)
        return
    lines.add("strategy", "fsdp2", f"copy {copy.id}: fsdp", role=role)
    lines.add("master_precision", "fp32", "the optimizer's weights have 32 bits", role=role)
    train = subject.call(role, "train")
    recompute = (train.recompute if train else None) or "none"
    lines.add("recompute", recompute == "full", f"{role}.train: recompute {recompute}", role=role)


def add_scoring(subject: Subject, lines: Lines) -> None:
    """Micro-batches, or token budgets, of every call of actor, reference and critic."""
    actor = micro_batches(subject, subject.actor)
    why = _why("actor", actor)
    lines.add("dynamic_batches", actor.dynamic, why, role="actor")
    lines.add("dynamic_batches", actor.dynamic, why, role="rollout")
    # Without a call that scores, verl still asks for the number: it is that of training.
    scored = actor.forward_sequences or actor.train_sequences
    if actor.dynamic:
        lines.add("train_tokens", actor.train_tokens, why, role="actor")
        tokens = actor.forward_tokens or actor.train_tokens
        lines.add("forward_tokens", tokens, why, role="rollout")
    lines.add("train_micro_batch", actor.train_sequences, why, role="actor")
    lines.add("forward_micro_batch", scored, why, role="rollout")
    if "reference" in subject.homes:
        _add_reference(subject, micro_batches(subject, subject.homes["reference"]), lines)
    elif subject.call("reference", "forward") is not None:
        # The actor without its adapter: verl asks for the number all the same.
        _add_reference(subject, actor, lines)
    if "critic" in subject.homes:
        _add_critic(subject, lines)


def _add_reference(subject: Subject, batches: Batches, lines: Lines) -> None:
    role = "reference"
    why = _why(role, replace(batches, train_sequences=None))
    lines.add("dynamic_batches", batches.dynamic, why, role=role)
    if batches.dynamic:
        lines.add("forward_tokens", batches.forward_tokens, why, role=role)
    call = subject.call(role, "forward")
    scored = batches.forward_sequences or (call.micro_batch_size if call else None)
    lines.add("forward_micro_batch", scored, why, role=role)


def _add_critic(subject: Subject, lines: Lines) -> None:
    batches, role = micro_batches(subject, subject.homes["critic"]), "critic"
    why = _why(role, batches)
    lines.add("dynamic_batches", batches.dynamic, why, role=role)
    if batches.dynamic:
        lines.add("forward_tokens", batches.forward_tokens, why, role=role)
    lines.add("stated_micro_batch", batches.train_sequences, why, role=role)
    lines.add("train_micro_batch", batches.train_sequences, why, role=role)
    lines.add("forward_micro_batch", batches.forward_sequences, why, role=role)


def _why(role: str, batches: Batches) -> str:
    calls = {"train": batches.train_sequences, "forward": batches.forward_sequences}
    sizes = ", ".join(f"{role}.{kind}: {n}" for kind, n in calls.items() if n is not None)
    if batches.dynamic:
        return f"micro-batches of the tokens that so many sequences have at most ({sizes})"
    return f"micro-batches of sequences ({sizes})"
