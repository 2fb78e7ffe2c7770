"""How a plan's copies get their engines: Megatron-core or FSDP2 to train, vLLM to generate.

Called in the worker processes. What is imported there is only what a copy needs, because the
imports take longer than building the engines.
"""

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from automap.executor.engines.training_engine import TrainingEngine
from automap.executor.errors import RunError
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.rollout.weight_sources import (
    colocated,
    generation_layout,
    received,
    sending,
    turns,
)
from automap.executor.settings import RunSettings
from automap.executor.workers.model_setup import ModelSetup
from automap.executor.workers.model_worker import Factories, Rollout, SyncPlace, WeightSync
from automap.executor.workers.process import ProcessContext
from automap.executor.workers.reward_functions import RewardFunctionError, check_function

if TYPE_CHECKING:
    from automap.executor.rollout.vllm_engine import VllmEngine

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of an element of the cache; vLLM keeps the cache of fp8 weights in bf16."""
_SYNC_TIMEOUT = timedelta(minutes=30)


def check_setup(setup: ModelSetup) -> None:
    """Refuse a copy whose model cannot be had or cannot generate, before a process is started.

    Raises:
        RunError: names the setting and what would do.
    """
    if setup.folder is None:
        from automap.executor.engines.random_model import config_of

        try:
            config_of(setup.architecture)
        except ValueError as error:
            raise RunError(
                f"models.{setup.role}: without a folder its weights are random, and {error}"
            ) from error
    elif not (setup.folder / "config.json").is_file():
        raise RunError(
            f"models.{setup.role}: {setup.folder} is no Hugging Face folder: no config.json"
        )
    _check_generation(setup)


def check_functions(settings: RunSettings) -> None:
    """Refuse reward functions now: the processes that score look for them when all have started.

    Raises:
        RunError: names the setting, and what is wrong with the function that it names.
    """
    # Only a program of one's own may give its functions something else.
    keywords = settings.data.function_keywords() if settings.program is None else None
    for role, function in settings.functions.items():
        try:
            check_function(function.path, keywords, timeout_seconds=settings.start_timeout_seconds)
        except RewardFunctionError as error:
            raise RunError(f"functions.{role}.path: {error}") from error


def _check_generation(setup: ModelSetup) -> None:
    """Refuse ranks that cannot be regrouped as the plan has them generate."""
    try:
        _ = setup.generation_layout
    except ValueError as error:
        raise RunError(f"copy {setup.copy.id} cannot generate as planned: {error}") from error


def build_engine(setup: ModelSetup, context: ProcessContext) -> TrainingEngine:
    """The training engine of a home, with its weights. Collective over the copy's ranks."""
    engine = _megatron(setup) if setup.engine == "megatron" else _fsdp(setup)
    if setup.folder is not None:
        engine.load(setup.folder)
    return engine


def build_rollout(
    setup: ModelSetup,
    context: ProcessContext,
    engine: TrainingEngine | None,
    *,
    plain: bool = True,
) -> Rollout:
    """A vLLM in this process, fed by the training engine, or on a shadow by a weight sync.

    See `VllmEngine` for `plain`.
    """
    vllm = _vllm(setup, context, plain=plain)
    from automap.executor.rollout.vllm_rollout import VllmRollout

    if engine is None:
        return VllmRollout(setup, vllm)
    source = colocated(setup, context, engine)
    return VllmRollout(setup, vllm, source, turns(setup, context, engine, vllm, source.ledger))


def build_sync(
    setup: ModelSetup, place: SyncPlace, engine: TrainingEngine | None, rollout: Rollout | None
) -> WeightSync:
    """This rank's end of the broadcasts from a home to its shadow. Collective over both."""
    from automap.executor.reshard.broadcast import Meeting, sender_ranks
    from automap.executor.rollout.vllm_rollout import VllmRollout, WeightReceipt, WeightSending

    senders = sender_ranks(place.home.layout)
    if place.home.engine == "fsdp":  # data ranks hold parts, not copies
        senders = list(range(place.home.copy.num_gpus))
    meeting = Meeting(
        place.meeting.store(_SYNC_TIMEOUT),
        name=f"{place.home.copy.id}-{place.shadow.copy.id}",
        num_senders=len(senders),
        num_receivers=place.shadow.copy.num_gpus,
        timeout=_SYNC_TIMEOUT,
    )
    if engine is not None:
        if place.rank not in senders:
            return WeightSending(None)
        return sending(meeting, senders.index(place.rank), place, engine)
    assert isinstance(rollout, VllmRollout), "a shadow generates"
    return WeightReceipt(received(meeting, place, rollout.ledger), rollout.vllm)


FACTORIES = Factories(build_engine, build_rollout, build_sync)


def _megatron(setup: ModelSetup) -> TrainingEngine:
    from automap.executor.engines.megatron import MegatronEngine

    chunks = setup.copy.layout.virtual_pipeline_parallel_size
    return MegatronEngine(
        _model_of(setup),
        layout=setup.layout,
        head=setup.head,
        precision=cast("Any", setup.precision),
        training=setup.training if setup.trains else None,
        micro_batch_tokens=setup.micro_batch_tokens,
        forward_tokens=setup.forward_tokens,
        recompute=cast("Any", setup.recompute),
        distributed_optimizer=setup.trains and setup.copy.layout.sharding == "optimizer",
        virtual_pipeline_parallel_size=chunks,
        groups=_groups(setup.layout, chunks),
        seed=setup.seed,
    )


@cache
def _groups(layout: RankLayout, virtual_pipeline_parallel_size: int) -> Any:
    """Communicators that all roles of a layout share in a process."""
    from automap.executor.engines.megatron import ParallelGroups

    return ParallelGroups(layout, virtual_pipeline_parallel_size=virtual_pipeline_parallel_size)


def _fsdp(setup: ModelSetup) -> TrainingEngine:
    from automap.executor.engines.fsdp import FsdpEngine

    return FsdpEngine(
        _model_of(setup),
        layout=setup.layout,
        head=setup.head,
        precision=cast("Any", setup.precision),
        training=setup.training if setup.trains else None,
        micro_batch_tokens=setup.micro_batch_tokens,
        forward_tokens=setup.forward_tokens,
        recompute=cast("Any", setup.recompute),
        # FSDP2 always splits what lies idle; less than that is left to when it is gathered.
        sharding="full" if setup.copy.layout.sharding == "full" else "gradient",
        lora_rank=setup.lora_rank,
        seed=setup.seed,
    )


def _model_of(setup: ModelSetup) -> Any:
    """The folder, or a configuration of the sizes."""
    if setup.folder is not None:
        return setup.folder
    from automap.executor.engines.random_model import config_of

    return config_of(setup.architecture)


def _vllm(setup: ModelSetup, context: ProcessContext, *, plain: bool) -> "VllmEngine":
    from automap.executor.rollout.vllm_engine import VllmEngine

    layout = generation_layout(setup)
    replicas = layout.groups("tensor", "pipeline")
    own = next(ranks for ranks in replicas if context.rank in ranks)
    places = {rank: layout.coordinates(rank) for rank in own}
    return VllmEngine(
        _model_of(setup),
        # Tensor ranks first, as vLLM counts them.
        ranks=sorted(own, key=lambda rank: (places[rank].pipeline, places[rank].tensor)),
        tensor_parallel_size=layout.tensor_parallel_size,
        expert_parallel_size=layout.expert_parallel_size,
        precision=cast("Any", setup.rollout_precision),
        rollout=setup.rollout,
        max_model_len=setup.max_prompt_tokens + setup.max_response_tokens,
        kv_cache_bytes=cache_bytes(setup, layout),
        seed=setup.run_seed,
        cache_at_sync=setup.cache_at_sync,
        plain=plain,
    )


def cache_bytes(setup: ModelSetup, layout: GenerationLayout) -> int:
    """The plan's cache for so many of the longest sequences, each in whole blocks of vLLM.

    The plan counts tokens; blocks (16 tokens on a GPU, 128 on a CPU) are what vLLM gives out.
    """
    import torch

    block_tokens = 16 if torch.cuda.is_available() else 128
    model = setup.architecture
    layers = -(-model.num_layers // layout.pipeline_parallel_size)
    heads = max(model.num_key_value_heads // layout.tensor_parallel_size, 1)
    token_bytes = 2 * layers * heads * model.head_dim * _BYTES[setup.rollout_precision]
    longest = setup.max_prompt_tokens + setup.max_response_tokens
    call = setup.generation
    planned = (call.kv_cache_bytes if call is not None else None) or 0
    sequences = min(max(planned // (longest * token_bytes), 1), setup.rollout.max_running_sequences)
    in_blocks = -(-longest // block_tokens) * block_tokens * token_bytes
    null_block = block_tokens * token_bytes
    return int(sequences * in_blocks + null_block)
