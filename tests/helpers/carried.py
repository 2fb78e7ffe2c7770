"""Launches that say all that a conversion may bring along."""

from dataclasses import replace

from automap.planner.exports.subject import Subject, subject_of
from automap.planner.frameworks.description import Framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.studies.learning_settings import ALIKE, LEAST
from automap.planner.studies.learning_words import (
    AVERAGES,
    SEQUENCES,
    SHARE,
    WARM_UPS,
    WITHOUT_AVERAGE,
)

VALUES = {
    "learning rate": "1.0e-06",
    "tokens of a prefill": "10240",
    "KL coefficient, in the loss": "0.01",
    "KL coefficient, in the reward": "0.01",
}
"""What is said → its value, where that is not a half."""


def carrying(plan: Plan, target: Framework) -> Subject:
    """A plan for a framework, and every number of learning that this has a key for."""
    subject = subject_of(resolve(plan.spec), plan, target)
    beside = {}
    for what, keys in ALIKE.items():
        is_of_critic = "critic" in what and "critic" not in subject.homes
        if is_of_critic or (what.startswith("KL") and not what.endswith(f"in the {kl_of(plan)}")):
            continue
        for name, key in (*keys.items(), *LEAST.get(what, {}).items()):
            if name in (target.name, f"{target.name} {subject.engine}"):
                beside[key] = VALUES.get(what, "0.5")
    assert len(beside) >= 5
    beside |= words_of(target, subject)
    return replace(subject, beside=beside)


def words_of(target: Framework, subject: Subject) -> dict[str, str]:
    """How the loss is averaged, and warm-ups."""
    found = dict[str, str]()
    rloo = subject.job.spec.algorithm in WITHOUT_AVERAGE.get(target.name, ())
    if target.name in AVERAGES and not rloo:
        key, words = AVERAGES[target.name]
        found[key] = words[SEQUENCES]
    for what, keys in WARM_UPS.items():
        if "critic" not in what or "critic" in subject.homes:
            units = keys.get(target.name, {})
            found |= {key: "0.1" if unit == SHARE else "10" for unit, key in units.items()}
    return found


def kl_of(plan: Plan) -> str:
    return plan.spec.workload.kl
