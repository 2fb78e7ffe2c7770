"""Rows become what the planner prices, and nothing is predicted that it cannot price."""

import numpy as np
import pytest

from automap.planner import catalogue
from automap.planner.cost import constants, memory
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.rl_systems import system_of
from automap.planner.cost.training.train_call import price_train
from automap.planner.layout import SHARDINGS
from automap.planner.validation.frameworks import FRAMEWORKS, framework_of
from automap.planner.validation.predictions import Assumptions, CannotPredictError
from automap.planner.validation.subjects import (
    architecture_of,
    pool_of,
    product_precision,
    stated_port,
)
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import validate
from tests.helpers import cost_model
from tests.planner.validation.published_tables import golden, text_of

LLAMA = {
    "model": "Llama 3.1 8B",
    "num_layers": "32",
    "hidden_size": "4096",
    "intermediate_size": "14336",
    "num_attention_heads": "32",
    "num_key_value_heads": "8",
    "head_dim": "128",
    "vocab_size": "128256",
    "gated_mlp": "1",
    "tied_embeddings": "0",
    "gpu_type": "h100",
    "gpus_per_node": "8",
    "precision": "bf16",
    "quality": "A",
    "source": "somewhere",
}
TRAINING = LLAMA | {
    "num_gpus": "16",
    "tensor_parallel_size": "2",
    "pipeline_parallel_size": "2",
    "virtual_pipeline_parallel_size": "1",
    "context_parallel_size": "1",
    "data_parallel_size": "4",
    "sharding": "optimizer",
    "recompute": "selective",
    "micro_batch_size": "2",
    "global_batch_size": "64",
    "sequence_length": "4096",
    "workload": "pretrain",
    "iteration_seconds": "3.5",
}
EXPERTS = TRAINING | {
    "model": "Qwen3 30B A3B",
    "num_layers": "48",
    "hidden_size": "2048",
    "intermediate_size": "6144",
    "num_key_value_heads": "4",
    "vocab_size": "151936",
    "num_experts": "128",
    "num_experts_per_token": "8",
    "moe_intermediate_size": "768",
    "num_shared_experts": "0",
    "num_dense_layers": "0",
    "tensor_parallel_size": "1",
    "pipeline_parallel_size": "1",
    "data_parallel_size": "16",
    "expert_parallel_size": "8",
    "micro_batch_size": "1",
    "precision": "fp8",
}
SERVING = LLAMA | {
    "num_gpus": "2",
    "tensor_parallel_size": "2",
    "data_parallel_size": "1",
    "engine": "vllm",
    "load": "serving",
    "prompt_length": "1024",
    "response_length": "512",
    "concurrency": "16",
    "decode_step_seconds": "0.01",
}


def row(kind, cells):
    names = golden(kind)[0].keys()
    table = parse_table(text_of([dict.fromkeys(names, "") | {"row_id": "r"} | cells]))
    assert table.mistakes == ()
    return table.rows[0]


def predicted(kind, cells):
    return list(validate([row(kind, cells)]))


def reason(kind, cells):
    (one,) = predicted(kind, cells)
    assert one.predicted is None
    return one.skipped_because


def planner_price(lora_rank=None, training_precision=None, **changes):
    """The same run through the planner's front: a job's train call."""
    layouts = cost_model.layouts(2, 2, data=4, sharding=SHARDINGS.index("optimizer"))
    workload = cost_model.workload(
        prompts_per_iteration=64,
        prompt_length={"mean": 3000, "max": 3000},
        response_length={"mean": 1096, "max": 1096},
        updates_per_epoch=1,
        training_precision=training_precision,
    )
    model = cost_model.model("llama-3.1-8b", lora_rank=lora_rank)
    pool = cost_model.pool("h100-80gb-sxm", num_nodes=2)
    priced = price_train(
        model,
        cost_model.call("train", num_sequences=64, num_updates=1),
        workload,
        pool,
        load_profile(pool.gpu),
        layouts,
        micro_batch_size=np.array([2]),
        recompute=np.array([1]),
        **changes,
    )
    return priced, memory.home_resident_bytes(model, workload, layouts)[0]


def test_a_training_row_is_what_the_planner_prices_for_the_same_run():
    priced, _ = planner_price()
    (one,) = predicted("training", TRAINING)
    assert one.predicted == pytest.approx(float(priced.seconds.total[0]), rel=1e-12)
    assert sum(one.breakdown.values()) == pytest.approx(one.predicted)
    assert one.breakdown["bubble_seconds"] == pytest.approx(float(priced.seconds.bubble[0]))
    assert one.relative_error == pytest.approx(one.predicted / 3.5 - 1)


def test_fp8_rows_price_only_their_products_in_fp8():
    whole, _ = planner_price()
    low, _ = planner_price(training_precision="fp8")
    (one,) = predicted("training", TRAINING | {"precision": "mxfp8"})
    assert one.predicted == pytest.approx(float(low.seconds.total[0]), rel=1e-12)
    assert low.seconds.compute[0] < whole.seconds.compute[0]
    assert low.seconds.optimizer[0] == whole.seconds.optimizer[0]
    # The weights' copies in 8 bits, as they are and transposed, stand beside them.
    assert low.transient.weights[0] > whole.transient.weights[0]


LITGPT = LLAMA | {
    "source": "LitGPT config hub finetuning",
    "gpu_type": "a10g-24gb",
    "gpus_per_node": "4",
    "num_gpus": "1",
    "num_layers": "8",
    "tied_embeddings": "1",
    "micro_batch_size": "4",
    "sequence_length": "512",
    "workload": "sft",
    "measured_by": "torch",
    "peak_memory_bytes": "1.2e10",
}


def test_plain_pytorch_has_activations_or_gradients_at_its_peak():
    """All in bf16: weights, moments, and the larger of what is kept and what comes of it."""
    (peak,) = predicted("memory", LITGPT)
    (accumulated,) = predicted("memory", LITGPT | {"global_batch_size": "8"})
    assert accumulated.predicted > peak.predicted
    parts = accumulated.breakdown
    both = parts["activations_bytes"] + parts["logits_bytes"] + parts["gradients_bytes"]
    state = parts["weights_bytes"] + parts["optimizer_bytes"]
    assert accumulated.predicted == pytest.approx(state + both)
    parameters = peak.breakdown["weights_bytes"] / 2
    assert peak.breakdown["optimizer_bytes"] == pytest.approx(4 * parameters, rel=1e-6)
    kept = parts["activations_bytes"] + parts["logits_bytes"]
    expected = 6 * parameters + max(2 * parameters, kept)
    assert peak.predicted == pytest.approx(expected, rel=1e-6)


def test_litgpt_ties_no_embeddings_and_recomputes_on_several_gpus_only():
    (tied,) = predicted("memory", LITGPT)
    (apart,) = predicted("memory", LITGPT | {"tied_embeddings": "0"})
    assert tied.predicted == apart.predicted
    assert any("the head is a copy" in text for text in tied.assumptions)
    (several,) = predicted("memory", LITGPT | {"num_gpus": "4"})
    assert any(text.startswith("recompute not stated: full") for text in several.assumptions)
    assert any(text.startswith("recompute not stated: none") for text in apart.assumptions)


def test_an_optimizer_that_the_gpu_cannot_hold_is_paged_out():
    large = LITGPT | {"num_layers": "20"}
    (peak,) = predicted("memory", large)
    assert peak.breakdown["optimizer_bytes"] == 0
    assert any("paged to the host" in text for text in peak.assumptions)
    (roomy,) = predicted("memory", large | {"gpu_type": "h100", "gpus_per_node": "8"})
    assert roomy.breakdown["optimizer_bytes"] > 0


@pytest.mark.parametrize("measured_by", ["nvidia-smi", "torch"])
def test_memory_counts_what_the_measurement_counts(measured_by):
    """PyTorch sees tensors; nvidia-smi the unused part of its blocks, NCCL's buffers (here of
    tensor, data and pipeline groups) and the CUDA context as well."""
    priced, resident = planner_price()
    cells = {name: cell for name, cell in TRAINING.items() if name != "iteration_seconds"}
    cells |= {"peak_memory_bytes": "5e10", "out_of_memory": "0", "measured_by": measured_by}
    peak, verdict = predicted("memory", cells)
    nccl = 3 * constants.COMMUNICATION_BUFFER_BYTES
    tensors = int(priced.transient.total[0] + resident.total[0]) - nccl
    expected = tensors
    if measured_by == "nvidia-smi":
        expected = tensors / (1 - constants.FRAGMENTATION_SHARE) + nccl + constants.CONTEXT_BYTES
    assert peak.predicted == pytest.approx(expected, rel=1e-9)
    assert verdict.predicted == 0.0


def test_a_framework_that_logs_on_rank_0_prints_the_first_stages_memory():
    cells = {name: cell for name, cell in TRAINING.items() if name != "iteration_seconds"}
    cells |= {"peak_memory_bytes": "5e10", "out_of_memory": "0", "measured_by": "torch"}
    cells |= {"pipeline_parallel_size": "2", "data_parallel_size": "", "vocab_size": "1000000"}
    cells |= {"source": "BigScience; notes.md", "sharding": "optimizer"}
    peak, verdict = predicted("memory", cells)
    assert any("first pipeline stage" in text for text in peak.assumptions)
    stated = predicted("memory", cells | {"notes": "Maximum over first and last stage"})
    assert peak.predicted < stated[0].predicted  # the last stage has the logits
    assert verdict.breakdown["logits_bytes"] == 0.0


def test_an_impossible_run_is_predicted_to_run_out_of_memory():
    cells = {name: cell for name, cell in TRAINING.items() if name != "iteration_seconds"}
    cells |= {"micro_batch_size": "32", "recompute": "none", "sequence_length": "32768"}
    cells |= {"global_batch_size": "128"}
    (verdict,) = predicted("memory", cells | {"out_of_memory": "1", "measured_by": "torch"})
    assert (verdict.quantity, verdict.predicted, verdict.measured) == ("out_of_memory", 1.0, 1.0)


def test_steps_that_take_in_prompts_are_a_share_of_all():
    """Fourteen others join in 512 steps: as many carry a prompt, the rest are as without any."""
    (many,) = predicted("generation", SERVING)
    (one,) = predicted("generation", SERVING | {"concurrency": "1"})
    assert one.breakdown["steps_with_prompts_seconds"] == 0.0
    each = many.breakdown["steps_with_prompts_seconds"] * 512 / 14
    # A prompt alone reads all weights, which a step with prompts has read for its sequences.
    prefills = predicted("generation", SERVING | {"concurrency": "1", "prefill_seconds": "0.1"})[1]
    assert prefills.quantity == "prefill_seconds"
    alone = sum(many.breakdown.values()) - many.breakdown["steps_with_prompts_seconds"]
    assert prefills.predicted < each < prefills.predicted + alone / (1 - 14 / 512)
    assert sum(many.breakdown.values()) == pytest.approx(many.predicted)


def test_with_a_prompt_to_take_in_at_every_step_all_steps_carry_one():
    """Beyond that a step carries more of them, up to its chunk."""
    crowd = SERVING | {"prompt_length": "512", "response_length": "64"}
    (full,) = predicted("generation", crowd | {"concurrency": "66"})
    (over,) = predicted("generation", crowd | {"concurrency": "130"})
    assert full.breakdown["compute_seconds"] == over.breakdown["compute_seconds"] == 0.0
    share = over.breakdown["steps_with_prompts_seconds"]
    assert 1.5 < share / full.breakdown["steps_with_prompts_seconds"] < 2.2


def test_requests_of_drawn_lengths_are_not_in_step():
    """Where prompts go first, half of the others in step are waited for, and all of them else."""
    waiting = SERVING | {"engine": "sglang", "response_length": "1024", "concurrency": "64"}
    (drawn,) = predicted("generation", waiting)
    (equal,) = predicted("generation", waiting | {"prompt_length": "1023"})
    assert any("not in step" in text for text in drawn.assumptions)
    assert not any("not in step" in text for text in equal.assumptions)
    times = (
        drawn.breakdown["steps_with_prompts_seconds"]
        / equal.breakdown["steps_with_prompts_seconds"]
    )
    # One that comes alone passes in a chunk of its own, which is not full.
    assert 62 / 28 < times < 1.2 * 62 / 28


def test_prefill_with_many_requests_in_flight_is_queueing():
    one, prefill = predicted("generation", SERVING | {"prefill_seconds": "0.5"})
    assert one.predicted is not None
    assert "queueing" in prefill.skipped_because


def test_rows_with_4_bit_weights_are_priced_by_what_they_read():
    """Weights alone decide a step of few requests; subsets keep the formats apart."""
    few = SERVING | {"concurrency": "1", "prompt_length": "64"}
    (wide,), (half,) = (predicted("generation", few | {"precision": p}) for p in ("bf16", "fp8"))
    for precision in ("int4", "nvfp4"):
        (low,) = predicted("generation", few | {"precision": precision})
        assert low.predicted < half.predicted < wide.predicted
        assert low.subset == f"{wide.subset}, 4-bit"


def test_fp4_is_nvfp4_but_for_gpt_oss():
    """gpt-oss ships its experts in mxfp4; a table that says fp4 of others leaves it open."""
    few = SERVING | {"concurrency": "1", "precision": "fp4", "gpu_type": "b200"}
    (found,) = predicted("generation", few)
    assert "fp4 is read as nvfp4" in found.assumptions
    assert any("cache in fp8" in text and "nvfp4" in text for text in found.assumptions)
    (same,) = predicted("generation", few | {"precision": "nvfp4"})
    assert found.predicted == same.predicted
    (wide,) = predicted("generation", few | {"precision": "bf16"})
    for cells in ({"quantization": "mxfp4"}, {"model": "GPT-OSS 20B"}):
        (dense,) = predicted("generation", few | cells)
        assert "fp4 of gpt-oss is read as the mxfp4 of its experts" in dense.assumptions
        assert dense.predicted == wide.predicted  # it has no experts


def test_requests_beyond_the_cache_wait_and_that_is_said():
    cells = SERVING | {"tensor_parallel_size": "1", "num_gpus": "1", "prompt_length": "32768"}
    (few,) = predicted("generation", cells | {"concurrency": "64"})
    (more,) = predicted("generation", cells | {"concurrency": "512"})
    assert any("the rest waits" in text for text in more.assumptions)
    assert more.predicted == few.predicted


def test_a_catalogue_model_is_known_by_its_sizes():
    deepseek = next(
        cells for cells in golden("generation") if cells["model"].startswith("deepseek-ai")
    )
    found = architecture_of(row("generation", deepseek | {"num_layers": "20"}))
    whole = catalogue.architecture("deepseek-v3")
    assert found.attention_parameters_per_layer == whole.attention_parameters_per_layer
    assert found.num_layers == 20
    other = deepseek | {"vocab_size": "1000"}
    with pytest.raises(CannotPredictError, match="latent attention"):
        architecture_of(row("generation", other))


@pytest.mark.parametrize(
    ("kind", "cells", "part"),
    [
        ("training", TRAINING | {"quality": "C"}, "quality C"),
        ("training", TRAINING | {"hidden_size": ""}, "hidden_size is not stated"),
        ("training", TRAINING | {"precision": "nvfp4"}, "nvfp4 is not in the cost model"),
        ("training", TRAINING | {"sequence_length": ""}, "sequence_length is not stated"),
        ("training", TRAINING | {"workload": "layer"}, "workload layer"),
        (
            "training",
            TRAINING | {"num_gpus": "18", "data_parallel_size": ""},
            "no multiple of the stated parallel sizes",
        ),
        ("generation", SERVING | {"concurrency": ""}, "concurrency is not stated"),
        ("generation", SERVING | {"notes": "gated linear attention in 3 of 4"}, "gated linear"),
        (
            "generation",
            SERVING
            | {"gpu_type": "a10g", "num_gpus": "1", "tensor_parallel_size": "1"}
            | {"num_layers": "80"},
            "do not fit",
        ),
    ],
)
def test_what_cannot_be_priced_says_why(kind, cells, part):
    assert part in reason(kind, cells)


def test_what_a_row_leaves_open_is_the_frameworks_default():
    cells = TRAINING | {"sharding": "", "recompute": "", "source": "NVIDIA MaxText; README.md"}
    (one,) = predicted("training", cells)
    (stated,) = predicted("training", cells | {"sharding": "full", "recompute": "selective"})
    assert one.predicted == stated.predicted
    assert any(text.startswith("recompute not stated: selective") for text in one.assumptions)
    assert stated.assumptions == ("network between nodes: the catalogue's for this GPU",)


def test_each_framework_is_recognised_and_says_why():
    for one in FRAMEWORKS:
        for workload in one.workloads or ("lora",):
            pages = [f"Some {phrase.upper()} page" for phrase in one.phrases]
            num_gpus = 8 if one.several_gpus else 1
            splits = one.splits_sequences
            found = [
                framework_of(page, workload, num_gpus, splits_sequences=splits) for page in pages
            ]
            assert found == [one] * len(pages)
        assert one.why
    assert framework_of("nobody knows").name == "unknown framework"


@pytest.mark.parametrize(
    ("source", "row", "expected"),
    [
        # A phrase inside a word, or in the name of a model, is no framework.
        ("Nemotron-H report", {}, "unknown framework"),
        ("Mistral-NeMo-12B on MPI", {}, "unknown framework"),
        ("hyperverl and verlag labs", {}, "unknown framework"),
        ("a vendor's blog", {"sharding": "full"}, "unknown framework, fully sharded"),
        ("a vendor's blog", {"note": "JAX MaxText; fp8"}, "MaxText"),
        # A collection has runs of several frameworks.
        ("NVIDIA DGX Cloud benchmarking recipes", {}, "NeMo / Megatron-Bridge"),
        ("NVIDIA DGX Cloud benchmarking recipes", {"note": "torchtitan"}, "torchtitan"),
        (
            "NVIDIA DGX Cloud benchmarking recipes",
            {"sharding": "full"},
            "unknown framework, fully sharded",
        ),
        # A name goes before what the sharding suggests.
        ("NVIDIA-NeMo/Megatron-Bridge", {"sharding": "full"}, "NeMo / Megatron-Bridge"),
    ],
)
def test_a_framework_is_what_the_row_states(source, row, expected):
    assert framework_of(source, **row).name == expected


def test_finetuning_recipes_pack_samples_and_adapt_one_projection():
    nemo = TRAINING | {"source": "NVIDIA/NeMo performance summary"}
    (whole,) = predicted("training", nemo)
    (packed,) = predicted("training", nemo | {"workload": "sft"})
    # The same tokens, but attention stays inside samples of 200.
    assert packed.predicted < whole.predicted
    assert any("packed samples" in text for text in packed.assumptions)
    (adapters,) = predicted("training", nemo | {"workload": "lora", "notes": "lora 16"})
    assert adapters.predicted < packed.predicted
    # Elsewhere sequences are whole, and every linear layer has an adapter.
    other = TRAINING | {"source": "pytorch/torchtitan", "sharding": "full"}
    (pretrained,), (tuned,) = (
        predicted("training", other | {"workload": kind}) for kind in ("pretrain", "sft")
    )
    assert pretrained.predicted == tuned.predicted
    priced, _ = planner_price(lora_rank=16, adapters="query-key-value")
    every, _ = planner_price(lora_rank=16)
    assert priced.seconds.compute[0] < every.seconds.compute[0]


def test_experts_that_drop_tokens_do_not_wait_for_the_host():
    (waiting,) = predicted("training", EXPERTS)
    (ahead,) = predicted("training", EXPERTS | {"notes": "Token dropping; as printed"})
    assert ahead.predicted < waiting.predicted


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("4 Omni-Path (100 Gb/s) links per node", 6.25),
        ("8 x 200 Gb/s InfiniBand per node", 25.0),
        ("EFA 4x100 Gb/s per node (400 Gb/s)", 6.25),
        ("8x400 Gb/s NDR InfiniBand per node, job name: h100-64-SHARP", 50.0),
        ("EFAv2 3200 Gb/s per node", 50.0),
        ("inter-node 800 Gbps (per node, as stated)", 12.5),
        ("Grand Teton, 400 Gb/s per GPU", 50.0),
    ],
)
def test_a_stated_network_is_read(text, gigabytes):
    assert stated_port(text, 8) == pytest.approx(gigabytes * 1e9)


def test_a_network_that_is_not_stated_is_the_catalogues():
    assert stated_port("NVLink; 8 GPUs", 8) is None
    assumptions = Assumptions()
    pool = pool_of(row("training", TRAINING), assumptions)
    node = catalogue.node_type("dgx-h100")
    assert pool.inter_node_bytes_per_second == node.inter_node_bytes_per_second
    assert assumptions.texts == ["network between nodes: the catalogue's for this GPU"]
    inside = Assumptions()
    pool_of(row("training", TRAINING | {"num_gpus": "8", "data_parallel_size": "2"}), inside)
    assert inside.texts == []


def test_precisions_map_to_what_the_profile_has():
    assert product_precision(row("training", TRAINING | {"precision": "mxfp8"})) == "fp8"
    with pytest.raises(CannotPredictError, match="precision is not stated"):
        product_precision(row("training", TRAINING | {"precision": ""}))


def test_gemm_rows_are_points_of_the_profile_itself():
    found = list(validate(parse_table(text_of(golden("gemm"))).rows))
    assert {one.provenance for one in found} <= {"measured", "interpolated"}


def test_only_the_first_efa_starts_slowly():
    cells = next(row for row in golden("collectives") if "EFA 4x100" in row["fabric"])
    (first,) = predicted("collectives", cells | {"row_id": "r"})
    (later,) = predicted(
        "collectives", cells | {"row_id": "r", "fabric": "EFAv2 400 Gb/s per node"}
    )
    assert first.predicted > 1.5 * later.predicted


def test_collectives_over_an_unstated_network_are_skipped():
    cells = next(row for row in golden("collectives") if row["num_nodes"] != "1")
    cells = cells | {"row_id": "r", "fabric": "not stated"}
    assert reason("collectives", cells) == "the network between nodes is not stated"


@pytest.mark.slow
def test_predictions_repeat():
    rows = parse_table(text_of(golden("training"))).rows
    assert list(validate(rows)) == list(validate(rows))


NEMO_RL = LLAMA | {
    "source": "NeMo-RL performance summary",
    "system": "NeMo-RL",
    "algorithm": "GRPO",
    "synchrony": "sync",
    "num_gpus": "16",
    "tensor_parallel_size": "1",
    "pipeline_parallel_size": "2",
    "data_parallel_size": "8",
    "generation_tensor_parallel_size": "1",
    "global_batch_size": "512",
    "sequence_length": "4096",
    "average_sequence_length": "1000",
    "num_rollouts": "2048",
    "iteration_seconds": "90",
}


def test_a_synchronous_iteration_is_the_sum_of_its_calls():
    (one,) = predicted("rlhf", NEMO_RL)
    assert list(one.breakdown) == [
        "actor.generate_seconds",
        "actor.forward_seconds",
        "reference.forward_seconds",
        "actor.train_seconds",
        "state_seconds",
        "handover_seconds",
        "around_seconds",
    ]
    assert one.predicted == pytest.approx(sum(one.breakdown.values()))


def test_only_a_known_framework_takes_time_around_its_calls():
    (known,) = predicted("rlhf", NEMO_RL)
    (unknown,) = predicted("rlhf", NEMO_RL | {"system": "another"})
    system = system_of("NeMo-RL v0.6")
    assert known.breakdown["around_seconds"] == system.iteration_seconds > 0
    assert unknown.breakdown["around_seconds"] == 0
    assert known.breakdown["state_seconds"] > 4 * unknown.breakdown["state_seconds"] > 0
    # The one averages responses, the other prompts and responses.
    assert known.breakdown["actor.train_seconds"] > 1.08 * unknown.breakdown["actor.train_seconds"]


def test_an_iteration_is_priced_with_the_stack_of_its_framework():
    stated = NEMO_RL | {"sharding": "optimizer", "recompute": "none"}
    (core,) = predicted("rlhf", stated)
    (fsdp,) = predicted("rlhf", stated | {"source": "torchtitan; an RL example"})
    assert fsdp.breakdown["actor.generate_seconds"] == core.breakdown["actor.generate_seconds"]
    for part in ("actor.forward_seconds", "actor.train_seconds"):
        assert fsdp.breakdown[part] > core.breakdown[part]


def test_an_asynchronous_iteration_is_the_slower_half_and_the_sync():
    (one,) = predicted("rlhf", NEMO_RL | {"synchrony": "async", "data_parallel_size": ""})
    parts = dict(one.breakdown)
    generation = parts.pop("actor.generate_seconds")
    sync, handover = parts.pop("weight_sync_seconds"), parts["handover_seconds"]
    # What the driver does between the trainer's calls keeps no engine from generating.
    assert one.predicted == pytest.approx(max(generation, sum(parts.values())) + sync)
    assert any("half each" in text for text in one.assumptions)
    (together,) = predicted("rlhf", NEMO_RL)
    assert parts["actor.train_seconds"] > 1.5 * together.breakdown["actor.train_seconds"]
    # Of four calls the one that generates has its prompts before.
    assert handover == pytest.approx(together.breakdown["handover_seconds"] * 3 / 4)


def test_a_weight_sync_inside_one_node_does_not_cross_the_network():
    apart = NEMO_RL | {"synchrony": "async", "data_parallel_size": ""}
    inside = apart | {"num_gpus": "8", "gpus_per_node": "8"}
    (two,), (one,) = predicted("rlhf", apart), predicted("rlhf", inside)
    # The same shards, sent and received by as many GPUs as before or fewer.
    name = "weight_sync_seconds"
    assert one.breakdown[name] < 0.5 * two.breakdown[name]


@pytest.mark.parametrize("kind", ["training", "memory"])
@pytest.mark.parametrize(
    ("source", "stated", "told"),
    [
        ("Megatron-LM examples", "0", "sequence parallelism is priced although the run had none"),
        ("Megatron-LM examples", "1", None),
        ("Korthikanti et al. 2022", "0", None),
        ("Korthikanti et al. 2022", "1", None),
        ("BigScience notes", "0", None),
        ("BigScience notes", "1", "no sequence parallelism is priced although the run had it"),
    ],
)
def test_rows_priced_with_another_sequence_parallelism_say_so(kind, source, stated, told):
    cells = {name: cell for name, cell in TRAINING.items() if name != "iteration_seconds"}
    memory_cells = cells | {"measured_by": "torch", "peak_memory_bytes": "6e10"}
    row = (TRAINING if kind == "training" else memory_cells) | {"precision": "fp16"}
    (one, *_) = predicted(kind, row | {"source": source, "sequence_parallel": stated})
    about = [text for text in one.assumptions if "sequence parallelism" in text]
    assert about == ([] if told is None else [told])


def test_a_precision_that_the_stack_lacks_is_said_and_not_priced():
    cells = TRAINING | {"source": "LitGPT", "precision": "fp16"}
    assert "pytorch-bf16" in reason("training", cells)


def test_older_rollouts_wait_for_their_longest_response_less_often():
    apart = NEMO_RL | {"synchrony": "async", "data_parallel_size": "", "num_rollouts": "512"}
    (one,) = predicted("rlhf", apart | {"placement": "dedicated (1-step Off policy)"})
    (eight,) = predicted("rlhf", apart | {"placement": "dedicated (8-step Off policy)"})
    name = "actor.generate_seconds"
    assert one.breakdown[name] / 8 < eight.breakdown[name] < 0.5 * one.breakdown[name]
    assert eight.breakdown["actor.train_seconds"] == one.breakdown["actor.train_seconds"]


@pytest.mark.parametrize(("lag", "half_of"), [(1, 128), (8, 256)])
def test_training_gpus_divide_the_batch_and_are_the_faster_of_the_next(lag, half_of):
    cells = {"synchrony": "async", "data_parallel_size": "", "gpus_per_node": "8"}
    cells |= {"placement": f"dedicated ({lag}-step Off policy)", "pipeline_parallel_size": "1"}
    split = NEMO_RL | cells | {"num_gpus": "192"}
    (uneven,) = predicted("rlhf", split)
    (even,) = predicted("rlhf", split | {"num_gpus": str(half_of)})
    # 96 ranks do not divide a batch of 512; 64 and 128 do.
    name = "actor.train_seconds"
    assert uneven.breakdown[name] == pytest.approx(even.breakdown[name])


VERL = NEMO_RL | {
    "source": "verl fully_async docs",
    "system": "verl",
    "algorithm": "DAPO",
    "tensor_parallel_size": "",
    "pipeline_parallel_size": "",
    "data_parallel_size": "",
    "sequence_length": "",
    "average_sequence_length": "",
    "max_response_length": "8192",
    "num_rollouts": "4096",
    "iteration_seconds": "",
    "generation_seconds": "100",
    "log_prob_seconds": "30",
    "training_seconds": "120",
    "notes": "512 prompts x 8 responses",
}


def test_shares_of_stages_need_no_mean_length():
    shares = {one.quantity: one for one in predicted("rlhf", VERL)}
    assert set(shares) == {"generation_share", "log_prob_share", "training_share"}
    assert sum(one.predicted for one in shares.values()) == pytest.approx(1.0)
    assert shares["log_prob_share"].measured == pytest.approx(30 / 250)
    parts = shares["training_share"].breakdown
    handover = parts["handover_seconds"]
    assert handover == system_of("verl").handover_seconds_per_token * 4096 * (128 + 8192)
    assert parts["training_seconds"] + handover == pytest.approx(120, rel=0.02)
    assert 0 < parts["response_tokens"] < 8192
    assert shares["log_prob_share"].predicted < shares["training_share"].predicted


def test_training_longer_than_the_longest_responses_has_no_shares():
    told = {
        one.skipped_because
        for one in validate(
            parse_table(text_of([VERL | {"row_id": "r", "training_seconds": "90000"}])).rows
        )
    }
    assert told == {"no mean response length explains the training seconds"}


@pytest.mark.parametrize(
    ("cells", "part"),
    [
        ({"algorithm": "PPO"}, "sizes of critic and reward"),
        ({"average_sequence_length": ""}, "mean sequence length"),
        ({"generation_tensor_parallel_size": "3"}, "no multiple"),
    ],
)
def test_iterations_that_leave_their_time_open_say_so(cells, part):
    assert part in reason("rlhf", NEMO_RL | cells)
