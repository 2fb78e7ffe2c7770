"""HybridFlow against three systems: the jobs, and the speed-ups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.reproduction import deepspeed_chat
from benchmarks.reproduction.cases import Case, Outcome
from benchmarks.reproduction.jobs import LLAMA, ROLES, hybridflow_workload
from benchmarks.reproduction.published import Over, published
from benchmarks.reproduction.study import Key, Outcomes
from benchmarks.reproduction.systems import BASELINES, SYSTEMS

SIZES = {
    "7B": (8, 16, 32, 64, 128),
    "13B": (16, 32, 64, 128),
    "34B": (32, 64, 128),
    "70B": (64, 128),
}
"""GPUs by model: from the least on which training all models fits to the paper's cluster."""
ALGORITHMS = {"ppo": "PPO", "remax": "ReMax", "safe_rlhf": "Safe-RLHF"}
FACTS = published().hybridflow
UNSUPPORTED = {("remax", "nemo_aligner")}


def cases() -> dict[Key, Case]:
    """Every system on every cluster, and DeepSpeed-Chat's own jobs."""
    found: dict[Key, Case] = {}
    for algorithm in ALGORITHMS:
        workload = hybridflow_workload(algorithm)
        for model, sizes in SIZES.items():
            models = dict.fromkeys(ROLES[algorithm], LLAMA[model])
            for num_gpus in sizes:
                for name, system in SYSTEMS.items():
                    if (algorithm, name) not in UNSUPPORTED:
                        case = system.case(
                            algorithm,
                            models,
                            num_gpus,
                            workload=workload,
                            hardware=FACTS.hardware,
                        )
                        found[algorithm, model, num_gpus, name] = case
    return found | deepspeed_chat.OWN_CASES


@dataclass(frozen=True)
class Point:
    """One algorithm, model and cluster: seconds of an iteration by system."""

    algorithm: str
    model: str
    num_gpus: int
    placed: Mapping[str, Outcome]
    chat_factor: float
    """DeepSpeed-Chat's own iterations over what we price them at."""

    def speed_up(self, system: str, *, software: bool = False) -> float | None:
        """HybridFlow over that system; DeepSpeed-Chat also with what its own runs take longer."""
        if system not in self.placed:
            return None
        ours, theirs = self.placed["hybridflow"].seconds, self.placed[system]
        if ours is None or theirs.seconds is None:
            return None
        slower = self.chat_factor if software and system == "deepspeed_chat" else 1.0
        return slower * theirs.seconds / ours

    def speed_ups(self, *, software: bool) -> list[float]:
        """Over all systems that have a placement."""
        ratios = (self.speed_up(name, software=software) for name in BASELINES)
        return [ratio for ratio in ratios if ratio is not None]


def speed_up_points(found: Outcomes) -> list[Point]:
    factor = deepspeed_chat.factor_within(found)
    return [
        Point(
            algorithm,
            model,
            num_gpus,
            {
                name: found[algorithm, model, num_gpus, name][SYSTEMS[name].strategy]
                for name in SYSTEMS
                if (algorithm, name) not in UNSUPPORTED
            },
            factor,
        )
        for algorithm in ALGORITHMS
        for model, sizes in SIZES.items()
        for num_gpus in sizes
    ]


def of_model(points: Sequence[Point], algorithm: str, model: str) -> list[Point]:
    return [p for p in points if p.algorithm == algorithm and p.model == model]


def ranges_of(
    points: Sequence[Point], *, software: bool
) -> dict[tuple[str, str], tuple[float, float]]:
    """Least and most speed-up by algorithm and model."""
    ranges = {}
    for fact in FACTS.systems.speed_up:
        ratios = [
            ratio
            for point in of_model(points, fact.algorithm, fact.model)
            for ratio in point.speed_ups(software=software)
        ]
        ranges[fact.algorithm, fact.model] = min(ratios), max(ratios)
    return ranges


def over(points: Sequence[Point], system: str, *, software: bool) -> list[float]:
    """Speed-ups of PPO."""
    found = (p.speed_up(system, software=software) for p in points if p.algorithm == "ppo")
    return [ratio for ratio in found if ratio is not None]


def needed(points: Sequence[Point], fact: Over, *, generation: bool) -> list[float]:
    """How many times its price a system's generation, or all else, takes at the published mean."""
    found = []
    for point in points:
        ours, theirs = point.placed["hybridflow"].seconds, point.placed.get(fact.system)
        if point.algorithm == "ppo" and ours and theirs is not None and theirs.seconds:
            rollouts = theirs.calls["actor.generate"].seconds
            rest = theirs.seconds - rollouts
            slower, kept = (rollouts, rest) if generation else (rest, rollouts)
            found.append((fact.mean * ours - kept) / slower)
    return found


def efficiencies(points: Sequence[Point]) -> dict[tuple[str, str], float]:
    """Throughput on the most GPUs over that on the fewest, over the ratio of GPUs."""
    found = {}
    for algorithm in ALGORITHMS:
        for model in SIZES:
            placed = of_model(points, algorithm, model)
            first, last = placed[0], placed[-1]
            gained = (first.placed["hybridflow"].seconds or 0.0) / (
                last.placed["hybridflow"].seconds or 1.0
            )
            found[algorithm, model] = gained / (last.num_gpus / first.num_gpus)
    return found


def share_of(outcomes: Sequence[Outcome], *calls: str) -> float:
    """Mean share of calls in an iteration."""
    return fmean(
        sum(one.calls[call].seconds for call in calls) / (one.seconds or 1.0) for one in outcomes
    )


def placed_by(points: Sequence[Point], system: str) -> list[Outcome]:
    """PPO's outcomes of a system that have a placement."""
    return [
        p.placed[system]
        for p in points
        if p.algorithm == "ppo" and p.placed[system].seconds is not None
    ]
