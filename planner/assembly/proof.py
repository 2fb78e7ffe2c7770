"""What is proven of a plan: its gap, why the search ended, and whether its bound is a search's own.

The check recomputes prices and schedule of a plan, but no proof. So a plan carries a digest of what
its bound was proven of, and the bound counts only where that still agrees: not in a plan whose
spec or bound was changed, nor in one of another version, whose searches knew other candidates. A
digest is no signature: it guards against accidents and edits, not against forgery.
"""

import json
from hashlib import sha256

from automap.planner.job.job import Job
from automap.planner.plan.provenance import provenance_of
from automap.planner.plan.types import Plan, Provenance, SearchReport
from automap.planner.search import describe_space
from automap.planner.spec import JobSpec


def proof_of(plan: Plan) -> str | None:
    """Digest of spec, versions and bound of a plan; None: nothing was proven of it."""
    search = plan.search
    if search.status == "given":
        return None
    stated = [
        search.status,
        search.target,
        search.objective,
        search.objective_value,
        search.lower_bound,
        search.space,
        plan.lower_bound_seconds,
        plan.iteration_seconds,
    ]
    parts = [plan.spec.model_dump_json(), _versions(plan.provenance), json.dumps(stated)]
    return sha256("\n".join(parts).encode()).hexdigest()


def bound_is_proven(job: Job, plan: Plan) -> bool:
    """Whether a plan's bound is that of a search of this version on this very job."""
    return (
        plan.search.proof is not None
        and plan.search.proof == proof_of(plan)
        and plan.spec == job.spec
        and plan.search.space == describe_space(job)
        and _versions(plan.provenance) == _versions(provenance_of(job))
    )


def relative_gap(report: SearchReport) -> float:
    """The gap between objective and bound, as a share of the objective."""
    if report.objective_value <= 0:
        return 0.0
    gap = max(report.objective_value - report.lower_bound, 0.0) / report.objective_value
    # A bound and a value that differ by float noise alone are equal.
    return gap if gap > 1e-12 else 0.0


def why_stopped(
    spec: JobSpec, report: SearchReport, *, nominal_proven: bool, weak_side: str | None = None
) -> str:
    """Why the search ended: only a proof, the gap or the limit ends it.

    `weak_side` says of which placements least is proven.
    """
    if report.status == "optimal":
        return "the search is complete: no plan of the searched space is better"
    gap, robust = relative_gap(report), report.robust
    if report.within_tolerance is not None:
        return (
            "the search is complete, and a simpler plan, or one that leaves more memory free, was "
            f"chosen than the best, which is {100 * gap:.2g} % better: search.simplicity_tolerance"
        )
    if report.within_gap:
        return (
            f"stopped at search.optimality_gap: no plan of the searched space is more than "
            f"{100 * gap:.2g} % better"
        )
    if robust is not None:
        told = (
            f"robust: the largest regret over {robust.scenarios} scenarios is "
            f"{100 * robust.worst_regret:.2g} %, no plan has less than "
            f"{100 * robust.lower_bound:.2g} %; if all estimates are right it takes "
            f"{100 * robust.nominal_loss:.2g} % more than the best plan"
            + (" known" if not nominal_proven else "")
        )
        limit = f"{spec.search.time_limit_seconds:g} s"
        if not nominal_proven:
            told += f"; the search for the best plan stopped at the time limit of {limit}"
        if robust.unproven:
            told += f"; {robust.unproven} of the searches for regret stopped at their limits"
        return told
    end = f"with a gap of {100 * gap:.2g} %" if gap else "before the proof was complete"
    least = f"; least is proven of placements {weak_side}" if weak_side else ""
    return f"stopped at the time limit of {spec.search.time_limit_seconds:g} s {end}{least}"


def _versions(provenance: Provenance) -> str:
    """The versions that prices depend on, as JSON.

    Neither the release nor the spreads are among them: those only widen intervals, and what that of
    memory keeps free is in the description of the space.
    """
    left_out = {"spreads"} | ({"code_version"} if provenance.cost_model_version else set())
    return json.dumps(provenance.model_dump(exclude=left_out), sort_keys=True)
