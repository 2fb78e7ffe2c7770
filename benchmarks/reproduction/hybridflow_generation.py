"""HybridFlow's generation studies: the best tensor size, and going there from training's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automap.planner.spec import JobSpec
from benchmarks.reproduction.cases import Case
from benchmarks.reproduction.jobs import LLAMA, ROLES, hybridflow_workload, job
from benchmarks.reproduction.pictures import bars
from benchmarks.reproduction.published import published
from benchmarks.reproduction.software import HYBRIDFLOW
from benchmarks.reproduction.study import (
    Claim,
    Key,
    Outcomes,
    Report,
    Study,
    number_claim,
    percent,
    seconds,
    table,
)

MODELS = ("7B", "13B")
NUM_GPUS = 16
TRAINING_TENSOR_SIZE = 8
TENSOR_SIZES = (1, 2, 4, 8)
RESPONSE_TOKENS = 1024
SEQUENCES = 1024
FACTS = published().hybridflow
WAY = "colocate_all"


def spec(model: str, tensor_size: int) -> JobSpec:
    """All models as in training (t = 8, d = 2), generation with the given tensor size.

    Training with the distributed optimizer: without it the larger model leaves no room.
    """
    sizes = {
        "tensor_parallel_size": TRAINING_TENSOR_SIZE,
        "pipeline_parallel_size": 1,
        "data_parallel_size": NUM_GPUS // TRAINING_TENSOR_SIZE,
    }
    parallelism: dict[str, dict[str, object]] = {role: dict(sizes) for role in ROLES["ppo"]}
    parallelism["actor"] |= {
        "sharding": "optimizer",
        "generation_tensor_parallel_size": tensor_size,
    }
    parallelism["critic"] |= {"sharding": "optimizer"}
    return job(
        "ppo",
        dict.fromkeys(ROLES["ppo"], LLAMA[model]),
        NUM_GPUS,
        workload=hybridflow_workload(),
        hardware=FACTS.hardware,
        constraints={
            "allow_offload": False,
            "allow_shadow_copies": False,
            "parallelism": parallelism,
        },
    )


CASES: dict[Key, Case] = {
    (model, size): Case(spec(model, size), (WAY,), engine=HYBRIDFLOW)
    for model in MODELS
    for size in TENSOR_SIZES
}


@dataclass(frozen=True)
class Sizes:
    """Generation seconds of one model by tensor size."""

    model: str
    seconds: Mapping[int, float]
    communication_seconds: Mapping[int, float]

    @property
    def best(self) -> int:
        """The fastest tensor size."""
        return min(self.seconds, key=lambda size: self.seconds[size])

    def saving(self, size: int) -> float:
        """Of generation's seconds, over the tensor size of training."""
        return 1 - self.seconds[size] / self.seconds[TRAINING_TENSOR_SIZE]

    def with_host_work(self, each: float) -> "Sizes":
        """Had the engine so many more seconds of host work per running sequence and step."""
        return Sizes(
            self.model,
            {size: took + each * _sequence_steps(size) for size, took in self.seconds.items()},
            self.communication_seconds,
        )

    def implied_host_work(self, size: int, saving: float) -> float:
        """Host seconds per sequence and step with which `size` would save so much."""
        kept, base = 1 - saving, TRAINING_TENSOR_SIZE
        missing = self.seconds[size] - kept * self.seconds[base]
        return missing / (kept * _sequence_steps(base) - _sequence_steps(size))


def _sequence_steps(tensor_size: int) -> int:
    """Decode steps of a replica, each counted once per sequence that runs in it."""
    return SEQUENCES * tensor_size // NUM_GPUS * RESPONSE_TOKENS


def _studied(found: Outcomes) -> list[Sizes]:
    studied = []
    for model in MODELS:
        placed = {size: found[model, size][WAY] for size in TENSOR_SIZES}
        fitting = {size: one for size, one in placed.items() if one.seconds is not None}
        studied.append(
            Sizes(
                model,
                {size: one.kind_seconds("generate") for size, one in fitting.items()},
                {size: one.communication_seconds("generate") for size, one in fitting.items()},
            )
        )
    return studied


def report(found: Outcomes) -> Report:
    """Figure 15."""
    facts = FACTS.generation
    studied = _studied(found)
    claims = []
    for each in studied:
        best = facts.best_tensor_size[each.model]
        claims.append(
            Claim(
                f"best generation tensor size, {each.model}",
                str(best),
                str(each.best),
                each.best == best,
            )
        )
        claims.append(
            number_claim(
                f"generation saved by size {best}, {each.model}",
                facts.saving[each.model],
                each.saving(best),
                percent,
            )
        )
    slowest = all(
        max(e.seconds, key=lambda n: e.seconds[n]) == TRAINING_TENSOR_SIZE for e in studied
    )
    claims.append(
        Claim("the training size is the slowest", "yes", "yes" if slowest else "no", slowest)
    )
    return Report(_values(studied), claims, {"generation.svg": _picture(studied)})


def _values(studied: Sequence[Sizes]) -> dict[str, str]:
    facts = FACTS.generation
    implied = [
        each.implied_host_work(facts.best_tensor_size[each.model], facts.saving[each.model])
        for each in studied
    ]
    slower = [each.with_host_work(work) for each, work in zip(studied, implied, strict=True)]
    distance = [
        f"{each.model}: {percent(each.seconds[best] / each.seconds[each.best] - 1)}"
        for each in studied
        for best in [facts.best_tensor_size[each.model]]
    ]
    return {
        "table": _seconds_table(studied),
        "training_size": str(TRAINING_TENSOR_SIZE),
        "collectives": ", ".join(
            percent(e.communication_seconds[TRAINING_TENSOR_SIZE] / e.seconds[TRAINING_TENSOR_SIZE])
            + f" ({e.model})"
            for e in studied
        ),
        "distance": ", ".join(distance),
        "implied": " and ".join(
            f"{1e6 * abs(work):.0f} µs {'more' if work > 0 else 'less'} ({each.model})"
            for each, work in zip(studied, implied, strict=True)
        ),
        "implied_best": ", ".join(f"{each.best} for {each.model}" for each in slower),
        "restricted": _restricted(studied),
        "engine": HYBRIDFLOW.summary,
        "given": f"{1e6 * HYBRIDFLOW.sequence_seconds:.0f} µs",
        "given_token": f"{1e9 * HYBRIDFLOW.launched_token_seconds:.0f} ns",
    }


def _restricted(studied: Sequence[Sizes]) -> str:
    """What the smallest size costs, and so that the cache binds."""
    return ", ".join(
        f"{each.model} {percent(each.seconds[1] / each.seconds[each.best] - 1)}"
        for each in studied
        if 1 in each.seconds
    )


def _seconds_table(studied: Sequence[Sizes]) -> str:
    rows = []
    for each in studied:
        cells = [
            (f"**{seconds(took)}**" if size == each.best else seconds(took))
            for size, took in each.seconds.items()
        ]
        best = FACTS.generation.best_tensor_size[each.model]
        rows.append([each.model, *cells, str(best)])
    return table(["model", *(f"t = {size}" for size in TENSOR_SIZES), "best as published"], rows)


def _picture(studied: Sequence[Sizes]) -> str:
    series = {each.model: [each.seconds.get(size) for size in TENSOR_SIZES] for each in studied}
    names = [f"t = {size}" for size in TENSOR_SIZES]
    return bars(f"Generation by tensor size, {NUM_GPUS} A100", names, series, "seconds")


GENERATION = Study(
    "generation",
    "The tensor size of generation",
    f"{FACTS.paper}, {FACTS.generation.source}",
    CASES,
    report,
    FACTS.hardware,
)
