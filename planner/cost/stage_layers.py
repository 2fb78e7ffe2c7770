"""Layers on the first, a middle and the last pipeline stage, by kind."""

from functools import lru_cache

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layer_groups
from automap.planner.catalogue.layer_sizes import LayerSizes
from automap.planner.layout import IntArray, layers_per_stage


def stage_layers(arch: ModelArchitecture, pipeline_parallel_size: IntArray) -> list[IntArray]:
    """[stage, layout] layers of each group on the first, the fullest middle and the last stage.

    Stages are cut as `layers_per_stage` has them. Leading dense layers of a mixture of experts
    fill the first stage; other stages are taken as all experts. Layers of several kinds lie where
    the pattern has them, and the middle stage is the one with most parameters, of equals that with
    most layers of full attention. Without a middle stage it is the last.
    """
    if not len(pipeline_parallel_size):
        return [np.zeros((3, 0), dtype=np.int64) for _ in layer_groups(arch)]
    sizes, of_row = np.unique(pipeline_parallel_size, return_inverse=True)
    found = np.stack([_contents(arch, size) for size in sizes.tolist()], axis=2)
    return list(found[:, :, of_row.reshape(-1)])


@lru_cache(maxsize=4096)
def _contents(arch: ModelArchitecture, stages: int) -> IntArray:
    """[group, 3] layers on the first, the fullest middle and the last of so many stages."""
    cut = layers_per_stage(arch.num_layers, stages)
    if not arch.layer_kinds:
        return _uniform(arch, (cut[0], max(cut[1:-1], default=cut[-1]), cut[-1]))
    groups = layer_groups(arch)
    present = np.zeros((len(groups), arch.num_layers + 1), dtype=np.int64)
    for number, group in enumerate(groups):
        present[number, np.array(group.layers) + 1] = 1
    ends = np.concatenate([[0], np.cumsum(cut)])
    inside = np.diff(np.cumsum(present, axis=1)[:, ends], axis=1)
    weights = np.array([group.sizes.layer_parameters(group.mlp) for group in groups])
    full = np.array([_attends_fully(group.sizes) for group in groups], dtype=np.int64)
    middle = inside[:, 1:-1] if stages > 2 else inside[:, -1:]
    # Layers with a window weigh as much as those without, and take less time.
    fullest = middle[:, int(np.lexsort((full @ middle, weights @ middle))[-1])]
    return np.stack([inside[:, 0], fullest, inside[:, -1]], axis=1)


def _attends_fully(sizes: LayerSizes) -> bool:
    windowed = sizes.sliding_window or sizes.attention_chunk_size
    return sizes.mixer == "attention" and not windowed


def _uniform(arch: ModelArchitecture, lengths: tuple[int, int, int]) -> IntArray:
    """[group, stage] of stages of such lengths: leading dense layers, then those with experts."""
    num_moe = arch.num_moe_layers
    dense_first = min(arch.num_layers - num_moe, lengths[0])
    moe = np.array([lengths[0] - dense_first, *(min(num_moe, each) for each in lengths[1:])])
    dense = np.array(lengths) - moe
    kinds = {"dense": dense, "experts": moe}
    return np.stack([kinds[group.mlp] for group in layer_groups(arch)])
