"""Whether the bound that a plan states is one that a search here has proven.

The check recomputes prices and schedule of a plan, but no proof. So a plan carries a digest of what
its bound was proven of, and the bound counts only where that still agrees: not in a plan whose
spec or bound was changed, nor in one of another version, whose searches knew other candidates. A
digest is no signature: it guards against accidents and edits, not against forgery.
"""

import json
from hashlib import sha256

from automap.planner.job.job import Job
from automap.planner.plan.provenance import provenance_of
from automap.planner.plan.types import Plan, Provenance
from automap.planner.search import describe_space


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


def _versions(provenance: Provenance) -> str:
    """The versions that prices depend on, as JSON.

    Neither the release nor the spreads are among them: those only widen intervals, and what that of
    memory keeps free is in the description of the space.
    """
    left_out = {"spreads"} | ({"code_version"} if provenance.cost_model_version else set())
    return json.dumps(provenance.model_dump(exclude=left_out), sort_keys=True)
