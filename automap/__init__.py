"""Automap: placement and parallelism for reinforcement-learning post-training of LLMs.

    from automap import JobSpec, make_plan

    plan = make_plan(JobSpec.model_validate(document))

These are the planner's public names (`automap.planner`); `__init__.pyi` lists them. The command
line is `automap --help`, the HTTP service `automap serve`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
