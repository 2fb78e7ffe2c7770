"""Folders of Hugging Face safetensors: read by slice, written whole or not at all."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from automap.executor.folders import opened

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
FILE_BYTES = 5 * 10**9
"""Largest file of a folder, as the Hugging Face hub wants them."""


class TensorFolder:
    """The tensors of a folder by name. Opens a file when it is first asked for one of its."""

    def __init__(self, folder: Path) -> None:
        """FileNotFoundError unless there are safetensors with, if several, their index."""
        self.folder = opened(Path(folder), field="models")
        self._open: dict[str, safe_open] = {}
        if (self.folder / INDEX).exists():
            index = json.loads((self.folder / INDEX).read_text())
            self._file_of: dict[str, str] = index["weight_map"]
        elif (self.folder / SINGLE).exists():
            self._file_of = dict.fromkeys(self._file(SINGLE).keys(), SINGLE)
        else:
            raise FileNotFoundError(f"{self.folder} holds neither {SINGLE} nor {INDEX}")

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole tensor.

        Raises:
            KeyError: there is no such tensor.
        """
        return tuple(self._slice(name).get_shape())

    def read(self, name: str, ranges: tuple[slice, ...] = ()) -> Tensor:
        """The tensor, or the part of it that the ranges name; only that part is read."""
        part = self._slice(name)
        return part[ranges] if ranges else part[:]

    def _slice(self, name: str) -> Any:
        if name not in self._file_of:
            raise KeyError(f"{self.folder} has no tensor {name!r}")
        return self._file(self._file_of[name]).get_slice(name)

    def _file(self, name: str) -> safe_open:
        if name not in self._open:
            path = self.folder / name
            if not path.exists():
                raise FileNotFoundError(f"{path} is named in {INDEX} but does not exist")
            self._open[name] = safe_open(path, framework="pt")
        return self._open[name]


def save_folder(
    folder: Path,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    sizes: Mapping[str, int],
    write_rest: Callable[[Path], None],
) -> None:
    """Write a folder of safetensors from rank 0 of the default group, whole or not at all.

    Called on all ranks, because `tensors` gathers as it is advanced. A reader sees the old folder
    or the new one, never a part. Needs host memory for one file.

    Args:
        folder: where; an existing folder is replaced.
        tensors: whole tensors by name, in the order of `sizes`.
        sizes: bytes of every tensor by name.
        write_rest: adds what else belongs there (config.json); called on rank 0.

    Raises:
        OSError: rank 0 could not write; on all ranks alike.
    """
    writer = _Writer(Path(folder), sizes) if dist.get_rank() == 0 else None
    for name, tensor in tensors:
        if writer is not None:
            writer.add(name, tensor)
    outcome: list[str | None] = [writer.finish(write_rest) if writer is not None else None]
    dist.broadcast_object_list(outcome, src=0)
    if outcome[0] is not None:
        raise OSError(f"cannot save {folder}: {outcome[0]}")


class _Writer:
    """Rank 0's part. An error is kept for the end: the others go on gathering."""

    def __init__(self, folder: Path, sizes: Mapping[str, int]) -> None:
        self._folder = folder.absolute()
        self._staging = self._folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.partial")
        self._sizes = sizes
        self._file_of = _files(sizes)
        self._held: dict[str, Tensor] = {}
        self._held_file = ""
        self._error: Exception | None = None
        self._guard(lambda: self._staging.mkdir(parents=True))

    def add(self, name: str, tensor: Tensor) -> None:
        if self._held and self._file_of[name] != self._held_file:
            self._flush()
        self._held_file = self._file_of[name]
        if self._error is None:
            self._held[name] = tensor.detach().to("cpu").contiguous()

    def finish(self, write_rest: Callable[[Path], None]) -> str | None:
        """Put the folder in its place; what went wrong, or None."""
        self._flush()
        self._guard(self._write_index)
        self._guard(lambda: write_rest(self._staging))
        self._guard(lambda: _put_in_place(self._staging, self._folder))
        if self._error is None:
            return None
        shutil.rmtree(self._staging, ignore_errors=True)
        return f"{type(self._error).__name__}: {self._error}"

    def _flush(self) -> None:
        path = self._staging / self._held_file
        self._guard(lambda: save_file(self._held, path, metadata={"format": "pt"}))
        self._held = {}

    def _write_index(self) -> None:
        if len(set(self._file_of.values())) > 1:
            total = {"total_size": sum(self._sizes.values())}
            index = {"metadata": total, "weight_map": self._file_of}
            (self._staging / INDEX).write_text(json.dumps(index, indent=2))

    def _guard(self, act: Callable[[], Any]) -> None:
        if self._error is None:
            try:
                act()
            except (OSError, SafetensorError) as error:
                self._error = error


def _files(sizes: Mapping[str, int]) -> dict[str, str]:
    """The file of every tensor: in order, a new file when the last would grow too large."""
    numbers: dict[str, int] = {}
    number, filled = 0, 0
    for name, size in sizes.items():
        if filled and filled + size > FILE_BYTES:
            number, filled = number + 1, 0
        filled += size
        numbers[name] = number
    if number == 0:
        return dict.fromkeys(sizes, SINGLE)
    stem = Path(SINGLE).stem
    return {
        name: f"{stem}-{own + 1:05}-of-{number + 1:05}.safetensors" for name, own in numbers.items()
    }


def _put_in_place(staging: Path, folder: Path) -> None:
    for path in (*staging.iterdir(), staging):
        sync_to_disk(path)
    if folder.exists():
        old = staging.with_suffix(".old")
        os.rename(folder, old)
        os.rename(staging, folder)
        shutil.rmtree(old)
    else:
        os.rename(staging, folder)
    sync_to_disk(folder.parent)


def sync_to_disk(path: Path) -> None:
    """Have the disk keep it before it takes the place of something whole."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
