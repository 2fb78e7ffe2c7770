"""The search's door: what a job's placements are, and the best of them.

A caller prices a job's candidates (`price_candidates`), takes all placements of them as a
`SearchSpace`, restricts it as it likes, and asks for the best placement there (`best_placement`,
`solve`, `solve_ascending`), for those that trade seconds for money (`pareto_front`), for what
named strategies would place (`attempted`), or whether anything fits (`fits_in_memory`,
`least_excess`). Answers say what is proven (`Proven`). Nothing outside this package imports from
its modules but for `model.problem`, the placement problem as plain numbers.
"""

from automap.planner.search.ascending import solve_ascending
from automap.planner.search.candidates.description import describe_space
from automap.planner.search.candidates.enumeration import shares_candidates
from automap.planner.search.candidates.tables import CallTable, CopyTable, Tables
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.front import FrontPoint, ParetoFront, pareto_front
from automap.planner.search.memory_excess import MemoryNeed, fits_in_memory, least_excess
from automap.planner.search.model.order import Order
from automap.planner.search.model.solve import TICK_SECONDS, Budget, Limits
from automap.planner.search.objectives import SearchResult
from automap.planner.search.proven import Proven
from automap.planner.search.search import best_placement, limits_of, solve
from automap.planner.search.simplicity import simplified
from automap.planner.search.space.rows import Rows, Selected
from automap.planner.search.space.schedules import schedule, solve_in_place
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.space.structure import problem_structure
from automap.planner.search.strategies import QUICK, STARTS, STRATEGIES, StrategyInfo
from automap.planner.search.strategies.attempts import Attempt, attempted

__all__ = [
    "QUICK",
    "STARTS",
    "STRATEGIES",
    "TICK_SECONDS",
    "Attempt",
    "Budget",
    "CallTable",
    "CopyTable",
    "FrontPoint",
    "Limits",
    "MemoryNeed",
    "Order",
    "ParetoFront",
    "Proven",
    "Rows",
    "SearchResult",
    "SearchSpace",
    "Selected",
    "StrategyInfo",
    "Tables",
    "attempted",
    "best_placement",
    "describe_space",
    "fits_in_memory",
    "least_excess",
    "limits_of",
    "pareto_front",
    "price_candidates",
    "problem_structure",
    "schedule",
    "shares_candidates",
    "simplified",
    "solve",
    "solve_ascending",
    "solve_in_place",
]
