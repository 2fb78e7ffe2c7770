"""The findings as lines of a terminal and as a page of the documentation."""

import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from benchmarks.gpu_check.findings import Figure, Finding
from benchmarks.gpu_check.parts import PARTS

PACKAGES = ("torch", "vllm", "megatron-core", "ray", "transformers")


def line(finding: Finding) -> str:
    """A part in the terminal, its figures below it."""
    head = f"{finding.part:9} {finding.state:9} {finding.seconds:6.1f} s  {finding.reason}".rstrip()
    return "\n".join([head, *(f"    {_figure(each)}" for each in finding.figures)])


def page(findings: Sequence[Finding], kind: str, seconds: float) -> str:
    """The page of the documentation."""
    return "\n".join(_lines(findings, kind, seconds)) + "\n"


def _lines(findings: Sequence[Finding], kind: str, seconds: float) -> Iterator[str]:
    titles = {part.name: part.title for part in PARTS}
    yield "# What a GPU showed"
    yield ""
    yield "Written by `make gpu-check`: what runs on CPU cores cannot show of the executor. A part"
    yield "that needs what was not there is named as not run; it has not passed."
    yield ""
    yield f"{_machine(kind)}; {datetime.now(UTC):%Y-%m-%d}; {seconds / 60:.1f} min in all."
    yield ""
    yield "| part | | seconds |"
    yield "|---|---|---|"
    for each in findings:
        reason = f": {each.reason}" if each.reason else ""
        yield f"| {titles[each.part]} | {each.state}{reason} | {each.seconds:.0f} |"
    for each in findings:
        if each.figures:
            yield ""
            yield f"## {titles[each.part]}"
            yield ""
            yield "| | measured | limit |"
            yield "|---|---|---|"
            for figure in each.figures:
                yield f"| {figure.what} | {_value(figure)} | {_limit(figure)} |"


def _machine(kind: str) -> str:
    import torch

    software = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    if kind == "cpu":
        return f"A rehearsal on CPU cores ({platform.machine()}); {software}"
    count, found = torch.cuda.device_count(), torch.cuda.get_device_properties(0)
    memory = f"{found.total_memory / 2**30:.0f} GiB"
    return f"{count} × {found.name} ({memory}), CUDA {torch.version.cuda}; {software}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _figure(figure: Figure) -> str:
    limit = _limit(figure)
    held = "" if not limit else f" ({limit})" if figure.holds else f" ({limit}: BROKEN)"
    return f"{figure.what}: {_value(figure)}{held}"


def _value(figure: Figure) -> str:
    return f"{figure.value:.3g} {figure.unit}".strip()


def _limit(figure: Figure) -> str:
    least = [] if figure.at_least is None else [f"at least {figure.at_least:.3g}"]
    most = [] if figure.at_most is None else [f"at most {figure.at_most:.3g}"]
    return ", ".join(least + most)
