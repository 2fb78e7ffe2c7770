"""The tables of a profile: their columns, and Parquet files as the planner reads them."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

Key = Mapping[str, str | int]
"""What was measured: a value for each column of its table but `seconds`."""
Row = tuple[str, Key, float]
"""Table, key, seconds."""

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
    "collectives": ("collective", "num_gpus", "size_bytes"),
}
"""gemm, the two forward attentions, moe and collectives are those of the shipped tables."""
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


def write_tables(folder: Path, rows: Iterable[Row]) -> None:
    """One Parquet file per table that has rows, each replaced as a whole or not at all."""
    by_table: dict[str, list[tuple[Key, float]]] = defaultdict(list)
    for table, key, seconds in rows:
        by_table[table].append((key, seconds))
    for table, measured in by_table.items():
        columns: dict[str, arrow.Array] = {
            name: arrow.array(
                [key[name] for key, _ in measured],
                arrow.string() if name in TEXTS else arrow.int64(),
            )
            for name in COLUMNS[table]
        }
        columns["seconds"] = arrow.array([seconds for _, seconds in measured], arrow.float64())
        unfinished = folder / f".{table}.parquet.part"
        parquet.write_table(arrow.table(columns), unfinished, compression="zstd")
        os.replace(unfinished, folder / f"{table}.parquet")
