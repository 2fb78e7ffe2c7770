"""HybridFlow's placement studies: the jobs, and what each placement came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.reproduction.cases import SEARCH, Case, Outcome
from benchmarks.reproduction.jobs import LLAMA, ROLES, hybridflow_workload, job
from benchmarks.reproduction.layouts import as_stated, three_d
from benchmarks.reproduction.published import published
from benchmarks.reproduction.software import HYBRIDFLOW
from benchmarks.reproduction.study import Key, Outcomes

PLACEMENTS = ("colocate_all", "split", "standalone")
OTHERS = PLACEMENTS[1:]
WAYS = (*PLACEMENTS, "hybridflow")
SIZES = (16, 32, 64, 96, 128)
EQUAL = {name: dict.fromkeys(ROLES["ppo"], name) for name in ("13B", "34B")}
UNEQUAL = {
    "13B + 70B": {"actor": "13B", "reference": "13B", "critic": "70B", "reward": "70B"},
}
UPDATES = 8
FACTS = published().hybridflow


def study_cases(models: Mapping[str, Mapping[str, str]], sizes: Sequence[int]) -> dict[Key, Case]:
    """The paper's sizes without offload, any of Megatron's, and the search over the whole space."""
    cases: dict[Key, Case] = {}
    for name, roles in models.items():
        for num_gpus in sizes:
            architectures = {role: LLAMA[model] for role, model in roles.items()}
            workload = hybridflow_workload(updates_per_epoch=UPDATES)
            today = workload | {"training_stack": None}
            paper = job(
                "ppo",
                architectures,
                num_gpus,
                workload=workload,
                hardware=FACTS.hardware,
                constraints={"allow_offload": False},
            )
            cases["paper", name, num_gpus] = Case(paper, WAYS, as_stated(architectures), HYBRIDFLOW)
            cases["free", name, num_gpus] = Case(paper, PLACEMENTS, three_d, HYBRIDFLOW)
            whole = job("ppo", architectures, num_gpus, workload=today, hardware=FACTS.hardware)
            cases["whole", name, num_gpus] = Case(whole, (SEARCH, "colocate_all"))
    return cases


def fastest(placed: Mapping[str, Outcome]) -> str | None:
    """The fastest of the three placements; None where none fits."""
    fitting = [way for way in PLACEMENTS if placed[way].seconds is not None]
    return min(fitting, key=lambda way: placed[way].seconds or 0.0, default=None)


@dataclass(frozen=True)
class Point:
    """One model on one cluster: the placements and HybridFlow's choice in the paper's layouts."""

    model: str
    num_gpus: int
    placed: Mapping[str, Outcome]
    whole: Mapping[str, Outcome]
    """The plan, and colocation with the same freedom of layouts."""
    free: Mapping[str, Outcome]
    """The placements in any of Megatron's layouts, without offload."""

    @property
    def plan(self) -> Outcome:
        """The search over the whole space."""
        return self.whole[SEARCH]

    @property
    def best(self) -> str | None:
        """The fastest of the three placements; None where none fits."""
        return fastest(self.placed)

    def over_colocated(self, way: str) -> float | None:
        """Seconds of a placement over those of colocation."""
        one, other = self.placed[way].seconds, self.placed["colocate_all"].seconds
        return None if one is None or other is None else one / other


def points(found: Outcomes) -> list[Point]:
    """The outcomes by model and size, in the order of the cases."""
    return [
        Point(
            str(key[1]),
            int(key[2]),
            placed,
            whole=found["whole", key[1], key[2]],
            free=found["free", key[1], key[2]],
        )
        for key, placed in found.items()
        if key[0] == "paper"
    ]
