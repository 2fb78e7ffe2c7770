"""Jobs with a few very long responses, and a plan of one."""

from functools import cache

from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import small_job

LONG_TAIL = {"p50": 100, "p90": 500, "p99": 3000, "max": 4096}


def tailed_job(*, streaming: bool = True, generation_tail: bool = True) -> JobSpec:
    search = {
        "streaming": streaming,
        "generation_tail": generation_tail,
        "simplicity_tolerance": 0,
        "num_workers": 1,
    }
    return small_job("grpo", workload__response_length=LONG_TAIL, search=search)


@cache
def tailed_plan() -> Plan:
    return make_plan(tailed_job())


def scheduled_job(*, tensor_schedule: bool) -> JobSpec:
    """One in a hundred responses is very long, on GPUs without NVLink: wide groups are slow."""
    models = {
        "actor": {"architecture": "llama-3.1-8b", "lora": {"rank": 8}},
        "reward": {"function": True},
    }
    return small_job(
        "grpo",
        models=models,
        cluster__pools=[{"name": "l40s", "gpu": "l40s", "num_nodes": 1}],
        workload__response_length={"p50": 200, "p90": 300, "p99": 1000, "max": 32768},
        search={"generation_tensor_schedule": tensor_schedule, "num_workers": 1},
    )
