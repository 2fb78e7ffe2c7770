"""One replica of an inference engine, event by event: lengths in, seconds and running batch out.

The schedule is vLLM's. Every step decodes one token of each running request; what is left of the
token budget prefills admitted prompts, a chunk at a time. Waiting requests are admitted, first come
first served, while blocks of the cache are free. A running request that finds no free block sends
the one admitted last back to the head of the queue, where it starts again with a prefill of all
its tokens. Between turns a request waits for its environment and holds no blocks.

Step costs are those of the closed form (`planner.cost.generation`), which this module is the
oracle of: it knows every length, the closed form their distribution.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from automap.planner.cost import constants
from automap.planner.layout import FloatArray, IntArray
from tests.planner.simulation.steps import StepCosts

BLOCK = constants.CACHE_BLOCK_TOKENS
PATIENCE = 1_000_000
"""Number of events after which a simulation is given up as endless, which would be a bug."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one replica [request], in the order of arrival; all are there at the start."""

    prompt_tokens: IntArray
    response_tokens: IntArray
    """Response tokens of all turns together."""
    prompt: IntArray
    """Number of the prompt; requests with the same one share its prefill."""
    turns: int = 1
    environment_seconds: float = 0.0
    """Seconds that a request is away with its environment after each turn."""

    def __len__(self) -> int:
        return len(self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The batch over time: from `seconds[i]` on, `running[i]` requests decode."""

    seconds: FloatArray
    running: IntArray


@dataclass(frozen=True, slots=True)
class Simulated:
    """Outcome of one replica's generation."""

    seconds: float
    prefill_seconds: float
    decode_seconds: float
    idle_seconds: float
    """Seconds in which all requests are away with their environment."""
    preemptions: int
    finished_seconds: FloatArray
    """[request]: seconds after which it ended, its last environment time included."""
    timeline: Timeline


def run_engine(requests: Requests, costs: StepCosts, *, cache_tokens: int) -> Simulated:
    """Generate all requests on one replica whose cache holds `cache_tokens` tokens.

    Raises:
        ValueError: the cache cannot hold the longest request.
    """
    longest = int((requests.prompt_tokens + requests.response_tokens).max(initial=0))
    if cache_tokens // BLOCK < -(-longest // BLOCK):
        raise ValueError(
            f"cache_tokens={cache_tokens}: the longest request has {longest} tokens; give as many"
        )
    replica = _Replica(requests, costs, cache_tokens // BLOCK)
    for _ in range(PATIENCE):
        if replica.done:
            return replica.result()
        replica.proceed()
    raise RuntimeError(f"{len(requests)} requests did not end after {PATIENCE} events")


@dataclass(slots=True)
class _Replica:
    requests: Requests
    costs: StepCosts
    num_blocks: int
    now: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    idle_seconds: float = 0.0
    preemptions: int = 0
    last_full: float = -1.0
    """Time when a request last found too few free blocks; prompts cached but unused by then are
    gone."""
    waiting: deque[int] = field(default_factory=deque)
    prefilling: deque[tuple[int, int]] = field(default_factory=deque)
    """(request, tokens still to prefill), in the order of admission."""
    running: list[int] = field(default_factory=list)
    """Requests that decode, in the order of admission."""
    away: list[tuple[float, float, int]] = field(default_factory=list)
    """(time of return, time of departure, request) of those with their environment."""
    cached_prompts: set[int] = field(default_factory=set)
    age: IntArray = field(init=False)
    to_recompute: IntArray = field(init=False)
    """Tokens to prefill at the next admission beside those of a prompt that nobody prefilled."""
    finished: FloatArray = field(init=False)
    events: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.age = np.zeros(len(self.requests), dtype=np.int64)
        self.to_recompute = np.zeros(len(self.requests), dtype=np.int64)
        self.finished = np.zeros(len(self.requests))
        self.waiting.extend(range(len(self.requests)))
        if len(self.requests):
            self.now = self.prefill_seconds = self.costs.pipeline_fill_seconds

    @property
    def done(self) -> bool:
        return not (self.waiting or self.prefilling or self.running or self.away)

    def proceed(self) -> None:
        """Take one step with prefill, or all decode steps until the batch changes."""
        self._return_from_environment()
        self._admit()
        self.events.append((self.now, len(self.running)))
        if self.prefilling:
            self._make_room(1)
            self._step_with_prefill()
        elif self.running:
            self._decode(self._steps_until_a_change())
        else:
            back = min(self.away)[0]
            self.idle_seconds += max(back - self.now, 0.0)
            self.now = max(back, self.now)

    def result(self) -> Simulated:
        seconds, running = zip(*self.events, strict=True) if self.events else ((), ())
        return Simulated(
            seconds=float(self.finished.max(initial=0.0)),
            prefill_seconds=self.prefill_seconds,
            decode_seconds=self.decode_seconds,
            idle_seconds=self.idle_seconds,
            preemptions=self.preemptions,
            finished_seconds=self.finished,
            timeline=Timeline(np.array(seconds), np.array(running, dtype=np.int64)),
        )

    def _tokens(self, request: int) -> int:
        return int(self.requests.prompt_tokens[request] + self.age[request])

    def _free_blocks(self, *, after_steps: int = 0) -> int:
        """Blocks that no admitted request holds once `after_steps` more steps are decoded."""
        held = sum(-(-self._tokens(request) // BLOCK) for request, _ in self.prefilling)
        lengths = self.requests.prompt_tokens[self.running] + self.age[self.running]
        return self.num_blocks - held - int((-(-(lengths + after_steps) // BLOCK)).sum())

    def _return_from_environment(self) -> None:
        for entry in sorted(self.away):
            back, left, request = entry
            if back > self.now + 1e-9:
                break
            self.away.remove(entry)
            if left <= self.last_full:
                self.to_recompute[request] = self._tokens(request)
            self.waiting.append(request)

    def _admit(self) -> None:
        free = self._free_blocks()
        while self.waiting:
            request = self.waiting[0]
            # The prefill's last step yields a token already.
            free -= -(-(self._tokens(request) + 1) // BLOCK)
            if free < 0:
                self.last_full = self.now
                return
            self.waiting.popleft()
            tokens = int(self.to_recompute[request])
            prompt = int(self.requests.prompt[request])
            if prompt not in self.cached_prompts:
                self.cached_prompts.add(prompt)
                tokens = max(tokens, self._tokens(request))
            self.to_recompute[request] = 0
            self.prefilling.append((request, tokens))

    def _make_room(self, steps: int) -> None:
        """Preempt the requests admitted last until the others can decode `steps` tokens."""
        while len(self.running) > 1 and self._free_blocks(after_steps=steps) < 0:
            self.last_full = self.now
            self.preemptions += 1
            request = self.prefilling.pop()[0] if self.prefilling else self.running.pop()
            self.to_recompute[request] = self._tokens(request)
            self.waiting.appendleft(request)

    def _step_with_prefill(self) -> None:
        """Decode one token each, and prefill with the rest of the step's tokens."""
        batch = len(self.running)
        decode = self._decode_seconds(1)
        budget = max(self.costs.chunk_tokens - batch, 1)
        used, started = 0, []
        while self.prefilling and used < budget:
            request, left = self.prefilling.popleft()
            part = min(left, budget - used)
            used += part
            if part < left:
                self.prefilling.appendleft((request, left - part))
            else:
                started.append(request)
        prefill = used * self.costs.prefill_token_seconds
        self.prefill_seconds += prefill
        self.decode_seconds += decode
        self.now += prefill + decode
        self.running += started
        self._age(1)

    def _steps_until_a_change(self) -> int:
        """Decode steps until a request ends its turn, blocks run out or one comes back."""
        steps = int((self._turn_end(self.running) - self.age[self.running]).min())
        if self._free_blocks(after_steps=steps) < 0:
            few, many = 0, steps
            while many - few > 1:
                middle = (few + many) // 2
                if self._free_blocks(after_steps=middle) < 0:
                    many = middle
                else:
                    few = middle
            steps = few
        if steps == 0:
            self._make_room(1)
            steps = 1
        if self.away:
            left = min(self.away)[0] - self.now
            steps = min(steps, max(int(np.ceil(left / self._decode_seconds(1))), 1))
        return steps

    def _turn_end(self, requests: list[int]) -> IntArray:
        """Age in tokens [request] at which the present turn of each request ends."""
        turns, length = self.requests.turns, self.requests.response_tokens[requests]
        turn = self.age[requests] * turns // np.maximum(length, 1) + 1
        ends = -(-length * turn // turns)
        return np.asarray(np.maximum(ends, self.age[requests] + 1), dtype=np.int64)

    def _decode_seconds(self, steps: int) -> float:
        """Seconds of `steps` decode steps of the present batch, whose cache grows on the way."""
        if not self.running:
            return 0.0
        lengths = self.requests.prompt_tokens[self.running] + self.age[self.running]
        mean = float(lengths.mean()) + (steps - 1) / 2
        return steps * self.costs.decode_seconds(len(self.running), mean)

    def _decode(self, steps: int) -> None:
        seconds = self._decode_seconds(steps)
        self.decode_seconds += seconds
        self.now += seconds
        self._age(steps)

    def _age(self, steps: int) -> None:
        """Make the running requests `steps` tokens longer; those whose turn ended leave."""
        if not self.running:
            return
        ends = self._turn_end(self.running)
        self.age[self.running] += steps
        ended = self.age[self.running] >= ends
        if not ended.any():
            return
        for request in np.array(self.running)[ended].tolist():
            back = self.now + self.requests.environment_seconds
            if self.age[request] >= self.requests.response_tokens[request]:
                self.finished[request] = back
            else:
                self.away.append((back, self.now, request))
        self.running = np.array(self.running)[~ended].tolist()
