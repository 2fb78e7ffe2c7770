"""`automap costs PLAN`: what a plan will cost; without one the service is asked about runs."""

import pytest

from automap.planner.plan.costs import PlanCosts, plan_costs
from automap.planner.planning import make_plan
from tests.cli.commands import TWO_NODES, call
from tests.helpers.small_jobs import pool, small_job

POOLS = [pool(), pool(name="h100", gpu="h100-80gb-sxm", price_per_gpu_hour=3.5)]
PLACES = {"actor": "a100", "reference": "h100"}
PLAN = make_plan(small_job(cluster__pools=POOLS, constraints__pools=PLACES))


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(PLAN.model_dump_json(by_alias=True), encoding="utf-8")
    return str(path)


def test_a_plan_is_priced_by_type_of_gpu(capsys, plan_file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = call(capsys, "costs", plan_file)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines()[3:]}
    assert rows["h100-80gb-sxm"][1] == rows["a100-80gb-sxm"][1] == "4"
    assert rows["in"][2] == "8"
    assert rows["in"][5] == f"{PLAN.run_price:,.2f}"
    code, out, _ = call(capsys, "costs", plan_file, "--json")
    assert PlanCosts.model_validate_json(out) == plan_costs(PLAN)


def test_a_plan_whose_prices_have_changed_is_priced_in_all(capsys, tmp_path):
    older = PLAN.model_copy(update={"price_per_iteration": 2 * PLAN.price_per_iteration})
    path = tmp_path / "plan.json"
    path.write_text(older.model_dump_json(by_alias=True), encoding="utf-8")
    code, out, _ = call(capsys, "costs", str(path))
    assert code == 0
    assert "not divided by type" in out
    assert "h100" not in out


def test_a_spec_is_planned_first_and_gpus_without_a_price_cost_hours(capsys, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(TWO_NODES.replace("price_per_gpu_hour: 2.0", "price_per_gpu_hour: 0"))
    code, out, _ = call(capsys, "costs", str(spec), "--quiet")
    assert code == 0
    assert "without a price" in out


def test_what_is_asked_of_runs_is_no_question_about_a_plan(capsys, plan_file):
    code, _, err = call(capsys, "costs", plan_file, "--by", "owner")
    assert code == 2
    assert "--by is of runs" in err
    code, _, err = call(capsys, "costs", "--by", "owner")
    assert code == 2
    assert "--server is missing" in err
    assert "automap costs PLAN" in err
