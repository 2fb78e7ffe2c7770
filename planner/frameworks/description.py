"""What one version of a framework can be told: its keys, limits and pitfalls, read from TOML."""

import difflib
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from automap.planner.errors import SpecError

ENGINES = ("megatron", "fsdp")
"""Kinds of training engines, by the names that a copy's `engine` has."""
TYPES = ("flag", "switch", "whole", "number", "numbers", "word", "text", "list")
"""What values are; a flag is written without one where it is true, and else not at all, a switch
with True or False."""
JOB = "job"
"""In place of a role where a setting is of the whole job."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One decision of a plan, and the key that says it."""

    decision: str
    about: str
    """What is decided, in words."""
    keys: dict[str, str]
    """Role, or `job` → key; one that begins with + is not in the framework's own files."""
    default: str = ""
    """What the framework does where the key is left out; empty: it must be given."""
    unit: str = ""
    engine: str | None = None
    """Kind of training engine that has it; None: every one."""
    note: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    """Role → what it does where the key is left out, for roles that `default` says in words."""
    follows: dict[str, str] = field(default_factory=dict)
    """Role → key whose value the role's own takes where it is left out."""
    type: str = ""
    """One of TYPES; empty: values are written as they are."""
    group: str = ""
    """Group of the launch's settings that it is written in, where these are in groups."""

    def key(self, role: str = JOB) -> str:
        """The key for a role; one of the whole job holds for every role."""
        return self.keys[role] if role in self.keys else self.keys[JOB]

    def is_of(self, role: str) -> bool:
        """Whether it says something of a role."""
        return role in self.keys or JOB in self.keys


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that a plan may decide and the framework cannot be told."""

    name: str
    what: str
    """What cannot be said."""
    instead: str
    """What the framework can do in its place."""
    unchecked: bool = False
    """Its own checks accept it, although it does something else or fails in the run."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework of one version."""

    name: str
    version: str
    summary: str
    entry: str
    """Python module that is started."""
    beside: str
    """Versions that it is released with, in words."""
    log: str
    """What of a run that was exported to it `calibrate` reads, in words."""
    settings: tuple[Setting, ...]
    limits: tuple[Limit, ...]
    algorithms: dict[str, str] = field(default_factory=dict)
    """Algorithm that it has → what it calls the estimate of advantages."""
    rollout_engines: tuple[str, ...] = ("vllm", "sglang")
    """Software that generates, of which it is told the bytes of the cache or their share."""
    engines: tuple[str, ...] = ENGINES
    """Kinds of training engines that it has."""
    shardings: tuple[str, ...] = ("none", "optimizer")
    """Ways in which its Megatron keeps a model that trains on several replicas."""
    fsdp_shardings: tuple[str, ...] = ("gradient", "full")
    """Ways in which its FSDP keeps a model that trains on several replicas."""
    fsdp_sizes: tuple[str, ...] = ("context_parallel_size",)
    """Parallel sizes beside the data ranks' that its FSDP is told."""
    whole_budgets: bool = False
    """Micro-batches of so many tokens are counted before context ranks share them."""
    fills_micro_batches: bool = False
    """Micro-batches are best told as numbers of tokens, which it fills evenly, as it is priced."""
    even_micro_batches: tuple[str, ...] = ()
    """Calls, train or forward, whose micro-batches it refuses where they leave a remainder."""
    precisions: tuple[str, ...] = ("bf16", "fp16")
    """Precisions in which it trains."""
    rollout_precisions: tuple[str, ...] = ("fp8",)
    """Precisions beside training's in which it generates."""
    packs_nodes: bool = False
    """Ray packs the GPUs that a launch asks for onto nodes: none says how many these have."""
    swaps_weights_for: tuple[str, ...] = ()
    """What it scores by other weights put in the place of the actor's, which wait on the host:
    `old_log_probs` (apart, for further mini-batches) or `reference`."""
    engine_names: dict[str, str] = field(default_factory=dict)
    """What it calls a kind of training engine → what copies call it."""
    engine_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind of training engine → what keys of it alone have in their names."""
    sequences_of_replicas: bool = False
    """What an engine runs at once is limited for each replica of its attention by itself."""
    even_over_gpus: tuple[str, ...] = ()
    """Kinds of training engines for which the GPUs of a role divide the sequences of a batch."""
    adds_keys: bool = False
    """A key that a launch's configuration lacks is given with a + on the command line."""
    without_effect: dict[str, str] = field(default_factory=dict)
    """Key that is accepted and ignored → what is read in its place."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Key of an earlier version that is still read → its name now. One that ends in a dot is a
    section."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Key or section of an earlier version that is gone → what took its place."""
    unpriced: dict[str, str] = field(default_factory=dict)
    """Pattern of keys that change time or memory, and that no plan decides → what they are."""
    unpriced_off: dict[str, str] = field(default_factory=dict)
    """Likewise, of switches that are on where they are left out: what it is to have them off."""
    saves_memory: dict[str, str] = field(default_factory=dict)
    """Likewise, of keys with which a launch needs less memory than its price says."""
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    """Key that no plan decides → its `type`, and its `default` where it is left out."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """What begins keys that no end of a command says → where they are said."""
    other_keys: tuple[str, ...] = ()
    """Patterns of keys that decide nothing that a plan has."""
    assumptions: tuple[str, ...] = ()
    """What prices of a plan take for granted and the framework may do otherwise."""

    @property
    def target(self) -> str:
        """The name by which users ask for it: `verl@0.9.1`."""
        return f"{self.name}@{self.version}"

    def setting(self, decision: str, *, role: str = JOB, engine: str | None = None) -> Setting:
        """The setting of a decision about a role, on a kind of engine.

        Raises:
            KeyError: the description has none, or several.
        """
        found = [
            each
            for each in self.settings
            if each.decision == decision and each.is_of(role) and each.engine in (None, engine)
        ]
        if len(found) != 1:
            raise KeyError(f"{self.target}: {len(found)} settings of {decision} for {role}")
        return found[0]

    def is_switch(self, key: str) -> bool:
        """Whether the key is followed by True or False."""
        return any(each.type == "switch" and key in each.keys.values() for each in self.settings)

    def knows(self, decision: str, *, role: str = JOB, engine: str | None = None) -> bool:
        """Whether it can be told a decision about a role at all."""
        return any(
            each.decision == decision and each.is_of(role) and each.engine in (None, engine)
            for each in self.settings
        )

    def limit(self, name: str) -> Limit:
        """The limit of that name.

        Raises:
            KeyError: the description has none.
        """
        found = next((each for each in self.limits if each.name == name), None)
        if found is None:
            raise KeyError(f"{self.target} has no limit {name}")
        return found


def framework_names() -> tuple[str, ...]:
    """Every framework that is described, as `name@version`."""
    return tuple(sorted(_documents()))


def framework(target: str, *, option: str = "target") -> Framework:
    """The framework of that name and version, or of that name and the version that is described.

    Raises:
        SpecError: none is described, with those that are, the nearest first.
    """
    names = framework_names()
    target = next((name for name in names if name.partition("@")[0] == target), target)
    if target in names:
        return _read(target)
    near = difflib.get_close_matches(target, names, n=len(names), cutoff=0.0)
    raise SpecError(option, f"unknown target {target[:80]!r}", remedy=f"known: {', '.join(near)}")


@cache
def _documents() -> dict[str, Traversable]:
    folder = files("automap.planner.frameworks")
    return {
        "@".join(entry.name.removesuffix(".toml").rsplit("-", 1)): entry
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }


@cache
def _read(target: str) -> Framework:
    document: dict[str, Any] = tomllib.loads(_documents()[target].read_text(encoding="utf-8"))
    settings = tuple(Setting(**each) for each in document.pop("settings"))
    limits = tuple(Limit(**each) for each in document.pop("limits"))
    for name in [name for name, found in document.items() if isinstance(found, list)]:
        document[name] = tuple(document[name])
    marks = document.get("engine_keys", {})
    document["engine_keys"] = {name: tuple(found) for name, found in marks.items()}
    return Framework(**document, settings=settings, limits=limits)
