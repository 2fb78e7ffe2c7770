"""Which routes a path has, and by which methods; a path spelled out is no parameter of another."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

_ORDER = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class SpelledOut:
    """The paths without parameters, such as /v1/plans/history beside /v1/plans/{plan_id}."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = routes

    def takes(self, scope: Scope) -> bool:
        """Whether the method may go on to the router, which knows all other paths."""
        methods = self._methods.get(scope["path"])
        return methods is None or scope["method"] in methods

    @cached_property
    def _methods(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for route in self._routes:
            if isinstance(route, Route) and "{" not in route.path:
                found.setdefault(route.path, set()).update(_with_common(route.methods or set()))
        return found


def allow(routes: Iterable[BaseRoute], scope: Scope) -> str:
    """The methods of a path, as `Allow` lists them; empty: there is no such path."""
    methods: set[str] = set()
    for route in routes_of(routes, scope):
        methods |= route.methods or set()
    return ", ".join(sorted(_with_common(methods), key=_ORDER.index))


def routes_of(routes: Iterable[BaseRoute], scope: Scope) -> Iterator[Route]:
    """The routes of this path, whatever their methods."""
    known = [route for route in routes if isinstance(route, Route)]
    spelled_out = [route for route in known if route.path == scope["path"]]
    for route in spelled_out or known:
        if route.matches(dict(scope))[0] != Match.NONE:
            yield route


def _with_common(methods: set[str]) -> set[str]:
    if not methods:
        return set()
    return methods | {"OPTIONS", *(["HEAD"] if "GET" in methods else [])}
