"""pareto, what-if and --explain-infeasible as a user types them."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from automap.planner.plan.types import Plan
from automap.planner.studies.result import Front, Refusal, WhatIf
from tests.cli.commands import TWO_NODES, call
from tests.helpers.profile_folders import memory_bound, profile_folder
from tests.helpers.small_jobs import small_job


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(TWO_NODES, encoding="utf-8")
    return str(file)


@pytest.fixture
def tight(tmp_path: Path) -> str:
    """7B on one GPU: adapters fit, or two GPUs, or a larger one."""
    file = tmp_path / "tight.yaml"
    text = TWO_NODES.replace("qwen2.5-0.5b", "llama-2-7b")
    text = text.replace("num_nodes: 2, gpus_per_node: 2", "num_nodes: 1, gpus_per_node: 1")
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_pareto_shows_seconds_and_all_three_prices(capsys, spec, tmp_path):
    file = tmp_path / "front.json"
    code, out, err = call(capsys, "pareto", spec, "--output", str(file))
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    for shown in (
        "2 of 2 numbers of nodes searched",
        "proven",
        "per 1M",
        "whole",
        "a100[0-3]",
    ):
        assert shown in words
    written = file.read_text(encoding="utf-8")
    front = Front.model_validate_json(written)
    assert [plan.gpus_used for plan in front.plans] == [4, 2]
    plan = json.loads(written)["plans"][0]
    assert Plan.model_validate(plan) == front.plans[0]
    assert "copy" in plan["calls"][0]


def test_pareto_as_json_and_as_one_line(capsys, spec):
    code, out, _ = call(capsys, "pareto", spec, "--json", "--tolerance", "1")
    assert code == 0
    front = Front.model_validate_json(out)
    assert front.tolerance == 1.0
    assert len(front.plans) == 1
    code, out, _ = call(capsys, "pareto", spec, "--quiet")
    assert code == 0
    assert "a100[" not in out


def test_a_picture_is_drawn_or_refused_before_the_search(capsys, spec, tmp_path):
    for name, told in (("front.txt", "does not end in .png"), ("none/f.png", "no folder")):
        code, _, err = call(capsys, "pareto", spec, "--picture", str(tmp_path / name))
        assert code == 2
        assert told in err
    picture = tmp_path / "front.svg"
    code, _, err = call(capsys, "pareto", spec, "--picture", str(picture))
    if find_spec("matplotlib") is None:
        assert code == 2
        assert "pip install matplotlib" in err
    else:
        assert code == 0
        assert "GPUs" in picture.read_text(encoding="utf-8")


def test_what_if_shows_every_cluster_and_why_some_have_no_plan(capsys, tight):
    code, out, err = call(capsys, "what-if", tight, "--nodes", "1,2", "--gpu", "a100,h200")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "2 nodes 2" in words
    assert "2 nodes h200-141gb-sxm: h200-141gb-sxm[0-1] actor" in words
    assert "1 node a100-80gb-sxm: actor.train does not fit" in words
    assert "GiB too many" in words
    code, out, _ = call(capsys, "what-if", tight, "--nodes", "1,2", "--json")
    assert code == 0
    small, large = WhatIf.model_validate_json(out).variants
    assert (small.plan, large.reasons) == (None, [])
    assert large.plan


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "nothing is varied"),
        (("--nodes", "4,x"), "x is not a number of nodes"),
        (("--nodes", "0"), "0 is not a number of nodes"),
        (("--nodes", ","), "has an empty value"),
        (("--nodes", ""), "has an empty value"),
        (("--gpu", "h100,,"), "has an empty value"),
        (("--nodes", "1000000000"), "use 1 to 100000"),
        (("--nodes", "1", "--pool", "b"), "no pool 'b'"),
        (("--gpu", "a1000"), "a1000"),
    ],
)
def test_what_if_refuses_what_makes_no_sense(capsys, spec, arguments, told):
    code, out, err = call(capsys, "what-if", spec, *arguments)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())


@pytest.mark.slow
def test_what_was_planned_is_proposed_once(capsys, tmp_path):
    goal = {"objective": "fewest_gpus", "target_iteration_seconds": 0.5}
    spec = small_job(search=goal | {"time_limit_seconds": 0.5})
    file = tmp_path / "soon.json"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    code, out, err = call(capsys, "plan", str(file), "--explain-infeasible")
    assert (code, out) == (3, "")
    assert err.count("raise search.target_iteration_seconds to") == 1
    assert err.count("It would fit") == 1


@pytest.mark.slow
def test_an_infeasible_job_is_explained_with_plans(capsys, tight):
    code, out, err = call(capsys, "plan", tight, "--explain-infeasible")
    assert (code, out) == (3, "")
    words = " ".join(err.split())
    for shown in (
        "GiB too many",
        "the least change first",
        "h200",
        "train adapters",
        "per 1M",
    ):
        assert shown in words
    code, out, _ = call(capsys, "plan", tight, "--explain-infeasible", "--json")
    assert code == 3
    refusal = Refusal.model_validate_json(out)
    assert [remedy.kinds for remedy in refusal.remedies][-1] == ["adapters"]
    assert all(remedy.plan.price_per_iteration > 0 for remedy in refusal.remedies)


def test_objectives_by_the_names_that_users_give_them(capsys, spec):
    text = Path(spec).read_text(encoding="utf-8")
    for given, own in (("price_per_million_tokens", "price"), ("price_of_run", "run_price")):
        named = text + f"search: {{objective: {given}}}\n"
        Path(spec).write_text(named, encoding="utf-8")
        code, out, _ = call(capsys, "plan", spec, "--json")
        assert code == 0
        plan = Plan.model_validate_json(out)
        assert plan.spec.search.objective == plan.search.objective == own
        value = plan.run_price if own == "run_price" else plan.price_per_iteration
        assert plan.search.objective_value == pytest.approx(value)
    Path(spec).write_text(text + "search: {objective: cheap}\n", encoding="utf-8")
    code, _, err = call(capsys, "plan", spec)
    assert code == 2
    assert "run_price" in err


@pytest.mark.slow
def test_another_type_of_gpu_is_priced_with_its_profile(capsys, tight, tmp_path):
    code, out, _ = call(capsys, "plan", tight, "--explain-infeasible", "--json")
    assert code == 3
    (other,) = [each for each in Refusal.model_validate_json(out).remedies if "gpu" in each.kinds]
    (pool,) = other.plan.spec.cluster.pools
    rows = memory_bound({2**20: {"rms_norm": 1e-4}})
    folder = str(profile_folder(tmp_path / "measured", rows, device_type=pool.gpu))
    code, out, _ = call(
        capsys, "plan", tight, "--explain-infeasible", "--profile", folder, "--json"
    )
    assert code == 3
    (other,) = [each for each in Refusal.model_validate_json(out).remedies if "gpu" in each.kinds]
    assert other.plan.spec.cluster.pools[0].profile == folder
    code, out, _ = call(capsys, "what-if", tight, "--gpu", pool.gpu, "--profile", folder, "--json")
    assert code == 0
    (variant,) = WhatIf.model_validate_json(out).variants
    assert variant.plan is not None
    assert variant.plan.spec.cluster.pools[0].profile == folder
    code, _, err = call(capsys, "what-if", tight, "--nodes", "2", "--profile", folder)
    assert code == 2
    assert f"measured on {pool.gpu}, which no pool has" in err
