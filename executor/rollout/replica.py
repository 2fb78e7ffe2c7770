"""vLLM's process groups for one replica inside a larger world, from an explicit list of ranks.

vLLM builds its groups from consecutive ranks of torch's default group, and every rank of that
group must take part. A generation replica is neither: its tensor group takes ranks at intervals
(HybridFlow, section 5.3), and other replicas, or ranks that only train, share the world. So each
replica gets vLLM's groups built for it alone, in the given order, before vLLM would build its own;
vLLM then finds them and uses them. To vLLM a replica is a world of its own.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import torch
import torch.distributed as dist

from automap.executor.reshard.local_groups import new_local_group

SHARED_MEMORY = Path("/dev/shm")  # nosec B108  # the system's own; each run has a folder in it
_GROUPS = ("TP", "ETP", "DCP", "PCP", "PP", "DP", "EP")


@contextmanager
def replica_groups(
    ranks: Sequence[int], *, tensor_parallel_size: int, stages: Sequence[int]
) -> Iterator[None]:
    """Within, a vLLM engine that this process starts uses groups over `ranks`.

    Collective over the replica's ranks alone. The environment variables that vLLM reads (RANK and
    LOCAL_RANK of its external launcher mode, the layers of each stage) are set within and put back.

    Args:
        ranks: of torch's default group, tensor-parallel ranks first, then pipeline stages.
        tensor_parallel_size: ranks per stage.
        stages: layers of each pipeline stage.

    Raises:
        RuntimeError: this process already has an engine.
    """
    import vllm.distributed.parallel_state as state
    import vllm.envs as envs
    import vllm.v1.engine.core as core
    import vllm.v1.worker.gpu_worker as worker

    if state._WORLD is not None:
        raise RuntimeError("this process already has a vLLM engine; shut it down first")
    local_rank = torch.cuda.current_device() if torch.cuda.is_available() else 0

    def build(*_: Any, **__: Any) -> None:
        with patch.object(dist, "new_group", new_local_group):
            _build(state, list(ranks), tensor_parallel_size, local_rank)

    launcher = {
        "RANK": str(ranks.index(dist.get_rank())),
        "LOCAL_RANK": str(local_rank),
        "VLLM_PP_LAYER_PARTITION": ",".join(map(str, stages)),
    }
    envs.disable_envs_cache()  # which an engine before has filled with its own stages
    with (
        patch.object(worker, "init_distributed_environment", build),
        patch.object(core, "get_kv_cache_configs", partial(_agreed_cache, state)),
        patch.dict(os.environ, launcher),
    ):
        yield


@contextmanager
def keep_default_group() -> Iterator[None]:
    """Within, an engine's shutdown destroys its own groups and not torch's default group."""
    import vllm.distributed.parallel_state as state
    import vllm.v1.engine.core as core

    def destroy() -> None:
        groups: Any = state
        groups.destroy_model_parallel()
        if groups._WORLD is not None:
            groups._WORLD.destroy()
            groups._WORLD = None

    with patch.object(core, "cleanup_dist_env_and_memory", destroy):
        yield


def _build(state: Any, ranks: list[int], tensor_parallel_size: int, local_rank: int) -> None:
    from vllm.config import get_current_vllm_config
    from vllm.platforms import current_platform

    backend = current_platform.dist_backend
    state._WORLD = state.init_world_group(ranks, local_rank, backend)
    state._NODE_COUNT = state._node_count(state._WORLD.cpu_group)

    def group(name: str, members: list[int], **options: bool) -> Any:
        return state.init_model_parallel_group(
            [members], local_rank, backend, group_name=name, **options
        )

    own = dist.get_rank()
    stage, tensor = divmod(ranks.index(own), tensor_parallel_size)
    tensor_ranks = ranks[stage * tensor_parallel_size :][:tensor_parallel_size]
    config = get_current_vllm_config()
    with patch.dict(os.environ, VLLM_DIST_IDENT=_agreed_name(state._WORLD)):
        state._TP = state._ETP = group("tp", tensor_ranks)
        state._PP = group("pp", ranks[tensor::tensor_parallel_size])
        if config.model_config is not None and config.model_config.is_moe:
            all_to_all = config.parallel_config.use_all2all
            state._EP = group("ep", tensor_ranks, use_all2all=all_to_all)
        for name in ("dcp", "pcp", "dp"):
            setattr(state, f"_{name.upper()}", group(name, [own]))
    _unlink_shared_memory(state)


def _agreed_cache(state: Any, config: Any, specs: Any, available_bytes: Any) -> Any:
    """A cache of as many blocks on every rank: stages of fewer layers would have room for more.

    Each rank has a scheduler of its own, and all must come to the same steps.
    """
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

    configs = get_kv_cache_configs(config, specs, available_bytes)
    if state._PP.world_size == 1:
        return configs
    fewest = torch.tensor(configs[0].num_blocks)
    dist.all_reduce(fewest, op=dist.ReduceOp.MIN, group=state._WORLD.cpu_group)
    config.cache_config.num_gpu_blocks_override = int(fewest)
    return get_kv_cache_configs(config, specs, available_bytes)


def _agreed_name(world: Any) -> str:
    """A name that no other run on this host has; vLLM names its shared memory after it."""
    names = [f"automap-{uuid4().hex[:12]}"]
    dist.broadcast_object_list(names, src=world.ranks[0], group=world.cpu_group)
    return names[0]


def _unlink_shared_memory(state: Any) -> None:
    """Take the names away at once: all ranks have mapped the memory, and a killed run leaves none.

    vLLM's CPU communicator opens one file per rank and maps those of the others before it returns.
    """
    for name in _GROUPS:
        group = getattr(state, f"_{name}")
        channel: Any = getattr(getattr(group, "device_communicator", None), "dist_module", None)
        if hasattr(channel, "group_name"):
            unlink_name(channel, group.rank_in_group)


def unlink_name(channel: Any, rank: int) -> None:
    """Take away the name of what one rank of a vLLM channel between cores has shared."""
    (SHARED_MEMORY / f"{channel.group_name}_{rank}").unlink(missing_ok=True)
