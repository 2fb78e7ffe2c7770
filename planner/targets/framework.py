"""What holds for the targets of all frameworks."""

from functools import partial

from automap.planner.targets.target import Target

FrameworkTarget = partial(
    Target,
    one_gpu_type=True,
    # Their pools are whole processes: two models have the same GPUs or none in common.
    ranges="equal",
    shadows_apart=True,
    tensor_in_node=True,
    whole_nodes=True,
    within_positions=True,
    overlaps_only_stale=True,
    # What is exported has been held against their installations for CUDA alone.
    cuda_only=True,
    streams=False,
    training_precisions=frozenset({"bf16"}),
    takes_memory_settings=False,
)
"""A `Target` with what no framework's launch can say otherwise; the rest is each one's own."""
