"""A running service, spoken to over HTTP; its problem objects become our errors."""

import json
from dataclasses import dataclass

import httpx
from pydantic import ValidationError

from planner.errors import InfeasibleError, NoSolutionInTimeError
from planner.result import Plan
from planner.spec import JobSpec
from service.cli.failures import BadInputError, ServerError
from service.cli.inputs import error_lines
from service.deadlines import planning_deadline_seconds

ANSWER_SECONDS = 120.0
"""What a request may take beyond the search itself: queueing, start-up, transfer."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What the service answered: the whole record as text, its plan, and where it is."""

    text: str
    plan: Plan
    url: str


def post_plan(spec: JobSpec, *, server: str, api_key: str | None) -> StoredPlan:
    """POST the spec to /v1/plans and wait for the plan.

    Raises:
        BadInputError, InfeasibleError, NoSolutionInTimeError: what the service found wrong.
        ServerError: it cannot be reached, or it failed.
    """
    url = server.rstrip("/") + "/v1/plans"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        # A proxy from the environment would not reach a service on this machine.
        proxied = httpx.URL(url).host not in LOOPBACK
        response = httpx.post(
            url,
            json=spec.model_dump(mode="json", exclude_unset=True),
            headers=headers,
            timeout=httpx.Timeout(
                10.0, read=planning_deadline_seconds(spec, overhead_seconds=ANSWER_SECONDS)
            ),
            trust_env=proxied,
        )
    except httpx.InvalidURL as error:
        raise BadInputError(f"--server: {server!r} is no URL: {error}") from None
    except httpx.UnsupportedProtocol:
        raise BadInputError(f"--server: {server!r} must begin with http:// or https://") from None
    except httpx.HTTPError as error:
        raise ServerError(f"no answer from {server}: {error or type(error).__name__}") from None
    if response.status_code >= 400:
        raise _failure(response, server)
    try:
        record = response.json()
        plan = Plan.model_validate(record["plan"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ServerError(f"{server} answered with no plan; another version? {error}") from None
    return StoredPlan(json.dumps(record, indent=2), plan, f"{url}/{record['id']}")


def _failure(response: httpx.Response, server: str) -> Exception:
    from service.problems import Problem  # brings the web framework in, so only on failure

    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return ServerError(f"{server} answered {response.status_code} without a problem object")
    match problem.type.rpartition("/")[2]:
        case "infeasible":
            return InfeasibleError(problem.reasons)
        case "no-solution-in-time" if problem.lower_bound_seconds is not None:
            return NoSolutionInTimeError(problem.lower_bound_seconds)
    if problem.status >= 500:
        return ServerError(f"{server}: {problem.detail}")
    return BadInputError(f"{server}: {problem.detail}", error_lines(problem.errors))
