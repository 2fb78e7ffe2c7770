"""Training with Megatron-core: tensor, sequence, pipeline and data parallel."""

import warnings

import torch

with warnings.catch_warnings():
    # Warnings that Transformer Engine and Apex are missing, which are not needed.
    warnings.simplefilter("ignore", UserWarning)
    from automap.executor.engines.megatron.engine import MegatronEngine
    from automap.executor.engines.megatron.parallel_groups import ParallelGroups

if not torch.cuda.is_available():
    from automap.executor.engines.megatron import cpu

    cpu.install()

__all__ = ["MegatronEngine", "ParallelGroups"]
