"""The built-in algorithms by name. A new one: write its file and add a line here."""

from automap.planner.dataflow.algorithms import (
    dapo,
    grpo,
    ppo,
    reinforce_plus_plus,
    remax,
    rloo,
    safe_rlhf,
)
from automap.planner.dataflow.algorithms.program import Program

PROGRAMS: dict[str, Program] = {
    module.PROGRAM.name: module.PROGRAM
    for module in (ppo, grpo, remax, safe_rlhf, rloo, reinforce_plus_plus, dapo)
}
