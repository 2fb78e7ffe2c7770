"""A transformers model on the meta device, with an output for packed rows."""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from automap.executor.engines.fsdp import attention
from automap.executor.engines.log_probs import token_log_probs
from automap.executor.engines.training_engine import Head

HEAD_NAMES: dict[Head, str] = {"language_model": "lm_head", "scalar": "score"}


class PackedNetwork(nn.Module):
    """A model and its head, called on one packed row; the root that FSDP shards.

    FSDP gathers the root's own parameters, the head's among them, around this module's forward:
    that is why the output is computed here and not by the caller.
    """

    def __init__(self, model: PreTrainedModel, head: Head) -> None:
        super().__init__()
        self.model = model
        self.head = head
        self.adapted: frozenset[str] = frozenset()
        """Names in the model of the layers with an adapter."""

    @property
    def backbone(self) -> PreTrainedModel:
        """The model without its head."""
        backbone = self.model.base_model
        assert isinstance(backbone, PreTrainedModel)
        return backbone

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder's layers."""
        layers = self.backbone.get_submodule("layers")
        assert isinstance(layers, nn.ModuleList)
        return layers

    @property
    def head_layer(self) -> nn.Linear:
        """What the model ends in, without bias."""
        head = self.model.get_submodule(HEAD_NAMES[self.head])
        assert isinstance(head, nn.Linear)
        return head

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        sequences: attention.Sequences,
        places: Tensor,
        targets: Tensor,
        temperature: float,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of `targets` (and entropies), or values, at `places` of the row.

        Args:
            tokens: [tokens] int64.
            positions: [tokens] int64.
            sequences: where the sequences of the row lie.
            places: [outputs] int64.
            targets: [outputs] int64; a scalar head ignores them.
            temperature: of the log-probabilities.
            with_entropy: whether entropies are wanted.

        Returns:
            [outputs] float32, and the same or None.
        """
        output = self.backbone(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            sequences=sequences,
        )
        hidden = output.last_hidden_state[0, places]
        weight: Tensor = self.head_layer.weight
        if self.head == "scalar":
            return hidden.float() @ weight[0].float(), None
        group = None
        if isinstance(weight, DTensor):
            group = weight.device_mesh.get_group()
            weight = weight.to_local(grad_placements=[Shard(0)])
        return token_log_probs(
            hidden,
            weight,
            targets,
            temperature=temperature,
            with_entropy=with_entropy,
            group=group,
        )


def read_config(config: PreTrainedConfig | Path | str) -> PreTrainedConfig:
    """A copy of the configuration, or the one in a folder.

    Raises:
        ValueError: a mixture of experts.
    """
    if isinstance(config, PreTrainedConfig):
        own = copy.deepcopy(config)
    else:
        own = AutoConfig.from_pretrained(config)  # nosec B615  # a local folder
    for field in ("num_experts", "num_local_experts", "n_routed_experts"):
        if getattr(own, field, None):
            raise ValueError(
                f"{field} is {getattr(own, field)}: the fsdp engine trains dense models; "
                "choose the megatron engine"
            )
    return own


def build_network(config: PreTrainedConfig, head: Head, *, dtype: torch.dtype) -> PackedNetwork:
    """The model with its head, on the meta device: no memory, no values."""
    config.use_cache = False
    arguments = {"dtype": dtype, "attn_implementation": attention.NAME}
    with torch.device("meta"):
        if head == "scalar":
            config.num_labels = 1
            model = AutoModelForSequenceClassification.from_config(config, **arguments)
        else:
            model = AutoModelForCausalLM.from_config(config, **arguments)
    name = HEAD_NAMES[head]
    weight = getattr(getattr(model, name, None), "weight", None)
    if weight is None or getattr(getattr(model, name), "bias", None) is not None:
        raise ValueError(f"{type(model).__name__} has no head {name!r} with a weight and no bias")
    return PackedNetwork(model, head)


def fill_buffers(network: PackedNetwork) -> None:
    """Compute what is no parameter: the frequencies of rotary embeddings."""
    for module in network.modules():
        if list(module.buffers(recurse=False)):
            if not hasattr(module, "original_inv_freq"):
                raise ValueError(f"cannot compute the buffers of {type(module).__name__}")
            network.model._init_weights(module)
