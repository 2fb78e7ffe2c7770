"""One job on several clusters: each plan is the one that its own spec gets."""

import pytest

from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from automap.planner.search.candidates.enumeration import shares_candidates
from automap.planner.studies.what_if import what_if
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough

SEVEN = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference", "reward")}


@pytest.mark.slow
def test_every_variant_is_what_planning_it_alone_gives() -> None:
    """Candidates are priced once per type of GPU; the plans must not show it."""
    answer = what_if(small_job(num_nodes=3), nodes=[1, 2], gpus=["a100", "h100"])
    asked = [(v.gpu, v.num_nodes, v.num_gpus) for v in answer.variants]
    types = ("a100-80gb-sxm", "h100-80gb-sxm")
    assert asked == [(gpu, nodes, 4 * nodes) for gpu in types for nodes in (1, 2)]
    for variant in answer.variants[::2]:
        assert variant.plan is not None
        alone = make_plan(variant.plan.spec)
        assert alone.placement() == variant.plan.placement()
        assert alone.iteration_seconds == variant.plan.iteration_seconds


@pytest.mark.slow
def test_a_single_node_is_priced_by_itself_where_nodes_share_an_nvlink_domain() -> None:
    """Its layouts are those of two nodes, but its weight syncs never leave the node."""
    spec = small_job("grpo", cluster__pools=[pool(2, gpu="gb200")], search__staleness=1)
    one, two = what_if(spec, nodes=[1, 2]).variants
    assert one.plan is not None
    assert two.plan is not None
    assert one.plan.transitions
    assert one.plan.iteration_seconds == make_plan(one.plan.spec).iteration_seconds
    assert not shares_candidates(resolve(two.plan.spec), resolve(one.plan.spec))


def test_scaling_is_beside_the_smallest_of_the_same_type() -> None:
    answer = what_if(small_job(), nodes=[2, 1])
    two, one = answer.variants
    assert one.plan is not None
    assert two.plan is not None
    assert one.scaling_efficiency == 1.0
    expected = one.plan.iteration_seconds / two.plan.iteration_seconds / 2
    assert two.scaling_efficiency == pytest.approx(expected)
    assert 0 < expected < 1


def test_a_size_on_which_nothing_fits_says_why_in_numbers() -> None:
    spec = small_job(models=SEVEN, cluster__pools=[pool(2, gpus_per_node=1)])
    small, large = what_if(spec, nodes=[1, 2]).variants
    assert small.plan is None
    assert small.scaling_efficiency is None
    assert small.reasons[0].over_bytes
    assert all(reason.remedy is None for reason in small.reasons)
    assert large.plan is not None
    assert large.scaling_efficiency == 1.0


def test_another_gpu_brings_its_own_links_and_price() -> None:
    spec = small_job(cluster__pools=[pool(1, inter_node_bytes_per_second=1e9)])
    (variant,) = what_if(spec, gpus=["h100"]).variants
    assert variant.plan is not None
    (changed,) = variant.plan.spec.cluster.pools  # type: ignore[union-attr]
    assert (changed.name, changed.num_nodes, changed.gpus_per_node) == ("a100", 1, 4)
    assert changed.price_per_gpu_hour is None
    assert changed.inter_node_bytes_per_second is None


def test_what_cannot_be_varied_is_refused() -> None:
    spec = small_job(cluster__pools=[pool(1), pool(1, name="other")])
    for arguments, field in (
        ({"nodes": [1]}, "pool"),
        ({"nodes": [1], "pool": "none"}, "pool"),
        ({"pool": "other"}, "nodes"),
        ({"nodes": [0], "pool": "other"}, "nodes"),
        ({"nodes": list(range(1, 66)), "pool": "other"}, "nodes"),
        ({"gpus": ["a1000"], "pool": "other"}, "gpus"),
    ):
        with pytest.raises(SpecError) as error:
            what_if(spec, **arguments)  # type: ignore[arg-type]
        assert error.value.field == field
        assert error.value.remedy
