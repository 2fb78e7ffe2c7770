"""What people say of plans and jobs: a name, labels and notes; and how they find them again."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from automap.service.errors.fields import ONE_LINE_PATTERN, PRINTED_PATTERN
from automap.service.schemas.access import Owner
from automap.service.schemas.base import ApiModel, PageQuery

LABEL_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
MAX_LABELS = 32
LabelKey = Annotated[str, StringConstraints(pattern=rf"^{LABEL_KEY}$")]
LabelValue = Annotated[str, StringConstraints(pattern=rf"^{LABEL_VALUE}$")]
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Field(
        max_length=MAX_LABELS,
        description="Keys and values of at most 63 letters, digits, - _ . (keys also /), which "
        "begin and end with a letter or digit",
    ),
]
Title = Annotated[str, Field(min_length=1, max_length=200, pattern=ONE_LINE_PATTERN)]
Notes = Annotated[str, Field(max_length=10_000, pattern=PRINTED_PATTERN)]


class Description(ApiModel):
    """What a plan or job is called, whose it is, and what was noted of it."""

    name: str = Field(default="", description="The spec's name, unless it was renamed")
    owner: str = Field(default="local", description="Who posted it, by the API key")
    labels: dict[str, str] = Field(default={})
    notes: str | None = None


class DescriptionPatch(ApiModel):
    """A merge patch (RFC 7396): what is left out stays, null takes away."""

    name: Title | None = Field(default=None, description="Null: the spec's name again")
    labels: Annotated[dict[LabelKey, LabelValue | None], Field(max_length=2 * MAX_LABELS)] = Field(
        default={}, description="Those named are set, or with null taken off; others stay"
    )
    notes: Notes | None = None
    owner: Owner | None = Field(
        default=None, description="Whose it is from now on, its costs too; needs the scope `admin`"
    )

    @field_validator("owner")
    @classmethod
    def _somebody(cls, given: str | None) -> str:
        if given is None:
            raise ValueError("it is always somebody's: give an owner, or leave it out")
        return given


def _known_label(text: str) -> str:
    key, colon, _ = text.partition(":")
    if not key or len(text) > 128 or (colon and ":" in text[len(key) + 1 :]):
        raise ValueError("write key, or key:value")
    return text


def _whole_label(text: str) -> str:
    if not re.fullmatch(rf"{LABEL_KEY}:{LABEL_VALUE}", text):
        raise ValueError("write key:value")
    return text


NewLabel = Annotated[str, AfterValidator(_whole_label)]


class NewDescription(ApiModel):
    """What is said of a plan as it is made, beside its spec; its owner is that of the key."""

    name: Title | None = Field(default=None, description="Default: the spec's name")
    label: Annotated[list[NewLabel], Field(max_length=MAX_LABELS)] = Field(
        default=[], description="`key:value`; may be repeated"
    )
    notes: Notes | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels by their keys; of two with the same the last."""
        return dict(label.split(":", 1) for label in self.label)


LabelFilter = Annotated[str, Field(pattern=PRINTED_PATTERN), AfterValidator(_known_label)]
ListFormat = Literal["json", "csv"]


class ListQuery(PageQuery):
    """How plans and jobs are found; all that is given holds together."""

    q: Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTED_PATTERN)] | None = Field(
        default=None,
        description="Words that are all in the name, owner, labels, notes, algorithm or models, "
        "whatever their case",
    )
    label: Annotated[list[LabelFilter], Field(max_length=MAX_LABELS)] = Field(
        default=[], description="`key:value`, or `key` with any value; may be repeated"
    )
    owner: Annotated[str, Field(min_length=1, max_length=64, pattern=PRINTED_PATTERN)] | None = None
    format: ListFormat = Field(
        default="json", description="`csv`: all rows, whatever the page; also by `Accept: text/csv`"
    )
