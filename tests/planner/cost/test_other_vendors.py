"""GPUs of another vendor: links between pairs, wide intervals, and who refuses them."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from automap.planner import catalogue
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.communication import collective_seconds, point_to_point_seconds
from automap.planner.cost.intervals import SPREADS
from automap.planner.cost.operators.profile import load_profile
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from tests.helpers.cost_model import pool
from tests.helpers.specs import job_spec

LARGE = 2.0**30
AMD = ("mi300x", "mi325x", "mi355x")


def cluster(gpu: str, **links: float) -> dict[str, object]:
    return {"pools": [{"name": "p", "gpu": gpu, "num_nodes": 2, "gpus_per_node": 8, **links}]}


def models() -> dict[str, object]:
    return {role: {"architecture": "qwen3-8b"} for role in ("actor", "reference", "reward")}


@pytest.mark.parametrize(("size", "links"), [(2, 1), (4, 3), (8, 7)])
def test_a_group_has_the_links_among_its_members(size: int, links: int) -> None:
    """Beside a switch of the same total, a group of two sends at a seventh of the rate."""
    node = catalogue.node_type(catalogue.gpu_type("mi300x").node)
    assert node.peer_bytes_per_second == 64e9
    assert node.intra_node_bytes_per_second == 7 * 64e9
    mesh = replace(pool("mi300x"), peer_bytes_per_second=64e9)
    switched = replace(mesh, peer_bytes_per_second=None)
    found = np.asarray(mesh.group_bytes_per_second(np.array([float(size)])))
    assert found == [links * 64e9]

    def seconds(where: Pool) -> float:
        profile = load_profile(catalogue.gpu_type("mi300x"))
        found = collective_seconds(
            where,
            profile,
            "all_reduce",
            LARGE,
            group_size=size,
            stride=1,
        )
        return float(found.seconds)

    assert seconds(mesh) == pytest.approx(seconds(switched) * 7 / links, rel=0.02)


def test_two_gpus_have_one_link() -> None:
    mesh = replace(pool("mi300x"), peer_bytes_per_second=64e9)
    profile = load_profile(mesh.gpu)
    found = point_to_point_seconds(mesh, profile, LARGE, crosses_node=False)
    assert float(found.seconds) == pytest.approx(LARGE / (0.75 * 64e9), rel=0.01)
    usual = pool("h100-80gb-sxm")
    assert usual.peer_bytes_per_second is None
    assert usual.group_bytes_per_second(np.ones(3)) == 450e9


@pytest.mark.parametrize("gpu", AMD)
def test_plans_on_assumed_gpus_say_so_in_their_intervals(gpu: str) -> None:
    plan = make_plan(job_spec("grpo", models=models(), cluster=cluster(gpu)))
    wide = exp(SPREADS["calls on GPUs without tables"])
    for call in plan.calls:
        if call.copy_id is not None and call.seconds_by_part.transition == 0:
            seconds = call.end_seconds - call.start_seconds
            assert call.seconds_interval is not None
            assert call.seconds_interval.high / seconds > 0.99 * wide
    assert plan.runs_with == []
    assert any("GPUs without CUDA" in line for line in plan.assumptions)


def test_the_executor_and_verl_run_on_nvidia_alone() -> None:
    for target in ("automap", "verl@0.9.1"):
        with pytest.raises(SpecError, match="pool p has GPUs without CUDA"):
            resolve(
                job_spec("grpo", models=models(), cluster=cluster("mi300x"), search__target=target)
            )


def test_a_stated_link_speed_is_that_of_any_two_gpus() -> None:
    spec = job_spec("grpo", models=models(), cluster=cluster("mi300x"))
    assert resolve(spec).pools[0].peer_bytes_per_second == 64e9
    spec = job_spec(
        "grpo", models=models(), cluster=cluster("mi300x", intra_node_bytes_per_second=400e9)
    )
    assert resolve(spec).pools[0].peer_bytes_per_second is None


@pytest.mark.parametrize("gpu", ["rtx-pro-6000", "l40", "l20", "a10"])
def test_cards_without_nvlink_use_pcie(gpu: str) -> None:
    node = catalogue.node_type(catalogue.gpu_type(gpu).node)
    assert node.peer_bytes_per_second is None
    assert node.intra_node_bytes_per_second == node.host_link_bytes_per_second
    assert not catalogue.gpu_type(gpu).is_assumed
