"""The tiny examples as benchmarks run them: on this machine, on the real engines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import yaml

from automap.executor.data import PromptData
from automap.executor.rollout.environment import CPU_SETTINGS, SETTINGS
from automap.executor.run.__main__ import OBJECT_STORE_BYTES
from automap.executor.run.factories import FACTORIES
from automap.executor.run.local_ray import start_ray
from automap.executor.runtime.controller import Controller, device_numbers
from automap.executor.settings import RunSettings
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.service.runs.checked_settings import anchored

EXAMPLES = Path(__file__).parents[1] / "examples"
ENVIRONMENT = {**SETTINGS, **CPU_SETTINGS, "OMP_NUM_THREADS": "1"}
"""Of worker processes on cores, as `automap run` sets it."""


def tiny_job(
    name: str,
    *,
    seed: int = 0,
    change: Callable[[dict[str, Any]], None] = lambda document: None,
) -> tuple[Plan, RunSettings]:
    """`examples/tiny-NAME-cpu.yaml`, its spec changed and planned, and its settings."""
    document = yaml.safe_load((EXAMPLES / f"tiny-{name}-cpu.yaml").read_text())
    change(document)
    settings = yaml.safe_load((EXAMPLES / f"tiny-{name}-cpu.run.yaml").read_text())
    chosen = RunSettings.model_validate(settings | {"seed": seed})
    return make_plan(JobSpec.model_validate(document)), anchored(chosen, EXAMPLES)


@contextmanager
def local_ray(plan: Plan) -> Iterator[None]:
    """A Ray with a core for each of the plan's devices, whether the machine has so many or not."""
    start_ray(
        num_cpus=len(device_numbers(plan)),
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        yield
    finally:
        ray.shutdown()


def controller_of(plan: Plan, settings: RunSettings, **options: Any) -> Controller:
    """Not started."""
    environment: Mapping[str, str] = ENVIRONMENT
    return Controller(
        plan, settings, **{"factories": FACTORIES, "environment": environment, **options}
    )


def prompts_of(plan: Plan, settings: RunSettings) -> PromptData:
    """Those of the example."""
    longest = plan.spec.workload.prompt_length.max_tokens
    return PromptData(settings.data, max_prompt_length=longest, seed=settings.seed)
