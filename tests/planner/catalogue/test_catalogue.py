"""The catalogue's data against published figures, and its look-ups."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from automap import planner
from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.errors import SpecError
from tests.planner.catalogue.current_configs import CURRENT, TEXT_TOWERS

FOLDER = Path(planner.__file__).parent

# Counts of the weight files on each model's Hugging Face page ("Model size"), which are exact there
# in the safetensors metadata; GPT-3: Brown et al. 2020 (arXiv:2005.14165), Table 2.1, rounded;
# GPT-NeoX: Black et al. 2022 (arXiv:2204.06745), Table 1; DeepSeek-V3 without its multi-token
# prediction module. Tied Qwen3 models store the embedding table twice; it is counted once here.
PUBLISHED_PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "deepseek-llm-7b": 6_910_365_696,
    "codellama-34b": 33_743_970_304,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "r1-distill-qwen-7b": 7_615_616_512,
    "r1-distill-qwen-14b": 14_770_033_664,
    "r1-distill-qwen-32b": 32_763_876_352,
    "qwen2.5-math-72b": 72_706_203_648,
    "qwen2.5-math-7b": 7_615_616_512,
    "qwen2.5-math-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwq-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "r1-distill-qwen-1.5b": 1_777_088_000,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "deepseek-r1-0528-qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-30b-a3b-2507": 30_532_122_624,
    "qwen3-coder-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b-2507": 235_093_634_560,
    "qwen3-4b-2507": 4_022_468_096,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,
    "kimi-k2": 1_026_408_209_408,
    "gpt-3-175b": 175_000_000_000,
    "gpt2": 124_439_808,
    "gpt-neox-20b": 20_554_567_680,
}
# The model cards' rounded counts; Mixtral: Jiang et al. 2024 (arXiv:2401.04088), Mistral's 12.9B.
PUBLISHED_ACTIVE_PARAMETERS = {
    "qwen3-30b-a3b": 3.3e9,
    "qwen3-30b-a3b-2507": 3.3e9,
    "qwen3-coder-30b-a3b": 3.3e9,
    "qwen3-235b-a22b-2507": 22e9,
    "qwen3-235b-a22b": 22e9,
    "mixtral-8x7b": 12.9e9,
    "deepseek-v3": 37e9,
    "kimi-k2": 32.9e9,
}

# Every name under which measurements and operator tables of our sources list a GPU, and the
# common names and driver strings beside them.
GPU_SPELLINGS = {
    "a100-80gb-sxm": ["a100-80gb-sxm", "A100", "A100-80G", "A100-80GB", "a100_sxm", "a100_dgx"],
    "a100-40gb-sxm": ["a100-40gb", "NVIDIA A100-SXM4-40GB"],
    "a800-80gb-sxm": ["a800", "A800"],
    "h100-80gb-sxm": ["h100-80gb-sxm", "H100", "h100_sxm", "h100_dgx", "NVIDIA H100 80GB HBM3"],
    "h100-96gb-hbm2e": ["h100-96gb-hbm2e"],
    "h800-80gb-sxm": ["h800-80gb-sxm", "H800"],
    "h200-141gb-sxm": ["h200-141gb-sxm", "H200", "NVIDIA H200"],
    "h20-96gb-sxm": ["h20-96gb", "H20"],
    "b200-180gb-sxm": ["b200-180gb-sxm", "b200-180gb", "B200"],
    "b300-288gb-sxm": ["b300", "B300"],
    "gb200-192gb": ["gb200-192gb", "gb200", "GB200x4", "GB200"],
    "gb300-288gb": ["gb300", "GB300"],
    "l40s-48gb": ["l40s-48gb", "L40S", "l40s"],
    "a10g-24gb": ["a10g-24gb", "a10g"],
    "a6000-48gb": ["a6000-48gb", "a6000", "RTX A6000"],
    "rtx3090-24gb": ["rtx3090", "RTX 3090", "NVIDIA GeForce RTX 3090"],
    "rtx4090-24gb": ["rtx4090", "RTX 4090", "4090", "NVIDIA GeForce RTX 4090"],
    "rtx5090-32gb": ["rtx5090", "RTX 5090", "NVIDIA GeForce RTX 5090"],
    "l4-24gb": ["l4", "L4", "NVIDIA L4"],
    "v100-16gb": ["v100-16gb"],
    "v100-32gb": ["v100-32gb", "V100"],
    "cpu": ["cpu", "CPU"],
}

# Peaks published with the operator tables (aiconfigurator-core 0.12.0): bytes per second, dense
# bf16 and fp8 flops per second, and of the node: NVLink or PCIe, network.
OPERATOR_TABLE_PEAKS = {
    "a100-80gb-sxm": (2.039e12, 312e12, None, 300e9, 25e9),
    "h100-80gb-sxm": (3.35e12, 989e12, 1978e12, 450e9, 50e9),
    "h200-141gb-sxm": (4.8e12, 989e12, 1978e12, 450e9, 50e9),
    # The network there is of 800 Gbit/s; a DGX B200 has eight adapters of 400 (its data sheet).
    "b200-180gb-sxm": (7.7e12, 2250e12, 4500e12, 900e9, 50e9),
    "gb200-192gb": (8.0e12, 2500e12, 5000e12, 900e9, 100e9),
    "l40s-48gb": (0.864e12, 362e12, 733e12, 32e9, 6.25e9),  # network: a cloud node's
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED_PARAMETERS.items())
def test_parameter_counts_agree_with_published_ones(name: str, published: int) -> None:
    model = catalogue.architectures()[name]
    assert model.architecture.num_parameters() == pytest.approx(published, rel=0.005)
    assert model.published_parameters == published


@pytest.mark.parametrize(("name", "published"), PUBLISHED_ACTIVE_PARAMETERS.items())
def test_active_counts_agree_with_published_ones(name: str, published: float) -> None:
    model = catalogue.architectures()[name]
    assert model.architecture.active_parameters() == pytest.approx(published, rel=0.02)
    assert model.published_active_parameters == published


def test_every_model_is_tested_against_a_published_count() -> None:
    """Here, or in test_current_models.py to the last parameter."""
    counted = set(PUBLISHED_PARAMETERS) | set(CURRENT) | set(TEXT_TOWERS)
    assert set(catalogue.architectures()) - {"tiny-llama"} == counted
    mixtures = {name for name, m in catalogue.architectures().items() if m.architecture.num_experts}
    published = {
        name
        for name, m in catalogue.architectures().items()
        if m.published_active_parameters is not None
    }
    assert mixtures == published
    assert set(PUBLISHED_ACTIVE_PARAMETERS) <= published


def test_published_counts_of_the_data_files_hold_for_later_additions() -> None:
    for model in catalogue.architectures().values():
        counted = model.architecture.num_parameters()
        assert counted == pytest.approx(model.published_parameters, rel=0.005), model.name
        if model.published_active_parameters is not None:
            active = model.architecture.active_parameters()
            assert active == pytest.approx(model.published_active_parameters, rel=0.02), model.name


def test_what_is_left_out_is_said() -> None:
    deepseek = catalogue.architecture("deepseek-v3")
    assert deepseek.approximation == "the multi-token prediction module is left out"
    assert "vision tower" in catalogue.architecture("qwen3-vl-8b").approximation
    assert catalogue.architecture("llama-2-7b").approximation == ""


def test_tiny_llama_has_what_a_cpu_run_needs() -> None:
    tiny = catalogue.architecture("tiny-llama")
    assert (tiny.num_layers, tiny.hidden_size, tiny.vocab_size) == (2, 64, 256)
    assert (tiny.num_attention_heads, tiny.num_key_value_heads, tiny.head_dim) == (4, 2, 32)


@pytest.mark.parametrize(
    ("name", "spelling"),
    [(name, spelling) for name, spellings in GPU_SPELLINGS.items() for spelling in spellings],
)
def test_gpu_aliases(name: str, spelling: str) -> None:
    assert catalogue.gpu_type(spelling).name == name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Llama-2-70b-hf", "llama-2-70b"),
        ("META-LLAMA/llama-2-70B-HF", "llama-2-70b"),
        ("LLAMA2-70B", "llama-2-70b"),
        ("Llama-2-34b", "codellama-34b"),
        ("LLAMA3.1_8B", "llama-3.1-8b"),
        ("LLAMA3-405B", "llama-3.1-405b"),
        ("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen3 235B A22B", "qwen3-235b-a22b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("GPT3-175B", "gpt-3-175b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-2507"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-30b-a3b-2507"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder-30b-a3b"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder-480b-a35b"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b-2507"),
        ("Qwen/Qwen2.5-Math-72B-Instruct", "qwen2.5-math-72b"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("Qwen/Qwen3-VL-235B-A22B-Thinking", "qwen3-vl-235b-a22b"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo-2-7b"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3.1-70b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "r1-distill-qwen-1.5b"),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-v2-lite"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2"),
        ("moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b-a3b"),
        ("zai-org/GLM-4.6", "glm-4.5"),
        ("zai-org/GLM-4.5-Air-FP8", "glm-4.5-air"),
        ("microsoft/Phi-4-mini-instruct", "phi-4-mini"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("tiny-llama", "tiny-llama"),
    ],
)
def test_model_aliases(spelling: str, name: str) -> None:
    assert catalogue.architecture(spelling) is catalogue.architectures()[name].architecture


def test_no_two_entries_share_a_spelling() -> None:
    for entries in (catalogue.gpu_types(), catalogue.architectures()):
        owners: dict[str, str] = {}
        for entry in entries.values():
            for spelling in {catalogue.normalised(s) for s in (entry.name, *entry.aliases)}:
                assert owners.setdefault(spelling, entry.name) == entry.name, spelling


def test_data_files_name_each_entry_once() -> None:
    """A second table of the same name would silently replace the first."""
    for file, table, known in (
        ("gpus.toml", "gpu", catalogue.gpu_types()),
        ("nodes.toml", "node", catalogue.node_types()),
    ):
        rows = tomllib.loads((FOLDER / "catalogue" / file).read_text())[table]
        assert len(rows) == len(known)
    files = (FOLDER / "catalogue" / "models").glob("*.toml")
    rows = [row for file in files for row in tomllib.loads(file.read_text())["model"]]
    assert len(rows) == len(catalogue.architectures())


def test_every_entry_names_its_source() -> None:
    for entries in (catalogue.gpu_types(), catalogue.node_types(), catalogue.architectures()):
        for entry in entries.values():
            assert len(entry.source) > 10, entry.name


def test_every_gpu_has_its_node_type_and_a_profile() -> None:
    shipped = {folder.name for folder in (FOLDER / "profiles/shipped").iterdir() if folder.is_dir()}
    for gpu in catalogue.gpu_types().values():
        assert catalogue.node_type(gpu.node).name == gpu.node
        assert gpu.profile in shipped or gpu.name == "cpu", gpu.name
        if gpu.name in shipped:
            assert gpu.profile == gpu.name
    used = {gpu.node for gpu in catalogue.gpu_types().values()}
    assert used == set(catalogue.node_types())


@pytest.mark.parametrize(("name", "peaks"), OPERATOR_TABLE_PEAKS.items())
def test_peaks_are_those_of_the_operator_tables(
    name: str, peaks: tuple[float, float, float | None, float, float]
) -> None:
    gpu = catalogue.gpu_type(name)
    node = catalogue.node_type(gpu.node)
    assert peaks == (
        gpu.memory_bytes_per_second,
        gpu.bf16_flops_per_second,
        gpu.fp8_flops_per_second,
        node.intra_node_bytes_per_second,
        node.inter_node_bytes_per_second,
    )


def test_figures_of_a_device_are_in_proportion() -> None:
    """Catches a slipped exponent: no device is far from the others in these ratios."""
    for gpu in catalogue.gpu_types().values():
        if gpu.name == "cpu":
            continue
        nominal_gib = int(gpu.name.split("-")[1].removesuffix("gb"))
        assert 0.92 <= gpu.memory_bytes / (nominal_gib * 2**30) <= 1.02, gpu.name
        assert 30 <= gpu.bf16_flops_per_second / gpu.memory_bytes_per_second <= 450, gpu.name
        assert gpu.fp32_flops_per_second <= gpu.bf16_flops_per_second / 1.9, gpu.name
        if gpu.fp8_flops_per_second is not None:
            assert gpu.fp8_flops_per_second / gpu.bf16_flops_per_second == pytest.approx(
                2, rel=0.02
            )


def test_links_of_a_node_are_in_proportion() -> None:
    for node in catalogue.node_types().values():
        assert node.nvlink_domain_gpus % node.gpus_per_node == 0
        assert node.inter_node_bytes_per_second <= node.intra_node_bytes_per_second, node.name
        assert 3 <= node.host_memory_bytes / 2**30 / node.gpus_per_node <= 512, node.name
        assert 0 < node.price_per_gpu_hour < 20, node.name
    for name in ("gb200-nvl72", "gb300-nvl72"):
        rack = catalogue.node_type(name)
        assert (rack.gpus_per_node, rack.nvlink_domain_gpus) == (4, 72)


def test_the_slow_h100_is_slower() -> None:
    slow, usual = catalogue.gpu_type("h100-96gb-hbm2e"), catalogue.gpu_type("h100-80gb-sxm")
    assert slow.bf16_flops_per_second < usual.bf16_flops_per_second
    assert slow.memory_bytes_per_second < usual.memory_bytes_per_second
    assert slow.memory_bytes > usual.memory_bytes


@pytest.mark.parametrize(
    ("look_up", "name", "closest"),
    [
        (catalogue.gpu_type, "h100-81gb-sxm", "h100-80gb-sxm"),
        (catalogue.node_type, "dgx-h10", "dgx-h100"),
        (catalogue.architecture, "llama-2-71b", "llama-2-7"),
    ],
)
def test_unknown_names_are_refused_with_the_closest(
    look_up: Callable[..., object], name: str, closest: str
) -> None:
    with pytest.raises(SpecError) as caught:
        look_up(name, field="some.field")
    assert caught.value.field == "some.field"
    assert name in caught.value.message
    assert closest in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("h100-81gb", "h100-80gb-sxm"),
        ("rtx4090ti", "rtx4090-24gb"),
        # Of another number, and so of another memory, however near the spelling is.
        ("rtx4080", None),
        ("a5000", None),
    ],
)
def test_of_gpus_only_those_of_the_same_number_are_offered(name: str, offered: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        catalogue.gpu_type(name)
    remedy = caught.value.remedy
    assert ("did you mean" in remedy) == (offered is not None)
    assert offered is None or offered in remedy
    assert 'docs/guides/catalogue.md, "Adding a GPU"' in remedy


# Dense, with fp32 sums; GeForce cards and an L4 of the vendor's whitepapers and data sheet.
GPUS_ON_PCIE = {
    "rtx3090": (0.936e12, 71e12, None, 32e9),
    "rtx4090": (1.008e12, 165.2e12, 330.3e12, 32e9),
    "rtx5090": (1.792e12, 209.5e12, 419e12, 64e9),
    "l4": (0.3e12, 121e12, 242.5e12, 32e9),
}


@pytest.mark.parametrize(("name", "figures"), GPUS_ON_PCIE.items())
def test_cards_without_nvlink_have_the_figures_of_their_data_sheets(
    name: str, figures: tuple[float, float, float | None, float]
) -> None:
    gpu = catalogue.gpu_type(name)
    node = catalogue.node_type(gpu.node)
    assert figures == (
        gpu.memory_bytes_per_second,
        gpu.bf16_flops_per_second,
        gpu.fp8_flops_per_second,
        node.intra_node_bytes_per_second,
    )
    assert node.host_link_bytes_per_second == node.intra_node_bytes_per_second


def test_a_name_unlike_any_other_is_refused_with_the_whole_list() -> None:
    with pytest.raises(SpecError) as caught:
        catalogue.gpu_type("???", field="cluster.pools[0].gpu")
    assert all(name in caught.value.remedy for name in catalogue.gpu_types())


def test_a_long_text_in_place_of_a_name_is_cut() -> None:
    with pytest.raises(SpecError) as caught:
        catalogue.architecture("llama-2-70b" * 10**5, field="models.actor.architecture")
    assert len(str(caught.value)) < 2000


def test_look_ups_return_what_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        catalogue.gpu_types()["mine"] = catalogue.gpu_type("cpu")  # type: ignore[index]
    assert catalogue.architectures() is catalogue.architectures()
    assert isinstance(catalogue.architecture("gpt2"), ModelArchitecture)


def test_version_follows_the_content_of_the_data_files() -> None:
    folder = FOLDER / "catalogue"
    contents = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.toml")}
    assert catalogue._version(contents) == catalogue.catalogue_version()
    changed = contents | {"gpus.toml": contents["gpus.toml"].replace(b"312e12", b"313e12")}
    assert catalogue._version(changed) != catalogue.catalogue_version()
    assert catalogue._version(contents | {"models/new.toml": b""}) != catalogue.catalogue_version()


def test_a_variant_with_sizes_of_its_own_is_found_by_its_name_alone() -> None:
    for name in ("Qwen/Qwen2.5-Math-7B", "qwen2.5-math-7b-instruct", "Qwen/Qwen2-Math-7B"):
        assert catalogue.architecture(name).max_position_embeddings == 4_096
    for name in ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b-base", "Qwen/Qwen2.5-1.5B-Instruct"):
        assert catalogue.architecture(name).max_position_embeddings == 32_768
