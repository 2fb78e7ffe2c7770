"""What the catalogue holds, and the published schemas."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from automap.executor.settings import RunSettings
from automap.planner import catalogue
from automap.planner.catalogue import CatalogueModel, GpuType
from automap.planner.frameworks import Framework, framework, framework_names
from automap.planner.plan import placement_json_schema
from automap.planner.spec import job_spec_json_schema
from automap.planner.targets import ANY, TARGETS
from automap.service.cli.options.plans import ListingArguments, SchemaArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import MEDIUM_COLUMNS, plain_table

ALIAS_COLUMNS = 120
"""From this width on the other name of a model fits beside its sizes."""
GPU_HEADERS = (
    "memory\nGiB",
    "memory\nTB/s",
    "bf16\nTFLOPS",
    "per\nnode",
    "linked\nGPUs",
    "link\nGB/s",
    "network\nGB/s",
    "USD per\nGPU-hour",
)
GPU_NOTES = (
    "link: between the linked GPUs, by NVLink, or by PCIe where there is none; network: across "
    "nodes. Both per GPU and direction; a spec overrides them with intra_node_bytes_per_second and "
    "inter_node_bytes_per_second (1 GB/s = 1e9).\n* fp16: the GPU does not compute in bf16."
)
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "job-spec": job_spec_json_schema,
    "placement": placement_json_schema,
    "run-settings": RunSettings.model_json_schema,
}


def print_schema(given: SchemaArguments) -> None:
    """Print the JSON Schema of a job spec or a placement.

    Raises:
        BadInputError: there is no schema of that name.
    """
    if given.what not in SCHEMAS:
        raise BadInputError(f"no schema {given.what!r} (valid: {', '.join(SCHEMAS)})")
    console.write_json(json.dumps(SCHEMAS[given.what](), indent=2))


def list_models(given: ListingArguments) -> None:
    """Architectures with their sizes and shapes.

    Raises:
        BadInputError: none has that name, or has it in its own.
    """
    entries = [each for each in catalogue.architectures().values() if _has(each, given.name)]
    if given.name is not None and not entries:
        if (found := catalogue.find_model(given.name)) is None:
            raise BadInputError(f"no model {given.name[:100]!r} (automap models lists all)")
        entries = [found]
    if given.json:
        _write_rows(
            entry.model_dump(mode="json") | {"num_parameters": entry.architecture.num_parameters()}
            for entry in entries
        )
        return
    table = _table("model")
    for header in ("params\n10⁹", "active\n10⁹", "layers", "hidden", "heads", "KV", "experts"):
        table.add_column(header, justify="right", no_wrap=True)
    out = console.stdout_console()
    if out.width >= ALIAS_COLUMNS:
        table.add_column("also known as", no_wrap=True)
    for entry in entries:
        sizes = entry.architecture
        table.add_row(
            Text(entry.name),
            _billions(sizes.num_parameters()),
            _billions(sizes.active_parameters()) if sizes.num_experts else "",
            str(sizes.num_layers),
            str(sizes.hidden_size),
            str(sizes.num_attention_heads),
            str(sizes.num_key_value_heads),
            str(sizes.num_experts or ""),
            *([_first_alias(entry.aliases)] if out.width >= ALIAS_COLUMNS else []),
        )
    out.print(table)


def list_gpus(given: ListingArguments) -> None:
    """GPU types with their memory, speeds and what their node types cost.

    Raises:
        BadInputError: none has that name, or has it in its own.
    """
    entries = [each for each in catalogue.gpu_types().values() if _has(each, given.name)]
    if given.name is not None and not entries:
        lists = f"automap gpus lists all; {catalogue.ANOTHER_GPU}"
        raise BadInputError(f"no GPU type {given.name[:100]!r} ({lists})")
    if given.json:
        _write_rows(
            entry.model_dump(mode="json")
            | {"node_type": catalogue.node_type(entry.node).model_dump(mode="json")}
            for entry in entries
        )
        return
    out = console.stdout_console()
    table = _table("GPU")
    for header in GPU_HEADERS:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("also known as")
    num_aliases = 2 if out.width >= MEDIUM_COLUMNS else 1
    for entry in entries:
        table.add_row(*_gpu_cells(entry), _aliases(entry.aliases, most=num_aliases))
    out.print(table)
    out.print(Text(GPU_NOTES, style="dim"))


def list_targets(*, as_json: bool) -> None:
    """What plans are searched for, and what frameworks among it cannot be told."""
    described = {name: framework(name) for name in framework_names()}
    names: dict[str, str] = {
        target.name: target.summary for target in TARGETS.values() if target is not ANY
    }
    names |= {name: each.summary for name, each in described.items() if name not in names}
    if as_json:
        _write_rows(
            _target_row(name, summary, described.get(name)) for name, summary in names.items()
        )
        return
    out = console.stdout_console()
    for name, summary in names.items():
        out.print(Text.assemble((name, "bold"), f"  {summary}"))
        if name in described:
            table = plain_table()
            table.add_column("it cannot be told", overflow="fold", ratio=3)
            table.add_column("instead", overflow="fold", ratio=2)
            for limit in described[name].limits:
                table.add_row(Text(limit.what), Text(limit.instead))
            out.print(table)


def _target_row(name: str, summary: str, described: Framework | None) -> dict[str, object]:
    limits = [
        {"name": limit.name, "what": limit.what, "instead": limit.instead}
        for limit in (described.limits if described else ())
    ]
    return {"name": name, "summary": summary, "limits": limits}


def _has(entry: GpuType | CatalogueModel, wanted: str | None) -> bool:
    """Whether the text is in its name or an alias; None is in all."""
    names = (entry.name, *entry.aliases)
    return wanted is None or any(wanted.lower() in name.lower() for name in names)


def _write_rows(rows: Iterable[dict[str, Any]]) -> None:
    console.write_json(json.dumps(list(rows), indent=2))


def _gpu_cells(gpu: GpuType) -> list[str | Text]:
    node = catalogue.node_type(gpu.node)
    return [
        Text(gpu.name),
        formats.gib(gpu.memory_bytes),
        f"{gpu.memory_bytes_per_second / 1e12:.2f}",
        _tera_flops(gpu.bf16_flops_per_second) + ("" if gpu.has_bf16 else "*"),
        str(node.gpus_per_node),
        str(node.nvlink_domain_gpus),
        _giga_bytes(node.intra_node_bytes_per_second),
        _giga_bytes(node.inter_node_bytes_per_second),
        formats.price(node.price_per_gpu_hour),
    ]


def _table(name: str) -> Table:
    table = plain_table()
    table.add_column(name, no_wrap=True)
    return table


def _aliases(names: tuple[str, ...], *, most: int) -> Text:
    """The shortest other names, where few have room those without blanks; --json has them all."""
    fitting = [name for name in names if most > 1 or " " not in name]
    return Text(", ".join(sorted(fitting, key=len)[:most]), style="dim")


def _first_alias(names: tuple[str, ...]) -> Text:
    return Text(names[0] if names else "", style="dim")


def _billions(parameters: int) -> str:
    value = parameters / 1e9
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _giga_bytes(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g}"


def _tera_flops(flops_per_second: float) -> str:
    value = flops_per_second / 1e12
    return formats.count(value) if value >= 10 else f"{value:.2g}"
