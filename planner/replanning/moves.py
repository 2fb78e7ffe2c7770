"""What it takes to turn one placement of a job into another: bytes that GPUs lack, and seconds.

Only homes move: a shadow is filled by its next weight sync. Of a home its weights and optimizer
state move (gradients are empty between iterations). A GPU lacks what its new shard has and its old
one had not. A shard is a set of layers × a part of every layer's width × a part of the data ranks'
sharding; where old and new sharding cut differently, the parts are taken to lie in one order.
"""

from dataclasses import dataclass

import numpy as np

from automap.planner.assembly.parts import price_copy
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.layout import FloatArray, layers_per_stage
from automap.planner.plan.types import CopyPlacement, Placement


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes over links and the seconds that takes at least."""

    total_bytes: int
    most_bytes_per_gpu: int
    seconds: float
    copies: list[str]
    """Homes that lie or are laid out otherwise."""


def move_between(job: Job, old: Placement, new: Placement) -> Move:
    """From one placement to another on GPUs with the same numbers."""
    before = {copy.role: copy for copy in old.copies if copy.kind == "home"}
    received: dict[tuple[str, int], float] = {}
    moved = []
    senders = set()
    for copy in new.copies:
        if copy.kind != "home" or copy == before[copy.role]:
            continue
        lacking = _lacking_bytes(job, before[copy.role], copy)
        if lacking.sum() > 0:
            moved.append(copy.id)
            source = before[copy.role]
            senders |= {(source.pool, source.first_gpu + i) for i in range(source.num_gpus)}
        for rank, num_bytes in enumerate(lacking.tolist()):
            key = (copy.pool, copy.first_gpu + rank)
            received[key] = received.get(key, 0.0) + num_bytes
    total, most = sum(received.values()), max(received.values(), default=0.0)
    each_sends = total / max(len(senders), 1)
    link = min(
        pool.inter_node_bytes_per_second
        if sum(p.num_nodes for p in job.pools) > 1
        else pool.intra_node_bytes_per_second
        for pool in job.pools
    )
    seconds = max(most, each_sends) / link
    return Move(round(total), round(most), seconds, moved)


def _lacking_bytes(job: Job, old: CopyPlacement, new: CopyPlacement) -> FloatArray:
    """[GPUs of the new range] bytes that its new shard has and its old one had not."""
    held = price_copy(Pricing(job), new)
    kinds = held.bytes_by_kind
    away = held.host_bytes if new.offload != "none" else 0
    weights, state = kinds.weights, kinds.optimizer
    if new.offload == "weights":
        weights, state = 0, away
    elif new.offload == "optimizer":
        state = away
    lacking = np.zeros(new.num_gpus)
    layers = job.models[new.role].architecture.num_layers
    for num_bytes, levels in ((weights, ("full",)), (state, ("optimizer", "gradient", "full"))):
        lacking += num_bytes * (1 - _share_held(old, new, layers, sharded=levels))
    return lacking


def _share_held(
    old: CopyPlacement, new: CopyPlacement, layers: int, *, sharded: tuple[str, ...]
) -> FloatArray:
    """[GPUs of the new range] share of its new shard that the same GPU has already."""
    if old.pool != new.pool:
        return np.zeros(new.num_gpus)
    gpus = np.arange(new.first_gpu, new.first_gpu + new.num_gpus)
    there = (gpus >= old.first_gpu) & (gpus < old.first_gpu + old.num_gpus)
    mine, width, part = _shards(new, gpus - new.first_gpu, layers, sharded)
    ranks = np.clip(gpus - old.first_gpu, 0, old.num_gpus - 1)
    theirs, old_width, old_part = _shards(old, ranks, layers, sharded)
    common = (mine & theirs).sum(axis=1) / np.maximum(mine.sum(axis=1), 1)
    share = common * _overlap(width, old_width) * _overlap(part, old_part)
    return np.where(there, share, 0.0)


def _shards(
    copy: CopyPlacement, ranks: np.ndarray, layers: int, sharded: tuple[str, ...]
) -> tuple[np.ndarray, FloatArray, FloatArray]:
    """([ranks, layers] layers held, [ranks, 2] part of the width, [ranks, 2] of the sharding)."""
    layout = copy.layout
    tensor, context = layout.tensor_parallel_size, layout.context_parallel_size
    data, stages = layout.data_parallel_size, layout.pipeline_parallel_size
    chunks = stages * layout.virtual_pipeline_parallel_size
    stage_of = np.repeat(np.arange(chunks), layers_per_stage(layers, chunks)) % stages
    stage = ranks // (tensor * context * data)
    held = stage[:, None] == stage_of[None, :]
    column = ranks % tensor
    width = np.stack([column, column + 1], axis=1) / tensor
    pieces = data * context if layout.sharding in sharded else 1
    piece = ranks // tensor % (data * context) if pieces > 1 else np.zeros_like(ranks)
    return held, width, np.stack([piece, piece + 1], axis=1) / pieces


def _overlap(one: FloatArray, other: FloatArray) -> FloatArray:
    """Share of each interval of `one` that lies in that of `other`."""
    common = np.minimum(one[:, 1], other[:, 1]) - np.maximum(one[:, 0], other[:, 0])
    return np.asarray(np.maximum(common, 0.0) / (one[:, 1] - one[:, 0]))
