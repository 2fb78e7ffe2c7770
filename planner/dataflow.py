"""The dataflow graph of one iteration: calls and what they wait for."""

from pydantic import BaseModel, ConfigDict

from planner.spec import CallKind


class Call(BaseModel):
    """One model call of an iteration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Unique, for example `actor.generate` or `actor.generate.greedy`."""
    role: str
    """Who the algorithm says is called (reference)."""
    model: str | None
    """Whose weights serve it: the role, or `actor` for a LoRA reference; None for a function."""
    kind: CallKind
    num_sequences: int
    """Sequences processed per iteration, repetitions included."""
    epochs: int = 1
    """Train calls: passes over the sequences."""
    num_updates: int = 0
    """Train calls: optimizer steps per iteration (epochs × updates_per_epoch)."""
    extra_forward_sequences: int = 0
    """Train calls: further sequences with loss per iteration (the pre-train loss of PPO-ptx)."""
    fixed_seconds: float | None = None
    """A reward function's time on the host; None where the cost model decides."""


class Edge(BaseModel):
    """`target` starts after `source` of `distance` iterations earlier has ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    target: str
    distance: int = 0


class Dataflow(BaseModel):
    """Calls in program order; edges at distance 0 are acyclic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: tuple[Call, ...]
    edges: tuple[Edge, ...]
    allows_staleness: bool = True
    """False when the program declares no importance ratio."""
