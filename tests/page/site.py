"""A real service with plans and a job, and pages of a real browser that look at it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import yaml
from playwright.sync_api import Browser, Page, Playwright, Request

from automap.planner.plan.types import Plan
from automap.service.api.page import BUILT
from automap.service.queues import job_queue
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import JobRecord
from automap.service.storage.database import Database
from tests.service.support.job_claims import keep as kept
from tests.service.support.job_claims import printed
from tests.service.support.samples import Json, small_spec, tiny_spec
from tests.service.support.servers import Server, serving
from tests.service.support.watched_run import Run

ROOT = Path(__file__).parents[2]
CHROMIUM = Path(os.environ.get("AUTOMAP_CHROMIUM", "/usr/bin/chromium"))
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
EXAMPLES = ROOT / "examples"
ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]
REWARD = "critic/score/mean"


def missing() -> str | None:
    """Why no browser can look at the page here; none: one can."""
    if not (BUILT / "index.html").is_file():
        return "the page is not built: make page, which needs Node 20 or newer"
    if not CHROMIUM.is_file():
        return f"there is no Chromium at {CHROMIUM} (AUTOMAP_CHROMIUM names another)"
    return None


def large_spec() -> Json:
    """Two 7B models apart on 4,096 GPUs."""
    pool = {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 512}
    spec = tiny_spec(name="large", cluster={"pools": [pool]})
    spec["models"] = {role: {"architecture": "qwen2.5-7b"} for role in ("actor", "reward")}
    spec["workload"]["prompts_per_iteration"] = 8192
    spec["constraints"] = {"separate": [["actor", "reward"]]}
    return spec


@dataclass
class Site:
    """A service and what is stored in it."""

    server: Server
    plans: dict[str, Json]
    """Name → record, as the API has it."""
    run: Run

    @property
    def job_id(self) -> UUID:
        return self.run.job_id

    def get(self, path: str) -> httpx.Response:
        return self.server.client.get(path)

    def plan(self, name: str) -> Plan:
        return Plan.model_validate(self.plans[name]["plan"])

    def job(self) -> JobRecord:
        return JobRecord.model_validate_json(self.get(f"/v1/jobs/{self.job_id}").content)

    def place(self, *path: object) -> str:
        return f"{self.server.address}/#/{'/'.join(map(str, path))}"

    def of_plan(self, name: str, part: str = "") -> str:
        return self.place("plans", self.plans[name]["id"], *([part] if part else []))


def example(name: str) -> Json:
    spec: Json = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return spec


def specs() -> dict[str, Json]:
    """One node, 4,096 GPUs, and generation beside training with a sync and a host function."""
    overlapping = example("grpo-async-qwen2.5-7b-32xh100")
    # A plan for automap may hold less memory than verl, whose launch a view shows, has to.
    overlapping["search"] = {**overlapping.get("search", {}), "target": "verl@0.9.1"}
    return {"small": small_spec(), "large": large_spec(), "overlapping": overlapping}


@contextmanager
def site(folder: Path, specs: dict[str, Json]) -> Iterator[Site]:
    """A service that has planned jobs, and a run that drifts."""
    url = f"sqlite:///{folder / 'page.db'}"
    with serving(url, profiles_folder=folder / "profiles") as server:
        plans = {name: _planned(server, spec) for name, spec in specs.items()}
        yield Site(server, plans, drifting_run(Database(url)))


def _planned(server: Server, spec: Json) -> Json:
    response = server.client.post("/v1/plans", json=spec)
    assert response.status_code == 201, response.text
    record: Json = response.json()
    return record


def drifting_run(database: Database) -> Run:
    """Iterations as planned, then slower ones, each with a reward; it goes on."""
    run = Run(database)
    with database.transaction() as session:
        job_queue.run(session, run.held)
    kept(run.database, run.held, printed(text="the run begins\nall engines are up\n"))
    for number in range(1, 11):
        reward: JsonObject = {REWARD: 0.1 * number}
        run.keep({"type": "metrics", "iteration": number, "metrics": reward})
        run.iterate(1.0 if number < 5 else 1.6)
    return run


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    try:
        yield browser
    finally:
        browser.close()


class Watched:
    """What a page did that it must not: errors, violations of its policy, other hosts."""

    def __init__(self, page: Page, address: str) -> None:
        self.found: list[str] = []
        self.expected: list[str] = []
        """Parts of messages that a test provokes."""
        self._host = urlsplit(address).netloc
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("request", self._asked)

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.found.append(f"{kind}: {text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.found.append(f"asked another host: {request.url}")

    def unexpected(self) -> list[str]:
        return [each for each in self.found if not any(part in each for part in self.expected)]
