"""ReaL's figure: the jobs, and what each way of placing them came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.reproduction import deepspeed_chat
from benchmarks.reproduction.cases import SEARCH, Case, Outcome
from benchmarks.reproduction.jobs import LLAMA, ROLES, job
from benchmarks.reproduction.layouts import symmetric, three_d
from benchmarks.reproduction.published import published
from benchmarks.reproduction.software import REAL
from benchmarks.reproduction.study import Key, Outcomes
from benchmarks.reproduction.systems import SYSTEMS

FACTS = published().real
GPUS = {"7B": 8, "13B": 16, "34B": 32, "70B": 64}
PUBLISHED_LENGTHS = (128, 384, 896)
LONGER = (1920, 3968, 8064)
LONG_MODELS = ("7B", "70B")
PROMPT_TOKENS = 128
BATCH_TOKENS = 2**17
WHOLE_RUN_GPUS = 128
OTHERS = ("deepspeed_chat", "openrlhf")
HEURISTIC = "colocate_all"
SHIPPED = "real_heuristic"
MCMC = "real_mcmc"
MCMC_SECONDS = 5.0
"""Of ReaL's search, in steps that take about so long; it finds little in more."""


def workload(response_tokens: int) -> dict[str, object]:
    """A batch of the same tokens, however long its responses."""
    return {
        "prompts_per_iteration": BATCH_TOKENS // (PROMPT_TOKENS + response_tokens),
        "prompt_length": {"mean": PROMPT_TOKENS, "max": PROMPT_TOKENS},
        "response_length": {"mean": response_tokens, "max": response_tokens},
        "updates_per_epoch": 4,
        "old_log_probs": "rollout",
        "kl": "reward",
    }


def _models(actor: str, critic: str) -> dict[str, str]:
    return {role: LLAMA[critic if role in ("critic", "reward") else actor] for role in ROLES["ppo"]}


def cases() -> dict[Key, Case]:
    """The figure's panel, longer responses for the smallest and the largest, and four times 70B."""
    found: dict[Key, Case] = {}
    for model, num_gpus in GPUS.items():
        for length in PUBLISHED_LENGTHS + (LONGER if model in LONG_MODELS else ()):
            models, work = _models(model, "7B"), workload(length)
            spec = job("ppo", models, num_gpus, workload=work, hardware=FACTS.hardware)
            found["search", model, length] = Case(spec, (SEARCH, SHIPPED), engine=REAL)
            found["heuristic", model, length] = Case(spec, (HEURISTIC,), symmetric, REAL)
            for name in OTHERS:
                if length in PUBLISHED_LENGTHS:
                    chain = job(
                        "ppo",
                        models,
                        num_gpus,
                        workload=work,
                        hardware=FACTS.hardware,
                        time_limit_seconds=MCMC_SECONDS,
                    )
                    found["chain", model, length] = Case(chain, (MCMC,), three_d, REAL)
                    found[name, model, length] = SYSTEMS[name].case(
                        "ppo", models, num_gpus, workload=work, hardware=FACTS.hardware
                    )
    models = _models("70B", "70B")
    for length in PUBLISHED_LENGTHS:
        work = workload(length)
        spec = job("ppo", models, WHOLE_RUN_GPUS, workload=work, hardware=FACTS.hardware)
        found["search", "4 × 70B", length] = Case(spec, (SEARCH,), engine=REAL)
        for name in OTHERS:
            found[name, "4 × 70B", length] = SYSTEMS[name].case(
                "ppo", models, WHOLE_RUN_GPUS, workload=work, hardware=FACTS.hardware
            )
    return found | deepspeed_chat.OWN_CASES


@dataclass(frozen=True)
class Point:
    """One model and length: the plan, ReaL's search, both heuristics, and the other systems."""

    model: str
    length: int
    plan: Outcome
    searched: Outcome | None
    """ReaL's own search, in its layouts."""
    heuristic: Outcome
    shipped: Outcome
    others: Mapping[str, Outcome]
    chat_factor: float
    """DeepSpeed-Chat's own iterations over what we price them at."""

    def relative(self, system: str) -> float | None:
        """Throughput over that of the heuristic."""
        by_name = {SEARCH: self.plan, MCMC: self.searched, **self.others}
        one = by_name.get(system)
        if one is None or one.seconds is None or self.heuristic.seconds is None:
            return None
        software = self.chat_factor if system == "deepspeed_chat" else 1.0
        return self.heuristic.seconds / (software * one.seconds)

    def implied_slowdown(self, gain: float) -> float | None:
        """By how much the heuristic's generation would have to be slower for this gain."""
        took, ours = self.heuristic.seconds, self.searched
        if took is None or ours is None or ours.seconds is None:
            return None
        generation = self.heuristic.kind_seconds("generate")
        return (gain * ours.seconds - (took - generation)) / generation


def real_points(found: Outcomes) -> list[Point]:
    factor = deepspeed_chat.factor_within(found)
    return [
        Point(
            str(model),
            int(length),
            placed[SEARCH],
            found.get(("chain", model, length), {}).get(MCMC),
            found["heuristic", model, length][HEURISTIC],
            placed[SHIPPED],
            {
                name: found[name, model, length][SYSTEMS[name].strategy]
                for name in OTHERS
                if (name, model, length) in found
            },
            factor,
        )
        for (kind, model, length), placed in found.items()
        if kind == "search" and model in GPUS
    ]


def published_of(system: str) -> dict[tuple[str, int], float]:
    return {
        (row.model, row.response_tokens): row.relative
        for row in FACTS.rows
        if row.system == {MCMC: "search"}.get(system, system)
    }


def compared_with(points: Sequence[Point], system: str) -> list[tuple[Point, float, float]]:
    """(point, published, predicted) throughput over the heuristic's."""
    known = published_of(system)
    return [
        (point, known[point.model, point.length], ratio)
        for point in points
        if (point.model, point.length) in known and (ratio := point.relative(system)) is not None
    ]
