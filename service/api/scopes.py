"""What a key must be allowed to do for each route; the OpenAPI document shows it at each operation.

A route's scope follows from where it lies, so that a new one has a scope without being named here:
looking needs `read`, everything else what its part of the API is about, and what is in no part that
is known here `admin`.
"""

from automap.service.schemas.access import Scope

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_CHANGING: dict[str, Scope] = {
    "plans": "plan",
    "estimates": "plan",
    "clusters": "plan",
    "jobs": "run",
    "profiles": "run",  # measured by jobs, and what is stored prices everybody's plans
}
_ADMIN = ("keys", "audit")
LONG_READ = "/v1/plans/{plan_id}/explain"
"""It is read, and takes minutes of a planner."""


def scope_of(method: str, route: str) -> Scope:
    """The scope that a request needs; `route` with the names of its parameters."""
    part = route.removeprefix("/v1/").partition("/")[0]
    if part in _ADMIN:
        return "admin"
    if method.upper() in SAFE_METHODS and route != LONG_READ:
        return "read"
    return _CHANGING.get(part, "admin")
