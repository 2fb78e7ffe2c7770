"""Settings of a training run that decide what it keeps: as stated, as its framework has them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from automap.planner.cost import constants
from automap.planner.cost.stacks import STACKS
from automap.planner.layout import RECOMPUTES
from automap.planner.spec import EIGHT_BIT_WEIGHT_STACKS, SelectiveRecompute, TrainingStack
from automap.planner.validation.frameworks import Framework
from automap.planner.validation.predictions import Assumptions
from automap.planner.validation.rows import RunRow

SELECTIVE: tuple[tuple[str, SelectiveRecompute], ...] = (
    ("selective(op)", "alternate_products"),
    ("selective(attn)", "core_attention"),
    ("selective(layer)", "alternate_blocks"),
)
"""Phrases of `notes` (lower case) for what selective recomputation makes again."""


SIXTEEN_BITS = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "mxfp8": "bf16"}
"""Precision of 16-bit weights beside products of a precision."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Fields of the workload that say in which precision a run keeps what, and what it repeats."""

    gradient_precision: str | None = None
    gradient_accumulation_precision: str | None = None
    fp8_param_gather: bool = False
    selective_recompute: SelectiveRecompute | None = None


def memory_settings(
    row: RunRow,
    stack: TrainingStack,
    defaults: Framework,
    assumptions: Assumptions,
    *,
    for_memory: bool,
) -> MemorySettings:
    """Settings of a row: as its notes state them, else as its framework has them.

    What a framework has without a word in the row is taken for bytes alone: constants of speed
    were fitted with the stacks' own settings.
    """
    settings = MemorySettings(selective_recompute=stated_selective(row))
    stated = re.search(r"grad(?:ient)?s accumulated in (bf16|fp16|fp32)", row.note.lower())
    if stated and stated[1] != "fp32":
        # Notes say which of the two the run used only loosely; it is that of the weights.
        settings = replace(settings, gradient_precision=SIXTEEN_BITS.get(row.precision or ""))
    elif stated and STACKS[stack].memory.gradient_bytes < constants.GRADIENT_BYTES:
        settings = replace(settings, gradient_accumulation_precision="fp32")
    elif stated:
        settings = replace(settings, gradient_precision="fp32")
    return _with_defaults(settings, row, stack, defaults, assumptions) if for_memory else settings


def _with_defaults(
    settings: MemorySettings,
    row: RunRow,
    stack: TrainingStack,
    defaults: Framework,
    assumptions: Assumptions,
) -> MemorySettings:
    """The settings with what the framework has where they say nothing."""
    if settings.gradient_precision is None and defaults.gradient_precision is not None:
        settings = replace(settings, gradient_precision=defaults.gradient_precision)
        assumptions.add(f"gradients not stated: {defaults.gradient_precision} ({defaults.name})")
    low = row.precision in ("fp8", "mxfp8") and stack in EIGHT_BIT_WEIGHT_STACKS
    if defaults.fp8_param_gather and low:
        settings = replace(settings, fp8_param_gather=True)
        assumptions.add(f"fp8_param_gather not stated: true ({defaults.name})")
    if settings.selective_recompute is None and row.recompute != "none":
        settings = replace(settings, selective_recompute=defaults.selective)
    return settings


def stated_selective(row: RunRow) -> SelectiveRecompute | None:
    """What the notes say of selective recomputation."""
    note = row.note.lower()
    return next((kind for phrase, kind in SELECTIVE if phrase in note), None)


def recompute_levels(row: RunRow, defaults: Framework) -> Iterator[str]:
    """Levels of recomputation that a row may have had, the cheapest in seconds first.

    One where it is stated. Every k-th layer is every one for the least k, so where k is open that
    may be as well.
    """
    if row.recompute is None:
        yield from RECOMPUTES[RECOMPUTES.index(defaults.recompute) :]
        return
    yield row.recompute
    open_blocks = defaults.selective == "alternate_blocks" and stated_selective(row) is None
    if row.recompute == "selective" and open_blocks:
        yield "full"
