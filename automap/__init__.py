"""Automap: placement and parallelism for reinforcement-learning post-training of LLMs.

    from automap import JobSpec, make_plan

    plan = make_plan(JobSpec.model_validate(document))

These are the planner's public names (`automap.planner`). The command line is `automap --help`, the
HTTP service `automap serve`.
"""

from typing import TYPE_CHECKING

from automap import planner

if TYPE_CHECKING:
    from automap.planner import *  # noqa: F403

__all__ = planner.__all__


def __getattr__(name: str) -> object:
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(planner, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
