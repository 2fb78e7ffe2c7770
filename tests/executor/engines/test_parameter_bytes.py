"""Parameter bytes per rank: the planner's counts against the modules themselves, on `meta`.

Nothing is allocated, so models have their real sizes. Megatron-core believes it is one rank of
many: PyTorch's fake process group has every rank but sends nothing.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from torch.nn.functional import silu
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.cost.memory import weight_bytes
from automap.planner.cost.shards import padded_vocabulary, parameters_by_stage
from automap.planner.job.job import Model
from automap.planner.layout import Layouts
from tests.helpers.cost_model import layouts

BF16_BYTES = 2


def trained(arch: ModelArchitecture) -> Model:
    return Model("actor", arch, scalar_head=False, trainable=True, lora_rank=None)


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Megatron's constructors without a GPU: no streams, no exchange of tied embeddings."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_, **__: None)
    monkeypatch.setattr(LanguageModule, "setup_embeddings_and_output_layer", lambda _: None)
    yield
    parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()


def configuration(arch: ModelArchitecture, rows: Layouts) -> TransformerConfig:
    tensor, expert = int(rows.tensor_parallel_size[0]), int(rows.expert_parallel_size[0])
    experts = {
        "num_moe_experts": arch.num_experts,
        "moe_ffn_hidden_size": arch.moe_intermediate_size,
        "moe_router_topk": arch.num_experts_per_token,
        "expert_model_parallel_size": expert,
        "expert_tensor_parallel_size": max(tensor // expert, 1),
        "moe_token_dispatcher_type": "alltoall",
    }
    return TransformerConfig(
        num_layers=arch.num_layers,
        hidden_size=arch.hidden_size,
        ffn_hidden_size=arch.intermediate_size,
        num_attention_heads=arch.num_attention_heads,
        num_query_groups=arch.num_key_value_heads,
        kv_channels=arch.head_dim,
        add_bias_linear=arch.linear_bias,
        add_qkv_bias=arch.attention_bias,
        gated_linear_unit=arch.gated_mlp,
        activation_func=silu,
        normalization="LayerNorm" if arch.norm_bias else "RMSNorm",
        qk_layernorm=arch.query_key_norm,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=int(rows.pipeline_parallel_size[0]),
        pipeline_dtype=torch.bfloat16,
        params_dtype=torch.bfloat16,
        use_cpu_initialization=True,  # where the default device says, not on a GPU
        perform_initialization=False,
        **(experts if arch.num_experts else {}),
    )


def megatron_bytes(arch: ModelArchitecture, rows: Layouts, *, stage: int) -> int:
    """What the first GPU of a pipeline stage holds of Megatron-core's own GPTModel."""
    config = configuration(arch, rows)
    tensor = config.tensor_model_parallel_size
    ranks = max(tensor, config.expert_model_parallel_size)
    stages = config.pipeline_model_parallel_size
    dist.init_process_group(
        "fake", store=FakeStore(), rank=stage * ranks, world_size=ranks * stages
    )
    parallel_state.initialize_model_parallel(
        tensor,
        stages,
        expert_model_parallel_size=config.expert_model_parallel_size,
        expert_tensor_parallel_size=config.expert_tensor_parallel_size,
        create_gloo_process_groups=False,
    )
    layer = get_gpt_layer_local_spec(
        num_experts=arch.num_experts or None,
        normalization=config.normalization,
        qk_layernorm=arch.query_key_norm,
    )
    learned = arch.learned_position_embeddings
    with torch.device("meta"):
        module = GPTModel(
            config,
            layer,
            vocab_size=int(padded_vocabulary(arch, rows.tensor_parallel_size)[0]) * tensor,
            max_sequence_length=arch.max_position_embeddings,
            pre_process=stage == 0,
            post_process=stage == stages - 1,
            share_embeddings_and_output_weights=arch.tied_embeddings,
            position_embedding_type="learned_absolute" if learned else "rope",
        )
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    # Routers are made in fp32 or on the host; every parameter trains in the model's precision.
    return sum(parameter.numel() for parameter in module.parameters()) * BF16_BYTES


@pytest.mark.usefixtures("no_devices")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "expert"),
    [
        ("llama-3.1-8b", 1, 1, 1),
        ("llama-3.1-8b", 8, 4, 1),  # grouped heads, one per GPU
        ("llama-2-7b", 4, 2, 1),
        ("qwen2.5-0.5b", 2, 2, 1),  # tied: first and last stage hold the table; padded; biases
        ("qwen2.5-0.5b", 1, 1, 1),
        ("qwen2.5-7b", 4, 4, 1),
        ("qwen3-8b", 4, 3, 1),  # norms of queries and keys are whole on every rank
        ("gpt2", 4, 3, 1),  # learned positions, LayerNorm, biases, 50,257 rows
        ("gpt-3-175b", 8, 8, 1),
        ("gpt-neox-20b", 2, 4, 1),
        ("mixtral-8x7b", 1, 2, 4),
        ("mixtral-8x7b", 2, 2, 4),
        ("mixtral-8x7b", 4, 4, 2),  # each expert split over two GPUs
        ("qwen3-30b-a3b", 2, 4, 8),
    ],
)
def test_every_stage_holds_what_megatron_core_builds(
    name: str, tensor: int, pipeline: int, expert: int
) -> None:
    arch = catalogue.architecture(name)
    if arch.num_experts > 8:
        arch = arch.model_copy(update={"num_layers": 4})  # thousands of modules are slow to make
    rows = layouts(tensor, pipeline, data=max(expert // tensor, 1), expert=expert)
    dense, experts = parameters_by_stage(trained(arch), rows)
    first, middle, last = (BF16_BYTES * (dense + experts))[:, 0].tolist()
    counted = [first, *[middle] * (pipeline - 2), last][:pipeline]
    built = [megatron_bytes(arch, rows, stage=stage) for stage in range(pipeline)]
    assert counted == built
    assert weight_bytes(trained(arch), rows, precision="bf16")[0] == max(built)


def hugging_face_config(arch: ModelArchitecture) -> AutoConfig:
    """The catalogue's sizes as a configuration of Transformers."""
    kind = "llama"
    if arch.attention_bias:
        kind = "qwen2"
    if arch.query_key_norm:
        kind = "qwen3"
    if arch.num_experts:
        kind = "mixtral"
    experts = {"num_local_experts": arch.num_experts} if arch.num_experts else {}
    return AutoConfig.for_model(
        kind,
        num_hidden_layers=arch.num_layers,
        hidden_size=arch.hidden_size,
        intermediate_size=arch.moe_intermediate_size or arch.intermediate_size,
        num_attention_heads=arch.num_attention_heads,
        num_key_value_heads=arch.num_key_value_heads,
        head_dim=arch.head_dim,
        vocab_size=arch.vocab_size,
        tie_word_embeddings=arch.tied_embeddings,
        **experts,
    )


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "llama-2-70b", "qwen2.5-0.5b", "qwen2.5-7b", "qwen3-8b", "mixtral-8x7b"],
)
def test_one_gpu_holds_what_transformers_builds(name: str) -> None:
    """Whole models as FSDP holds them; its tables are not padded, the planner's are."""
    arch = catalogue.architecture(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hugging_face_config(arch), dtype=torch.bfloat16)
    built = sum(parameter.nbytes for parameter in model.parameters())
    tables = 1 if arch.tied_embeddings else 2
    padding = int(padded_vocabulary(arch, np.ones(1, dtype=np.int64))[0]) - arch.vocab_size
    counted = int(weight_bytes(trained(arch), layouts(), precision="bf16")[0])
    assert counted == built + tables * padding * arch.hidden_size * BF16_BYTES
    assert arch.num_parameters() * BF16_BYTES == built
