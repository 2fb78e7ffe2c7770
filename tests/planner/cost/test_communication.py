"""Collectives: exact where measured, close to published runs across nodes, sane in the limits."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as parquet
import pytest

from automap.planner.catalogue import gpu_type, node_type
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.communication import (
    EFA_FIRST_GENERATION,
    FITTED,
    Collective,
    LinkModel,
    collective_seconds,
    custom_all_reduce_seconds,
    point_to_point_seconds,
    sent_part,
)
from automap.planner.cost.operators.interpolation import ANALYTICAL, INTERPOLATED, MEASURED, Timed
from automap.planner.cost.operators.profile import PROFILES, load_profile

COLLECTIVES: tuple[Collective, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send_recv",
)
MEASURED_COLLECTIVES: tuple[Collective, ...] = COLLECTIVES[:4]
SIZES = 2.0 ** np.arange(9, 34)
NVLINK_GPUS = ["a100-80gb-sxm", "h100-80gb-sxm", "h200-141gb-sxm", "b200-180gb-sxm"]


def pool(gpu: str, *, port: float | None = None, link: float | None = None) -> Pool:
    node = node_type(gpu_type(gpu).node)
    return Pool(
        name="pool",
        gpu=gpu_type(gpu),
        num_nodes=64,
        gpus_per_node=node.gpus_per_node,
        first_gpu=0,
        nvlink_domain_gpus=node.nvlink_domain_gpus,
        intra_node_bytes_per_second=link or node.intra_node_bytes_per_second,
        inter_node_bytes_per_second=port or node.inter_node_bytes_per_second,
        host_memory_bytes=node.host_memory_bytes,
        host_link_bytes_per_second=node.host_link_bytes_per_second,
        price_per_gpu_hour=node.price_per_gpu_hour,
    )


def timed(
    where: Pool, collective: Collective, size: object, *, group: object, stride: object = 1
) -> Timed:
    return collective_seconds(
        where, load_profile(where.gpu), collective, size, group_size=group, stride=stride
    )


@pytest.mark.parametrize(
    ("gpu", "largest"), [*((gpu, 8) for gpu in NVLINK_GPUS), ("gb200-192gb", 4), ("l40s-48gb", 2)]
)
@pytest.mark.parametrize("collective", MEASURED_COLLECTIVES)
def test_measured_collectives_come_back(gpu: str, largest: int, collective: Collective) -> None:
    table = parquet.ParquetFile(PROFILES / gpu / "collectives.parquet").read().to_pylist()
    own = [row for row in table if row["collective"] == collective and row["num_gpus"] <= largest]
    group, size, seconds = (
        np.array([row[name] for row in own]) for name in ("num_gpus", "size_bytes", "seconds")
    )
    found = timed(pool(gpu), collective, size, group=group)
    # A larger buffer that was measured faster shows that the smaller one's time was disturbed.
    least = [seconds[(group == g) & (size >= s)].min() for g, s in zip(group, size, strict=True)]
    np.testing.assert_allclose(found.seconds, least, rtol=1e-6)
    undisturbed = seconds == least
    assert np.mean(undisturbed) > 0.7
    assert np.all(undisturbed[size >= 1 << 26])
    np.testing.assert_array_equal(found.source, np.where(undisturbed, MEASURED, INTERPOLATED))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_group_of_one_costs_nothing(collective: Collective) -> None:
    found = timed(pool("h100"), collective, SIZES, group=1)
    assert not found.seconds.any()
    assert set(found.source) == {MEASURED}


@pytest.mark.parametrize("gpu", [*NVLINK_GPUS, "gb200-192gb", "l40s-48gb", "cpu", "v100-32gb"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_more_bytes_are_never_faster(gpu: str, collective: Collective) -> None:
    for group, stride in ((2, 1), (4, 1), (8, 1), (6, 1), (16, 1), (4, 8), (32, 2), (256, 1)):
        seconds = timed(pool(gpu), collective, SIZES, group=group, stride=stride).seconds
        assert np.all(np.diff(seconds) >= -1e-12)
        assert np.all(seconds > 0)


@pytest.mark.parametrize("gpu", NVLINK_GPUS)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("group", [2, 4, 8])
def test_crossing_nodes_is_never_faster(gpu: str, collective: Collective, group: int) -> None:
    inside = timed(pool(gpu), collective, SIZES, group=group).seconds
    for stride in (8 // (group // 2), 8):
        across = timed(pool(gpu), collective, SIZES, group=group, stride=stride)
        assert np.all(across.seconds >= 0.999 * inside)
        assert set(across.source) == {ANALYTICAL}


PUBLISHED_ALL_REDUCE = [
    # aws-samples/awsome-distributed-training, micro-benchmarks/nccl-tests/README.md: 2 × p4de
    # (8 A100, 400 Gbit/s per node) and 2 × p5 (8 H100, 3,200 Gbit/s per node), out of place.
    ("a100-80gb-sxm", 6.25e9, 16, 1 << 29, 13.552e-3),
    ("a100-80gb-sxm", 6.25e9, 16, 1 << 31, 51.406e-3),
    ("h100-80gb-sxm", 50e9, 16, 1 << 28, 1.4682e-3),
    ("h100-80gb-sxm", 50e9, 16, 1 << 30, 4.6076e-3),
    ("h100-80gb-sxm", 50e9, 16, 1 << 34, 66.132e-3),
    # coreweave/nccl-tests, README.md: 8 × 8 H100, 8 × 400 Gbit/s per node.
    ("h100-80gb-sxm", 50e9, 64, 1 << 29, 2.9846e-3),
    ("h100-80gb-sxm", 50e9, 64, 1 << 33, 43.980e-3),
]


@pytest.mark.parametrize(("gpu", "port", "group", "size", "seconds"), PUBLISHED_ALL_REDUCE)
def test_large_all_reduces_across_nodes_are_as_published(
    gpu: str, port: float, group: int, size: int, seconds: float
) -> None:
    found = timed(pool(gpu, port=port), "all_reduce", size, group=group)
    assert found.seconds == pytest.approx(seconds, rel=0.10)


@pytest.mark.parametrize(
    ("port", "size", "links", "seconds"),
    [
        # As above: 2 × p4de over the first Elastic Fabric Adapter, and 2 × p5.
        (6.25e9, 1 << 20, EFA_FIRST_GENERATION, 309.4e-6),
        (6.25e9, 1 << 22, EFA_FIRST_GENERATION, 533.9e-6),
        (6.25e9, 1 << 24, EFA_FIRST_GENERATION, 1191.8e-6),
        (50e9, 1 << 23, FITTED, 204.8e-6),
        (50e9, 1 << 25, FITTED, 439.7e-6),
    ],
)
def test_medium_all_reduces_across_nodes_are_as_published(
    port: float, size: int, links: LinkModel, seconds: float
) -> None:
    """Between latency and bandwidth, where the chain of nodes fills with chunks."""
    where = pool("a100-80gb-sxm" if port < 10e9 else "h100-80gb-sxm", port=port)
    found = collective_seconds(
        where,
        load_profile(where.gpu),
        "all_reduce",
        size,
        group_size=16,
        stride=1,
        links=links,
    )
    assert found.seconds == pytest.approx(seconds, rel=0.15)


def test_filling_the_chain_takes_no_longer_than_a_few_starts() -> None:
    h100 = pool("h100")
    plain = replace(FITTED, fill_starts=0.0)

    def fill(size: float) -> float:
        with_fill, without = (
            collective_seconds(
                h100,
                load_profile(h100.gpu),
                "all_reduce",
                size,
                group_size=4,
                stride=8,
                links=links,
            ).seconds
            for links in (FITTED, plain)
        )
        return float(with_fill - without)

    assert fill(4e4) == pytest.approx(2.0 * fill(1e4))
    start = 2.0 * (FITTED.network_start_seconds + FITTED.network_hop_seconds)
    assert fill(1e10) == pytest.approx(FITTED.fill_starts * start)


def test_tiny_messages_cost_latency_and_huge_ones_bandwidth() -> None:
    h100 = pool("h100")
    tiny = timed(h100, "all_reduce", [1, 512], group=16)
    assert tiny.seconds[0] == pytest.approx(tiny.seconds[1], rel=0.01)
    assert 2 * FITTED.network_start_seconds < tiny.seconds[0] < 100e-6
    # One GPU per node: each port carries the buffer's (n − 1) / n, and hops do not matter.
    huge = timed(h100, "all_gather", 1e12, group=4, stride=8).seconds
    port = FITTED.network_fraction * h100.inter_node_bytes_per_second
    assert huge == pytest.approx(0.75 * 1e12 / port, rel=1e-3)
    # Eight of a node share the buffer: each port carries an eighth, and NVLink the rest.
    shared = timed(h100, "reduce_scatter", 1e12, group=32).seconds
    inside = timed(h100, "reduce_scatter", 1e12, group=8).seconds
    assert shared == pytest.approx(max(0.75 * 1e12 / 8 / port, inside), rel=0.01)
    # All to all: of 32 ranks' parts, 24 leave the node, over the sender's own port.
    exchanged = timed(h100, "all_to_all", 1e12, group=32).seconds
    assert exchanged == pytest.approx(0.75 * 1e12 / port, rel=0.01)


def test_a_ring_over_many_nodes_is_bound_by_its_hops() -> None:
    small = timed(pool("h100"), "all_gather", 4096, group=64, stride=8).seconds
    assert small > 63 * FITTED.network_hop_seconds
    tree = timed(pool("h100"), "all_reduce", 4096, group=64, stride=8).seconds
    assert tree < small


def test_slower_ports_and_links_take_longer_in_proportion() -> None:
    fast, slow = (pool("h100", port=port) for port in (50e9, 25e9))
    ratio = timed(slow, "all_gather", 1e11, group=8, stride=8).seconds / (
        timed(fast, "all_gather", 1e11, group=8, stride=8).seconds
    )
    assert ratio == pytest.approx(2.0, rel=0.01)
    half = pool("h100", link=225e9)
    inside = timed(half, "all_reduce", [512, 1 << 33], group=8)
    full = timed(pool("h100"), "all_reduce", [512, 1 << 33], group=8)
    np.testing.assert_allclose(inside.seconds / full.seconds, [1.0, 2.0], rtol=0.01)
    assert set(inside.source) == {ANALYTICAL}


def test_an_nvlink_rack_is_one_domain() -> None:
    rack = pool("gb200-192gb")
    assert rack.gpus_per_node == 4
    inside = timed(rack, "all_reduce", 1 << 30, group=64)
    across = timed(rack, "all_reduce", 1 << 30, group=144)
    four = timed(rack, "all_reduce", 1 << 30, group=4)
    assert four.source == INTERPOLATED
    assert four.seconds < inside.seconds < min(across.seconds, 2 * four.seconds)
    assert across.source == ANALYTICAL


def test_group_sizes_between_the_measured_ones() -> None:
    three = timed(pool("h100"), "all_gather", 1 << 26, group=[2, 3, 4])
    assert three.seconds[0] < three.seconds[1] < three.seconds[2]
    assert list(three.source) == [MEASURED, INTERPOLATED, MEASURED]


def test_relatives_and_devices_without_tables() -> None:
    a800 = timed(pool("a800"), "all_reduce", [512, 1 << 32], group=8)
    a100 = timed(pool("a100"), "all_reduce", [512, 1 << 32], group=8)
    np.testing.assert_allclose(a800.seconds / a100.seconds, [1.0, 1.5], rtol=0.01)
    assert set(a800.source) == {ANALYTICAL}
    cpu = timed(pool("cpu"), "all_reduce", 2e9, group=2)
    link = FITTED.point_to_point_fraction * pool("cpu").intra_node_bytes_per_second
    assert cpu.seconds == pytest.approx(2e9 / link, rel=1e-3)
    assert cpu.source == ANALYTICAL


@pytest.mark.parametrize("gpu", ["l40s", "a6000", "l40", "a10g", "rtxpro6000"])
@pytest.mark.parametrize("collective", MEASURED_COLLECTIVES)
def test_gpus_on_pcie_reach_a_good_part_of_it_in_groups_of_any_size(
    gpu: str, collective: Collective
) -> None:
    """On the one machine measured, 8 GPUs reached a twentieth of what 2 did, and 4 a quarter."""
    where = pool(gpu)
    group = np.array([2.0, 4.0, 8.0])
    seconds = timed(where, collective, 1 << 30, group=group).seconds
    reached = (1 << 30) * sent_part(collective, group) / seconds
    assert np.all(reached > 0.5 * where.intra_node_bytes_per_second)
    assert np.all(reached < 0.75 * where.intra_node_bytes_per_second)
    own = custom_all_reduce_seconds(where, load_profile(where.gpu), 1 << 30, group_size=8)
    assert own.seconds <= timed(where, "all_reduce", 1 << 30, group=8).seconds


def test_a_link_that_a_spec_names_decides_what_a_group_on_pcie_reaches() -> None:
    usual, half = (pool("l40s", link=link) for link in (32e9, 16e9))
    seconds = [timed(each, "all_gather", 1 << 32, group=8).seconds for each in (usual, half)]
    assert seconds[1] / seconds[0] == pytest.approx(2.0, rel=0.01)


def test_small_messages_inside_a_node_use_the_engines_all_reduce() -> None:
    h100 = pool("h100")
    profile = load_profile(h100.gpu)
    size = np.array([1 << 16, 1 << 23])
    own = custom_all_reduce_seconds(h100, profile, size, group_size=8)
    table = parquet.ParquetFile(PROFILES / "h100-80gb-sxm" / "custom_all_reduce.parquet").read()
    measured = {
        row["size_bytes"]: row["seconds"] for row in table.to_pylist() if row["num_gpus"] == 8
    }
    np.testing.assert_allclose(own.seconds, [measured[x] for x in size], rtol=1e-6)
    assert set(own.source) == {MEASURED}
    mixed = custom_all_reduce_seconds(h100, profile, size[:, None], group_size=[1, 8, 16])
    assert mixed.seconds.shape == (2, 3)
    assert not mixed.seconds[:, 0].any()
    np.testing.assert_array_equal(mixed.seconds[:, 1], own.seconds)
    nccl = timed(h100, "all_reduce", size, group=16)
    np.testing.assert_array_equal(mixed.seconds[:, 2], nccl.seconds)


def test_point_to_point() -> None:
    h100 = pool("h100")
    found = point_to_point_seconds(
        h100, load_profile(h100.gpu), [[2048], [67108864]], crosses_node=np.array([False, True])
    )
    # microsoft/vidur, data/profiling/network/h100_dgx/send_recv.csv (medians of ranks and runs).
    measured = np.array([[5e-6, 17e-6], [193e-6, 1871e-6]])
    np.testing.assert_allclose(found.seconds, measured, rtol=0.65)
    np.testing.assert_allclose(found.seconds[1], measured[1], rtol=0.08)
    same = timed(h100, "send_recv", 67108864, group=2, stride=[1, 8])
    np.testing.assert_array_equal(same.seconds, found.seconds[1])


def test_a_ring_beyond_a_node_goes_over_the_network() -> None:
    """Its GPUs are neighbours, but the last of a node sends to the first of the next."""
    h100 = pool("h100")
    inside, beyond = timed(h100, "send_recv", 67108864, group=[8, 16], stride=1).seconds
    assert beyond == timed(h100, "send_recv", 67108864, group=2, stride=8).seconds
    assert inside < 0.2 * beyond
    # Four tensor ranks each, so that two context ranks fill a node and four do not.
    two, four = timed(h100, "send_recv", 67108864, group=[2, 4], stride=4).seconds
    assert (two, four) == (inside, beyond)


def test_rows_are_independent() -> None:
    rng = np.random.default_rng(5)
    h100 = pool("h100")
    size = 2.0 ** rng.uniform(5, 34, 200)
    group = rng.choice([1, 2, 3, 4, 8, 12, 16, 64, 512], 200)
    stride = rng.choice([1, 2, 4, 8, 16], 200)
    for collective in COLLECTIVES:
        together = timed(h100, collective, size, group=group, stride=stride)
        for row in range(0, 200, 20):
            alone = timed(h100, collective, size[row], group=group[row], stride=stride[row])
            assert alone.seconds == together.seconds[row]
            assert alone.source == together.source[row]
