"""The document: claims of all studies first, then a section for each."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Formatter

from benchmarks.reproduction.app import APP
from benchmarks.reproduction.deepspeed_chat import DEEPSPEED_CHAT
from benchmarks.reproduction.hybridflow_generation import GENERATION
from benchmarks.reproduction.hybridflow_placement import PLACEMENT, UNEQUAL_PLACEMENT
from benchmarks.reproduction.hybridflow_systems import SYSTEMS_STUDY
from benchmarks.reproduction.hybridflow_transition import TRANSITION
from benchmarks.reproduction.real import REAL
from benchmarks.reproduction.study import TOLERANCE, Claim, Report, Study, percent, table

STUDIES = (
    PLACEMENT,
    UNEQUAL_PLACEMENT,
    GENERATION,
    TRANSITION,
    DEEPSPEED_CHAT,
    SYSTEMS_STUDY,
    APP,
    REAL,
)
TEXTS = Path(__file__).parent / "texts"


def document(reports: Mapping[str, Report]) -> str:
    """The whole of docs/reproduction.md."""
    claims = [claim for study in STUDIES for claim in reports[study.name].claims]
    values = {
        "tolerance": percent(TOLERANCE),
        "agreeing": str(sum(claim.agrees for claim in claims)),
        "claims": str(len(claims)),
        "summary": _summary(reports),
    }
    parts = [filled("introduction", values)]
    parts += [section(study, reports[study.name]) for study in STUDIES]
    return "\n".join(parts)


def _summary(reports: Mapping[str, Report]) -> str:
    rows = []
    for study in STUDIES:
        claims = reports[study.name].claims
        agreeing = sum(claim.agrees for claim in claims)
        anchor = study.title.lower().replace(",", "").replace("’", "").replace(" ", "-")
        rows.append([f"[{study.title}](#{anchor})", study.source, f"{agreeing} of {len(claims)}"])
    return table(["study", "published in", "findings that agree"], rows)


def section(study: Study, report: Report) -> str:
    """A study: where it is from, its claims, then its text with the numbers filled in."""
    claims = _claims(report.claims)
    text = filled(study.name, report.values)
    return f"## {study.title}\n\n{study.source}.\n\n{claims}\n\n{text}"


def _claims(claims: Iterable[Claim]) -> str:
    rows = [
        [claim.what, claim.published, claim.predicted, "yes" if claim.agrees else "no"]
        for claim in claims
    ]
    return table(["finding", "published", "predicted", "agrees"], rows)


def filled(name: str, values: Mapping[str, str]) -> str:
    """A text with its numbers.

    Raises:
        ValueError: the text names a value that the study does not have, or leaves one out.
    """
    text = (TEXTS / f"{name}.md").read_text()
    named = {field for _, field, _, _ in Formatter().parse(text) if field}
    if named != set(values):
        odd = ", ".join(sorted(named ^ set(values)))
        raise ValueError(f"texts/{name}.md and the values of the study differ in: {odd}")
    return text.format_map(values)
