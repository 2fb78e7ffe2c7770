"""Folders as automap profile leaves them, without measuring."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from automap.planner.profiles import Row, write_tables


def profile_folder(
    folder: Path,
    rows: Sequence[Row] = (),
    *,
    device_type: str = "cpu",
    session: Mapping[str, Any] | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder, rows)
    document = {
        "identity": {"format": 1, "device_type": device_type},
        "sessions": [session or {"began": {"load": 0.1, "cores": 2, "busy": False}}],
    }
    (folder / "fingerprint.json").write_text(json.dumps(document))
    return folder


def memory_bound(seconds_at: Mapping[int, Mapping[str, float]]) -> list[Row]:
    return [
        ("memory_bound", {"operator": name, "num_bytes": size}, seconds)
        for size, by_name in seconds_at.items()
        for name, seconds in by_name.items()
    ]


def attention(table: str, seconds_at: Mapping[tuple[int, int], float]) -> list[Row]:
    length_name = "kv_length" if table == "decode_attention" else "sequence_length"
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    return [
        (table, {"batch_size": batch, length_name: length, **heads}, seconds)
        for (batch, length), seconds in seconds_at.items()
    ]


def all_reduces(seconds_at: Mapping[int, float]) -> list[Row]:
    return [
        ("collectives", {"collective": "all_reduce", "num_gpus": 2, "size_bytes": size}, seconds)
        for size, seconds in seconds_at.items()
    ]
