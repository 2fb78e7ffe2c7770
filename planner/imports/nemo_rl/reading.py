"""Files of a NeMo-RL launch to a job and a placement."""

from collections.abc import Sequence

from automap.planner.frameworks.description import Framework
from automap.planner.imports.configurations import take
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.given import Given
from automap.planner.imports.keys import settings_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.nemo_rl.layouts import (
    engine_layout,
    offload_of,
    recompute_of,
    training_layout,
)
from automap.planner.imports.nemo_rl.overrides import overrides_of
from automap.planner.imports.nemo_rl.pools import pools_of
from automap.planner.imports.nemo_rl.workload import spec_of
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.settings import Settings

EQUAL_FROM_TENSOR_SIZE = 4
"""Tensor size from which on both micro-batches are to be the same number of sequences."""
ON_POLICY = "loss_fn.force_on_policy_ratio"


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = overrides_of(files, answers, framework)
    settings = settings_of(overrides, answers, framework, take, interpolated=True)
    settings.engine = _engine(settings)
    _count_tokens(settings)
    pools = pools_of(settings, node)
    with reasons_first(settings):
        job = resolved(settings, spec_of(settings, answers, pools, node))
        placed = placement_of(
            settings,
            job,
            pools,
            offload=offload_of,
            engine=engine_layout,
            layout=training_layout,
            recompute=recompute_of,
        )
    _note_sizes(settings)
    return imported(settings, job, placed)


def _engine(settings: Settings) -> str:
    """Kind of training engine; where neither is on, or both are, it does not start."""
    megatron, dtensor = settings.flag("with_megatron"), settings.flag("with_dtensor")
    if megatron == dtensor:
        which = "both are on" if megatron else "neither is on"
        keys = f"{settings.key('with_megatron')} and {settings.key('with_dtensor')}"
        told = f"{keys}: {which}, and NeMo-RL does not start"
        settings.note("does not fit", told, settings.given("with_megatron"))
    return "megatron" if megatron else "fsdp"


def _count_tokens(settings: Settings) -> None:
    """Give budgets the tokens that they have: those of padded batches, or of whole sequences."""
    packed, padded = settings.flag("dynamic_batches"), settings.flag("padded_tokens")
    if packed and padded:
        told = "sequence_packing and dynamic_batching are both on, and NeMo-RL does not start"
        settings.note("does not fit", told, settings.given("padded_tokens"))
    longest = settings.size("longest_sequence")
    for kind in ("train", "forward"):
        own = settings.whole(f"padded_{kind}_tokens")
        each = settings.size(f"{kind}_micro_batch")
        stated = settings.whole(f"{kind}_tokens") if packed else own
        _imply(settings, f"{kind}_tokens", str(stated or longest * each))
    if padded and not packed:
        _imply(settings, "dynamic_batches", "true")
        told = "padded micro-batches of so many tokens are priced as packed ones"
        settings.note("assumed", told, settings.given("padded_tokens"))


def _imply(settings: Settings, decision: str, value: str) -> None:
    """Set what NeMo-RL does by itself, where the launch does not say it."""
    key = settings.key(decision)
    before = settings.overrides.given.get(key)
    if before is not None and before.value == value:
        return
    overrides = settings.overrides
    overrides.set(Given(key, value, overrides.file, 0), over=True)
    if before is None:
        overrides.implied.add(key)


def _note_sizes(settings: Settings) -> None:
    """Note micro-batches that NeMo-RL does not start with."""
    tensor = settings.size("tensor_parallel_size")
    sizes = [settings.size(f"{kind}_micro_batch") for kind in ("train", "forward")]
    forced = settings.overrides.given.get(ON_POLICY)
    if forced is not None and forced.value.lower() == "true":
        return
    if tensor >= EQUAL_FROM_TENSOR_SIZE and sizes[0] != sizes[1]:
        names = [settings.key(f"{kind}_micro_batch") for kind in ("train", "forward")]
        told = (
            f"{names[0]} is {sizes[0]} and {names[1]} {sizes[1]}: with a tensor size of {tensor} "
            f"they are to be the same, unless {ON_POLICY} is true"
        )
        settings.note("does not fit", told, settings.given("train_micro_batch"))
