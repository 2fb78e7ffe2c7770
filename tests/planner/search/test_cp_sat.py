"""ortools without pandas, until pandas is wanted."""

import subprocess
import sys

PLANS_WITHOUT_PANDAS = """
import sys
import automap.planner.planning
from automap.planner.search.model.cp_sat import cp_model
import ortools.sat.python.cp_model as plain
assert "pandas" not in sys.modules
assert plain is cp_model
model = cp_model.CpModel()
x = model.new_int_var(0, 5, "x")
model.add(2 * x <= 7)
model.maximize(x)
solver = cp_model.CpSolver()
assert solver.solve(model) == cp_model.OPTIMAL
assert solver.value(x) == 3
assert "pandas" not in sys.modules
"""
SERIES_IMPORT_IT = """
import sys
from automap.planner.search.model.cp_sat import cp_model
import pandas
model = cp_model.CpModel()
chosen = model.new_bool_var_series("chosen", pandas.Index(["a", "b", "c"]))
assert type(chosen) is pandas.Series
model.add(sum(chosen) == 2)
solver = cp_model.CpSolver()
solver.solve(model)
assert solver.values(chosen).sum() == 2
try:
    model.new_bool_var_series("chosen", ["a", "b"])
except TypeError:
    pass
else:
    raise AssertionError("a list passed for an index")
"""
PANDAS_FIRST = """
import pandas
from automap.planner.search.model.cp_sat import cp_model
assert cp_model.pd is pandas
"""


def alone(code: str) -> None:
    """Run in a process of its own: this one has imported who knows what."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_planning_needs_no_pandas():
    alone(PLANS_WITHOUT_PANDAS)


def test_who_makes_a_series_gets_pandas():
    alone(SERIES_IMPORT_IT)


def test_pandas_that_is_there_is_taken():
    alone(PANDAS_FIRST)
