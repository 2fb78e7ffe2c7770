"""What the API sends and takes of measured profiles."""

import hashlib
import json
from collections import Counter
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import (
    Field,
    JsonValue,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from automap.planner import catalogue
from automap.planner.errors import SpecError
from automap.planner.profiles import COLUMNS, TEXTS, Corrections, says_shipped_tables
from automap.planner.spec import ClusterSpec
from automap.service.errors.fields import VERSION_PATTERN
from automap.service.schemas.base import ApiModel, PageQuery

MAX_FINGERPRINT_BYTES = 2**18
Version = Annotated[str, Field(pattern=VERSION_PATTERN, description="Of a stored profile")]
Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""Host work may be too little to be told from none."""
Bound = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
"""An end of an interval; that of a difference may be below 0."""
Count = Annotated[int, Field(ge=0, le=10**9)]


class Measurement(ApiModel):
    """One shape of one table: a line of `measurements.jsonl` in the profile's folder."""

    table: str = Field(description=f"One of {', '.join(COLUMNS)}")
    key: dict[str, str | int] = Field(description="A value for each column but `seconds`")
    seconds: Seconds = Field(description="Median")
    low: Bound | None = Field(default=None, description="95 % interval of the median")
    high: Bound | None = None
    samples: Count | None = None
    rejected: Count | None = None
    disturbed: bool = False
    busy: bool = Field(default=False, description="Others used the device meanwhile")
    throttled: bool = Field(default=False, description="Its clock was slow meanwhile")

    @model_validator(mode="after")
    def _one_of_its_table(self) -> Self:
        columns = COLUMNS.get(self.table)
        if columns is None:
            raise ValueError(f"no table {self.table[:40]!r} (use {', '.join(COLUMNS)})")
        if set(self.key) != set(columns):
            raise ValueError(f"the key of {self.table} has exactly {', '.join(columns)}")
        for name, value in self.key.items():
            if isinstance(value, str) != (name in TEXTS) or isinstance(value, bool):
                kind = "text" if name in TEXTS else "a whole number"
                raise ValueError(f"key.{name} is {value!r}, which is not {kind}")
            if isinstance(value, int) and not 0 <= value < 2**63:
                raise ValueError(f"key.{name} is {value}, not from 0 to 2^63")
        return self

    @property
    def shape(self) -> tuple[str | int, ...]:
        """Equal for equal shapes of a table."""
        return self.table, *(self.key[name] for name in COLUMNS[self.table])


class NewProfile(ApiModel):
    """A profile that was measured: the fingerprint of its folder and the lines measured."""

    fingerprint: dict[str, JsonValue] = Field(
        description="`fingerprint.json`: `identity` says what was measured on"
    )
    measurements: Annotated[
        list[Measurement],
        Field(
            max_length=500_000,
            fail_fast=True,  # that all are wrong in the same way need not be found out
            description="At least one; none where `identity.based_on` is `shipped`: such a profile "
            "is the tables that come with the planner, and `corrections`",
        ),
    ]
    corrections: Corrections | None = Field(
        default=None, description="`corrections.json`, where automap calibrate has written it"
    )
    make_default: bool = Field(
        default=False, description="Price pools of its device type with it from now on"
    )

    @field_validator("fingerprint")
    @classmethod
    def _names_a_device(cls, given: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if (size := len(to_json(given))) > MAX_FINGERPRINT_BYTES:
            raise ValueError(f"takes {size} bytes of JSON; at most {MAX_FINGERPRINT_BYTES}")
        identity = given.get("identity")
        named = identity.get("device_type") if isinstance(identity, dict) else None
        if not isinstance(named, str):
            raise ValueError("has no identity.device_type, the catalogue's name of the device")
        try:
            known = catalogue.gpu_type(named, field="identity.device_type").name
        except SpecError as error:
            raise ValueError(str(error)) from None
        if known != named:
            raise ValueError(f"identity.device_type is {named!r}; the catalogue's name is {known}")
        return given

    @field_validator("measurements")
    @classmethod
    def _once_each(cls, given: list[Measurement]) -> list[Measurement]:
        seen: dict[tuple[str | int, ...], int] = {}
        for number, each in enumerate(given):
            if (first := seen.setdefault(each.shape, number)) != number:
                raise ValueError(
                    f"entries {first} and {number} are of the same shape of {each.table}"
                )
        return given

    @field_validator("measurements")
    @classmethod
    def _some_unless_shipped(
        cls, given: list[Measurement], info: ValidationInfo
    ) -> list[Measurement]:
        shipped = says_shipped_tables(info.data.get("fingerprint", {}))
        if shipped and given:
            raise ValueError(
                "there are some, but identity.based_on says that the tables are the "
                "shipped ones: leave either out"
            )
        if not (given or shipped):
            raise ValueError("at least 1 is needed, unless identity.based_on is 'shipped'")
        return given

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What was measured on."""
        identity = self.fingerprint["identity"]
        assert isinstance(identity, dict)
        return identity

    @property
    def version(self) -> str:
        """Hash of what was measured, on what, and of what runs taught: twelve hex digits."""
        rows = sorted(json.dumps([*each.shape, each.seconds]) for each in self.measurements)
        learnt = [] if self.corrections is None else [self.corrections.model_dump(mode="json")]
        text = json.dumps([self.identity, rows, *learnt], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def storable(self) -> "StorableProfile":
        """The profile as its row has it."""
        return StorableProfile(
            version=self.version,
            device_type=str(self.identity["device_type"]),
            shapes=dict(Counter(each.table for each in self.measurements)),
            fingerprint=self.fingerprint,
            corrections=self.corrections,
            make_default=self.make_default,
            measurements=_MEASUREMENTS.dump_json(self.measurements, exclude_none=True).decode(),
        )


_MEASUREMENTS = TypeAdapter(list[Measurement])


class StorableProfile(ApiModel):
    """A profile that was found right, with its measurements as they are stored."""

    version: str
    device_type: str
    shapes: dict[str, int]
    fingerprint: dict[str, JsonValue]
    corrections: Corrections | None
    make_default: bool
    measurements: str
    """A JSON list of `Measurement`."""


class ProfileSummary(ApiModel):
    """A stored profile without its measurements."""

    version: str
    created_at: datetime
    device_type: str
    is_default: bool = Field(description="Pools of this type that name no profile have it")
    shapes: dict[str, int] = Field(description="How many were measured, by table")
    fingerprint: dict[str, JsonValue]
    corrections: Corrections | None = Field(
        default=None, description="What runs have taught, with the evidence"
    )
    job_id: UUID | None = Field(default=None, description="Of the job that measured it, if one did")


class ProfileRecord(ProfileSummary):
    """A stored profile."""

    cluster: ClusterSpec | None = Field(
        default=None, description="That it was measured on, where a job of the service measured it"
    )
    measurements: list[Measurement]


class ProfileQuery(PageQuery):
    """Which profiles."""

    device_type: Annotated[str, Field(min_length=1, max_length=64)] | None = None


class TableDifference(ApiModel):
    """How one table of two profiles differs; a ratio is seconds of the second over the first."""

    table: str
    both: int = Field(description="Shapes that both have measured")
    only_first: int
    only_second: int
    median_ratio: float | None = None
    p10_ratio: float | None = None
    p90_ratio: float | None = None


class ShapeDifference(ApiModel):
    """A shape on which two profiles disagree."""

    table: str
    key: dict[str, str | int]
    first_seconds: float
    second_seconds: float
    ratio: float


class IdentityDifference(ApiModel):
    """Something that was not the same when two profiles were measured."""

    name: str
    first: JsonValue
    second: JsonValue


class ProfileDifference(ApiModel):
    """The second profile against the first."""

    first: str
    second: str
    identity: list[IdentityDifference]
    tables: list[TableDifference]
    furthest: list[ShapeDifference] = Field(description="Those farthest from a ratio of 1")
