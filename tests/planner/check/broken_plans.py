"""Two sound plans, and ways to break one."""

import re
from collections.abc import Callable

from automap.planner.assembly.intervals import with_intervals
from automap.planner.check.check import violations
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from tests.helpers.specs import job_spec
from tests.planner.check.sound_plans import barrier_plan, cyclic_plan, moved_to

BARRIER_JOB = resolve(job_spec("ppo"))
CYCLIC_JOB = resolve(job_spec("grpo", search__staleness=1, workload__kl="loss"))
BARRIER_PLAN = with_intervals(BARRIER_JOB, barrier_plan(BARRIER_JOB))
CYCLIC_PLAN = with_intervals(CYCLIC_JOB, cyclic_plan(CYCLIC_JOB))
Change = Callable[[Plan], Plan]


def with_call(plan: Plan, call_id: str, **changes: object) -> Plan:
    calls = [c.model_copy(update=changes) if c.id == call_id else c for c in plan.calls]
    return plan.model_copy(update={"calls": calls})


def with_copy(plan: Plan, copy_id: str, **changes: object) -> Plan:
    copies = [c.model_copy(update=changes) if c.id == copy_id else c for c in plan.copies]
    return plan.model_copy(update={"copies": copies})


def with_sync(plan: Plan, **changes: object) -> Plan:
    syncs = [sync.model_copy(update=changes) for sync in plan.transitions]
    return plan.model_copy(update={"transitions": syncs})


def with_totals(plan: Plan, **changes: object) -> Plan:
    return plan.model_copy(update=changes)


def shifted(plan: Plan, call_id: str, seconds: float) -> Plan:
    calls = [
        moved_to(c, c.start_seconds + seconds, stage=c.stage) if c.id == call_id else c
        for c in plan.calls
    ]
    return plan.model_copy(update={"calls": calls})


def with_layout(plan: Plan, copy_id: str, **sizes: object) -> Plan:
    layout = next(c.layout for c in plan.copies if c.id == copy_id)
    return with_copy(plan, copy_id, layout=layout.model_copy(update=sizes))


def without_call(plan: Plan, call_id: str) -> Plan:
    return plan.model_copy(update={"calls": [c for c in plan.calls if c.id != call_id]})


def expect(job: Job, plan: Plan, pattern: str) -> None:
    found = violations(job, plan)
    assert any(re.search(pattern, line) for line in found), found or "no violation"
