"""Which targets run a plan as it is: they can be told it, and it fits with the software of each."""

from automap.planner.check.memory import overfilled
from automap.planner.check.prices import bytes_of, estimates_of
from automap.planner.check.subject import Subject
from automap.planner.errors import SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import can_be_told
from automap.planner.plan.types import BytesByKind, Plan


def runs_with(job: Job, plan: Plan) -> list[str]:
    """Names of the targets that run the plan as it is; `any` is no software, so not named.

    One layout takes more memory with one software than with another: logits as a whole and not in
    chunks, for instance. For its own target the plan is priced as it stands.
    """
    told = can_be_told(job, plan.placement())
    return [name for name in told if name == job.target.name or fits_with(plan, name)]


def fits_with(plan: Plan, target: str) -> bool:
    """Whether the placement fits with the software of a target that can be told it.

    True also where that cannot be priced, as an export then has the seconds of the plan.
    """
    search = plan.spec.search.model_copy(update={"target": target})
    try:
        job = resolve(plan.spec.model_copy(update={"search": search}))
    except SpecError:
        return True
    return next(overfilled(Subject(job, _priced(job, plan))), None) is None


def _priced(job: Job, plan: Plan) -> Plan:
    """The plan with the bytes that it has as a plan of another job."""
    subject, copies, calls = Subject(job, plan), [], []
    for copy in plan.copies:
        held = bytes_of(subject.pricing, copy)
        resident, host = int(held.resident.total[0]), int(held.host[0])
        copies.append(copy.model_copy(update={"resident_bytes": resident, "host_bytes": host}))
    for call in plan.calls:
        if call.copy_id is None:
            calls.append(call)
            continue
        found = estimates_of(subject, subject.pricing, call, subject.copies[call.copy_id]).transient
        kinds = {kind: int(getattr(found, kind)[0]) for kind in BytesByKind.model_fields}
        calls.append(call.model_copy(update={"bytes_by_kind": BytesByKind(**kinds)}))
    return plan.model_copy(update={"copies": copies, "calls": calls})
