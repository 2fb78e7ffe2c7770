"""Who asks the service for plans and jobs, and does not give up."""

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import yaml

from automap.service.runs.checked_settings import RunSettings, anchored
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.stack import EXAMPLES, Options
from tests.service.support.samples import small_spec, tiny_spec
from tests.service.support.workers import TINY, run_settings

CLIENTS = 4
FOLLOWERS = 2
ANSWER_SECONDS = 15.0
SILENCE_SECONDS = 20.0
"""A stream that lives says so every 15 s."""
PAUSE_SECONDS = 0.2
GIVE_UP_SECONDS = 300.0
LARGER = 5
"""Every so many plans one takes a second rather than a blink."""
POSTED_AGAIN = 0.3
"""Share of requests that are sent once more though they were answered."""
Item = tuple[str, int]


class Clients:
    """Threads that post everything once, by idempotency keys, to either API."""

    def __init__(
        self,
        addresses: list[str],
        options: Options,
        ledger: Ledger,
        share: Callable[[], float],
    ) -> None:
        """`share`: how much of it all may be posted by now, from 0 to 1."""
        self._addresses = addresses
        self._options = options
        self._ledger = ledger
        self._share = share
        self._items: list[Item] = [("plans", number) for number in range(options.plans)]
        self._items += [("jobs", number) for number in range(options.jobs)]
        random.Random(options.seed).shuffle(self._items)
        self._taken = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.ids: dict[Item, str] = {}
        self.followed = 0
        self._to_follow: list[str] = []
        self._posters = [
            threading.Thread(target=self._post_all, daemon=True) for _ in range(CLIENTS)
        ]
        self._followers = [
            threading.Thread(target=self._follow_some, daemon=True) for _ in range(FOLLOWERS)
        ]

    def start(self) -> None:
        for thread in [*self._posters, *self._followers]:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all is posted."""
        deadline = time.monotonic() + seconds
        for thread in self._posters:
            thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        self._stopping.set()
        for thread in [*self._posters, *self._followers]:
            thread.join(2 * ANSWER_SECONDS)

    def _next(self) -> tuple[Item, random.Random] | None:
        with self._lock:
            if self._taken == len(self._items):
                return None
            self._taken += 1
            place = self._taken - 1
        while place > self._share() * len(self._items) + CLIENTS and not self._stopping.is_set():
            time.sleep(PAUSE_SECONDS)
        return self._items[place], random.Random(f"{self._options.seed} {place}")

    def _post_all(self) -> None:
        while not self._stopping.is_set() and (found := self._next()) is not None:
            item, draw = found
            made = self._post(item, draw)
            if made is None:
                continue
            self.ids[item] = made
            if item[0] == "jobs":
                self._to_follow.append(made)
            if draw.random() < POSTED_AGAIN:
                again = self._post(item, draw)
                if again not in (None, made):
                    self._ledger.violate(f"{item} was made twice: {made} and {again}")

    def _post(self, item: Item, draw: random.Random) -> str | None:
        """The id of what was made, after as many tries as it takes."""
        kind, number = item
        body = self._plan(number) if kind == "plans" else self._job(number)
        headers = {
            "Idempotency-Key": f"chaos-{self._options.seed}-{kind}-{number}",
            "Prefer": "respond-async",
        }
        deadline = time.monotonic() + GIVE_UP_SECONDS
        last = ""
        while not self._stopping.is_set() and time.monotonic() < deadline:
            try:
                answer = httpx.post(
                    f"{draw.choice(self._addresses)}/v1/{kind}",
                    json=body,
                    headers=headers,
                    timeout=ANSWER_SECONDS,
                    trust_env=False,
                )
            except httpx.HTTPError as error:
                last = repr(error)
            else:
                if answer.status_code in (200, 201, 202):
                    return str(answer.json()["id"])
                last = answer.text
                if answer.status_code != 409 and answer.status_code < 500:
                    break
            time.sleep(PAUSE_SECONDS)
        if not self._stopping.is_set():
            self._ledger.violate(f"{item} was never taken: {last[:300]}")
        return None

    def _plan(self, number: int) -> dict[str, Any]:
        make = small_spec if number % LARGER == 0 else tiny_spec
        return make(name=f"plan-{number}")

    def _job(self, number: int) -> dict[str, Any]:
        name = {"name": f"job-{number}"}
        if not self._options.ray:
            # Two seconds, three, four or five.
            return {
                "spec": {**TINY, **name},
                "settings": run_settings("paced", iterations=20 + 10 * (number % 4)),
            }
        spec = yaml.safe_load((EXAMPLES / "tiny-grpo-cpu.yaml").read_text())
        given = yaml.safe_load((EXAMPLES / "tiny-grpo-cpu.run.yaml").read_text())
        given |= {"iterations": 3, "checkpoint": {"every_iterations": 1}}
        checked = anchored(RunSettings.model_validate(given), EXAMPLES)
        return {"spec": {**spec, **name}, "settings": checked.model_dump(mode="json")}

    def _follow_some(self) -> None:
        draw = random.Random(self._options.seed)
        while not self._stopping.is_set():
            try:
                job_id = self._to_follow.pop(0)
            except IndexError:
                time.sleep(PAUSE_SECONDS)
                continue
            if self._follow(job_id, draw):
                self.followed += 1

    def _follow(self, job_id: str, draw: random.Random) -> bool:
        """Take a job's events to its end, over however many connections it takes."""
        last = 0
        while not self._stopping.is_set():
            address = f"{draw.choice(self._addresses)}/v1/jobs/{job_id}/events"
            headers = {"Last-Event-ID": str(last)}
            try:
                with httpx.stream(
                    "GET", address, headers=headers, timeout=SILENCE_SECONDS, trust_env=False
                ) as answer:
                    if answer.status_code == 204:
                        return True
                    if answer.status_code == 404:
                        self._ledger.violate(f"job {job_id} is gone")
                        return False
                    for line in answer.iter_lines():
                        last = self._taken_event(job_id, line, last)
                        if self._stopping.is_set():
                            return False
            except httpx.HTTPError:
                time.sleep(PAUSE_SECONDS)
        return False

    def _taken_event(self, job_id: str, line: str, last: int) -> int:
        name, _, value = line.partition(": ")
        if name == "data":
            json.loads(value)
        if name != "id":
            return last
        if int(value) != last + 1:
            self._ledger.violate(f"job {job_id}: event {value} came after {last}")
        return int(value)
