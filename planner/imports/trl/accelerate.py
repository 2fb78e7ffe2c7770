"""What accelerate is told of a launch: its file, TRL's own files by name, and its arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence

from automap.planner.errors import Reason
from automap.planner.imports.configurations import stem
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import LaunchFile
from automap.planner.imports.shell.values import Field

PREFIX = "accelerate."
_FSDP, _DEEPSPEED = f"{PREFIX}fsdp_config.", f"{PREFIX}deepspeed_config."
OWN: Mapping[str, Mapping[str, str]] = {
    "single_gpu": {"distributed_type": "NO", "num_processes": "8"},
    "multi_gpu": {"distributed_type": "MULTI_GPU", "num_processes": "8"},
    "fsdp1": {
        "distributed_type": "FSDP",
        "num_processes": "8",
        "fsdp_config.fsdp_version": "1",
        "fsdp_config.fsdp_reshard_after_forward": "FULL_SHARD",
    },
    "fsdp2": {
        "distributed_type": "FSDP",
        "num_processes": "8",
        "fsdp_config.fsdp_version": "2",
        "fsdp_config.fsdp_reshard_after_forward": "True",
    },
    **{
        f"zero{stage}": {
            "distributed_type": "DEEPSPEED",
            "num_processes": "8",
            "deepspeed_config.zero_stage": str(stage),
        }
        for stage in (1, 2, 3)
    },
}
"""TRL's own files by name → what they decide of a plan; all have mixed_precision bf16."""
_STAGE = re.compile(r"(?:zero|stage|z)[_\-]?([0-3])", re.IGNORECASE)
SWITCHES = {"--use_deepspeed": "DEEPSPEED", "--use_fsdp": "FSDP", "--multi_gpu": "MULTI_GPU"}
"""Arguments that choose what shards → `distributed_type`."""
ALONE = frozenset(
    {"--cpu", "--quiet", "-q", "--module", "-m", "--no_python", "--same_network", "--debug"}
)
"""Arguments of accelerate's command that no value follows, beside those that choose a kind."""
_TORCHRUN = {
    "nproc-per-node": "processes",
    "nnodes": "nodes",
    "num-gpus": "processes",
    "num-nodes": "nodes",
}


def key_of(name: str) -> str:
    """The key of one of accelerate's arguments, by the section of its file that it is in."""
    name = name.lstrip("-").replace("-", "_")
    if name.startswith("fsdp_"):
        return _FSDP + name
    starts = ("zero", "offload_", "deepspeed_", "gradient_")
    return (_DEEPSPEED if name.startswith(starts) else PREFIX) + name


def take_file(name: str, configs: Mapping[str, LaunchFile], found: Overrides, *, line: int) -> None:
    """The file of that name, or TRL's own, below what was said before."""
    file_stem = stem(name)
    file = configs.get(file_stem)
    if file is not None and isinstance(file.document, dict):
        for given in _of_document(file):
            if given.key not in found.given:
                found.set(given, over=True)
        return
    own = _own_name(file_stem)
    if own is None:
        summary = f"accelerate's file {name[:80]!r} (line {line}) is not among the files"
        found.reasons.append(Reason(summary=summary, remedy="name its file as well"))
        return
    at = Given("", "", found.file, line)
    if own != file_stem:
        found.remark("assumed", f"{name[:80]} is taken to be TRL's own {own}.yaml", at)
    values = {"num_machines": "1", "mixed_precision": "bf16", **OWN[own]}
    for key, value in values.items():
        if PREFIX + key not in found.given:
            found.set(Given(PREFIX + key, value, found.file, line), over=True)


def _own_name(named: str) -> str | None:
    """TRL's own file that a name means: also with deepspeed_ before it, as in its examples."""
    plain = named.lower().removeprefix("deepspeed_").replace("-", "_")
    if plain in OWN:
        return plain
    stage = _STAGE.fullmatch(plain)
    if stage is not None and f"zero{stage[1]}" in OWN:
        return f"zero{stage[1]}"
    return {"fsdp": "fsdp1", "ddp": "multi_gpu"}.get(plain)


def _of_document(file: LaunchFile) -> Iterator[Given]:
    document = file.document if isinstance(file.document, dict) else {}
    for key, value in document.items():
        line = file.lines.get((str(key),), 0)
        if isinstance(value, dict):
            for each, own in value.items():
                where = file.lines.get((str(key), str(each)), line)
                yield Given(f"{PREFIX}{key}.{each}", str(own), file.name, where)
        elif value is not None and value != []:
            yield Given(f"{PREFIX}{key}", str(value), file.name, line)


def of_accelerate(
    words: Sequence[Field], configs: Mapping[str, LaunchFile], found: Overrides
) -> None:
    """The arguments of `accelerate launch` before the program, over those of its file."""
    given = list(_pairs(words))
    for name, value, word in given:
        if name in ("--config_file", "--config-file", "--accelerate_config"):
            take_file(value, configs, found, line=word.line)
    for name, value, word in given:
        if name in SWITCHES:
            kind = Given(f"{PREFIX}distributed_type", SWITCHES[name], word.source, word.line)
            found.set(kind, over=True)
        elif name not in ALONE and "config" not in name:
            key = key_of(name)
            found.set(Given(key, value, word.source, word.line, word.unknown), over=True)


def _pairs(words: Sequence[Field]) -> Iterator[tuple[str, str, Field]]:
    """(argument, its value, the word that has it)."""
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.shown.partition("=")
        if not name.startswith("-"):
            continue
        if name in ALONE or name in SWITCHES or equals or not left:
            yield name, value, word
        else:
            word = left.pop(0)
            yield name, word.shown, word


def of_torchrun(words: Sequence[Field], found: Overrides, gpus_per_node: int) -> None:
    """Processes by torchrun's or DeepSpeed's launcher, which say them per node."""
    told: dict[str, tuple[str, Field]] = {}
    for name, value, word in _pairs(words):
        meant = _TORCHRUN.get(name.lstrip("-").replace("_", "-"))
        if meant is not None:
            told[meant] = value, word
    nodes, at = told.get("nodes", ("1", words[0]))
    nodes = nodes.rpartition(":")[2]
    each, word = told.get("processes", (str(gpus_per_node), at))
    each = str(gpus_per_node) if each in ("gpu", "auto") else each
    found.set(Given(f"{PREFIX}num_machines", nodes, at.source, at.line, at.unknown), over=True)
    total = str(int(each) * int(nodes)) if each.isdecimal() and nodes.isdecimal() else each
    key = f"{PREFIX}num_processes"
    found.set(Given(key, total, word.source, word.line, word.unknown), over=True)
    kind = Given(f"{PREFIX}distributed_type", "MULTI_GPU", at.source, at.line)
    found.set(kind, over=True)


def of_trainer(found: Overrides) -> None:
    """What the trainer's own arguments say of sharding, in place of accelerate's file."""
    deepspeed = found.given.get("--deepspeed")
    if deepspeed is not None and deepspeed.value not in ("None", ""):
        kind = Given(f"{PREFIX}distributed_type", "DEEPSPEED", deepspeed.file, deepspeed.line)
        found.set(kind, over=True)
        stage = _STAGE.search(deepspeed.value.rpartition("/")[2])
        key = f"{_DEEPSPEED}zero_stage"
        if stage is not None and key not in found.given:
            told = f"{deepspeed.value[:60]} is taken to be ZeRO {stage[1]}, by its name"
            found.remark("assumed", told, deepspeed)
            found.set(Given(key, stage[1], deepspeed.file, deepspeed.line))
