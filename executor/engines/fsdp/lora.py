"""LoRA through peft: every linear layer of the backbone gets an adapter, the rest is frozen."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft import LoraConfig, TaskType, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from automap.executor.engines.fsdp.network import HEAD_NAMES, PackedNetwork
from automap.executor.engines.fsdp.sharded_parameters import ADAPTER_PREFIX, ShardedParameter
from automap.executor.engines.training_engine import LORA_SCALING


def lora_config(network: PackedNetwork, rank: int) -> LoraConfig:
    """Adapters of this rank, scaled by `LORA_SCALING`, on every linear layer of a layer.

    A scalar head is new, so it trains whole beside them.
    """
    modules = network.layers.named_modules()
    names = {name.split(".")[-1] for name, each in modules if isinstance(each, nn.Linear)}
    scalar = network.head == "scalar"
    return LoraConfig(
        r=rank,
        lora_alpha=LORA_SCALING * rank,
        target_modules=sorted(names),
        task_type=TaskType.SEQ_CLS if scalar else TaskType.CAUSAL_LM,
        modules_to_save=[HEAD_NAMES["scalar"]] if scalar else None,
        base_model_name_or_path=network.model.config.name_or_path or None,
    )


def add_adapter(network: PackedNetwork, config: LoraConfig) -> None:
    """Put adapters on a network on the meta device, and freeze the rest.

    peft's layers, but not its PeftModel: that would switch requires_grad of parameters to turn the
    adapter off, which FSDP2 reads once, when it first gathers them.
    """
    model = network.model
    targets = {
        name
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear) and name.split(".")[-1] in set(config.target_modules or ())
    }
    plain = LoraConfig(r=config.r, lora_alpha=config.lora_alpha, target_modules=sorted(targets))
    inject_adapter_in_model(plain, model)
    for name, parameter in model.named_parameters():
        trains = ".lora_" in name or name.startswith(f"{HEAD_NAMES['scalar']}.")
        parameter.requires_grad_(trains)
        if trains:
            parameter.data = parameter.data.float()
    network.adapted = frozenset(targets)


@contextmanager
def disabled(network: PackedNetwork) -> Iterator[None]:
    """The base model alone, while it lasts."""
    layers = [each for each in network.modules() if isinstance(each, LoraLayer)]
    before = [layer._disable_adapters for layer in layers]
    for layer in layers:
        # Not enable_adapters(False), for the reason given above.
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer._disable_adapters = was


def merged(base: ShardedParameter, adapter: dict[str, ShardedParameter], scaling: float) -> Tensor:
    """The whole tensor of a base weight with its adapter's product added, on all ranks."""
    whole = base.gather()
    stem = ADAPTER_PREFIX + base.name.removesuffix(".weight")
    if f"{stem}.lora_A.weight" not in adapter:
        return whole
    product = adapter[f"{stem}.lora_B.weight"].gather() @ adapter[f"{stem}.lora_A.weight"].gather()
    return (whole.float() + scaling * product).to(whole.dtype)


def initial_adapter(name: str, shape: tuple[int, ...], values: Tensor) -> Tensor:
    """A parameter of an adapter from standard normal values: B is zero, A as wide as peft's.

    peft draws A uniformly within ±1 ÷ √inputs; here normally with the same variance.
    """
    return values * (3 * shape[1]) ** -0.5 if ".lora_A." in name else torch.zeros_like(values)
