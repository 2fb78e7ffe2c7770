"""Experts that lie on unlike ranks, on a CPU: vLLM's kernels there take no map of experts.

They read the number of an expert as its place among the rank's own. For those of other ranks that
is beyond the end of the weights.
"""

from functools import wraps
from typing import Any

import torch
from torch import Tensor


def map_experts() -> None:
    """From now on kernels on a CPU add nothing for experts of other ranks.

    These ranks add it: vLLM sums what they have over the expert group. Has no effect on a GPU,
    whose kernels take the map, nor where each rank has all experts.
    """
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    given = CPUUnquantizedExperts.apply
    if hasattr(given, "__wrapped__"):
        return

    @wraps(given)
    def apply(
        self: CPUUnquantizedExperts,
        *,
        topk_weights: Tensor,
        topk_ids: Tensor,
        expert_map: Tensor | None,
        **arguments: Any,
    ) -> None:
        if expert_map is not None:
            topk_weights, topk_ids = own_experts(topk_weights, topk_ids, expert_map)
        given(
            self,
            topk_weights=topk_weights,
            topk_ids=topk_ids,
            expert_map=expert_map,
            **arguments,
        )

    CPUUnquantizedExperts.apply = apply  # type: ignore[method-assign, assignment]


def own_experts(weights: Tensor, ids: Tensor, expert_map: Tensor) -> tuple[Tensor, Tensor]:
    """The choice of experts as one rank computes it.

    Args:
        weights: [token, choice] of the experts chosen.
        ids: [token, choice] numbers of these among all experts.
        expert_map: [expert] place among this rank's own; -1: another rank has it.

    Returns:
        [token, choice] weights, 0 where another rank has the expert, and places; the place of an
        expert that is not here is 0, that of any that is.
    """
    places = expert_map[ids.long()]
    foreign = places < 0
    return weights.masked_fill(foreign, 0.0), torch.where(foreign, 0, places).to(ids.dtype)
