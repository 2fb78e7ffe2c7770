"""Runs an algorithm's program with recording handles and gets the dataflow of one iteration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from automap.planner.dataflow.algorithms.program import Data, Handle, Loss, Program
from automap.planner.dataflow.graph import (
    SAID,
    Call,
    Dataflow,
    Edge,
    add_weight_edges,
    make_call,
    reduced_edges,
)
from automap.planner.errors import SpecError
from automap.planner.spec import CallKind, ModelSpec, WorkloadSpec


@dataclass(frozen=True, slots=True)
class Traced:
    """A value between recorded calls: how many rows it has, and which calls made it."""

    rows: int
    sources: frozenset[str] = frozenset()


def trace(program: Program, *, workload: WorkloadSpec, models: Mapping[str, ModelSpec]) -> Dataflow:
    """The dataflow of one iteration of `program`.

    Edges at distance 0 are the data dependencies and, for two calls on one role of which one
    trains, the program order; both without those that others imply. Weight edges follow.

    Raises:
        SpecError: the program calls a role that `models` lacks, or asks a function for more than
            scores.
    """
    recorder = _Recorder(program=program, workload=workload, models=models)
    prompts = Traced(rows=workload.prompts_per_iteration)
    program.run(_RecordingModels(recorder), prompts, _RecordingOps(recorder))
    calls = tuple(recorder.calls)
    edges = reduced_edges(calls, recorder.edges)
    return Dataflow(
        calls=calls,
        edges=add_weight_edges(calls, edges),
        allows_staleness=program.has_importance_ratio,
    )


class _Recorder:
    """Records a program's calls, in program order."""

    def __init__(
        self, *, program: Program, workload: WorkloadSpec, models: Mapping[str, ModelSpec]
    ) -> None:
        self.program = program
        self.workload = workload
        self.models = models
        self.calls: list[Call] = []
        self.edges: list[Edge] = []
        self.expected_rounds = 1.0

    def record(
        self,
        role: str,
        kind: CallKind,
        *,
        rows: int,
        name: str,
        inputs: Traced,
        extra_forward_sequences: int = 0,
    ) -> Traced:
        """Add a call that reads `inputs`; its result has `rows` rows."""
        call = make_call(
            call_id=self._unique_id(f"{role}.{kind}" + (f".{name}" if name else "")),
            role=role,
            kind=kind,
            rows=rows,
            expected_rounds=self.expected_rounds,
            workload=self.workload,
            models=self.models,
            field="workload.expected_acceptance",
            extra_forward_sequences=extra_forward_sequences,
        )
        self.edges += [Edge(source=source, target=call.id) for source in sorted(inputs.sources)]
        self.edges += [
            Edge(source=earlier.id, target=call.id)
            for earlier in self.calls
            if earlier.role == role and "train" in (earlier.kind, kind)
        ]
        self.calls.append(call)
        return Traced(rows=rows, sources=frozenset([call.id]))

    def _unique_id(self, wanted: str) -> str:
        taken = {call.id for call in self.calls}
        candidates = [wanted, *(f"{wanted}.{number}" for number in range(2, len(taken) + 2))]
        return next(candidate for candidate in candidates if candidate not in taken)


def _joined(*inputs: Data | None) -> Traced:
    """A value that depends on all inputs; numbers and None carry no dependency."""
    traced = [value for value in inputs if isinstance(value, Traced)]
    return Traced(
        rows=traced[0].rows if traced else 0,
        sources=frozenset().union(*(value.sources for value in traced)),
    )


def _rows(value: Data) -> int:
    if not isinstance(value, Traced):
        raise TypeError(f"a program passes on what a handle or an operation gave it, not {value!r}")
    return value.rows


class _RecordingModels:
    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def __contains__(self, role: str) -> bool:
        return role in self._recorder.models

    def __getattr__(self, role: str) -> Handle:
        if role not in self._recorder.program.all_roles:
            raise AttributeError(f"{self._recorder.program.name} does not declare a role {role}")
        return _RecordingHandle(self._recorder, role)


class _RecordingHandle:
    """Implements `algorithms.program.Handle` by recording."""

    def __init__(self, recorder: _Recorder, role: str) -> None:
        self._recorder = recorder
        self._role = role

    def generate(self, prompts: Data, *, greedy: bool = False) -> Data:
        responses = 1 if greedy else self._recorder.workload.responses_per_prompt
        return self._recorder.record(
            self._role,
            "generate",
            rows=_rows(prompts) * responses,
            name="greedy" if greedy else "",
            inputs=_joined(prompts),
        )

    def log_probs(self, rollout: Data) -> Data:
        self._check_has_weights("log-probabilities")
        return self._forward(rollout)

    def values(self, rollout: Data) -> Data:
        self._check_has_weights("values")
        return self._forward(rollout)

    def score(self, rollout: Data, *, name: str = "") -> Data:
        return self._forward(rollout, name=name)

    def _check_has_weights(self, wanted: str) -> None:
        given = self._recorder.models.get(self._role)
        if given is not None and not given.needs_gpus:
            what = "function" if given.function else "remote"
            raise SpecError(
                f"models.{self._role}.{what}",
                f"{self._recorder.program.name} asks it for {wanted}, and a {SAID[what]} only "
                "scores",
                remedy="give an architecture",
            )

    def _forward(self, rollout: Data, name: str = "") -> Data:
        return self._recorder.record(
            self._role, "forward", rows=_rows(rollout), name=name, inputs=_joined(rollout)
        )

    def train(self, rollout: Data, *, loss: Loss, **inputs: Data | None) -> Data:
        pretrain = inputs.get("pretrain")
        epochs = self._recorder.workload.epochs
        return self._recorder.record(
            self._role,
            "train",
            rows=_rows(rollout),
            name="",
            inputs=_joined(rollout, *inputs.values()),
            extra_forward_sequences=0 if pretrain is None else _rows(pretrain) * epochs,
        )


class _RecordingOps:
    """Implements `algorithms.program.Ops`: every result depends on every input."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    @property
    def workload(self) -> WorkloadSpec:
        return self._recorder.workload

    def rollout_log_probs(self, rollout: Data) -> Data:
        return _joined(rollout)

    def penalise_kl(self, scores: Data, log_probs: Data | None, reference: Data | None) -> Data:
        return scores if reference is None else _joined(scores, log_probs, reference)

    def penalise_overlong(self, scores: Data, rollout: Data) -> Data:
        return _joined(scores, rollout)

    def gae(self, rewards: Data, values: Data) -> tuple[Data, Data]:
        return _joined(rewards, values), _joined(rewards, values)

    def group_normalise(self, rewards: Data) -> Data:
        return self._compared_in_groups(rewards)

    def leave_one_out(self, rewards: Data) -> Data:
        return self._compared_in_groups(rewards)

    def _compared_in_groups(self, rewards: Data) -> Data:
        if self.workload.responses_per_prompt < 2:
            raise SpecError(
                "workload.responses_per_prompt",
                f"{self._recorder.program.name} compares the responses to one prompt, and a single "
                "one has nothing to compare with",
                remedy="use 2 or more",
            )
        return _joined(rewards)

    def batch_normalise(self, rewards: Data) -> Data:
        return _joined(rewards)

    def subtract(self, rewards: Data, baseline: Data) -> Data:
        return _joined(rewards, baseline)

    def lagrangian(self, rewards: Data, costs: Data) -> Data:
        return _joined(rewards, costs)

    def pretrain_batch(self) -> Data | None:
        if not self.workload.pretrain_loss:
            return None
        return Traced(rows=self.workload.num_sequences)

    def repeat_until(
        self,
        draw: Callable[[Data], tuple[Data, Data]],
        prompts: Data,
        *,
        keep: Literal["mixed_groups"],
        expected_rounds: float,
    ) -> tuple[Data, Data]:
        outer = self._recorder.expected_rounds
        self._recorder.expected_rounds = outer * expected_rounds
        result = draw(prompts)
        self._recorder.expected_rounds = outer
        # Whether a row is kept depends on its score, so both results wait for both calls.
        both = _joined(*result)
        return both, both

    def apply(self, function: Callable[..., Data], *inputs: Data) -> Data:
        return _joined(*inputs)
