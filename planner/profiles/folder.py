"""Profiles measured by `automap profile`: which folder a pool may be priced with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automap.planner.catalogue.hardware import GpuType
from automap.planner.errors import SpecError
from automap.planner.profiles.corrections import read_corrections

FINGERPRINT = "fingerprint.json"
SHIPPED = "shipped"
"""The word a spec gives in place of a profile for the tables that come with the planner, whatever
the service's default is."""
BASED_ON = "based_on"
"""Key in the identity of a fingerprint; its value is `shipped` where a profile has no tables of its
own."""
REMEDY = "give the --output of an automap profile of this GPU type, or leave it out"

_ATTENTION = ("num_attention_heads", "num_key_value_heads", "head_dim")
COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm": ("precision", "collector", "m", "n", "k"),
    "prefill_attention": ("batch_size", "sequence_length", *_ATTENTION),
    "prefill_attention_backward": ("batch_size", "sequence_length", *_ATTENTION),
    "decode_attention": ("batch_size", "kv_length", *_ATTENTION),
    "moe": (
        "precision",
        "num_tokens",
        "hidden_size",
        "moe_intermediate_size",
        "num_experts_per_token",
        "num_experts",
        "expert_tensor_parallel_size",
        "expert_parallel_size",
        "routing",
    ),
    "memory_bound": ("operator", "num_bytes"),
    "optimizer": ("optimizer", "num_parameters"),
    "host_copies": ("direction", "size_bytes"),
    "host_work": ("framework", "recompute", "part"),
    "layers": (
        "framework",
        "recompute",
        "part",
        "precision",
        "num_sequences",
        "sequence_length",
        "hidden_size",
        "intermediate_size",
        *_ATTENTION,
    ),
    "collectives": ("collective", "num_gpus", "size_bytes"),
    "custom_all_reduce": ("num_gpus", "size_bytes"),
}
"""The columns of each table of a profile beside `seconds`; gemm, the two forward attentions, moe,
collectives and custom_all_reduce are those of the shipped tables."""
TEXTS = frozenset(
    {
        "precision",
        "collector",
        "routing",
        "operator",
        "optimizer",
        "direction",
        "collective",
        "framework",
        "recompute",
        "part",
    }
)


def profile_folder(given: str, gpu: GpuType, *, field: str) -> Path:
    """Check that a folder holds a profile of this GPU type, and return its path.

    Raises:
        SpecError: no such folder, no profile in it, nothing measured, another device's, or a table
            that cannot be read.
    """
    folder = Path(given)
    measured_on = device_type(folder, field=field)
    if measured_on != gpu.name:
        message = f"{given!r} was measured on {measured_on}, the pool has {gpu.name}"
        raise SpecError(field, message, remedy=REMEDY)
    files = [path for table in COLUMNS if (path := folder / f"{table}.parquet").exists()]
    if not files and not is_of_shipped_tables(folder):
        raise SpecError(field, f"{given!r} has no tables yet", remedy="let automap profile finish")
    for path in files:
        if fault := _fault(path):
            remedy = "remove that file and start automap profile again: it writes it anew"
            raise SpecError(field, f"{str(path)!r} {fault}", remedy=remedy)
    try:
        read_corrections(folder)
    except (OSError, ValueError) as error:
        remedy = "remove that file, or calibrate the profile again"
        raise SpecError(field, str(error), remedy=remedy) from None
    return folder


def _fault(path: Path) -> str:
    """Why a table cannot be priced with, in words; empty where it can."""
    # pyarrow takes a good part of a second to import, and most specs name no profile.
    import pyarrow.parquet as parquet

    try:
        schema = parquet.ParquetFile(path).read(use_threads=False).schema
    except (OSError, ValueError) as error:  # what pyarrow raises are such
        return f"cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}"
    found = {column.name: str(column.type) for column in schema}
    wanted = {name: "string" if name in TEXTS else "int64" for name in COLUMNS[path.stem]}
    wanted["seconds"] = "double"
    if wanted.items() <= found.items():
        return ""
    columns = (
        ", ".join(f"{name} {kind}" for name, kind in each.items()) for each in (found, wanted)
    )
    return "has the columns {}; those of its table are {}".format(*columns)


def device_type(folder: Path, *, field: str) -> str:
    """The catalogue's name of the device that a profile was measured on.

    Raises:
        SpecError: there is no profile in the folder.
    """
    document = fingerprint(folder)
    identity = document.get("identity")
    found = identity.get("device_type") if isinstance(identity, dict) else None
    if not isinstance(found, str):
        what = f"no {FINGERPRINT} in it" if not document else f"its {FINGERPRINT} names no device"
        raise SpecError(field, f"{str(folder)!r} holds no profile: {what}", remedy=REMEDY)
    return found


def is_of_shipped_tables(folder: Path) -> bool:
    """Whether a profile has no tables of its own, only corrections of the shipped ones."""
    return says_shipped_tables(fingerprint(folder))


def says_shipped_tables(document: Mapping[str, Any]) -> bool:
    """Whether a fingerprint is of a profile without tables of its own."""
    identity = document.get("identity")
    return isinstance(identity, dict) and identity.get(BASED_ON) == SHIPPED


def fingerprint(folder: Path) -> dict[str, Any]:
    """The document of what a profile was measured on and how; empty where it cannot be read."""
    try:
        document = json.loads((folder / FINGERPRINT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def disturbances(folder: Path) -> list[str]:
    """What disturbed a profile while it was measured, in words."""
    sessions = _objects(fingerprint(folder).get("sessions"))
    began = _objects([session.get("began") for session in sessions])
    busy = [state for state in began if state.get("busy")]
    found = []
    if busy:
        worst = max(busy, key=_load)
        cores = worst.get("cores", "unknown")
        found.append(f"others kept the machine busy (load {_load(worst)}, {cores} cores)")
    if any(session.get("throttled") for session in sessions):
        found.append("the clock slowed down meanwhile")
    return found


def _objects(given: object) -> list[dict[str, Any]]:
    """The JSON objects of a list; anything else in it is left out."""
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _load(state: dict[str, Any]) -> float:
    load = state.get("load")
    return load if isinstance(load, int | float) else 0.0
