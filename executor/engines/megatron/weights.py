"""A rank's weights from, and to, Hugging Face folders."""

import copy
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from automap.executor.engines.initial_weights import initial_tensor
from automap.executor.engines.tensor_folder import TensorFolder, save_folder
from automap.executor.engines.training_engine import Head, Piece

Held = list[tuple[Tensor, list[Piece]]]
"""Parameters with their pieces."""


def draw(held: Held, *, standard_deviation: float, seed: int, only: str | None = None) -> None:
    """Set weights at random; the same for every layout.

    Args:
        held: this rank's parameters.
        standard_deviation: of matrices.
        seed: of the role.
        only: a single Hugging Face name to draw.
    """
    for parameter, pieces in held:
        if only is None:
            parameter.zero_()  # Rows that pad the vocabulary are in no piece.
        wholes: dict[str, Tensor] = {}
        for piece in pieces:
            if only not in (None, piece.name):
                continue
            if piece.name not in wholes:
                wholes[piece.name] = initial_tensor(
                    piece.name,
                    piece.full_shape,
                    standard_deviation=standard_deviation,
                    seed=seed,
                    device=parameter.device,
                )
            piece.view.copy_(wholes[piece.name][_ranges(piece)])


def read(held: Held, folder: Path, *, optional: str) -> bool:
    """Set weights from a folder; whether it has the optional tensor, which else stays as it is.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a tensor is missing or has another shape. Both on all ranks alike, and nothing
            has been changed.
    """
    pieces = [piece for _, own in held for piece in own]
    problem: Exception | None = None
    try:
        tensors = TensorFolder(folder)
        _check(pieces, tensors, optional)
    except (OSError, ValueError) as error:
        problem = error
    problems: list[Exception | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    for each in problems:
        if each is not None:
            raise each
    for piece in pieces:
        if piece.name in tensors:
            values = tensors.read(piece.name, _ranges(piece))
            piece.view.copy_(values.view(piece.view.shape))
    return optional in tensors


def _check(pieces: list[Piece], tensors: TensorFolder, optional: str) -> None:
    """ValueError if the folder cannot be read."""
    names = dict.fromkeys(piece.name for piece in pieces)
    missing = [name for name in names if name not in tensors and name != optional]
    if missing:
        raise ValueError(f"{tensors.folder} lacks {len(missing)} tensors: {', '.join(missing[:5])}")
    for piece in pieces:
        if piece.name in tensors and tensors.shape(piece.name) != piece.full_shape:
            raise ValueError(
                f"{piece.name} of {tensors.folder} has shape {tensors.shape(piece.name)}, "
                f"the model {piece.full_shape}"
            )


def write(held: Held, folder: Path, config: PreTrainedConfig, head: Head) -> None:
    """Write a folder from rank 0; each rank gives what it alone is to give.

    Args:
        held: parameters that this rank gives; empty for replicas.
        folder: where; replaced if it exists.
        config: of the model.
        head: decides which transformers class the folder is for.

    Raises:
        OSError: rank 0 could not write.
    """
    own = [piece for _, pieces in held for piece in pieces]
    catalogue: list[list[Piece]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(catalogue, [_without_values(piece) for piece in own])
    sources: dict[str, list[tuple[int, Piece]]] = {}
    for rank, pieces in enumerate(catalogue):
        for piece in pieces:
            sources.setdefault(piece.name, []).append((rank, piece))
    sizes = {name: _nbytes(parts[0][1]) for name, parts in sources.items()}
    dtype = next(iter(sources.values()))[0][1].view.dtype
    save_folder(
        folder,
        _gather(own, sources),
        sizes=sizes,
        write_rest=lambda staging: _configuration(config, head, dtype).save_pretrained(staging),
    )


def _gather(
    own: list[Piece], sources: dict[str, list[tuple[int, Piece]]]
) -> Iterator[tuple[str, Tensor]]:
    """Whole tensors on rank 0, one at a time; empty ones elsewhere."""
    rank = dist.get_rank()
    mine: dict[str, list[Piece]] = {}
    for piece in own:
        mine.setdefault(piece.name, []).append(piece)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, parts in sources.items():
        first = parts[0][1]
        whole = torch.empty(
            first.full_shape if rank == 0 else 0, dtype=first.view.dtype, device=device
        )
        for source, piece in parts:
            if rank == source == 0:
                whole[_ranges(piece)] = mine[name].pop(0).view.reshape(piece.shape)
            elif rank == source:
                dist.send(mine[name].pop(0).view.contiguous(), 0)
            elif rank == 0:
                part = torch.empty(piece.shape, dtype=first.view.dtype, device=device)
                dist.recv(part, source)
                whole[_ranges(piece)] = part
        yield name, whole


def _ranges(piece: Piece) -> tuple[slice, ...]:
    return (*[slice(None)] * piece.dim, slice(piece.start, piece.start + piece.size))


def _without_values(piece: Piece) -> Piece:
    """What others need to know of a piece: its dtype, by an empty view, and where it lies."""
    empty = torch.empty(0, dtype=piece.view.dtype)
    return Piece(piece.name, piece.full_shape, piece.dim, piece.start, piece.size, empty)


def _nbytes(piece: Piece) -> int:
    return torch.Size(piece.full_shape).numel() * piece.view.itemsize


def _configuration(config: PreTrainedConfig, head: Head, dtype: torch.dtype) -> PreTrainedConfig:
    config = copy.deepcopy(config)
    config.dtype = dtype
    if head == "scalar":
        config.num_labels = 1
        config.architectures = [MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[config.model_type]]
    else:
        config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    return config
