"""Resident and transient bytes against published formulas and measurements."""

import numpy as np
import pytest

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.cost import constants, memory
from automap.planner.cost.batches import sequence_lengths, token_budgets
from automap.planner.cost.intervals import bounds
from automap.planner.cost.layer.activations import activation_bytes, layer_activation_bytes
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.stage_layers import stage_layers
from automap.planner.cost.training.train_call import price_train
from automap.planner.layout import OFFLOADS, RECOMPUTES, SHARDINGS
from tests.helpers.cost_model import GIB, call, ints, layouts, model, pool, workload

NONE, OPTIMIZER, GRADIENT, FULL = range(len(SHARDINGS))


def test_llama_2_70b_weighs_its_published_parameters() -> None:
    """68.98 billion parameters (Llama 2 release), two bytes each in bf16."""
    resident, host = memory.home_resident_bytes(
        model("llama-2-70b", trainable=False), workload(), layouts()
    )
    assert resident.weights[0] == pytest.approx(2 * 68.98e9, rel=5e-3)
    assert resident.total[0] == resident.weights[0]
    assert host[0] == 0


def test_training_state_is_18_bytes_per_parameter_and_6_plus_12_over_d_when_sharded() -> None:
    """Megatron-LM's table for the distributed optimizer: bf16 weights, fp32 gradients."""
    actor = model()
    parameters = int(stage_parameters(actor, layouts()).dense[0])
    resident, _ = memory.home_resident_bytes(
        actor, workload(), layouts(data=8, sharding=[NONE, OPTIMIZER, GRADIENT, FULL])
    )
    expected = [18, 6 + 12 / 8, 2 + 4 / 8 + 12 / 8, 18 / 8]
    np.testing.assert_allclose(resident.total / parameters, expected, rtol=1e-6)


def test_zero_stages_match_the_16_byte_table_apart_from_fp32_gradients() -> None:
    """Rajbhandari et al. (arXiv:1910.02054), figure 1: 7.5B parameters on 64 GPUs take 120, 31.4,
    16.6 and 1.9 GB with 2 + 2 + 12 bytes. Ours keep gradients in fp32: 2 bytes more, sharded from
    stage 2 on."""
    arch = ModelArchitecture(
        num_layers=48,
        hidden_size=3584,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=112,
        vocab_size=51200,
        gated_mlp=False,
        tied_embeddings=True,
    )
    actor = model()
    actor = type(actor)("actor", arch, False, True, None)
    parameters = float(stage_parameters(actor, layouts()).dense[0])
    resident, _ = memory.home_resident_bytes(
        actor, workload(), layouts(data=64, sharding=[NONE, OPTIMIZER, GRADIENT, FULL])
    )
    less_gradient = 2 * parameters * np.array([1, 1, 1 / 64, 1 / 64])
    scaled = (resident.total - less_gradient) * 7.5e9 / parameters
    np.testing.assert_allclose(scaled / 1e9, [120, 31.4, 16.6, 1.9], rtol=0.02)


def test_offload_moves_state_to_the_host_and_frees_gradients() -> None:
    rows = layouts(data=4, sharding=OPTIMIZER, offload=[0, 1, 2])
    resident, host = memory.home_resident_bytes(model(), workload(), rows)
    assert OFFLOADS == ("none", "optimizer", "weights")
    assert resident.gradients[0] > 0
    assert resident.optimizer[0] > 0
    assert list(resident.total[1:]) == [resident.weights[0], 0]
    assert list(host) == [0, resident.optimizer[0], resident.optimizer[0] + resident.weights[0]]


def test_lora_trains_adapters_alone() -> None:
    """Rank 16 on every linear layer of a 7B model is 40M parameters, 0.6 % of the base."""
    full, _ = memory.home_resident_bytes(model(), workload(), layouts())
    lora, _ = memory.home_resident_bytes(model(lora_rank=16), workload(), layouts())
    assert lora.optimizer[0] / 12 == pytest.approx(39_976_960, rel=1e-6)
    assert lora.weights[0] == full.weights[0] + 2 * 39_976_960


def test_a_shadow_in_fp8_holds_half_the_weights() -> None:
    spec = workload(rollout_precision="fp8")
    resident = memory.shadow_resident_bytes(model(), spec, layouts(tensor=[1, 2]))
    home, _ = memory.home_resident_bytes(model(trainable=False), spec, layouts(tensor=[1, 2]))
    assert list(resident.weights * 2) == list(home.weights)


def test_more_tensor_parallelism_never_raises_weight_bytes() -> None:
    for name in ("llama-2-7b", "llama-2-70b", "qwen2.5-7b", "mixtral-8x7b"):
        bytes_by_size = memory.weight_bytes(
            model(name), layouts(tensor=[1, 2, 4, 8, 16]), precision="bf16"
        )
        assert np.all(np.diff(bytes_by_size) <= 0), name


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    """Llama-2-70B has 8 key-value heads: at t = 16 each GPU still holds one whole."""
    actor = model("llama-2-70b")
    arch = actor.architecture
    eight, sixteen = memory.weight_bytes(actor, layouts(tensor=[8, 16]), precision="bf16")
    key_value = 2 * 2 * arch.hidden_size * arch.head_dim * arch.num_layers
    norms = 2 * (2 * arch.num_layers + 1) * arch.hidden_size
    # Everything but norms and the replicated heads halves; padding of the vocabulary aside.
    assert sixteen == pytest.approx((eight - key_value - norms) / 2 + key_value + norms, rel=1e-3)


def test_layers_per_stage_are_uneven_and_complete() -> None:
    arch = model("llama-2-7b").architecture
    ((first, middle, last),) = stage_layers(arch, ints(1, 3, 5, 7, 8))
    assert list(first) == [32, 11, 6, 4, 4]
    assert list(middle[1:]) == [11, 7, 5, 4]
    assert list(last) == [32, 10, 5, 3, 4]


def test_experts_divide_by_expert_parallelism() -> None:
    actor = model("mixtral-8x7b")
    one, eight = memory.weight_bytes(
        actor, layouts(data=8, expert=[1, 8], sharding=NONE), precision="bf16"
    )
    experts = 2 * actor.architecture.num_layers * 8 * actor.architecture.expert_parameters
    assert one - eight == pytest.approx(experts * 7 / 8, rel=1e-9)


def test_activations_are_korthikanti_less_dropout() -> None:
    """Korthikanti et al. (arXiv:2205.05198): 34·s·b·h/t with selective recomputation of attention;
    flash attention needs no s² term either, and no dropout saves the two masks: 32·s·b·h/t."""
    gpt3 = model("gpt-3-175b").architecture
    per_token = layer_activation_bytes(
        gpt3, tensor_parallel_size=ints(8), recompute=ints(0), mlp="dense"
    )
    assert per_token[0] == pytest.approx(32 * gpt3.hidden_size / 8, rel=1e-9)
    full = layer_activation_bytes(
        gpt3, tensor_parallel_size=ints(8), recompute=ints(RECOMPUTES.index("full")), mlp="dense"
    )
    assert full[0] == pytest.approx(2 * gpt3.hidden_size / 8, rel=1e-9)


def test_recomputation_and_pipeline_depth_order_activations() -> None:
    actor, spec = model("llama-2-70b"), workload()
    lengths = sequence_lengths(spec)

    def held(num_micro_batches: int, recompute: int, pipeline: int, virtual: int = 1) -> int:
        activations, _ = activation_bytes(
            actor,
            spec,
            lengths,
            layouts(tensor=8, pipeline=pipeline, virtual=virtual),
            micro_batch_size=ints(1),
            num_micro_batches=ints(num_micro_batches),
            recompute=ints(recompute),
        )
        return int(activations[0])

    assert held(8, 0, 4) > held(8, 1, 4) > held(8, 2, 4)
    assert held(8, 0, 4) == held(64, 0, 4)  # 1F1B: at most p in flight
    assert held(2, 0, 4) == pytest.approx(held(8, 0, 4) / 2, rel=0.01)
    assert held(64, 0, 4, virtual=5) == pytest.approx(held(64, 0, 4) * (1 + 3 / 20), rel=0.01)


def test_peak_memory_of_a_published_fsdp_run() -> None:
    """torchtitan 2024-12: Llama 3.1 8B, FSDP on 8 H100, 2 × 8192 tokens, selective recomputation,
    compiled: 77.0 GiB reserved."""
    spec = workload(
        prompts_per_iteration=16,
        prompt_length={"mean": 4096, "max": 4096},
        response_length={"mean": 4096, "max": 4096},
        updates_per_epoch=1,
        packed_sequences=False,
    )
    actor, rows = model("llama-3.1-8b"), layouts(data=8, sharding=FULL)
    hardware = pool("h100-96gb-hbm2e", num_nodes=1)
    estimate = price_train(
        actor,
        call("train", num_sequences=16, num_updates=1),
        spec,
        hardware,
        load_profile(hardware.gpu),
        rows,
        micro_batch_size=ints(2),
        recompute=ints(RECOMPUTES.index("selective")),
    )
    resident, _ = memory.home_resident_bytes(actor, spec, rows)
    peak = resident.total[0] + estimate.transient.total[0]
    assert peak / GIB == pytest.approx(77.0, rel=0.15)


def test_usable_memory_leaves_context_and_fragmentation() -> None:
    hardware = pool()
    usable = memory.usable_bytes(hardware)
    left = hardware.gpu.memory_bytes - usable
    assert left >= constants.CONTEXT_BYTES + 0.04 * hardware.gpu.memory_bytes
    assert usable > 0.9 * hardware.gpu.memory_bytes


def test_a_margin_leaves_the_usable_memory_that_the_interval_of_a_full_gpu_takes() -> None:
    """At 10 % the 80 % interval ends at what is usable; from one half on all of it is filled."""
    hardware = pool()
    usable = memory.usable_bytes(hardware)
    filled = [
        memory.fillable_bytes(hardware, max_out_of_memory_probability=chance)
        for chance in (0.001, 0.05, 0.1, 0.4, 0.5, 1.0)
    ]
    assert filled == sorted(filled)
    assert bounds(filled[2], "memory")[1] == pytest.approx(usable, rel=1e-5)
    assert filled[3] < filled[4] == filled[5] == usable


def test_token_budgets_cover_one_longest_sequence_and_never_exceed_all_at_the_maximum() -> None:
    lengths = sequence_lengths(workload(response_length={"p50": 500, "p90": 2000, "max": 8192}))
    tokens = token_budgets(lengths, ints(1, 2, 8, 64))
    assert tokens[0] == lengths.max_tokens
    assert np.all(np.diff(tokens) > 0)
    assert np.all(tokens <= ints(1, 2, 8, 64) * lengths.max_tokens)
    assert tokens[3] < 0.6 * 64 * lengths.max_tokens
