"""What a search optimises, which plans it may consider, and how long it looks."""

from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from automap.planner.errors import FieldValueError
from automap.planner.spec.base import PositiveFloat, SpecModel

StrategyName = Literal[
    "colocate_all",
    "split",
    "standalone",
    "hybridflow",
    "verl",
    "deepspeed_chat",
    "openrlhf",
    "nemo_aligner",
    "app_interleaving",
    "app_separation",
    "real_heuristic",
    "real_mcmc",
    "rlinf",
    "one_step_off",
    "fully_async",
]
"""The published ways to place a job; automap.planner.search.strategies has them."""


TargetName = Literal[
    "automap",
    "verl@0.9.1",
    "slime@0.3.1",
    "nemo-rl@0.7.0",
    "openrlhf@0.11.2",
    "trl@1.16.0",
    "skyrl@0.3.0",
    "areal@1.0.4",
    "any",
]
"""What can run a plan; automap.planner.targets has their capabilities."""
FrameworkName = Literal["verl", "slime", "nemo-rl", "openrlhf", "trl", "skyrl", "areal"]
"""A target that is a framework, of the version that is known."""
_FRAMEWORKS = [name for name in get_args(TargetName) if "@" in name]


def with_version(given: object) -> object:
    """A framework by name and version where its name is given alone; anything else as it is."""
    return next((name for name in _FRAMEWORKS if name.partition("@")[0] == given), given)


Objective = Literal["throughput", "price", "run_price", "fewest_gpus"]
OTHER_OBJECTIVE_NAMES: dict[object, Objective] = {
    "time": "throughput",
    "iteration_seconds": "throughput",
    "price_per_iteration": "price",
    "price_per_million_tokens": "price",
    "price_of_run": "run_price",
}
"""Other names of the objectives, which a spec may use. An iteration has as many tokens whatever the
plan, so the same plan is the cheapest per iteration and per million tokens."""


MOST_STALENESS = 16
"""Most iterations by which a spec may let rollouts lag behind."""


def _is_open(given: object) -> bool:
    return given is None


def _own_name(given: object) -> object:
    return OTHER_OBJECTIVE_NAMES.get(given, given) if isinstance(given, str) else given


class SearchSpec(SpecModel):
    """What to optimise and how long to look. The same spec, seed and limit give the same plan."""

    objective: Annotated[
        Objective,
        BeforeValidator(
            _own_name,
            json_schema_input_type=Literal[  # with the other names
                "throughput",
                "price",
                "run_price",
                "fewest_gpus",
                "time",
                "iteration_seconds",
                "price_per_iteration",
                "price_per_million_tokens",
                "price_of_run",
            ],
        ),
    ] = Field(
        default="throughput",
        description="throughput (also time, iteration_seconds): least seconds per iteration; price "
        "(also price_per_iteration, price_per_million_tokens): least price per iteration, and so "
        "per million tokens; run_price (also price_of_run): least price of the whole run, "
        "start-up and checkpoints included; fewest_gpus: fewest paid GPUs with which an iteration "
        "meets target_iteration_seconds",
    )
    target_iteration_seconds: PositiveFloat | None = Field(
        default=None,
        description="Seconds; fewest_gpus only: the slowest iteration that is good enough. "
        "Default: any",
    )
    staleness: Annotated[int, Field(ge=0, le=MOST_STALENESS)] = Field(
        default=0,
        description="Iterations by which rollout weights may lag behind training; 0: on-policy. "
        "Above 0 iterations overlap, whatever iteration_barrier says",
    )
    continuous_rollouts: bool | None = Field(
        default=None,
        exclude_if=_is_open,  # specs and plans without it read as they always did
        description="Generate without batches, on GPUs that do nothing else: a finished response "
        "makes room for the next, training takes a batch whenever so many are finished, and "
        "weights come while responses are in flight. staleness bounds how many may be: with those "
        "finished and not yet trained on at most (staleness + 1) iterations' responses. Default: "
        "false, and true where the target never generates in batches with that staleness",
    )
    keep_cache_at_sync: bool | None = Field(
        default=None,
        exclude_if=_is_open,  # specs and plans without it read as they always did
        description="With continuous_rollouts: responses in flight keep the cache that older "
        "weights computed (PipelineRL). false: new weights compute it again, one more prefill of "
        "all that is in flight with every weight sync (AReaL). Default: as the target does, else "
        "false",
    )
    iteration_barrier: bool = Field(
        default=True,
        description="Every call of an iteration ends before the next begins; staleness lifts it. "
        "Without a barrier the plan is a cyclic schedule, in which iterations overlap",
    )
    streaming: bool = Field(
        default=False,
        description="Let scores, log-probabilities and values be computed on other GPUs while the "
        "generation whose responses they are for still runs",
    )
    stream_chunks: Annotated[int, Field(ge=2, le=64)] = Field(
        default=8,
        description="Equal parts of the responses in which they are handed over where edges are "
        "streamed; nothing waits for less than a part",
    )
    generation_tail: bool = Field(
        default=False,
        description="Let a generation's last responses go on together on a part of its GPUs, so "
        "that other calls can have the rest. Such a plan can be priced, but not run",
    )
    generation_tensor_schedule: bool = Field(
        default=False,
        description="Let a generation go on with a larger tensor size once most of its responses "
        "have ended. Such a plan can be priced, but not run",
    )
    time_limit_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=30.0,
        description="Seconds from the request to the answer, by the clock (imports apart): then "
        "the best plan so far is returned with its bound and gap. A proven plan is the same every "
        "time and on every machine; one that is cut short need not be (limit_by: work)",
    )
    limit_by: Literal["clock", "work"] = Field(
        default="clock",
        description="What the time limit counts. clock: seconds of this machine. work: the "
        "solver's own count of its work, at the pace of a 2020s core, so that a search that is cut "
        "short ends with the same plan every time; a slow or busy machine takes longer, and "
        "pricing the candidates comes on top",
    )
    optimality_gap: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="Share of the objective by which a better plan may be missed: the search ends "
        "when no plan can be better by more, 0.01 for 1 %. 0: only when none is better at all. The "
        "plan's relative_gap and search.stopped say what was proven",
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0,
        description="Seed of the solver's random choices. The same spec and seed give the same "
        "plan",
    )
    target: Annotated[
        TargetName | None,
        BeforeValidator(with_version, json_schema_input_type=TargetName | FrameworkName | None),
    ] = Field(
        default=None,
        description="What is to run the plan, and so which layouts and settings are searched: "
        f"automap (its own executor), a framework of one version ({', '.join(_FRAMEWORKS)}; a "
        "name alone means that version), or "
        "any (all that can be priced, for research). Default: "
        "automap; where that cannot run the job the first framework that can, which the plan "
        "states; any where none can, or a strategy is asked for",
    )
    max_out_of_memory_probability: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Chance of running out of memory that no searched plan exceeds, by the "
        "interval of its largest peak: 0.05 leaves about a tenth of a GPU's memory to spare; from "
        "0.5 on plans may fill the GPUs by estimate, so 1 leaves nothing to spare. A placement of "
        "your own may exceed it, and says so. Default: what the target has, 0.05; 1 where any is "
        "named, and for strategies",
    )
    simplicity_tolerance: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="Share by which a plan may miss the proven optimum in order to be simpler, "
        "0.03 for 3 %: fewer ranges of GPUs, of equal sizes, layouts that models share, fewer "
        "parallel dimensions, powers of two, no shadow, no interleaved pipeline, in this order; "
        "then more memory that stays free. 0: always the optimum. It has no effect on robust and "
        "fewest_gpus, with an optimality_gap, and where a limit ends the search. Default: what the "
        "target has, 0.03; 0 where any is named, and for strategies",
    )
    strategy: StrategyName | None = Field(
        default=None,
        description="Place the job as this published strategy would, instead of searching: what "
        "to compare with. The plan then claims no optimum. Default: search",
    )
    explain_infeasible: bool = Field(
        default=False,
        description="Where no placement fits, also plan the smallest changes with which one does: "
        "what they would cost. Takes up to two more time limits",
    )
    robust: bool = Field(
        default=False,
        description="Choose the plan whose largest regret is least when the estimates are wrong by "
        "up to their own 80 % intervals, instead of the one that is best if all are right. Takes "
        "up to one more time limit",
    )
    num_workers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2, description="Threads that price candidates; the proof runs in one, so it repeats"
    )

    @model_validator(mode="after")
    def _target_only_for_fewest(self) -> Self:
        if self.target_iteration_seconds is not None and self.objective != "fewest_gpus":
            raise FieldValueError(
                "target_iteration_seconds",
                f"only objective: fewest_gpus has a target, and the objective is {self.objective}",
                remedy="leave it out, or set objective: fewest_gpus",
            )
        return self

    @model_validator(mode="after")
    def _continuous_has_slack(self) -> Self:
        if self.keep_cache_at_sync and not self.continuous_rollouts:
            raise FieldValueError(
                "keep_cache_at_sync",
                "is true, but weights come to responses in flight only with continuous_rollouts",
                remedy="leave it out, or set continuous_rollouts: true",
            )
        if not self.continuous_rollouts:
            return self
        if self.staleness == 0:
            raise FieldValueError(
                "continuous_rollouts",
                "is true, but staleness is 0: without slack every batch drains before it is "
                "trained on",
                remedy="set staleness to 1 or more (2 to 8 are usual), or leave it out",
            )
        for name in ("streaming", "generation_tail", "generation_tensor_schedule"):
            if getattr(self, name):
                raise FieldValueError(
                    name,
                    "is true, and continuous_rollouts as well: what never drains has no tail, and "
                    "its finished responses flow as they are",
                    remedy="leave out one of the two",
                )
        return self

    @model_validator(mode="after")
    def _robust_is_searched(self) -> Self:
        if self.robust and self.strategy is not None:
            raise FieldValueError(
                "robust",
                f"chooses among searched plans, and strategy: {self.strategy} searches none",
                remedy="leave out one of the two",
            )
        if self.robust and self.objective in ("run_price", "fewest_gpus"):
            raise FieldValueError(
                "robust",
                "compares seconds or prices of an iteration, and the objective is "
                f"{self.objective}",
                remedy="leave it out, or set objective to throughput or price",
            )
        return self

    @model_validator(mode="after")
    def _gap_is_of_a_search(self) -> Self:
        if self.optimality_gap and (
            self.robust or self.objective == "fewest_gpus" or self.strategy is not None
        ):
            raise ValueError(
                f"optimality_gap is {self.optimality_gap:g}, but must be 0, or left out, with "
                "objective: fewest_gpus, robust and strategy: it is a share of the seconds or the "
                "price that a search minimises"
            )
        return self

    @property
    def cyclic(self) -> bool:
        """True when iterations may overlap: the plan is a cyclic schedule."""
        return self.staleness > 0 or not self.iteration_barrier
