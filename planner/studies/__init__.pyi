from .result import ExplainedInfeasibleError as ExplainedInfeasibleError
from .result import OpenNodes as OpenNodes
from .result import Refusal as Refusal
from .result import Remedy as Remedy
from .result import Variant as Variant
from .target_cost import LimitCost as LimitCost
from .target_cost import TargetCost as TargetCost
from .what_if import cases_of as cases_of
