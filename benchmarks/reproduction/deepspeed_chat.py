"""DeepSpeed-Chat's own iteration times: what its software takes over what we price it at."""

from benchmarks.reproduction.cases import Case
from benchmarks.reproduction.jobs import opt
from benchmarks.reproduction.published import ChatRow, published
from benchmarks.reproduction.study import (
    TOLERANCE,
    Claim,
    Key,
    Outcomes,
    Report,
    Study,
    seconds,
    table,
    times,
)
from benchmarks.reproduction.systems import SYSTEMS

FACTS = published().deepspeed_chat
SYSTEM = SYSTEMS["deepspeed_chat"]
LENGTH = {"mean": 256, "max": 256}
WORKLOAD = {
    "prompts_per_iteration": 1024,
    "prompt_length": LENGTH,
    "response_length": LENGTH,
    "kl": "reward",
    "precision": "fp16",
}


def _case(row: ChatRow) -> Case:
    actor, small = opt(row.model), opt("OPT-350M")
    models = {"actor": actor, "reference": actor, "critic": small, "reward": small}
    return SYSTEM.case(
        "ppo",
        models,
        row.num_gpus,
        workload=WORKLOAD,
        hardware=FACTS.hardware,
        allow_offload=True,
    )


CASES: dict[Key, Case] = {(row.model, row.num_gpus): _case(row) for row in FACTS.rows}


OWN = "DeepSpeed-Chat's own"
OWN_CASES: dict[Key, Case] = {(OWN, *key): case for key, case in CASES.items()}
"""The same among the cases of another study, which needs the factor."""


def factor_within(found: Outcomes) -> float:
    """The factor from the outcomes of a study that has OWN_CASES among its own."""
    return software_factor({key[1:]: placed for key, placed in found.items() if key[0] == OWN})


def software_factor(found: Outcomes) -> float:
    """Median of measured over predicted, where there is a prediction."""
    ratios = sorted(ratio for _, _, ratio in _ratios(found))
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2


def _ratios(found: Outcomes) -> list[tuple[ChatRow, float, float]]:
    compared = []
    for row in FACTS.rows:
        took = found[row.model, row.num_gpus][SYSTEM.strategy].seconds
        if took is not None:
            compared.append((row, took, row.iteration_seconds / took))
    return compared


def report(found: Outcomes) -> Report:
    """Table 1 of its README."""
    compared = {(row.model, row.num_gpus): (took, ratio) for row, took, ratio in _ratios(found)}
    rows = []
    for row in FACTS.rows:
        took, ratio = compared.get((row.model, row.num_gpus), (None, None))
        rows.append(
            [
                row.model,
                str(row.num_gpus),
                seconds(row.iteration_seconds),
                "–" if took is None else seconds(took),
                "–" if ratio is None else times(ratio),
            ]
        )
    ratios = [ratio for _, ratio in compared.values()]
    factor = software_factor(found)
    near = [abs(1 / ratio - 1) <= TOLERANCE for ratio in ratios]
    claims = [
        Claim(
            "seconds of an iteration",
            f"{len(FACTS.rows)} rows",
            f"{len(ratios)} can be priced; measured over predicted {times(min(ratios))} to "
            f"{times(max(ratios))}",
            all(near),
            (sum(near), len(near)),
        )
    ]
    values = {
        "setting": FACTS.setting,
        "table": table(["actor", "GPUs", "published", "predicted", "ratio"], rows),
        "factor": times(factor),
        "least": times(min(ratios)),
        "most": times(max(ratios)),
        "unpriced": str(len(FACTS.rows) - len(ratios)),
    }
    return Report(values, claims)


DEEPSPEED_CHAT = Study(
    "deepspeed_chat",
    "What DeepSpeed-Chat reports of itself",
    f"{FACTS.paper}, {FACTS.source}",
    CASES,
    report,
    FACTS.hardware,
)
