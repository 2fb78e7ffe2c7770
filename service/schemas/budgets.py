"""What the API sends and takes of budgets."""

import re
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from automap.service.schemas.access import OWNER
from automap.service.schemas.base import ApiModel
from automap.service.schemas.descriptions import LABEL_KEY, LABEL_VALUE

BudgetUnit = Literal["price", "gpu_hours"]


def _known_group(text: str) -> str:
    if re.fullmatch(rf"owner:{OWNER}|label:{LABEL_KEY}:{LABEL_VALUE}", text):
        return text
    raise ValueError("write owner:NAME or label:KEY:VALUE")


class NewBudget(ApiModel):
    """What an owner, or everybody with a label, may use in a month before it is warned."""

    of: Annotated[str, Field(max_length=200), AfterValidator(_known_group)] = Field(
        description="`owner:NAME` or `label:KEY:VALUE`"
    )
    unit: BudgetUnit = Field(default="price", description="By the plans' prices, or GPU hours")
    amount: Annotated[float, Field(gt=0, le=1e15)] = Field(
        description="In each calendar month, by UTC"
    )


class BudgetRecord(NewBudget):
    """A budget, and how far it is used this month."""

    id: UUID
    created_at: datetime
    spent: float = Field(description="Since the month began")
    forecast: float = Field(
        description="At the month's end, if the rest of it goes as the last 7 days did"
    )
    warning: str | None = Field(description="Why it is over, or will be; null: neither")
