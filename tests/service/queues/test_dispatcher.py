"""What a server says of the plans that it takes up."""

import logging
import time

import pytest

from automap.service.queues.dispatcher import Dispatcher
from automap.service.queues.plan_queue import PlanClaim
from automap.service.storage.database import Database
from tests.service.queues.test_plan_queue import enqueue, taken
from tests.service.support.databases import settings_for, url_of


def test_a_plan_that_is_taken_over_is_said_to_be(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run: list[PlanClaim] = []
    monkeypatch.setattr(Dispatcher, "_run", lambda _self, _process, held: run.append(held))
    dispatcher = Dispatcher(database, settings_for(url_of(database), max_attempts=3))
    plan_id = enqueue(database)
    with caplog.at_level(logging.INFO, logger="automap.service.queues.dispatcher"):
        for _ in range(2):
            held = taken(database, lease_seconds=0.01)
            dispatcher._take_up(dispatcher._processes[0], held)
            time.sleep(0.05)
    assert [each.attempt for each in run] == [1, 2]
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert f"plan {plan_id}: taken over, attempt 2 of 3" in said.getMessage()
