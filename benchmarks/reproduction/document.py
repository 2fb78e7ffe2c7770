"""The document: claims of all studies first, then a section for each."""

from collections.abc import Iterable, Mapping, Sequence
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


def document(reports: Mapping[str, Report], studies: Sequence[Study] = STUDIES) -> str:
    """The whole of docs/internals/reproduction.md."""
    claims = [claim for study in studies for claim in reports[study.name].claims]
    points = [claim.agreeing for claim in claims]
    values = {
        "tolerance": percent(TOLERANCE),
        "agreeing_points": str(sum(agreeing for agreeing, _ in points)),
        "points": str(sum(count for _, count in points)),
        "agreeing": str(sum(claim.agrees for claim in claims)),
        "claims": str(len(claims)),
        "summary": _summary(reports, studies),
    }
    parts = [filled("introduction", values)]
    parts += [section(study, reports[study.name]) for study in studies]
    return "\n".join(parts)


def _summary(reports: Mapping[str, Report], studies: Sequence[Study]) -> str:
    rows = []
    for study in studies:
        claims = reports[study.name].claims
        counts = [claim.agreeing for claim in claims]
        points = f"{sum(n for n, _ in counts)} of {sum(n for _, n in counts)}"
        agreeing = f"{sum(claim.agrees for claim in claims)} of {len(claims)}"
        rows.append([f"[{study.title}](#{_anchor(study)})", study.source, agreeing, points])
    return table(["study", "published in", "findings that agree", "points that agree"], rows)


def _anchor(study: Study) -> str:
    """As GitHub makes it of the heading."""
    return "".join(c for c in study.title.lower() if c.isalnum() or c in " -").replace(" ", "-")


def section(study: Study, report: Report) -> str:
    """A study: where it is from, its claims, then its text with the numbers filled in."""
    claims = _claims(report.claims)
    text = filled(study.name, report.values)
    machines = f"*Stated*: {study.hardware.stated}. *Not stated*: {study.hardware.unstated}."
    return f"## {study.title}\n\n{study.source}.\n\n{machines}\n\n{claims}\n\n{text}"


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
