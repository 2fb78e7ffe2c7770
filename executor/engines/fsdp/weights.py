"""Values for sharded parameters: drawn from a seed, read from a folder, written to one."""

from collections.abc import Callable

from automap.executor.engines.fsdp.lora import initial_adapter
from automap.executor.engines.fsdp.sharded_parameters import ShardedParameter
from automap.executor.engines.initial_weights import initial_tensor, seeded
from automap.executor.engines.tensor_folder import TensorFolder

Ranges = Callable[[ShardedParameter], tuple[slice, ...]]
"""The part of a parameter that this rank holds."""


def draw(
    parameters: list[ShardedParameter], ranges: Ranges, *, standard_deviation: float, seed: int
) -> None:
    """Random weights, the same on any layout: every rank draws whole tensors and keeps its part."""
    for each in parameters:
        local = each.local()
        if ".lora_" in each.name:
            values = seeded(each.name, seed, shape=each.shape, device=local.device)
            whole = initial_adapter(each.name, each.shape, values)
        else:
            whole = initial_tensor(
                each.hugging_face_name,
                each.shape,
                standard_deviation=standard_deviation,
                seed=seed,
                device=local.device,
            )
        local.copy_(whole[ranges(each)])


def read(
    parameters: dict[str, ShardedParameter],
    ranges: Ranges,
    folder: TensorFolder,
    *,
    may_miss: str = "",
) -> list[ShardedParameter]:
    """Each rank its own parts, from a folder of safetensors.

    Args:
        parameters: to fill, by their names in the folder.
        ranges: this rank's parts.
        folder: to read from.
        may_miss: name of a tensor that need not be there.

    Returns:
        Those that were not there.

    Raises:
        ValueError: a tensor is missing or has another shape; nothing has been changed.
    """
    absent = [name for name in parameters if name not in folder]
    missing = [name for name in absent if name != may_miss]
    if missing:
        raise ValueError(f"{folder.folder} lacks {len(missing)} tensors: {', '.join(missing[:5])}")
    present = {name: each for name, each in parameters.items() if name in folder}
    for name, each in present.items():
        if folder.shape(name) != each.shape:
            raise ValueError(
                f"{name} of {folder.folder} has shape {folder.shape(name)}, the model {each.shape}"
            )
    for name, each in present.items():
        local = each.local()
        if local.numel():
            local.copy_(folder.read(name, ranges(each)))
    return [parameters[name] for name in absent]
