"""Megatron-core's process groups of one layout, beside those of others in the same process."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from megatron.core import parallel_state

from automap.executor.layout import RankLayout

_ORDERS = {"megatron": "tp-cp-ep-dp-pp", "hybridflow": "tp-pp-cp-ep-dp"}


class ParallelGroups:
    """The process groups of a layout over the default group's ranks.

    Megatron-core keeps them in module variables and reads those wherever it likes, in backward
    passes too. Each engine therefore puts its own there for the time of a call (`active`). Roles
    with equal layouts may share one object, and save communicators.
    """

    def __init__(self, layout: RankLayout, *, virtual_pipeline_parallel_size: int = 1) -> None:
        """Collective over the default group.

        Raises:
            ValueError: the layout's sizes are not the default group's.
        """
        world_size = dist.get_world_size()
        if layout.world_size != world_size:
            raise ValueError(f"the layout is for {layout.world_size} ranks, not for {world_size}")
        self.layout = layout
        self.virtual_pipeline_parallel_size = virtual_pipeline_parallel_size
        virtual = virtual_pipeline_parallel_size if virtual_pipeline_parallel_size > 1 else None
        self._values = dict(_PRISTINE)
        with self.active():
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=layout.tensor_parallel_size,
                pipeline_model_parallel_size=layout.pipeline_parallel_size,
                virtual_pipeline_model_parallel_size=virtual,
                context_parallel_size=layout.context_parallel_size,
                expert_model_parallel_size=layout.expert_parallel_size,
                expert_tensor_parallel_size=layout.expert_tensor_parallel_size,
                order=_ORDERS[layout.order],
                create_gloo_process_groups=False,
            )
            self.tensor = parallel_state.get_tensor_model_parallel_group()
            self.data = parallel_state.get_data_parallel_group()
            self.pipeline = parallel_state.get_pipeline_model_parallel_group()
            self.place = layout.coordinates(dist.get_rank())
            self._check_order()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Megatron-core works with these groups inside; with those from before again after."""
        before = _snapshot()
        vars(parallel_state).update(self._values)
        try:
            yield
        finally:
            self._values = _snapshot()
            vars(parallel_state).update(before)

    def check(self, layout: RankLayout, virtual_pipeline_parallel_size: int) -> None:
        """ValueError unless the groups are of that layout."""
        own, asked = (
            (self.layout, self.virtual_pipeline_parallel_size),
            (layout, virtual_pipeline_parallel_size),
        )
        if own != asked:
            raise ValueError(f"groups are of layout and chunks {own}, not of {asked}")

    @property
    def last_stage_rank(self) -> int:
        """The global rank of this rank's peer on the last pipeline stage."""
        return dist.get_global_rank(self.pipeline, self.layout.pipeline_parallel_size - 1)

    def _check_order(self) -> None:
        rank = dist.get_rank()
        expert = self.layout.expert_coordinates(rank)
        own = (
            *(dist.get_rank(group) for group in (self.tensor, self.data, self.pipeline)),
            parallel_state.get_expert_model_parallel_rank(),
            parallel_state.get_expert_tensor_parallel_rank(),
        )
        place = self.place
        theirs = (place.tensor, place.data, place.pipeline, expert.expert, expert.expert_tensor)
        if own != theirs:
            raise ValueError(
                f"rank {rank} is {own} in Megatron's tensor, data, pipeline, expert and expert "
                f"tensor groups, but {theirs} in the layout"
            )


def _snapshot() -> dict[str, Any]:
    """Megatron's module variables: names in capitals."""
    return {
        name: value
        for name, value in vars(parallel_state).items()
        if name.startswith("_") and name.isupper()
    }


_PRISTINE = _snapshot()
