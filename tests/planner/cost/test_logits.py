"""Logits in memory, and the seconds of the head: whole, or a chunk of tokens after the other."""

from dataclasses import replace

import numpy as np
import pytest

from automap.planner.cost import constants
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.layer.activations import activation_bytes, forward_activation_bytes
from automap.planner.cost.layer.embedding_and_head import head_seconds
from automap.planner.cost.layer.logits import head_gradient_bytes
from automap.planner.cost.layer.transformer_layer import KernelContext, MicroBatch, linears_seconds
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.shards import Linear, padded_vocabulary
from automap.planner.cost.stacks import STACKS
from automap.planner.job.job import Model
from automap.planner.job.resolution import resolve
from automap.planner.layout import RECOMPUTES, SHARDINGS
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec, TrainingStack
from automap.planner.targets.tables import TARGETS
from tests.helpers.cost_model import ints, layouts, model, pool, workload

AUTOMAPS: tuple[TrainingStack, ...] = ("automap-megatron", "automap-fsdp")
NONE, _, GRADIENT, FULL = range(len(SHARDINGS))


def in_training(
    of: Model, stack: TrainingStack, sequences: int, *, tensor: int = 1, recompute: str = "full"
) -> tuple[int, int]:
    """(activations, logits) in bytes of a micro-batch of so many sequences of 2,048 tokens."""
    spec = workload(training_stack=stack)
    found = activation_bytes(
        of,
        spec,
        sequence_lengths(spec),
        layouts(tensor=tensor),
        micro_batch_size=ints(sequences),
        num_micro_batches=ints(1),
        recompute=ints(RECOMPUTES.index(recompute)),
    )
    return int(found[0][0]), int(found[1][0])


def in_scoring(of: Model, stack: TrainingStack, sequences: int) -> int:
    spec = workload(training_stack=stack)
    _, logits = forward_activation_bytes(
        of, spec, sequence_lengths(spec), layouts(), micro_batch_size=ints(sequences)
    )
    return int(logits[0])


@pytest.mark.parametrize("stack", AUTOMAPS)
@pytest.mark.parametrize("tensor", [1, 4])
def test_logits_of_automaps_stacks_do_not_grow_beyond_the_chunk(
    stack: TrainingStack, tensor: int
) -> None:
    actor = model("qwen2.5-14b")
    kept = STACKS[stack].memory
    rows = int(padded_vocabulary(actor.architecture, ints(tensor))[0])
    chunk = kept.logit_chunk_bytes // 4
    summed = 4 * rows * actor.architecture.hidden_size
    few, many = (in_training(actor, stack, each, tensor=tensor)[1] for each in (1, 64))
    assert few == many
    # A whole number of tokens, so up to one less than what the chunk has room for.
    assert 14 * (chunk - rows) < many - summed <= 14 * chunk
    scored = [in_scoring(actor, stack, each) for each in (1, 64)]
    assert scored[0] == scored[1] <= 12 * chunk


@pytest.mark.parametrize("stack", AUTOMAPS)
def test_a_micro_batch_smaller_than_the_chunk_has_its_own_logits(stack: TrainingStack) -> None:
    small = model("llama-2-7b")  # of 32,000 tokens, so that a chunk has 2,097
    assert in_scoring(small, stack, 1) == 12 * 2048 * 32_000
    assert in_training(small, stack, 1)[1] == 14 * 2048 * 32_000 + 4 * 32_000 * 4096


@pytest.mark.parametrize("stack", sorted(STACKS.keys() - set(AUTOMAPS)))
def test_other_stacks_have_the_logits_of_the_whole_micro_batch(stack: TrainingStack) -> None:
    actor = model("qwen2.5-14b")
    rows = int(padded_vocabulary(actor.architecture, ints(1))[0])
    per_logit = STACKS[stack].memory.logit_bytes
    assert in_training(actor, stack, 16)[1] == per_logit * rows * 16 * 2048
    assert in_scoring(actor, stack, 16) == constants.FORWARD_LOGITS_BYTES * rows * 16 * 2048


@pytest.mark.parametrize("stack", AUTOMAPS)
def test_hidden_states_at_the_head_count_where_logits_no_longer_hide_them(
    stack: TrainingStack,
) -> None:
    """There are three of a token, in 16 bits: the norm's, its copy, and its gradient."""
    actor, tokens = model("qwen2.5-0.5b"), 64 * 2048
    states = 3 * 2 * actor.architecture.hidden_size * tokens
    with_head, _ = in_training(actor, stack, 64, recompute="none")
    layers, _ = in_training(replace(actor, scalar_head=True), stack, 64, recompute="none")
    assert with_head - layers == states
    # While a layer is made again, which takes more here, they are not there.
    with_head, logits = in_training(actor, stack, 64)
    assert with_head + logits == sum(in_training(replace(actor, scalar_head=True), stack, 64))


@pytest.mark.parametrize("stack", AUTOMAPS)
def test_one_value_per_token_has_no_logits(stack: TrainingStack) -> None:
    critic = model("qwen2.5-14b", scalar_head=True)
    assert in_training(critic, stack, 16)[1] <= 14 * 16 * 2048
    assert in_scoring(critic, stack, 16) <= 12 * 16 * 2048
    assert not head_gradient_bytes(critic, workload(training_stack=stack), layouts())[0]


def test_the_heads_gradient_is_there_in_fp32_and_in_16_bits() -> None:
    """Beside what is held anyway: a table in 16 bits, or one unreduced in fp32."""
    spec, actor = workload(training_stack="automap-fsdp"), model("llama-2-7b")
    table = 32_000 * 4096
    rows = layouts(data=[1, 8, 8, 8], sharding=[FULL, NONE, GRADIENT, FULL])
    assert list(head_gradient_bytes(actor, spec, rows) / table) == [4, 4, 2, 2]
    assert not head_gradient_bytes(model(lora_rank=8), spec, rows).any()
    assert not head_gradient_bytes(actor, workload(training_stack="verl"), rows).any()


def test_the_backward_pass_makes_the_logits_of_each_chunk_again() -> None:
    gpus = pool("h100-80gb-sxm")
    actor, profile = model("qwen2.5-14b"), load_profile(gpus.gpu)
    spec = workload()

    def context(stack: TrainingStack) -> KernelContext:
        return KernelContext(
            actor, gpus, profile, "bf16", sequence_lengths(spec), stack=STACKS[stack]
        )

    def head(stack: TrainingStack, tokens: int) -> tuple[float, float]:
        one = ints(1)
        found = head_seconds(context(stack), MicroBatch(one, one, one, one, ints(tokens)))
        return float(found.forward[0]), float(found.backward[0])

    rows = padded_vocabulary(actor.architecture, ints(1))
    at_once = STACKS["automap-fsdp"].memory.logit_chunk_bytes // (4 * int(rows[0]))
    linear = Linear(ints(actor.architecture.hidden_size), rows)
    there, back = linears_seconds(context("automap-fsdp"), ints(at_once), (linear,))
    forward, backward = head("automap-fsdp", at_once)
    moved = [float(profile.memory_bound(each * at_once * rows).seconds[0]) for each in (38, 52)]
    assert forward == pytest.approx(float(there.seconds[0]) + moved[0])
    assert backward == pytest.approx(float((there.seconds + back.seconds)[0]) + moved[1])
    assert np.array(head("automap-fsdp", 9 * at_once)) == pytest.approx(
        9 * np.array([forward, backward])
    )
    whole = head("transformers-filled", at_once)
    assert backward > whole[1] + float(there.seconds[0])
    assert head("automap-megatron", at_once) == (forward, backward)


def test_other_targets_are_not_priced_as_automaps_executor() -> None:
    first = {
        name: {engine.stacks[0] for engine in target.training} for name, target in TARGETS.items()
    }
    assert first["automap"] == set(AUTOMAPS)
    for name, stacks in first.items():
        assert name in ("automap", "any") or not stacks & set(AUTOMAPS), name


def job(name: str, gpu: str, num_gpus: int) -> JobSpec:
    """GRPO on answers of up to 31,744 tokens, whose whole logits take 37 GiB of a sequence."""
    return JobSpec.model_validate(
        {
            "name": "long-answers",
            "algorithm": "grpo",
            "models": {
                "actor": {"architecture": name},
                "reference": {"architecture": name},
                "reward": {"function": True, "seconds_per_response": 0.01},
            },
            "workload": {
                "prompts_per_iteration": 64,
                "responses_per_prompt": 8,
                "prompt_length": {"mean": 512, "max": 1024},
                "response_length": {"mean": 8000, "max": 31_744},
                "training_stack": "automap-fsdp",
            },
            "cluster": {
                "pools": [{"name": "gpus", "gpu": gpu, "num_nodes": 1, "gpus_per_node": num_gpus}]
            },
            "search": {"target": "automap"},
        }
    )


@pytest.mark.parametrize(
    ("name", "gpu", "num_gpus"),
    [("qwen2.5-14b", "h100-80gb-sxm", 8), ("qwen2.5-1.5b", "a100-40gb-sxm", 1)],
)
def test_answers_of_31744_tokens_fit_without_splitting_them(
    name: str, gpu: str, num_gpus: int
) -> None:
    spec = job(name, gpu, num_gpus)
    plan = make_plan(spec)
    assert resolve(spec).target.name == "automap"
    (train,) = (call for call in plan.calls if call.kind == "train")
    assert train.parallelism is not None
    assert train.parallelism.data_parallel_size == num_gpus
