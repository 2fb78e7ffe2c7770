"""What the planner knows by name: GPU types, node types and model architectures.

The data are the TOML files beside this module; docs/guides/catalogue.md says how to add to them.
"""

import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from automap.planner.catalogue.architecture import RARE_FIELDS as RARE_FIELDS
from automap.planner.catalogue.architecture import ModelArchitecture as ModelArchitecture
from automap.planner.catalogue.architecture import layers_by_mixer as layers_by_mixer
from automap.planner.catalogue.hardware import GpuType as GpuType
from automap.planner.catalogue.hardware import NodeType as NodeType
from automap.planner.catalogue.huggingface import load_config as load_config
from automap.planner.catalogue.names import normalised as normalised
from automap.planner.catalogue.names import of_any_variant, unambiguous, with_fewer_variants
from automap.planner.errors import SpecError
from automap.planner.units import GIB, MIB

MAX_QUOTED_LENGTH = 100
"""Characters of a name that are read. It is more than any name has, so that a whole text sent in
place of a name is cut before it is used."""

GPU_KIND = "GPU type"
ANOTHER_GPU = (
    'docs/guides/catalogue.md, "Adding a GPU", says where the figures of another are given'
)
"""What to do about a GPU that is not there."""


class CatalogueModel(BaseModel):
    """A named architecture, with the published counts that its own are tested against."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    aliases: tuple[str, ...] = ()
    architecture: ModelArchitecture
    published_parameters: int = Field(gt=0)
    published_active_parameters: int | None = Field(default=None, gt=0)
    """Parameters that one token passes, as published and usually rounded; only for mixtures of
    experts."""
    source: str


_Entry = TypeVar("_Entry", GpuType, NodeType, CatalogueModel)


def gpu_type(name: str, *, field: str = "gpu") -> GpuType:
    """The GPU type of that name or alias.

    Raises:
        SpecError: the catalogue has no such GPU; names `field` and the closest names.
    """
    return gpu_types()[_canonical(name, _gpu_names(), kind=GPU_KIND, field=field)]


def node_type(name: str, *, field: str = "node") -> NodeType:
    """The node type of that name.

    Raises:
        SpecError: the catalogue has no such node type; names `field` and the closest names.
    """
    return node_types()[_canonical(name, _node_names(), kind="node type", field=field)]


def architecture(name: str, *, field: str = "architecture") -> ModelArchitecture:
    """The architecture of the model that `find_model` finds.

    Raises:
        SpecError: the catalogue has no such model; names `field` and the closest names.
    """
    found = find_model(name)
    if found is None:
        wanted = of_any_variant(name[: MAX_QUOTED_LENGTH + 1])
        raise _unknown(name, wanted, _model_variants(), kind="model", field=field)
    return found.architecture


def find_model(name: str) -> CatalogueModel | None:
    """The model of that name or alias, for instance a Hugging Face id; None: there is none.

    An organisation before the name, and -Instruct, -Chat, -Base or -hf after it, may be there or
    not: the architecture is the same.
    """
    read = name[: MAX_QUOTED_LENGTH + 1]
    known, spellings = _model_names(), [normalised(read), *with_fewer_variants(read)]
    exact = next((known[each] for each in spellings if each in known), None)
    found = exact or _model_variants().get(of_any_variant(read))
    return None if found is None else architectures()[found]


@cache
def gpu_types() -> Mapping[str, GpuType]:
    """All GPU types by name, in catalogue order."""
    return _by_name(GpuType.model_validate(_in_bytes(row)) for row in _rows("gpus.toml", "gpu"))


@cache
def node_types() -> Mapping[str, NodeType]:
    """All node types by name, in catalogue order."""
    return _by_name(NodeType.model_validate(_in_bytes(row)) for row in _rows("nodes.toml", "node"))


@cache
def architectures() -> Mapping[str, CatalogueModel]:
    """All models by name, file by file in catalogue order."""
    return _by_name(
        CatalogueModel.model_validate(row)
        for path in sorted(_data_files())
        if path.startswith("models/")
        for row in _rows(path, "model")
    )


@cache
def catalogue_version() -> str:
    """Twelve hexadecimal digits that change whenever a data file does."""
    return _version({path: file.read_bytes() for path, file in _data_files().items()})


def _version(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(contents.items()):
        digest.update(f"{path} {len(content)} ".encode() + content)
    return digest.hexdigest()[:12]


def _data_files() -> dict[str, Traversable]:
    """The TOML files by path relative to this folder."""
    root = files("automap.planner.catalogue")
    top = {file.name: file for file in root.iterdir()}
    models = {f"models/{file.name}": file for file in (root / "models").iterdir()}
    return {path: file for path, file in (top | models).items() if path.endswith(".toml")}


def _rows(path: str, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tomllib.loads(_data_files()[path].read_text(encoding="utf-8"))[
        table
    ]
    return rows


def _in_bytes(row: dict[str, Any]) -> dict[str, Any]:
    """The row with memory sizes in bytes; the data files use the units of data sheets."""
    converted = dict(row)
    if "memory_mib" in converted:
        converted["memory_bytes"] = converted.pop("memory_mib") * MIB
    if "host_memory_gib" in converted:
        converted["host_memory_bytes"] = converted.pop("host_memory_gib") * GIB
    return converted


def _by_name(entries: Iterable[_Entry]) -> Mapping[str, _Entry]:
    return MappingProxyType({entry.name: entry for entry in entries})


@cache
def _gpu_names() -> Mapping[str, str]:
    return _names(gpu_types().values())


@cache
def _node_names() -> Mapping[str, str]:
    return MappingProxyType({normalised(name): name for name in node_types()})


@cache
def _model_names() -> Mapping[str, str]:
    return _names(architectures().values())


@cache
def _model_variants() -> Mapping[str, str]:
    # A variant with sizes of its own is not meant by the name that it shares with the others.
    return unambiguous(
        (of_any_variant(spelling), entry.name)
        for entry in architectures().values()
        if of_any_variant(entry.name) not in architectures().keys() - {entry.name}
        for spelling in (entry.name, *entry.aliases)
    )


def _names(entries: Iterable[GpuType | CatalogueModel]) -> Mapping[str, str]:
    """Map every normalised spelling to the entry's name."""
    return MappingProxyType(
        {
            normalised(spelling): entry.name
            for entry in entries
            for spelling in (entry.name, *entry.aliases)
        }
    )


def _canonical(name: str, names: Mapping[str, str], *, kind: str, field: str) -> str:
    wanted = normalised(name[: MAX_QUOTED_LENGTH + 1])
    if wanted not in names:
        raise _unknown(name, wanted, names, kind=kind, field=field)
    return names[wanted]


def _unknown(
    name: str, wanted: str, names: Mapping[str, str], *, kind: str, field: str
) -> SpecError:
    """The error of a name that no entry has, with the closest names, or all where none is close."""
    near = names
    if kind == GPU_KIND:
        # Another number is another GPU, whose memory is another: 4090 is no a6000.
        number = _number_of(wanted)
        near = {spelling: each for spelling, each in names.items() if _number_of(each) == number}
    close = difflib.get_close_matches(wanted, near, n=5, cutoff=0.5)
    suggestions = list(dict.fromkeys(names[match] for match in close))
    remedy = (
        f"did you mean {' or '.join(suggestions)}?"
        if suggestions
        else f"known: {', '.join(dict.fromkeys(names.values()))}"
    )
    if kind == GPU_KIND:
        remedy += f"{'' if suggestions else ';'} {ANOTHER_GPU}"
    return SpecError(field, f"the catalogue has no {kind} {_shortened(name)!r}", remedy=remedy)


def _number_of(gpu: str) -> str:
    """The first number in the name of a GPU, by which its vendor tells it from others."""
    found = re.search(r"[0-9]+", gpu)
    return found[0] if found else ""


def _shortened(name: str) -> str:
    """The name, cut where a caller sent a whole text in its place."""
    return name if len(name) <= MAX_QUOTED_LENGTH else name[:MAX_QUOTED_LENGTH] + "…"
