"""How an export asks for the folder of a model."""

from automap.planner.exports.subject import Subject


def model_of(subject: Subject, role: str) -> str:
    """What a placeholder for a model asks for."""
    named = subject.job.spec.models[role].architecture
    what = named if isinstance(named, str) else "with the sizes of the spec"
    return f"folder of the {role}: {what}"
