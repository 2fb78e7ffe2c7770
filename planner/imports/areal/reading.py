"""Files of an AReaL launch to a job and a placement."""

from collections.abc import Mapping, Sequence

from automap.planner.frameworks.description import Framework
from automap.planner.imports.areal.backends import Backend, backend_of
from automap.planner.imports.areal.overrides import overrides_of
from automap.planner.imports.areal.pools import places_of
from automap.planner.imports.areal.workload import roles_of, spec_of
from automap.planner.imports.configurations import take
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.keys import settings_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.layouts import Offload, Recompute
from automap.planner.imports.micro_batches import fitting
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import CopyPlacement, Parallelism


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = overrides_of(files, answers, framework)
    settings = settings_of(overrides, answers, framework, take, interpolated=True)
    backends = {role: backend_of(settings, role) for role in (*roles_of(settings), "rollout")}
    settings.as_role = {"rollout": backends["rollout"].engine}
    settings.engine = _kind(settings, "actor", backends["actor"])
    places = places_of(settings, backends, node)
    with reasons_first(settings):
        spec = spec_of(settings, answers, places.pools, node, backends["rollout"])
        job = resolved(settings, spec)
        placed = placement_of(
            settings,
            job,
            places.pools,
            offload=lambda settings, role: _offload(settings, role, apart=places.pools.apart),
            engine=lambda settings, num_gpus: _engine(settings, backends["rollout"]),
            recompute=lambda settings, role: _recompute(settings, role, backends[role]),
            home=lambda role: (places.homes[role], _layout(settings, job, role, backends[role])),
            micro_batch=lambda copy: _micro_batch(settings, job, copy),
        )
    _note_offload(settings, backends, apart=places.pools.apart)
    settings.as_role = {}
    return imported(settings, job, placed)


def _kind(settings: Settings, role: str, backend: Backend) -> str:
    """Kind of training engine that a backend is priced as."""
    if backend.engine != "archon":
        return backend.engine
    told = f"{settings.where('backend', role)}: archon is priced as fsdp"
    settings.note("not priced", told, settings.given("backend", role))
    if backend.pipeline * backend.expert > 1:
        told = f"{settings.where('backend', role)}: archon with pipeline or expert sizes"
        settings.refuse(told, "give sizes d, t and c, or the engine megatron")
    return "fsdp"


def _layout(settings: Settings, job: Job, role: str, backend: Backend) -> Parallelism:
    """The layout of what trains or scores."""
    trains = job.models[role].trainable
    sizes: dict[str, int | str] = {
        "tensor_parallel_size": backend.tensor,
        "context_parallel_size": backend.context,
        "data_parallel_size": backend.data,
    }
    for decision in ("workers", "precision", "kept_precision"):
        if settings.knows(decision, role):
            settings.needless(decision, role)
    if _kind(settings, role, backend) == "fsdp":
        alone = backend.data * backend.context == 1 and not trains
        return Parallelism.model_validate(sizes | {"sharding": "none" if alone else "full"})
    virtual = settings.size("virtual_pipeline_parallel_size", role)
    if virtual > 1 and backend.pipeline == 1:
        told = f"{settings.where('virtual_pipeline_parallel_size', role)} without a pipeline"
        settings.refuse(told, "a pipeline size above 1, or 1 virtual stage")
        virtual = 1
    sizes |= {
        "pipeline_parallel_size": backend.pipeline,
        # A model that only scores is priced without virtual stages, which only training gains from.
        "virtual_pipeline_parallel_size": virtual if trains else 1,
        "expert_parallel_size": backend.expert,
    }
    if job.models[role].architecture.num_experts:
        _note_experts(settings, role, backend)
    sharded = trains and settings.flag("sharded_optimizer", role)
    return Parallelism.model_validate(sizes | {"sharding": "optimizer" if sharded else "none"})


def _note_experts(settings: Settings, role: str, backend: Backend) -> None:
    """Note experts that are split otherwise than they are priced."""
    priced = max(backend.tensor // backend.expert, 1)
    stated = backend.expert_tensor or 1
    if stated != priced:
        told = f"experts split over {stated} ranks are priced as split over {priced}"
        settings.note(
            "assumed",
            f"{settings.where('backend', role)}: {told}",
            settings.given("backend", role),
        )


def _engine(settings: Settings, backend: Backend) -> Parallelism:
    """The layout of the engines that generate."""
    settings.needless("workers", "rollout")
    for decision in ("engine_model", "tokenizer"):
        settings.needless(decision, "rollout")
    if backend.pipeline > 1:
        where = settings.where("engine_backend", "rollout")
        told = f"{where}: engines in pipeline stages"
        settings.refuse(told, "leave p out: engines are priced in tensor groups")
    return Parallelism(
        tensor_parallel_size=backend.tensor,
        data_parallel_size=backend.data * backend.pipeline,
    )


def _offload(settings: Settings, role: str, *, apart: bool) -> Offload:
    """Weights and optimizer; the actor's go to the host while its GPUs generate."""
    asked = settings.flag("offload_weights", role)
    return "weights" if asked or (role == "actor" and not apart) else "none"


def _note_offload(settings: Settings, backends: Mapping[str, Backend], *, apart: bool) -> None:
    roles = [role for role in backends if role != "rollout"]
    wanted = [role for role in roles if settings.flag("offload_weights", role)]
    if "critic" in backends and ({"actor", "critic"} & set(wanted) or not apart):
        told = "actor and critic are back on the GPUs before the other has trained"
        settings.note("not priced", f"{told}: priced as on the host till then")
    if (wanted or not apart) and not settings.flag("with_offload"):
        key = settings.key("with_offload")
        told = f"what goes to the host needs {key}: true, and it does not start without"
        where = settings.given("offload_weights", wanted[0]) if wanted else None
        settings.note("does not fit", told, where)


def _recompute(settings: Settings, role: str, backend: Backend) -> Recompute:
    """Which activations of a model's training are computed again."""
    if not settings.flag("recompute_on", role):
        return "none"
    if _kind(settings, role, backend) == "fsdp":
        return "full"
    granularity, modules = (
        settings.text("recompute", role),
        settings.value("recompute_modules", role),
    )
    settings.value("recompute_method", role)
    settings.value("recompute_layers", role)
    if granularity not in ("", "selective", "full"):
        told = f"{settings.where('recompute', role)} is {granularity[:40]!r}"
        settings.refuse(told, "known: selective, full, null")
    if granularity == "selective" and modules not in (None, ["core_attn"]):
        told = f"recomputing {modules} is priced as recomputing attention (core_attn)"
        settings.note("assumed", told, settings.given("recompute_modules", role))
    if not granularity:
        return "none"
    return "selective" if granularity == "selective" else "full"


def _micro_batch(settings: Settings, job: Job, copy: CopyPlacement) -> int:
    """Sequences that all calls of a model compute at once, by its number of tokens."""
    workload, role = job.spec.workload, copy.role
    trains = job.models[role].trainable
    whole = workload.sequences_per_update if trains else workload.num_sequences
    of_rank = max(-(-whole // copy.layout.data_parallel_size), 1)
    tokens, given = settings.whole("train_tokens", role), settings.given("train_tokens", role)
    if tokens is None:
        told = f"{settings.key('train_tokens', role)} is not set: a rank's sequences are one"
        settings.note("assumed", f"{told} micro-batch", given)
        return of_rank
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    if tokens < longest:
        told = (
            f"{settings.where('train_tokens', role)} is {tokens} tokens, and the longest sequence "
            f"{longest}: it goes alone, and takes more memory than the budget says"
        )
        settings.note("contradiction", told, given)
    return min(fitting(workload, tokens), of_rank)
