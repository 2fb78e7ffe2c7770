"""The Python client through real servers and a real planner."""

import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from automap.client import (
    Client,
    NoAnswerError,
    OtherVersionError,
    ProblemError,
    UnreachableError,
)
from automap.planner import ExplainOptions, Plan, ReplanOptions
from automap.planner.plan import plan_costs
from automap.planner.spec import JobSpec
from automap.service.schemas.access import NewApiKey
from automap.service.schemas.budgets import NewBudget
from automap.service.schemas.descriptions import DescriptionPatch
from automap.service.schemas.jobs import JobPatch, JobRecord
from automap.service.schemas.measurements import Measure, ProfileJobRecord
from automap.service.settings import Settings
from automap.service.storage.database import Database
from tests.service.support.databases import Databases
from tests.service.support.job_claims import finish, keep, printed, taken
from tests.service.support.samples import infeasible_spec, tiny_spec
from tests.service.support.servers import Server, free_port, serving
from tests.service.support.workers import TINY, run_settings

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "client.md"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('client')}/automap.db"


@pytest.fixture(scope="module")
def server(url: str) -> Iterator[Server]:
    with serving(url) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address, pause_seconds=0.1) as client:
        yield client


@pytest.mark.slow
def test_plans_and_what_can_be_asked_of_them(client: Client) -> None:
    spec = JobSpec.model_validate(tiny_spec())
    record = client.plan(spec, key="first")
    assert isinstance(record.plan, Plan)
    # The same key is the same plan, whoever sends it.
    assert client.queue_plan(spec, key="first").id == record.id
    queued = client.queue_plan(tiny_spec(name="later"))
    assert client.wait_for_plan(queued.id).status == "succeeded"
    assert [each.id for each in client.plans(limit=1, status="succeeded")][:2] == [
        queued.id,
        record.id,
    ]
    assert client.get_plan(record.id).plan == record.plan
    assert client.costs(record.id) == plan_costs(record.plan)
    placement = record.plan.placement()
    priced = client.estimate(tiny_spec(), placement)
    assert priced.iteration_seconds == pytest.approx(record.plan.iteration_seconds)
    assert client.compare(record.id, ["split"]).plan_id == record.id
    assert client.simulate(record.id, iterations=3).iterations == 3
    assert client.explain(record.id, ExplainOptions(search_seconds=0.2, scenarios=1))
    generated = {"actor.generate": 2.0}
    found = client.replan(record.id, ReplanOptions(measured=generated, iterations_left=1))
    assert found.verdict == "keep"
    assert client.plan_history(record.id).jobs == []
    assert client.history().items == []
    front = client.pareto(tiny_spec(), tolerance=1.0)
    assert front.plans
    assert len(client.what_if(tiny_spec(), nodes=[1, 2]).variants) == 2
    with pytest.raises(ProblemError) as late:
        client.cancel_plan(queued.id)
    assert late.value.kind == "conflict"
    client.delete_plan(queued.id)
    with pytest.raises(ProblemError) as refused:
        client.get_plan(queued.id)
    assert (refused.value.kind, refused.value.problem.status) == ("not-found", 404)
    with pytest.raises(ProblemError) as infeasible:
        client.plan(infeasible_spec())
    assert infeasible.value.problem.reasons


def test_jobs_and_their_events(client: Client, url: str) -> None:
    queued = client.submit(TINY, run_settings(), key="job")
    assert client.submit(TINY, run_settings(), key="job").id == queued.id
    assert isinstance(client.measure(Measure(budget_seconds=1)), ProfileJobRecord)
    assert {job.kind for job in client.jobs()} == {"run", "profile"}
    client.wait_for_plan(queued.plan_id)
    database = Database(Settings(database_url=url).database_url)
    held = taken(database)
    keep(database, held, printed({"type": "log", "message": "a"}, text="said\n"))
    threading.Timer(1.0, finish, (database, held)).start()
    events = list(client.job_events(queued.id))
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events][-2:] == ["finished", "status"]
    assert [e.id for e in client.job_events(queued.id, after=2)] == [e.id for e in events[2:]]
    done = client.wait_for_job(queued.id)
    assert isinstance(done, JobRecord)
    assert (done.status, client.job_logs(queued.id)) == ("succeeded", "said\n")
    by_id = client.submit(queued.plan_id, run_settings())
    assert client.cancel_job(by_id.id).status == "cancelled"
    with pytest.raises(NoAnswerError, match="still queued"):
        client.wait_for_job(client.submit(queued.plan_id, run_settings()).id, seconds=0)
    database.dispose()


def test_what_is_said_of_plans_and_jobs_and_what_was_spent(client: Client, url: str) -> None:
    before, after = client.plan(tiny_spec()), client.plan(tiny_spec(name="other"))
    assert client.diff(before.id, after.id).spec[0].after == "other"
    labelled = DescriptionPatch(labels={"team": "math"}, notes="first")
    assert client.describe_plan(before.id, labelled).labels == {"team": "math"}
    renamed = client.describe_plan(before.id, DescriptionPatch(name="best"))
    assert (renamed.name, renamed.labels, renamed.notes) == ("best", {"team": "math"}, "first")
    assert [each.id for each in client.plans(label=["team:math", "team"])] == [before.id]
    job = client.submit(before.id, run_settings())
    assert client.describe_job(job.id, DescriptionPatch(name="night")).name == "night"
    assert client.describe_job(job.id, JobPatch(priority=3)).priority == 3
    client.cancel_job(job.id)
    again = client.retry_job(job.id, key="again")
    assert isinstance(again, JobRecord)
    assert (again.retry_of, client.retry_job(job.id, key="again").id) == (job.id, again.id)
    client.cancel_job(again.id)
    assert client.spent(by="label:team", after=before.created_at).by == "label:team"
    made = client.set_budget(NewBudget(of="owner:local", unit="gpu_hours", amount=2))
    assert [each.id for each in client.budgets()] == [made.id]
    client.delete_budget(made.id)
    assert list(client.budgets()) == []


@pytest.mark.slow_on("sqlite")
def test_keys_and_the_log_of_what_was_done_with_them(databases: Databases) -> None:
    with serving(databases.create("with_keys")) as server:
        with Client(server.address) as first:
            admin = first.create_key(NewApiKey(owner="ada", scopes=["read", "admin"]))
        with Client(server.address, admin.key) as client:
            other = client.create_key(NewApiKey(owner="bob"))
            known = list(client.keys())
            assert {each.owner for each in known} == {"ada", "bob"}
            assert client.revoke_key(other.id).usable is False
            assert [each.id for each in client.keys(owner="bob")] == [other.id]
            said = [each.resource_id for each in client.audit(owner="ada", limit=1)]
            assert said == [str(other.id), str(other.id)]  # revoked, and before that made
        with Client(server.address, other.key) as refused, pytest.raises(ProblemError) as error:
            list(refused.plans())
        assert error.value.problem.status == 401


@pytest.mark.slow
def test_events_go_on_with_the_next_server(databases: Databases) -> None:
    """A stream is resumed where it ended, and a request sent again, as soon as one answers."""
    if databases.backend != "sqlite":
        pytest.skip("tried with sqlite")
    url, port = databases.create("resumed"), free_port()
    first = Server(url, port=port)
    address = f"http://127.0.0.1:{port}"
    heard = []
    with Client(address, pause_seconds=0.2, retries=300) as client:
        first.wait_until_ready()
        job = client.submit(TINY, run_settings())
        following = threading.Thread(
            target=lambda: heard.extend(client.job_events(job.id, retries=300))
        )
        following.start()
        time.sleep(0.5)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        with serving(url, port=port):
            # Sent before the next server listens, it is answered by it.
            assert client.cancel_job(job.id).cancelling is False
            following.join(timeout=30)
    assert [event.id for event in heard] == [1, 2]
    assert heard[-1].data["status"] == "cancelled"


def test_nobody_there() -> None:
    away = Client(f"http://127.0.0.1:{free_port()}", retries=1, pause_seconds=0)
    with away, pytest.raises(UnreachableError):
        away.get_plan(uuid4())


def test_the_example_of_the_guide_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    exec(code.replace("http://127.0.0.1:8000", server.address))
    assert "s an iteration" in capsys.readouterr().out


def test_an_answer_of_another_kind_is_named(client: Client) -> None:
    with pytest.raises(OtherVersionError, match="another version"):
        client.answer(UUID, "GET", "gpus")


def losing_first_answers(server: Server) -> Client:
    """A client of a server that does what it is asked; the first answer to each is lost."""
    asked = set[tuple[str, str]]()

    def relay(request: httpx.Request) -> httpx.Response:
        target = request.url.copy_with(port=httpx.URL(server.address).port)
        answer = httpx.request(
            request.method, target, content=request.content, headers=request.headers
        )
        if (request.method, request.url.path) not in asked:
            asked.add((request.method, request.url.path))
            raise httpx.ReadError("the connection was lost")
        return httpx.Response(answer.status_code, content=answer.content)

    client = Client("http://127.0.0.1:1", pause_seconds=0)
    client._http = httpx.Client(transport=httpx.MockTransport(relay))
    return client


def test_what_a_lost_try_has_deleted_is_deleted(client: Client, server: Server) -> None:
    plan = client.queue_plan(tiny_spec(name="unlucky"))
    budget = client.set_budget(NewBudget(of="owner:unlucky", amount=1.0))
    with losing_first_answers(server) as unlucky:
        unlucky.delete_plan(plan.id)
        unlucky.delete_budget(budget.id)
    for gone in (client.delete_plan, client.delete_budget):
        with pytest.raises(ProblemError) as refused:
            gone(plan.id if gone == client.delete_plan else budget.id)
        assert (refused.value.kind, refused.value.problem.status) == ("not-found", 404)
