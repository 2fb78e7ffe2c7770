"""What runs have taught about a profile: factors on calls, and the seconds between calls.

There is a factor per kind of call and class of model. All that stands in `corrections.json` in the
folder of a measured profile, beside the evidence that it was made of (planner/runs/calibration.py).
A price is the cost model's times its factor, plus the seconds between a call and the next.
"""

from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from automap.planner.documented import Documented

FILE = "corrections.json"
TermKind = Literal["generate", "forward", "train", "transition"]
"""A kind of call; or the reshard before generation, which is part of its call."""
RoleClass = Literal["language", "scalar"]
"""Models that make logits of the vocabulary, and those that make one number of a token."""
CLASS_WEIGHT = 1.0
"""Observations that "a class of models is as the others of its kind" counts for. Chosen."""
PRIOR_WEIGHT = 0.25
"""Observations that "the estimate is right" counts for. Chosen: the ratio of measured to estimated
seconds varies by about 10 % between calls of a kind on one machine, and by 20 to 30 % between
machines (docs/concepts/accuracy.md), so the squares are as one to four or more."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


_CLASSES: dict[TermKind, tuple[RoleClass, ...]] = {
    "generate": ("language",),
    "forward": ("language", "scalar"),
    "train": ("language", "scalar"),
    "transition": ("language",),
}


class _Model(Documented, BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Evidence(_Model):
    """What one run says of one call: seconds predicted and measured."""

    run: str
    """Name of the plan that was run, or of the file that it was read from."""
    call: str
    kind: TermKind
    role_class: RoleClass
    predicted: Positive
    """Seconds by the profile's tables alone, without corrections."""
    measured: Positive
    iterations: Annotated[int, Field(ge=1)]
    """Number of iterations that `measured` is the median of."""

    @property
    def log_ratio(self) -> float:
        """Error of the prediction on a logarithmic scale: ln(measured ÷ predicted)."""
        return log(self.measured / self.predicted)


class BetweenCalls(_Model):
    """What an iteration of one run took beside its calls, which followed one another."""

    run: str
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Seconds of an iteration that are none of its calls': numeric steps, the controller's work."""
    calls: Annotated[int, Field(ge=1)]
    """Number of calls of models; one that trains counts once for each optimizer step."""


class Correction(_Model):
    """The factor on the seconds of one kind of call (or the reshard) and class of models."""

    kind: TermKind
    role_class: RoleClass
    factor: Positive
    observations: Annotated[int, Field(ge=0)]
    """Number of pieces of evidence of this kind and class; those of the kind's other classes count
    as well, but less."""


class Corrections(_Model):
    """All factors of a profile, what lies between calls, and what both were made of."""

    schema_version: Literal[1] = 1
    corrections: list[Correction] = []
    evidence: list[Evidence] = []
    between: list[BetweenCalls] = []

    @property
    def between_calls_seconds(self) -> float:
        """Seconds from a call to the next, the mean of all runs; 0 where nothing is known."""
        return fmean(each.seconds / each.calls for each in self.between) if self.between else 0.0

    def factor(self, kind: TermKind, role_class: RoleClass) -> float:
        """Factor on the seconds of a term; 1 where nothing is known."""
        for each in self.corrections:
            if (each.kind, each.role_class) == (kind, role_class):
                return each.factor
        return 1.0

    def __bool__(self) -> bool:
        return bool(self.corrections or self.between)


NONE = Corrections()


def corrections_of(
    evidence: Sequence[Evidence], between: Sequence[BetweenCalls] = ()
) -> Corrections:
    """Factors from evidence: means of logarithms, drawn towards what is known without them.

    A kind is drawn towards 1, a class of models towards its kind: few observations move little, and
    a class without any has its kind's factor.
    """
    found = []
    for kind in dict.fromkeys(each.kind for each in evidence):
        of_kind = [each for each in evidence if each.kind == kind]
        common = _shrunk([each.log_ratio for each in of_kind], PRIOR_WEIGHT)
        for role_class in _CLASSES[kind]:
            own = [each.log_ratio - common for each in of_kind if each.role_class == role_class]
            factor = exp(common + _shrunk(own, CLASS_WEIGHT))
            found.append(
                Correction(kind=kind, role_class=role_class, factor=factor, observations=len(own))
            )
    return Corrections(corrections=found, evidence=list(evidence), between=list(between))


def _shrunk(values: Sequence[float], prior_weight: float) -> float:
    return sum(values) / (len(values) + prior_weight)


def read_corrections(folder: Path) -> Corrections:
    """Read the corrections in a profile's folder; empty where there is no file.

    Raises:
        ValueError: the file cannot be read as corrections; says why.
    """
    path = folder / FILE
    if not path.exists():
        return NONE
    try:
        return Corrections.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path}: {where}: {first['msg']}") from None


def summary(corrections: Corrections) -> dict[str, float]:
    """Factors by term, as plans name them (`train.language`), and the seconds between calls."""
    factors = {
        f"{each.kind}.{each.role_class}": round(each.factor, 4) for each in corrections.corrections
    }
    between = round(corrections.between_calls_seconds, 6)
    return factors | ({"between_calls_seconds": between} if between else {})
