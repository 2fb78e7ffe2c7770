"""The launch of a framework: what an export answers with, the same for all frameworks."""

from pydantic import Field

from automap.planner.plan.types import ResultModel


class Placeholder(ResultModel):
    """Something that no plan knows; the script refuses to start without it."""

    variable: str
    """Environment variable that gives it."""
    what: str
    """What it stands for, in words."""


class LaunchSetting(ResultModel):
    """One setting of a launch."""

    key: str
    value: str
    """What the framework reads; of a placeholder the name of its variable."""
    because: str
    """The decision of the plan that it comes from."""
    placeholder: bool = False


class Launch(ResultModel):
    """A plan as a framework is told it."""

    target: str
    plan: str
    """Name of the plan."""
    num_nodes: int
    gpus_per_node: int
    """GPUs that are used on each of them."""
    iterations: int = 1
    """How many it trains; 1 is also what a spec has that does not say."""
    assumptions: list[str]
    """What the prediction assumes that the framework may do otherwise."""
    environment: dict[str, str]
    settings: list[LaunchSetting]
    placeholders: list[Placeholder]
    script: str
    """A shell script that starts Ray on the nodes and submits the run."""
    files: dict[str, str] = Field(default_factory=dict)
    """What the script reads beside it: name of a file → its text."""
