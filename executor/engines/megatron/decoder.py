"""One pipeline stage, or one chunk of it, of a decoder of the Llama family."""

import importlib.util
import re

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    gather_from_sequence_parallel_region,
)
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType, ModelType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import (
    TransformerBlock,
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import (
    TransformerLayer,
    TransformerLayerSubmodules,
)
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from automap.executor.engines.megatron.architecture import Architecture
from automap.executor.engines.megatron.attention import PackedAttention, Sequences
from automap.executor.engines.megatron.names import NameMap
from automap.executor.engines.offload import device
from automap.executor.engines.training_engine import Head

_LAYER = re.compile(r"decoder\.layers\.(\d+)(?:\.mlp\.experts\.local_experts\.(\d+))?")

if importlib.util.find_spec("transformer_engine") is None:
    # Megatron-core 0.16.1 takes its own wrapper for the library's function and calls nothing.
    vars(moe_utils)["te_general_gemm"] = None


class RMSNorm(nn.Module):
    """Megatron's own wrapper of torch's norm refuses sequence parallelism."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.epsilon = eps
        self.weight = _parameter(config, hidden_size)
        # Each tensor rank sees its part of the tokens: their gradients are to be summed.
        vars(self.weight)["sequence_parallel"] = config.sequence_parallel

    def forward(self, hidden: Tensor) -> Tensor:
        """Over the last dimension."""
        return rms_norm(hidden, self.weight.shape, self.weight, self.epsilon)


class OutputLayer(nn.Module):
    """This tensor rank's rows of the vocabulary; what uses them makes the logits itself."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        rows = vocab_size // config.tensor_model_parallel_size
        self.weight = _parameter(config, rows, config.hidden_size)


class ScalarHead(nn.Module):
    """One number per token, in fp32; the same on all tensor ranks."""

    def __init__(self, config: TransformerConfig, group: torch.distributed.ProcessGroup) -> None:
        super().__init__()
        self.config = config
        self.group = group
        self.weight = _parameter(config, 1, config.hidden_size)
        vars(self.weight)["sequence_parallel"] = config.sequence_parallel

    def forward(self, hidden: Tensor) -> Tensor:
        """[tokens (of this rank), 1, hidden] to [all tokens]."""
        values = hidden.float() @ self.weight.float().T
        if self.config.sequence_parallel:
            values = gather_from_sequence_parallel_region(
                values, tensor_parallel_output_grad=False, group=self.group
            )
        return values.flatten()


class DecoderStage(MegatronModule):
    """Embedding, layers and head, as far as this pipeline stage holds them."""

    def __init__(
        self,
        config: TransformerConfig,
        architecture: Architecture,
        groups: ProcessGroupCollection,
        *,
        head: Head,
        pre_process: bool,
        post_process: bool,
        vp_stage: int | None,
    ) -> None:
        super().__init__(config=config)
        self.model_type = ModelType.encoder_or_decoder
        self.head = head
        self.groups = groups
        self.pre_process = pre_process
        self.post_process = post_process
        self.vocab_size = architecture.vocab_size
        self.padding_token = architecture.config.pad_token_id
        self.vp_stage = vp_stage
        self.share_embeddings_and_output_weights = (
            architecture.tied_embeddings and head == "language_model"
        )
        padded = architecture.padded_vocab_size(config.tensor_model_parallel_size)
        frequencies, _ = architecture.inverse_frequencies()
        self.register_buffer("inverse_frequencies", frequencies.to(device()), persistent=False)
        if pre_process:
            self.embedding = LanguageModelEmbedding(
                config, padded, 0, position_embedding_type="rope", tp_group=groups.tp
            )
        self.decoder = TransformerBlock(
            config,
            _block(config, vp_stage),
            pre_process=pre_process,
            post_process=post_process,
            pg_collection=groups,
            vp_stage=vp_stage,
        )
        if post_process and head == "scalar":
            self.score = ScalarHead(config, groups.tp)
        elif post_process and not (pre_process and self.share_embeddings_and_output_weights):
            self.output_layer = OutputLayer(config, padded)
        self._mark_shared_embedding()

    def set_input_tensor(self, input_tensor: list[Tensor | None]) -> None:
        """What the stage before has sent; Megatron's schedules call it."""
        self.decoder.set_input_tensor(input_tensor[0])

    def shared_embedding_or_output_weight(self) -> Tensor | None:
        """The rows of the vocabulary that the head reads; the embedding's if they are tied."""
        if self.pre_process and self.share_embeddings_and_output_weights:
            return self.embedding.word_embeddings.weight
        return self.output_layer.weight if self.post_process else None

    def forward(self, tokens: Tensor, positions: Tensor, sequences: Sequences) -> Tensor:
        """One packed row through this stage.

        Args:
            tokens: [tokens] int64, a multiple of the tensor ranks if the sequence is parallel.
            positions: [tokens] int64.
            sequences: where the sequences of the row lie.

        Returns:
            Hidden states [tokens of this rank, 1, hidden], after the final norm on the last stage.
        """
        embedded = self._embed(tokens, positions) if self.pre_process else None
        angles = positions[:, None].float() * self.inverse_frequencies
        return self.decoder(
            embedded,
            attention_mask=None,
            rotary_pos_emb=torch.cat((angles, angles), dim=-1)[:, None, None],
            packed_seq_params=sequences,
        )

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[tokens of this rank, 1, hidden]; the padding token's row of the table does not learn.

        So it is in transformers, whose models give it to torch's embedding as `padding_idx`.
        """
        embedded = self.embedding(tokens[None], positions[None])
        if self.padding_token is None:
            return embedded
        if self.config.sequence_parallel:
            tokens = tokens.chunk(self.groups.tp.size())[self.groups.tp.rank()]
        is_padding = (tokens == self.padding_token)[:, None, None]
        return torch.where(is_padding, embedded.detach(), embedded)

    def hidden_at(self, hidden: Tensor, places: Tensor) -> Tensor:
        """[places, hidden] of the last stage's hidden states, on every tensor rank."""
        if self.config.sequence_parallel:
            hidden = gather_from_sequence_parallel_region(
                hidden, tensor_parallel_output_grad=False, group=self.groups.tp
            )
        return hidden[places, 0]

    def _mark_shared_embedding(self) -> None:
        """Tell Megatron that the last stage holds a copy of the first stage's embedding."""
        if not self.share_embeddings_and_output_weights or self.pre_process == self.post_process:
            return
        weight = self.shared_embedding_or_output_weight()
        vars(weight)["shared_embedding"] = True
        if self.post_process:
            # Left out of the gradient norm: it is counted on the first stage.
            vars(weight)["shared"] = True


def mark_split(name: str, parameter: nn.Parameter, names: NameMap) -> None:
    """Tell Megatron which parameters tensor ranks split, or its gradient norm leaves them out.

    Its layers do so themselves only where they draw initial weights.
    """
    dimension = names.split_dimension(name)
    if dimension is not None and not getattr(parameter, "tensor_model_parallel", False):
        set_tensor_model_parallel_attributes(parameter, True, dimension, 1)


def global_name(name: str, stage: DecoderStage) -> str:
    """A parameter's name with its layer, and its expert, counted over the whole model."""
    match = _LAYER.match(name)
    if match is None:
        return name
    layer = stage.decoder.layers[int(match[1])]
    if match[2] is not None:
        expert = layer.mlp.local_expert_indices[int(match[2])]
        name = name.replace(match[0], f"{match[0].rpartition('.')[0]}.{expert}")
    return name.replace(f"decoder.layers.{match[1]}", f"decoder.layers.{layer.layer_number - 1}", 1)


def _block(config: TransformerConfig, vp_stage: int | None) -> TransformerBlockSubmodules:
    """The modules of a stage's layers: Megatron's own, but for norms and attention."""
    head_norm = RMSNorm if config.qk_layernorm else IdentityOp
    attention = SelfAttentionSubmodules(
        linear_qkv=ColumnParallelLinear,
        core_attention=PackedAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=head_norm,
        k_layernorm=head_norm,
    )
    layer = ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=RMSNorm,
            self_attention=ModuleSpec(
                module=SelfAttention,
                params={"attn_mask_type": AttnMaskType.causal},
                submodules=attention,
            ),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=RMSNorm,
            mlp=_feed_forward(config),
            mlp_bda=get_bias_dropout_add,
        ),
    )
    count = get_num_layers_to_build(config, vp_stage)
    return TransformerBlockSubmodules(layer_specs=[layer] * count, layer_norm=RMSNorm)


def _feed_forward(config: TransformerConfig) -> ModuleSpec:
    layers = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
    if config.num_moe_experts is None:
        return ModuleSpec(module=MLP, submodules=layers)
    experts = ModuleSpec(module=SequentialMLP, submodules=layers)
    return ModuleSpec(module=MoELayer, submodules=MoESubmodules(experts=experts))


def _parameter(config: TransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=config.params_dtype, device=device()))
