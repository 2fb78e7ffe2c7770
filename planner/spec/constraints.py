"""Constraints that the plan of a job must respect."""

import itertools
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from automap.planner.spec.base import PositiveInt, SpecModel

Pair = Annotated[tuple[str, str], Field(strict=False)]
"""Files and HTTP have lists, never tuples."""


def _pairs(given: object) -> object:
    """Every pair of each group of roles; `[actor, critic]` without a list around it is one group.

    What is something else is left for the type to refuse.
    """
    if not isinstance(given, list):
        return given
    groups = [given] if given and all(isinstance(each, str) for each in given) else given
    if any(not isinstance(group, list | tuple) or len(group) < 2 for group in groups):
        return given
    return [pair for group in groups for pair in itertools.combinations(group, 2)]


Pairs = Annotated[list[Pair], BeforeValidator(_pairs)]


class ParallelismConstraint(SpecModel):
    """Sizes of a role's home and settings of its calls; what is left out stays free.

    Under a role (`actor`) all fields: the sizes of its home, micro-batch and recomputation of its
    calls, and the tensor size with which it generates. A shadow, the copy that generates on GPUs of
    its own, keeps of these the settings of its calls alone and has its own num_gpus;
    allow_shadow_copies: false leaves none.

    Under a shadow (`actor.shadow`) or a generate call (`actor.generate`): num_gpus of its range,
    and tensor, pipeline, data and expert sizes, which are those of the engine. Under a train call
    (`actor.train`): micro_batch_size and recompute; under a forward call: micro_batch_size. What is
    fixed of a call goes before what is fixed of its role.
    """

    num_gpus: PositiveInt | None = None
    tensor_parallel_size: PositiveInt | None = None
    pipeline_parallel_size: PositiveInt | None = None
    data_parallel_size: PositiveInt | None = None
    context_parallel_size: PositiveInt | None = None
    expert_parallel_size: PositiveInt | None = None
    sharding: Literal["none", "optimizer", "gradient", "full"] | None = None
    micro_batch_size: PositiveInt | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    generation_tensor_parallel_size: PositiveInt | None = None


class ConstraintsSpec(SpecModel):
    """Constraints that the plan must respect."""

    pools: dict[str, str] = Field(
        default={},
        description="role, copy or call → pool: pin a role (`actor`: its home, and its shadow "
        "unless that is pinned otherwise), its shadow (`actor.shadow`: where it lies if there is "
        "one), or a call (`actor.generate`: a copy in that pool serves it)",
    )
    colocate: Pairs = Field(default=[], description="pairs of roles whose homes share a range")
    separate: Pairs = Field(default=[], description="pairs of roles on disjoint GPUs")
    parallelism: dict[str, ParallelismConstraint] = Field(
        default={},
        description="role, copy or call → what is fixed of it: of a role (`actor`) the sizes of "
        "its home and the settings of its calls, of its shadow (`actor.shadow`) its sizes, of a "
        "call (`actor.train`) its settings or the sizes of its engine",
    )
    keep_free_gpus: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="pool → GPUs that stay unused (the last ones)"
    )
    require_even_batch: bool = Field(
        default=False, description="Data parallelism × micro-batch must divide the batch"
    )
    tensor_parallel_across_nodes: bool = Field(
        default=False, description="Let tensor and expert groups leave the NVLink domain"
    )
    allow_offload: bool = True
    allow_recompute: bool = True
    allow_shadow_copies: bool = True
