"""Training with PyTorch FSDP2, and tensor parallelism through DTensor."""

from automap.executor.engines.fsdp.engine import FsdpEngine

__all__ = ["FsdpEngine"]
