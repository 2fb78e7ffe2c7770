"""What a document is, by its fields: who sends another than is wanted learns which it is."""

PLAN, RECORD, PLACEMENT = "a plan", "the record of a plan", "a placement"
REPORT, SPEC, SETTINGS = "the report of a run", "a job spec", "run settings"
_MARKS = (
    (PLAN, ("copies", "iteration_seconds")),
    (RECORD, ("plan",)),
    (PLACEMENT, ("copies",)),
    (REPORT, ("outcome", "calls")),
    (SPEC, ("workload",)),
    (SPEC, ("cluster",)),
    *(
        (SETTINGS, (field,))
        for field in ("data", "functions", "training", "rollout", "checkpoint", "metrics")
    ),
    (SPEC, ("models",)),
)
"""The fields that only this kind of document has together; the first kind that fits counts. Specs
and run settings both have models: last it tells a spec that lacks the rest."""
LOOKS = {
    PLAN: "a plan has copies, calls and iteration_seconds, as automap plan writes it",
    PLACEMENT: "a placement has copies and calls",
    REPORT: "a report is the report.json that automap run writes",
    SPEC: "a job spec has models, workload and cluster",
    SETTINGS: "run settings have data, and mostly functions and training",
}


def kind_of(document: object) -> str | None:
    """What a document was meant to be; None where no field says."""
    if isinstance(document, dict):
        for kind, marks in _MARKS:
            if all(mark in document for mark in marks):
                return kind
    return None


def mark_of(document: object, kind: str) -> str:
    """The fields by which a document is of that kind; empty where it has none of them."""
    marks = next(
        (
            marks
            for name, marks in _MARKS
            if name == kind and isinstance(document, dict) and all(it in document for it in marks)
        ),
        (),
    )
    return " and ".join(f"`{mark}`" for mark in marks)
