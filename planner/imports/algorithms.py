"""The algorithm of a launch, by its estimate of advantages."""

from collections.abc import Mapping

from automap.planner.imports.settings import Settings


def algorithm_named(settings: Settings, priced_as: Mapping[str, str]) -> str:
    """The algorithm that a launch's estimate of advantages stands for, DAPO told apart elsewhere.

    Args:
        settings: Of the launch; an estimate that is not known is refused.
        priced_as: Other estimates of the framework → the algorithm that makes the same calls.
    """
    advantage = settings.text("advantage")
    algorithms = {
        theirs: ours for ours, theirs in settings.framework.algorithms.items() if ours != "dapo"
    }
    name = algorithms.get(advantage) or priced_as.get(advantage)
    if advantage in priced_as:
        told = f"{advantage} makes the calls of {name}, and is priced as it"
        settings.note("assumed", told, settings.given("advantage"))
    if name is None:
        known = ", ".join([*algorithms, *priced_as])
        settings.refuse(f"{settings.where('advantage')} is {advantage[:60]!r}", f"known: {known}")
    return name or "grpo"
