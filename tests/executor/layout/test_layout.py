from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from automap.executor.layout import (
    Coordinates,
    ExpertCoordinates,
    GenerationCoordinates,
    GenerationLayout,
    RankLayout,
    Shard,
)
from automap.planner.plan.types import Parallelism
from tests.executor.layout.layouts import (
    Ranks,
    divisors,
    generation_grid,
    generation_layouts,
    grid,
    rank_layouts,
)


def lines(ranks: Ranks, *axes: int) -> list[list[int]]:
    """The ranks along some axes, one list for every place in the others."""
    size = int(np.prod([ranks.shape[axis] for axis in axes]))
    last = tuple(range(-len(axes), 0))
    return sorted(map(sorted, np.moveaxis(ranks, axes, last).reshape(-1, size).tolist()))


@pytest.mark.slow
def test_groups_and_coordinates_of_every_layout_up_to_64_ranks() -> None:
    axes = {"pipeline": 0, "data": 1, "context": 2, "tensor": 3}
    count = 0
    for layout in rank_layouts(largest=64):
        ranks = grid(layout)
        for rank in range(layout.world_size):
            place = layout.coordinates(rank)
            assert ranks[place.pipeline, place.data, place.context, place.tensor] == rank
        for names in (("tensor",), ("pipeline",), ("data",), ("tensor", "pipeline")):
            assert layout.groups(*names) == lines(ranks, *(axes[name] for name in names)), layout
        count += 1
    assert count == 2 * sum(len(divisors(n // t)) for n in range(1, 65) for t in divisors(n))


def test_context_groups_and_rank_of_on_every_layout_up_to_24_ranks() -> None:
    axes = {"pipeline": 0, "data": 1, "context": 2, "tensor": 3}
    for layout in rank_layouts(largest=24, with_context=True):
        ranks = grid(layout)
        for names in (("context",), ("context", "data"), ("tensor", "context", "data")):
            assert layout.groups(*names) == lines(ranks, *(axes[name] for name in names)), layout
        for rank in range(layout.world_size):
            assert layout.rank_of(**layout.coordinates(rank)._asdict()) == rank


@pytest.mark.slow
def test_every_layout_of_generation_up_to_32_ranks() -> None:
    """Groups partition the ranks, and every training shard lies in its generation shard."""
    for layout in generation_layouts(largest=32):
        check_places(layout)
        check_transition(layout)


@pytest.mark.slow
def test_every_layout_of_generation_up_to_64_ranks() -> None:
    for layout in generation_layouts(smallest=33, largest=64):
        check_places(layout)
        check_transition(layout)


@pytest.mark.slow
def test_every_layout_of_generation_with_context_up_to_16_ranks() -> None:
    for layout in generation_layouts(largest=16, with_context=True):
        check_places(layout)
        check_transition(layout)
        check_groups(layout)


def check_places(layout: GenerationLayout) -> None:
    ranks = generation_grid(layout)
    assert sorted(ranks.ravel().tolist()) == list(range(layout.world_size))
    for rank in range(layout.world_size):
        place = layout.coordinates(rank)
        assert ranks[place.data, place.micro_data, place.pipeline, place.tensor] == rank, layout


def check_groups(layout: GenerationLayout) -> None:
    ranks = generation_grid(layout)
    axes = {"data": 0, "micro_data": 1, "pipeline": 2, "tensor": 3}
    for names in (("tensor",), ("pipeline",), ("micro_data",), ("data",), ("tensor", "pipeline")):
        groups = layout.groups(*names)
        assert groups == lines(ranks, *(axes[name] for name in names)), layout
        for group in groups if len(names) == 1 else []:
            places = [getattr(layout.coordinates(rank), names[0]) for rank in group]
            assert places == list(range(len(group))), "torch's sorting must keep the order"
    for replica, group in enumerate(ranks.reshape(layout.num_replicas, -1).tolist()):
        assert {layout.replica(rank) for rank in group} == {replica}


def check_transition(layout: GenerationLayout) -> None:
    """An all-gather per micro-data group makes generation shards of training shards exactly."""
    training, received = layout.training, layout.received_fraction
    t, p = training.tensor_parallel_size, training.pipeline_parallel_size
    for group in layout.groups("micro_data"):
        if layout.coordinates(group[0]).data:
            continue  # The other copies are alike: check_places.
        wanted = layout.shard(group[0])
        assert all(layout.shard(rank) == wanted for rank in group)
        cells = {cell for rank in group for cell in cells_of(training.shard(rank), t, p)}
        assert cells == set(cells_of(wanted, t, p)), layout
        assert len(cells) == len(group), "two ranks hold the same"
        assert received == Fraction(len(cells) - 1, t * p)
        copy = training.coordinates(group[0])[1:3]
        assert all(training.coordinates(rank)[1:3] == copy for rank in group), "leaves its copy"


def cells_of(shard: Shard, t: int, p: int) -> list[tuple[int, int]]:
    """The squares of a t × p board that a shard covers; its borders are on the board's lines."""
    borders = [*(each * t for each in shard.tensor), *(each * p for each in shard.pipeline)]
    assert all(each.denominator == 1 for each in borders)
    left, right, top, bottom = (each.numerator for each in borders)
    return list(product(range(left, right), range(top, bottom)))


@pytest.mark.slow
def test_vanilla_grouping_holds_a_training_shard_twice() -> None:
    """HybridFlow, Table 2: M ÷ (t·p) on the worst rank, wherever a rank's two shards differ."""
    displaced = 0
    for interval in generation_layouts(largest=24):
        layout = GenerationLayout(
            interval.training,
            interval.tensor_parallel_size,
            interval.pipeline_parallel_size,
            grouping="vanilla",
        )
        check_places(layout)
        t, p = layout.training.tensor_parallel_size, layout.training.pipeline_parallel_size
        worst = max(
            1 - len(needed & set(cells_of(layout.shard(rank), t, p)))
            for rank in range(layout.world_size)
            for needed in [set(cells_of(layout.training.shard(rank), t, p))]
        )
        assert layout.redundant_fraction == Fraction(worst, t * p), layout
        assert interval.redundant_fraction == 0
        if p == 1:
            assert worst == (1 < layout.tensor_parallel_size < t)
        whole = layout.micro_data_parallel_size == 1
        assert layout.received_fraction == (0 if whole else Fraction(t * p - 1, t * p))
        displaced += worst
    assert displaced > 100


def test_the_papers_example() -> None:
    """Training 1-4-2 to generation 1-2-2-2 on 8 GPUs; the paper counts ranks from 1."""
    layout = GenerationLayout(
        RankLayout(tensor_parallel_size=4, data_parallel_size=2), tensor_parallel_size=2
    )
    assert from_one(layout.training.groups("tensor")) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert from_one(layout.training.groups("data")) == [[1, 5], [2, 6], [3, 7], [4, 8]]
    assert from_one(layout.groups("tensor")) == [[1, 3], [2, 4], [5, 7], [6, 8]]
    assert from_one(layout.groups("micro_data")) == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert layout.micro_data_parallel_size == 2
    assert layout.data_parallel_size == 2
    assert layout.received_fraction == Fraction(1, 4)
    vanilla = GenerationLayout(layout.training, tensor_parallel_size=2, grouping="vanilla")
    assert from_one(vanilla.groups("tensor")) == [[1, 2], [3, 4], [5, 6], [7, 8]]
    displaced = [
        rank + 1
        for rank in range(8)
        if not vanilla.shard(rank).contains(vanilla.training.shard(rank))
    ]
    assert displaced == [2, 3, 6, 7]
    assert vanilla.redundant_fraction == Fraction(1, 4)
    assert vanilla.received_fraction == Fraction(3, 4)


def from_one(groups: list[list[int]]) -> list[list[int]]:
    return [[rank + 1 for rank in group] for group in groups]


@pytest.mark.parametrize(
    ("tensor", "pipeline", "generation_tensor", "received"),
    [(8, 1, 1, "7/8"), (8, 1, 2, "3/8"), (8, 1, 4, "1/8"), (8, 1, 8, "0"), (8, 8, 8, "7/64")],
)
def test_bytes_received_as_the_paper_counts_them(
    tensor: int, pipeline: int, generation_tensor: int, received: str
) -> None:
    """(t·p − t_g·p_g) ÷ (t_g·p_g·t·p)."""
    training = RankLayout(tensor, pipeline, data_parallel_size=2)
    layout = GenerationLayout(training, generation_tensor)
    assert layout.received_fraction == Fraction(received)


def test_expert_groups() -> None:
    """Consecutive within a stage; fewer than the tensor group, the rest splits the width."""
    wide = RankLayout(
        tensor_parallel_size=2,
        data_parallel_size=4,
        pipeline_parallel_size=2,
        expert_parallel_size=4,
    )
    assert wide.groups("expert") == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert wide.groups("expert_data")[:4] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert wide.expert_tensor_parallel_size == 1
    narrow = RankLayout(tensor_parallel_size=4, data_parallel_size=2, expert_parallel_size=2)
    assert narrow.groups("expert_tensor") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert narrow.groups("expert") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert narrow.groups("expert_data") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    by_pipeline = RankLayout(
        pipeline_parallel_size=2, data_parallel_size=4, expert_parallel_size=2, order="hybridflow"
    )
    assert by_pipeline.groups("expert") == [[0, 2], [1, 3], [4, 6], [5, 7]]


@pytest.mark.slow
def test_groups_are_those_of_megatron_core() -> None:
    parallel_state = pytest.importorskip("megatron.core.parallel_state")
    for layout in rank_layouts(largest=16, with_context=True):
        if layout.order != "megatron":
            continue
        t, p = layout.tensor_parallel_size, layout.pipeline_parallel_size
        c, d = layout.context_parallel_size, layout.data_parallel_size
        dense = parallel_state.RankGenerator(t, 1, d, p, c, "tp-cp-ep-dp-pp")
        for token, names in {
            "tp": ("tensor",),
            "pp": ("pipeline",),
            "cp": ("context",),
            "dp": ("data",),
            "dp-cp": ("data", "context"),
            "tp-pp": ("tensor", "pipeline"),
        }.items():
            assert layout.groups(*names) == sorted(dense.get_ranks(token)), layout
        for experts in divisors(t * c * d):
            if experts % t and t % experts:
                continue
            split = RankLayout(t, p, c, d, experts)
            width = split.expert_tensor_parallel_size
            copies = t * c * d // (experts * width)
            sparse = parallel_state.RankGenerator(width, experts, copies, p, 1, "tp-cp-ep-dp-pp")
            for token, name in {"tp": "expert_tensor", "ep": "expert", "dp": "expert_data"}.items():
                assert split.groups(name) == sorted(sparse.get_ranks(token)), split


def test_a_layout_of_a_plan() -> None:
    parallelism = Parallelism(
        tensor_parallel_size=2,
        pipeline_parallel_size=3,
        virtual_pipeline_parallel_size=2,
        context_parallel_size=2,
        data_parallel_size=4,
        expert_parallel_size=4,
        sharding="optimizer",
    )
    assert RankLayout.of(parallelism) == RankLayout(2, 3, 2, 4, 4)
    assert RankLayout.of(parallelism).world_size == parallelism.num_gpus == 48
    assert RankLayout.of(parallelism).coordinates(1 + 2 * (1 + 2 * (3 + 4 * 2))) == Coordinates(
        tensor=1, context=1, data=3, pipeline=2
    )
    assert RankLayout.of(parallelism).expert_coordinates(47) == ExpertCoordinates(0, 3, 3, 2)
    generation = GenerationLayout(RankLayout.of(parallelism), 1, 3)
    assert generation.coordinates(47) == GenerationCoordinates(0, 2, 1, 7)
    assert generation.replica(47) == 15


def test_generation_on_more_tensor_ranks_than_train_counts_them_afresh() -> None:
    for training in rank_layouts(largest=16):
        sizes = [(t, p) for t in divisors(training.world_size) for p in (1, 2)]
        for t, p in sizes:
            if training.world_size % (t * p):
                continue
            layout = GenerationLayout.of(training, tensor_parallel_size=t, pipeline_parallel_size=p)
            divides = not training.tensor_parallel_size % t
            divides = divides and not training.pipeline_parallel_size % p
            assert layout.grouping == ("interval" if divides else "afresh")
            replicas = layout.groups("tensor", "pipeline")
            assert len(replicas) == layout.num_replicas == training.world_size // (t * p)
            assert sorted(map(layout.replica, (each[0] for each in replicas))) == list(
                range(layout.num_replicas)
            )
            for ranks in replicas:  # a replica holds the model once
                assert sum(layout.shard(rank).size for rank in ranks) == 1
                assert {layout.replica(rank) for rank in ranks} == {layout.replica(ranks[0])}
    fsdp = GenerationLayout.of(
        RankLayout(data_parallel_size=4), tensor_parallel_size=2, pipeline_parallel_size=1
    )
    assert fsdp.groups("tensor", "pipeline") == [[0, 1], [2, 3]]
    assert fsdp.received_fraction == 0  # every data rank of Megatron holds all


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"data_parallel_size must be at least 1, got 0"):
        RankLayout(data_parallel_size=0)
    with pytest.raises(ValueError, match=r"order must be one of .*'megatron'.*, got 'fast'"):
        RankLayout(order="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expert_parallel_size 3 must divide the 4 ranks"):
        RankLayout(data_parallel_size=4, expert_parallel_size=3)
    with pytest.raises(ValueError, match=r"multiple of tensor_parallel_size 2"):
        RankLayout(tensor_parallel_size=2, data_parallel_size=3, expert_parallel_size=3)
    four = RankLayout(tensor_parallel_size=4)
    with pytest.raises(ValueError, match=r"tensor_parallel_size 3 must divide the training .* 4"):
        GenerationLayout(four, 3)
    with pytest.raises(ValueError, match=r"pipeline_parallel_size 2 must divide the training .* 1"):
        GenerationLayout(four, 2, 2)
    with pytest.raises(ValueError, match=r"generation.*|tensor_parallel_size must be at least 1"):
        GenerationLayout(four, 0)
    with pytest.raises(ValueError, match=r"replicas of 3 ranks .* do not divide the 4 ranks"):
        GenerationLayout.of(four, tensor_parallel_size=3, pipeline_parallel_size=1)
    with pytest.raises(ValueError, match=r"grouping must be interval, vanilla or afresh, got 'o"):
        GenerationLayout(four, 2, grouping="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expert_parallel_size 2 must be 1 or .*_size 4"):
        GenerationLayout.of(
            four, tensor_parallel_size=4, pipeline_parallel_size=1, expert_parallel_size=2
        )
    for layout in (four, GenerationLayout(four, 2)):
        with pytest.raises(ValueError, match=r"rank must be from 0 to 3, got 4"):
            layout.coordinates(4)
    with pytest.raises(ValueError, match=r"tensor must be from 0 to 3, got 4"):
        four.rank_of(tensor=4)
    with pytest.raises(ValueError, match=r"groups are over some of .*; got \('tensors',\)"):
        four.groups("tensors")
    with pytest.raises(ValueError, match=r"got \('tensor', 'expert'\)"):
        four.groups("tensor", "expert")
    with pytest.raises(ValueError, match=r"got \(\)"):
        four.groups()
