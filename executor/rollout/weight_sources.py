"""How weights come to generate with: from the engine beside it, or from a home to its shadow.

Called in the worker processes; what is imported there is only what a copy needs.
"""

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from automap.executor.engines.training_engine import LORA_SCALING, TrainingEngine
from automap.executor.layout import GenerationLayout
from automap.executor.workers.model_setup import ModelSetup
from automap.executor.workers.model_worker import SyncPlace, WeightSync
from automap.executor.workers.process import ProcessContext
from automap.planner.layout import layers_per_stage

if TYPE_CHECKING:
    from automap.executor.engines.fsdp import FsdpEngine
    from automap.executor.reshard.broadcast import Meeting
    from automap.executor.reshard.ledger import Ledger
    from automap.executor.reshard.parts import Target
    from automap.executor.rollout.vllm_engine import VllmEngine
    from automap.executor.rollout.vllm_rollout import WeightSource
    from automap.executor.rollout.weight_turns import WeightTurns


def sending(meeting: "Meeting", index: int, place: SyncPlace, engine: TrainingEngine) -> WeightSync:
    """A home's end of a weight sync, as its sender of that number; `received` is the other."""
    from automap.executor.reshard.broadcast import WeightSender
    from automap.executor.rollout.vllm_rollout import WeightSending, pieces_of

    home = place.home
    weights = pieces_of(engine, tensor_rank=home.layout.coordinates(place.rank).tensor)
    if home.lora_rank is None:
        return WeightSending(WeightSender(meeting, index, weights, dtype=_rollout_dtype(home)))
    base = WeightSender(meeting, index, weights)
    adapter = cast("FsdpEngine", engine).adapter_pieces
    meeting = replace(meeting, name=f"{meeting.name}-adapter")
    return WeightSending(WeightSender(meeting, index, adapter, dtype=_dtype(home.precision)), base)


def received(meeting: "Meeting", place: SyncPlace, ledger: "Ledger") -> "WeightSource":
    """What a shadow's rank generates with; a receiver takes the place of a gather."""
    from automap.executor.reshard.broadcast import WeightReceiver
    from automap.executor.reshard.lora_transition import AdapterTransition
    from automap.executor.reshard.transition import Transition

    target = _target(place.shadow, place.rank)
    receiver = WeightReceiver(meeting, place.rank, target, ledger=ledger)
    weights = Transition([receiver], receiver.ledger)
    if place.home.lora_rank is None:
        return weights
    meeting = replace(meeting, name=f"{meeting.name}-adapter")
    receiver = WeightReceiver(meeting, place.rank, target, ledger=weights.ledger)
    adapter = Transition([receiver], weights.ledger)
    return AdapterTransition(
        weights, adapter, scaling=LORA_SCALING, dtype=_rollout_dtype(place.shadow)
    )


def colocated(setup: ModelSetup, context: ProcessContext, engine: TrainingEngine) -> "WeightSource":
    """What a rank generates with, of the engine in its process; collective over the copy's."""
    from automap.executor.reshard.lora_transition import AdapterTransition
    from automap.executor.reshard.transition import (
        any_transition,
        data_parallel_transition,
        model_parallel_transition,
        new_group,
    )
    from automap.executor.rollout.vllm_rollout import pieces_of

    layout, rank = generation_layout(setup), context.rank
    pieces = pieces_of(engine, tensor_rank=setup.layout.coordinates(rank).tensor)
    dtype = _rollout_dtype(setup)
    in_place = layout.grouping == "interval" and _stages_nest(setup) and not _spread_experts(setup)
    if setup.engine == "megatron" and in_place:
        heads = setup.architecture.num_key_value_heads
        return model_parallel_transition(pieces, layout, num_key_value_heads=heads, dtype=dtype)
    everyone, target = new_group(list(range(context.world_size))), _target(setup, rank)
    if setup.engine == "megatron":
        return any_transition(pieces, everyone, target, dtype=dtype)
    if setup.lora_rank is None:
        return data_parallel_transition(pieces, everyone, target, dtype=dtype)
    base = data_parallel_transition(pieces, everyone, target)
    adapter = data_parallel_transition(
        cast("FsdpEngine", engine).adapter_pieces,
        everyone,
        target,
        dtype=_dtype(setup.precision),
        ledger=base.ledger,
    )
    return AdapterTransition(base, adapter, scaling=LORA_SCALING, dtype=dtype)


def turns(
    setup: ModelSetup,
    context: ProcessContext,
    engine: TrainingEngine,
    vllm: "VllmEngine",
    ledger: "Ledger",
) -> "WeightTurns | None":
    """How training weights make room for vLLM's; None where those are not tensors of ours.

    An adapter's base is not what vLLM generates with, and weights that the plan has wait on the
    host make room by themselves: these lend nothing.
    """
    from automap.executor.rollout.vllm_rollout import pieces_of
    from automap.executor.rollout.weight_turns import WeightTurns

    weights = cast("Any", engine).weight_tensors  # both engines have it
    ledger.watch("training", weights())
    if vllm.plain is None:
        return None
    lends = setup.lora_rank is None and setup.copy.offload != "weights"
    pieces = pieces_of(engine, tensor_rank=setup.layout.coordinates(context.rank).tensor)
    return WeightTurns(vllm.plain, pieces, weights if lends else tuple, ledger)


def _stages_nest(setup: ModelSetup) -> bool:
    """Whether each generation stage has the layers of the training stages whose ranks it takes.

    Else some of its layers lie on other ranks than those of its micro-data-parallel group: where
    stages are not equally long, or a training rank's layers are several ranges.
    """
    trained, layers = setup.copy.layout, setup.architecture.num_layers
    stages = generation_layout(setup).pipeline_parallel_size
    if stages == 1:
        return True
    each = trained.pipeline_parallel_size // stages
    ends = list(accumulate(layers_per_stage(layers, trained.pipeline_parallel_size)))
    nest = ends[each - 1 :: each] == list(accumulate(layers_per_stage(layers, stages)))
    return nest and trained.virtual_pipeline_parallel_size == 1


def _spread_experts(setup: ModelSetup) -> bool:
    """Whether ranks have unlike experts while they train or generate.

    Then an expert that a rank generates with may lie on none of its micro-data-parallel group.
    """
    generation = generation_layout(setup)
    return max(setup.layout.expert_parallel_size, generation.expert_parallel_size) > 1


def _target(setup: ModelSetup, rank: int) -> "Target":
    """What a rank generates with."""
    from automap.executor.reshard.parts import Target

    layout, model = generation_layout(setup), setup.architecture
    place, layers, experts = layout.coordinates(rank), None, None
    if layout.pipeline_parallel_size > 1:
        cut = layers_per_stage(model.num_layers, layout.pipeline_parallel_size)
        layers = (sum(cut[: place.pipeline]), sum(cut[: place.pipeline + 1]))
    if layout.expert_parallel_size > 1:
        own = model.num_experts // layout.expert_parallel_size
        experts = (place.tensor * own, (place.tensor + 1) * own)
    return Target(
        place.tensor,
        layout.tensor_parallel_size,
        model.num_key_value_heads,
        layers=layers,
        experts=experts,
    )


def generation_layout(setup: ModelSetup) -> GenerationLayout:
    """Layout of a copy that the plan has generate."""
    layout = setup.generation_layout
    assert layout is not None, "the plan has the copy generate"
    return layout


def _rollout_dtype(setup: ModelSetup) -> Any:
    return _dtype(setup.rollout_precision)


def _dtype(precision: str) -> Any:
    import torch

    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return dtypes.get(precision, torch.bfloat16)
