"""Engines and sizes as an AReaL launch says them: `fsdp:d8`, `megatron:(attn:d2t4|ffn:d1e8)`."""

import re
from dataclasses import dataclass

from automap.planner.imports.pools import MAX_GPUS
from automap.planner.imports.settings import Settings

TRAINING = ("fsdp", "megatron", "archon")
GENERATION = ("vllm", "sglang")
_SIZES = r"(?:[a-z][1-9][0-9]*)+"
_ONE = re.compile(rf"(\w+)(?:\[\w+\])?:({_SIZES})")
_TWO = re.compile(rf"(\w+):\(?attn:({_SIZES})\|ffn:({_SIZES})\)?")
_SIZE = re.compile(r"([a-z])([0-9]+)")


@dataclass(frozen=True, slots=True)
class Backend:
    """What runs a model, and its sizes."""

    engine: str
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int | None = None
    """Size over which an expert is split; None: the launch does not say."""

    @property
    def num_gpus(self) -> int:
        """GPUs in all."""
        return self.data * self.tensor * self.pipeline * self.context


def backend_of(settings: Settings, role: str) -> Backend:
    """The backend of a role; one that is missing or wrong is kept as a reason."""
    known = GENERATION if role == "rollout" else TRAINING
    decision = "engine_backend" if role == "rollout" else "backend"
    text = settings.text(decision, role).replace(" ", "")
    if not text:
        if not settings.reasons:
            key = settings.key(decision, role)
            settings.ask(f"{key} is not set", f"--set {key}=ENGINE:SIZES")
        return Backend(known[0])
    one, two = _ONE.fullmatch(text), _TWO.fullmatch(text)
    match = one or two
    if match is None or match[1] not in known:
        shown = f"{settings.where(decision, role)} is {text[:60]!r}"
        settings.refuse(shown, f"known: {', '.join(known)}, with sizes as in {known[0]}:d4t2")
        return Backend(known[0])
    sizes = "dtp" if role == "rollout" else "dtpce" if one else "dtpc"
    whole, experts = _read(match[2]), _read(two[3]) if two else {}
    if not set(whole) <= set(sizes) or not set(experts) <= set("dpte"):
        told = f"{settings.where(decision, role)} is {text[:60]!r}"
        settings.refuse(told, f"sizes of {match[1]} are {', '.join(sizes)}")
        return Backend(match[1])
    backend = Backend(
        match[1],
        data=whole.get("d", 1),
        tensor=whole.get("t", 1),
        pipeline=whole.get("p", 1),
        context=whole.get("c", 1),
        expert=experts.get("e", whole.get("e", 1)),
        expert_tensor=experts.get("t", 1) if two else None,
    )
    return _checked(settings, decision, role, backend, experts)


def _checked(
    settings: Settings, decision: str, role: str, backend: Backend, experts: dict[str, int]
) -> Backend:
    """The backend, without sizes that AReaL itself refuses."""
    where = settings.where(decision, role)
    if backend.num_gpus > MAX_GPUS:
        settings.refuse(f"{where}: {backend.num_gpus} GPUs", f"at most {MAX_GPUS} GPUs are priced")
        return Backend(backend.engine)
    if backend.engine == "fsdp" and backend.pipeline * backend.expert > 1:
        settings.refuse(f"{where}: pipeline and expert sizes", "fsdp has sizes d, t and c")
        return Backend(backend.engine, data=backend.num_gpus)
    each = backend.expert * backend.pipeline * (backend.expert_tensor or 1)
    stated = experts.get("d", backend.num_gpus // each) * each
    stages = experts.get("p", backend.pipeline)
    if backend.expert > 1 and (backend.num_gpus % each or stated != backend.num_gpus):
        told = f"{where}: experts on {stated} GPUs, attention on {backend.num_gpus}"
        settings.refuse(told, "sizes of both that multiply to the same")
    elif stages != backend.pipeline:
        told = f"{where}: pipelines of {backend.pipeline} and {stages} stages"
        settings.refuse(told, "the same pipeline size for both")
    return backend


def _read(text: str) -> dict[str, int]:
    return {name: int(size) for name, size in _SIZE.findall(text)}
