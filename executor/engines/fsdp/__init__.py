"""Training with PyTorch FSDP2, and tensor parallelism through DTensor."""

from executor.engines.fsdp.engine import FsdpEngine

__all__ = ["FsdpEngine"]
