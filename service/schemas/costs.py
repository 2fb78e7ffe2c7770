"""What the API tells of GPU time that was used, and what it cost."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from automap.service.schemas.base import ApiModel, Moment
from automap.service.schemas.budgets import BudgetRecord
from automap.service.schemas.descriptions import LABEL_KEY

FIXED = ("day", "owner", "model", "plan")


def _known_group(text: str) -> str:
    if text in FIXED or re.fullmatch(rf"label:{LABEL_KEY}", text):
        return text
    raise ValueError(f"group by {', '.join(FIXED)} or label:KEY")


class CostQuery(ApiModel, strict=False):
    """Which GPU time, and how it is grouped."""

    by: Annotated[str, Field(max_length=80), AfterValidator(_known_group)] = Field(
        default="day",
        description="`day` (UTC), `owner`, `model` (the actor's), `plan` (NAME (ID)), `label:KEY`",
    )
    after: Moment | None = Field(default=None, description="Time from then on")
    before: Moment | None = Field(default=None, description="Time until then")


class Cost(ApiModel):
    """GPU time of runs that belong together."""

    group: str = Field(description="Empty: runs without that label")
    jobs: int
    gpu_hours: float = Field(description="GPUs that a plan pays for × hours that its runs took")
    price: float = Field(description="By the plans' prices per GPU-hour")
    unpriced_gpu_hours: float = Field(description="Of GPUs that have no price")


class Costs(ApiModel):
    """What runs have used, up to now."""

    by: str
    total: Cost
    items: list[Cost] = Field(description="The dearest first; days in their order")
    budgets: list[BudgetRecord] = Field(
        default=[], description="All budgets, and how far they are used this month"
    )
    unit: Literal["price of the plans' clusters"] = "price of the plans' clusters"
