"""HybridFlow's transitions: what moves between training and generation, and how long it takes."""

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from automap.planner.cost.communication import Collective, collective_seconds
from automap.planner.cost.pricing import Pricing
from automap.planner.cost.transition import (
    model_bytes,
    refit_seconds,
    refit_tensors,
    reload_seconds,
    reshard,
)
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.layout import OFFLOADS, SHARDINGS, IntArray, Layouts
from benchmarks.reproduction.jobs import LLAMA, ROLES, hybridflow_workload, job
from benchmarks.reproduction.pictures import bars
from benchmarks.reproduction.published import published
from benchmarks.reproduction.study import (
    Outcomes,
    Report,
    Study,
    counted_claim,
    number_claim,
    percent,
    seconds,
    table,
)

NUM_GPUS = 128
FACTS = published().hybridflow
SYSTEMS = ("hybridflow", "deepspeed_chat", "openrlhf")
COLLECTIVES: tuple[Collective, Collective] = ("all_gather", "broadcast")
BYTE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Transition:
    """One model's way from training to generation in three systems."""

    model: str
    whole_bytes: int
    volume: dict[str, float]
    """Bytes that reach a GPU."""
    formula: dict[str, float]
    """The same by the paper's Table 2, where it has one."""
    reloaded: float
    """Seconds of HybridFlow's in which a GPU loads its generation weights from the host, where the
    paper keeps them while models train."""
    seconds: dict[str, float]

    def saving(self, system: str) -> float:
        """Of that system's seconds, by HybridFlow."""
        return 1 - self.seconds["hybridflow"] / self.seconds[system]


def transitions() -> list[Transition]:
    """All models of Figure 14."""
    return [_transition(model) for model in FACTS.transition.training_tensor_size]


def _transition(model: str) -> Transition:
    facts = FACTS.transition
    t, p = facts.training_tensor_size[model], facts.training_pipeline_size[model]
    generation = facts.generation_tensor_size[model]
    models = dict.fromkeys(ROLES["ppo"], LLAMA[model])
    work = resolve(
        job("ppo", models, NUM_GPUS, workload=hybridflow_workload(), hardware=FACTS.hardware)
    )
    whole = sum(model_bytes(work.models["actor"], work.spec.workload.precision))
    hybrid, hybrid_bytes = _resharded(work, _layouts(t, p, "optimizer"), generation)
    chat, chat_bytes = _resharded(work, _layouts(1, 1, "full"), generation)
    synced, received = _broadcast(work)
    reloaded = float(reload_seconds(_column(whole // generation), work.pools[0])[0])
    micro = t * p // generation
    return Transition(
        model,
        whole,
        volume={"hybridflow": hybrid_bytes, "deepspeed_chat": chat_bytes, "openrlhf": received},
        formula={
            "hybridflow": (micro - 1) / (t * p) * whole,
            "vanilla": (t * p - 1) / (t * p) * whole,
            "deepspeed_chat": (NUM_GPUS - 1) / NUM_GPUS * whole,
        },
        reloaded=reloaded,
        seconds={"hybridflow": hybrid + reloaded, "deepspeed_chat": chat, "openrlhf": synced},
    )


def _layouts(tensor: int, pipeline: int, sharding: str) -> Layouts:
    data = NUM_GPUS // (tensor * pipeline)
    return Layouts(
        num_gpus=_column(NUM_GPUS),
        tensor_parallel_size=_column(tensor),
        pipeline_parallel_size=_column(pipeline),
        virtual_pipeline_parallel_size=_column(1),
        context_parallel_size=_column(1),
        data_parallel_size=_column(data),
        expert_parallel_size=_column(1),
        sharding=_column(SHARDINGS.index(sharding)),
        offload=_column(OFFLOADS.index("none")),
    )


def _column(value: int) -> IntArray:
    return np.array([value], dtype=np.int64)


def _resharded(work: Job, layouts: Layouts, tensor: int) -> tuple[float, float]:
    """(seconds, bytes per GPU) on the same GPUs."""
    pool = work.pools[0]
    took, received, _ = reshard(
        work.models["actor"],
        work.spec.workload,
        pool,
        Pricing(work).profile(pool),
        layouts,
        tensor_parallel_size=_column(tensor),
        pipeline_parallel_size=_column(1),
        expert_parallel_size=_column(1),
    )
    return float(took[0]), float(received[0])


def _broadcast(work: Job) -> tuple[float, float]:
    """(seconds, bytes per receiving GPU) to a second copy on as many other GPUs, by OpenRLHF.

    Its code (0.3.6, trainer/ray/ppo_actor.py, _broadcast_to_vllm) takes one parameter after the
    other: all ranks that train gather it, one of them broadcasts it to every GPU that generates,
    and all wait until the engines have it. Every GPU gets the whole parameter and keeps its part.
    """
    pool, actor = work.pools[0], work.models["actor"]
    profile = Pricing(work).profile(pool)
    whole = sum(model_bytes(actor, work.spec.workload.precision))
    tensors, _ = refit_tensors(actor.architecture)
    each, one, group = np.array([whole / tensors]), _column(1), _column(NUM_GPUS)
    gathered, sent = (
        collective_seconds(pool, profile, kind, each, group_size=group, stride=one)
        for kind in COLLECTIVES
    )
    took = tensors * float(gathered.seconds[0] + sent.seconds[0]) + refit_seconds(actor)
    return took, float(whole)


def report(_: Outcomes) -> Report:
    """Table 2 and Figure 14."""
    facts = FACTS.transition
    found = transitions()
    exact = [
        abs(each.volume[system] - each.formula[system]) <= BYTE_TOLERANCE * each.whole_bytes
        for each in found
        for system in ("hybridflow", "deepspeed_chat")
    ]
    savings = [each.saving(system) for each in found for system in SYSTEMS[1:]]
    large = found[-1]
    claims = [
        counted_claim(
            "bytes per GPU by Table 2, of HybridFlow and DeepSpeed-Chat",
            "(d_g − 1)/(t·p)·M, (t·p·d − 1)/(t·p·d)·M",
            exact,
            "points",
        ),
        number_claim("bytes of a 70B actor", facts.bytes_70b, large.whole_bytes, _gigabytes),
        number_claim(
            "transition saved, mean", facts.mean_saving, sum(savings) / len(savings), percent
        ),
        number_claim("transition saved, largest", facts.largest_saving, max(savings), percent),
        *(
            number_claim(
                f"largest saving over {system}",
                wanted,
                max(each.saving(system) for each in found),
                percent,
            )
            for system, wanted in facts.saving_over.items()
        ),
    ]
    return Report(_values(found), claims, {"transition.svg": _picture(found)})


def _values(found: list[Transition]) -> dict[str, str]:
    facts = FACTS.transition
    large = found[-1]
    theirs = facts.largest_saved_seconds / facts.largest_saving
    saved = [
        each.seconds[system] - each.seconds["hybridflow"]
        for each in found
        for system in SYSTEMS[1:]
    ]
    return {
        "num_gpus": str(NUM_GPUS),
        "table": _seconds_table(found),
        "model": large.model,
        "their_mean": seconds(facts.mean_saved_seconds),
        "our_mean": seconds(fmean(saved)),
        "their_seconds": seconds(theirs),
        "their_rate": f"{large.whole_bytes / theirs / 1e9:.1f} GB/s",
        "our_seconds": seconds(large.seconds["openrlhf"]),
        "our_hybrid": seconds(large.seconds["hybridflow"]),
        "reloaded": seconds(large.reloaded),
        "their_hybrid": seconds(theirs - facts.largest_saved_seconds),
        "factor": f"{theirs / large.seconds['openrlhf']:.0f}",
    }


def _seconds_table(found: list[Transition]) -> str:
    facts = FACTS.transition
    header = ["model", "training t, p", "generation t"]
    header += [f"GB per GPU, {system}" for system in ("hybridflow", "vanilla", *SYSTEMS[1:])]
    header += [f"seconds, {system}" for system in SYSTEMS]
    rows = []
    for each in found:
        sizes = facts.training_tensor_size[each.model], facts.training_pipeline_size[each.model]
        moved = [
            each.volume["hybridflow"],
            each.formula["vanilla"],
            *(each.volume[system] for system in SYSTEMS[1:]),
        ]
        rows.append(
            [
                each.model,
                f"{sizes[0]}, {sizes[1]}",
                str(facts.generation_tensor_size[each.model]),
                *(f"{value / 1e9:.2f}" for value in moved),
                *(f"{each.seconds[system]:.2f}" for system in SYSTEMS),
            ]
        )
    return table(header, rows)


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.0f} GB"


def _picture(found: list[Transition]) -> str:
    series = {system: [each.seconds[system] for each in found] for system in SYSTEMS}
    title = f"From training to generation on {NUM_GPUS} A100"
    return bars(title, [each.model for each in found], series, "seconds")


TRANSITION = Study(
    "transition",
    "From training to generation",
    f"{FACTS.paper}, {FACTS.transition.source}",
    {},
    report,
    FACTS.hardware,
)
