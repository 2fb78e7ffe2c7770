"""What each copy of a model is made of: the plan's part of it, and the run settings'."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from automap.executor.engines.training_engine import Head
from automap.executor.errors import RunError
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.settings import RolloutSettings, RunSettings, TrainingSettings
from automap.executor.workers.protocols import Layout
from automap.planner import Placement
from automap.planner.catalogue import ModelArchitecture
from automap.planner.cost import token_budget
from automap.planner.job import Job
from automap.planner.plan import CallPlacement, CopyPlacement, engine_name, home_refusals
from automap.planner.spec import CallKind, JobSpec, SearchSpec, WorkloadSpec
from automap.planner.targets import AUTOMAP

_SAME_WEIGHTS = {"reference": "actor", "critic": "reward", "cost_critic": "cost"}
"""Roles that begin with another role's weights unless they are given their own."""
VALUE_ROLES = ("critic", "cost_critic")
"""Roles that begin with the actor's weights where what they value is a function."""
Engine = Literal["megatron", "fsdp"]


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """One copy of a role's model, as its workers are built: the same on all ranks."""

    role: str
    copy: CopyPlacement
    calls: tuple[CallPlacement, ...]
    """The calls that the copy serves in the plan."""
    architecture: ModelArchitecture
    folder: Path | None
    """Hugging Face folder with config and weights; None: random weights of `seed`."""
    head: Head
    engine: Engine | None
    """What trains and scores it; None: a shadow, which only generates."""
    trains: bool
    lora_rank: int | None
    training: TrainingSettings
    rollout: RolloutSettings
    precision: str
    rollout_precision: str
    max_prompt_tokens: int
    max_response_tokens: int
    end_tokens: tuple[int, ...]
    micro_batch_tokens: int
    """Tokens of a micro-batch that trains, at most."""
    forward_tokens: int
    """Tokens of a micro-batch that only scores."""
    responses_per_prompt: int
    seed: int
    """Seed of the model's random weights."""
    run_seed: int
    """Seed of what the run draws."""
    cache_at_sync: Literal["keep", "recompute"] | None = None
    """What weights do to the cache of responses in flight; None: they come to none."""

    @property
    def layout(self) -> RankLayout:
        """Layout of the copy's ranks while it trains or scores."""
        return RankLayout.of(self.copy.layout)

    @property
    def generation(self) -> CallPlacement | None:
        """The call that generates on this copy, if one does."""
        return next((call for call in self.calls if call.kind == "generate"), None)

    @property
    def generation_layout(self) -> GenerationLayout | None:
        """How the ranks are regrouped to generate."""
        call = self.generation
        if call is None or call.parallelism is None:
            return None
        return GenerationLayout.of(
            self.layout,
            tensor_parallel_size=call.parallelism.tensor_parallel_size,
            pipeline_parallel_size=call.parallelism.pipeline_parallel_size,
            expert_parallel_size=call.parallelism.expert_parallel_size,
        )

    @property
    def protocol_layout(self) -> Layout:
        """What transfer protocols split rows by."""
        return self.generation_layout or self.layout

    @property
    def recompute(self) -> str:
        """What training computes again."""
        given = [call.recompute for call in self.calls if call.kind == "train"]
        return (given[0] if given else None) or "none"

    @property
    def is_shadow(self) -> bool:
        """True for a second copy, which only generates and is sent its weights."""
        return self.copy.kind == "shadow"


def model_setups(job: Job, placement: Placement, settings: RunSettings) -> dict[str, ModelSetup]:
    """Every copy's set-up by copy id.

    Raises:
        RunError: no engine can keep a copy as planned, or not the one that the settings name.
    """
    workload = job.spec.workload
    trained = {call.role for call in placement.calls if call.kind == "train"}
    setups = {}
    for copy in placement.copies:
        model = job.models[copy.role]
        folder = _folder_of(job, copy.role, settings)
        calls = tuple(call for call in placement.calls if call.copy_id == copy.id)
        training = settings.training_of(copy.role)
        setups[copy.id] = ModelSetup(
            role=copy.role,
            copy=copy,
            calls=calls,
            architecture=model.architecture,
            folder=folder,
            head="scalar" if model.scalar_head else "language_model",
            engine=engine_of(job, copy, settings),
            trains=copy.role in trained and copy.kind == "home",
            lora_rank=model.lora_rank,
            training=training,
            rollout=settings.rollout,
            precision=workload.precision,
            rollout_precision=workload.rollout_precision or workload.precision,
            max_prompt_tokens=workload.prompt_length.max_tokens,
            max_response_tokens=workload.response_length.max_tokens,
            end_tokens=end_tokens(folder),
            micro_batch_tokens=_token_budget(calls, "train", workload, training),
            forward_tokens=_token_budget(calls, "forward", workload, training),
            responses_per_prompt=workload.responses_per_prompt,
            seed=_seed_of(copy.role, settings),
            run_seed=settings.seed,
            cache_at_sync=cache_at_sync(job.spec.search),
        )
    return setups


def _token_budget(
    calls: Sequence[CallPlacement],
    kind: CallKind,
    workload: WorkloadSpec,
    training: TrainingSettings,
) -> int:
    """What micro-batches of a copy's calls of a kind are filled to; of several the least."""
    if training.micro_batch_tokens is not None:
        return training.micro_batch_tokens
    sizes = [call.micro_batch_size or 1 for call in calls if call.kind == kind]
    return token_budget(workload, min(sizes, default=1))


def cache_at_sync(search: SearchSpec) -> Literal["keep", "recompute"] | None:
    """What the spec wants of the cache of responses in flight; None: its rollouts drain."""
    if not search.continuous_rollouts:
        return None
    return "keep" if search.keep_cache_at_sync else "recompute"


def smallest_vocabulary(setups: Mapping[str, ModelSetup]) -> int:
    """Smallest vocabulary among the models that read prompts and responses."""
    return min(setup.architecture.vocab_size for setup in setups.values())


def num_scoring_processes(spec: JobSpec, role: str) -> int:
    """The number of responses that the spec wants scored at once."""
    return min(spec.models[role].open_requests, spec.workload.num_sequences)


def end_tokens(folder: Path | None) -> tuple[int, ...]:
    """Tokens that end a response, by the model's folder; none without one."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name if folder is not None else None
        if path is not None and path.is_file():
            found = json.loads(path.read_text()).get("eos_token_id")
            if found is not None:
                return (found,) if isinstance(found, int) else tuple(found)
    return ()


def _folder_of(job: Job, role: str, settings: RunSettings) -> Path | None:
    """Its own, or that of the role whose weights it begins with, or, of a critic, the actor's.

    Where what it values is a function, a critic of the actor's sizes begins as the policy, with a
    new head.
    """
    models: Mapping[str, Path] = settings.models
    same = _SAME_WEIGHTS.get(role, role)
    if role in VALUE_ROLES and same not in job.models and "actor" in job.models:
        alike = job.models[role].architecture == job.models["actor"].architecture
        same = "actor" if alike else same
    return models.get(role) or models.get(same)


def _seed_of(role: str, settings: RunSettings) -> int:
    """A role's own, and the same as that of the role whose weights it would begin with."""
    same = _SAME_WEIGHTS.get(role, role)
    digest = hashlib.blake2b(f"{settings.seed}/{same}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1


def engine_of(job: Job, copy: CopyPlacement, settings: RunSettings) -> Engine | None:
    """The engine of a home; None for a shadow, which only generates.

    Raises:
        RunError: no engine can keep the copy as planned, or not the one that the settings name.
    """
    if copy.kind == "shadow":
        return None
    planned = engine_name(job, copy, AUTOMAP)
    named = settings.training_of(copy.role).engine
    if named is None:
        if planned is None:
            lacks = "; ".join(home_refusals(job, copy, AUTOMAP))
            raise RunError(
                f"copy {copy.id} cannot be run as planned: {lacks}; plan with search.target: "
                "automap"
            )
        return cast("Engine", planned)
    lacks = "; ".join(home_refusals(job, _as_kept(job, copy, named), AUTOMAP, engine=named))
    if lacks:
        remedy = f"leave it out for {planned}" if planned else "plan with search.target: automap"
        raise RunError(
            f"training.{copy.role}.engine: {named} cannot run copy {copy.id} as planned: {lacks}; "
            f"{remedy}"
        )
    return named


def _as_kept(job: Job, copy: CopyPlacement, engine: Engine) -> CopyPlacement:
    """The copy as the engine keeps it: FSDP2 shards what lies idle even where the plan does not."""
    layout = copy.layout
    if engine != "fsdp" or layout.sharding in ("gradient", "full"):
        return copy
    sharding = "gradient" if job.models[copy.role].trainable else "full"
    return copy.model_copy(update={"layout": layout.model_copy(update={"sharding": sharding})})
