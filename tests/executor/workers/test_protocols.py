import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.workers import protocols
from automap.executor.workers.protocols import (
    ALL_TO_ALL,
    DP,
    ONE_TO_ALL,
    PP_AS_DP,
    RANK_ZERO,
    THREE_D,
    THREE_D_ALL_MICRO_DP,
    THREE_D_PER_REPLICA,
    THREE_D_PP_ONLY,
    Call,
    Layout,
    Protocol,
    Splittable,
    by_rows,
    protocol_of,
    register,
    row_ranges,
    transfer,
)
from tests.executor.layout.layouts import generation_grid, generation_layouts, grid, rank_layouts

BY_ROWS = (DP, THREE_D, THREE_D_ALL_MICRO_DP, PP_AS_DP)
EVERY = (*BY_ROWS, ONE_TO_ALL, RANK_ZERO, ALL_TO_ALL, THREE_D_PP_ONLY)


@dataclass(frozen=True)
class Line:
    """Rows that are numbers; it knows nothing of protocols."""

    rows: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def slice(self, start: int, stop: int) -> "Line":
        return Line(self.rows[start:stop])

    @classmethod
    def concatenate(cls, parts: Sequence["Line"]) -> "Line":
        return cls(tuple(row for part in parts for row in part.rows))


def every_layout() -> Iterator[Layout]:
    yield from rank_layouts(largest=16, with_context=True)
    yield from generation_layouts(largest=16, with_context=True)


def grids(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Ranks as [pipeline, data, context, tensor] and as [replica, pipeline, tensor]."""
    if isinstance(layout, GenerationLayout):
        ranks = generation_grid(layout)
        return grid(layout.training), ranks.reshape(-1, *ranks.shape[2:])
    training = grid(layout)
    p, d, c, t = training.shape
    return training, training.transpose(1, 2, 0, 3).reshape(d * c, p, t)


def members(protocol: Protocol, layout: Layout) -> list[list[int]]:
    """The ranks that share each part of the rows; the first is where its output comes from."""
    training, replicas = grids(layout)
    if protocol is DP:
        return [[rank] for rank in range(layout.world_size)]
    if protocol is THREE_D:  # From the last stage.
        return [training[::-1, data].ravel().tolist() for data in range(training.shape[1])]
    if protocol is THREE_D_ALL_MICRO_DP:
        return [replica.ravel().tolist() for replica in replicas]
    assert protocol is PP_AS_DP
    return [
        training[stage, data].ravel().tolist()
        for data in range(training.shape[1])
        for stage in range(training.shape[0])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", BY_ROWS, ids=lambda each: each.name)
def test_rows_are_split_shared_and_collected_once_in_order(protocol: Protocol) -> None:
    count = 0
    for layout in every_layout():
        sharing = members(protocol, layout)
        assert sorted(rank for ranks in sharing for rank in ranks) == list(range(layout.world_size))
        for num_rows in (len(sharing), len(sharing) + 1, 3 * len(sharing) - 1):
            whole = Line(tuple(range(100, 100 + num_rows)))
            shares = protocol.distribute(layout, whole)
            parts = np.array_split(whole.rows, len(sharing))
            for ranks, part in zip(sharing, parts, strict=True):
                assert all(shares[rank] == Line(tuple(part.tolist())) for rank in ranks), layout
            assert protocol.collect(layout, shares) == whole
        outputs = [Line((rank, -rank)) for rank in range(layout.world_size)]
        leaders = [ranks[0] for ranks in sharing]
        assert protocol.collect(layout, outputs) == Line.concatenate([outputs[r] for r in leaders])
        assert protocol.collect(layout, list(map(str, range(16)))) == list(map(str, leaders))
        assert protocol.distribute(layout, "plain") == ["plain"] * layout.world_size
        assert list(protocol.called(layout)) == list(range(layout.world_size))
        count += 1
    assert count > 500


def test_broadcasts_and_their_collections_on_every_layout() -> None:
    rows = Line((1,))
    for layout in every_layout():
        world_size = layout.world_size
        outputs = [Line((rank,)) for rank in range(world_size)]
        for protocol in (ONE_TO_ALL, THREE_D_PP_ONLY):
            assert protocol.distribute(layout, rows) == [rows] * world_size
            assert len(protocol.called(layout)) == world_size
        assert ONE_TO_ALL.collect(layout, outputs) == outputs
        stages = grids(layout)[0][:, 0, 0, 0].tolist()
        assert THREE_D_PP_ONLY.collect(layout, outputs) == Line(tuple(stages))
        names = [[f"layer of {rank}"] for rank in range(world_size)]
        assert THREE_D_PP_ONLY.collect(layout, names) == [names[rank] for rank in stages]


def test_rank_zero_and_all_to_all_on_every_layout() -> None:
    rows = Line((1, 2))
    for layout in every_layout():
        others = layout.world_size - 1
        assert RANK_ZERO.calls(layout, [rows]) == [Call((rows,), {})] + [None] * others
        assert RANK_ZERO.calls(layout) == [Call((), {})] + [None] * others
        assert RANK_ZERO.collect(layout, ["first"] + [None] * others) == "first"
        items = [f"item {rank}" for rank in range(layout.world_size)]
        assert ALL_TO_ALL.distribute(layout, items) == items
        assert ALL_TO_ALL.collect(layout, items) == items


two_by_two = RankLayout(tensor_parallel_size=2, data_parallel_size=2)


def test_a_call_splits_each_argument_and_repeats_plain_ones() -> None:
    calls = THREE_D.calls(
        two_by_two, [Line((1, 2, 3)), 0.5], {"values": Line((4, 5)), "loss": None}
    )
    first = Call((Line((1, 2)), 0.5), {"values": Line((4,)), "loss": None})
    second = Call((Line((3,)), 0.5), {"values": Line((5,)), "loss": None})
    assert calls == [first, first, second, second]
    assert THREE_D.calls(two_by_two) == [Call((), {})] * 4


def test_batches_are_splittable() -> None:
    responses = Ragged(torch.arange(6), torch.tensor([3, 0, 1, 2]))
    batch = Batch({"responses": responses, "scores": torch.arange(4.0)})
    assert isinstance(batch, Splittable)
    shares = THREE_D.distribute(two_by_two, batch)
    assert all(isinstance(share, Batch) and share.num_rows == 2 for share in shares)
    whole = THREE_D.collect(two_by_two, shares)
    assert isinstance(whole, Batch)
    assert whole.tensor("scores").tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [row.tolist() for row in whole.ragged("responses").rows()] == [
        [0, 1, 2],
        [],
        [3],
        [4, 5],
    ]
    assert not isinstance(torch.arange(4), Splittable)


def test_parts_are_contiguous_and_nearly_equal() -> None:
    for num_rows in range(1, 40):
        for num_parts in range(1, num_rows + 1):
            ranges = row_ranges(num_rows, num_parts)
            assert [row for each in ranges for row in range(*each)] == list(range(num_rows))
            sizes = [stop - start for start, stop in ranges]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1


def test_what_cannot_be_distributed_is_named() -> None:
    with pytest.raises(ValueError, match=r"DP, argument 'rollout': 3 rows .* into 4 parts"):
        DP.calls(two_by_two, [], {"rollout": Line((1, 2, 3))})
    with pytest.raises(ValueError, match=r"ALL_TO_ALL, argument 0: has 2 items for 4 ranks"):
        ALL_TO_ALL.calls(two_by_two, [["a", "b"]])
    with pytest.raises(ValueError, match=r"argument 1: must be a list .* 4 ranks, got str"):
        ALL_TO_ALL.calls(two_by_two, [[1, 2, 3, 4], "four"])
    short = Protocol("SHORT", lambda layout, value: [value], ONE_TO_ALL.collect)
    with pytest.raises(ValueError, match=r"SHORT, argument 0: distributed to 1 .* there are 4"):
        short.calls(two_by_two, ["value"])
    with pytest.raises(TypeError, match=r"returned rows and others did not: .*2: 'NoneType'"):
        THREE_D.collect(two_by_two, [Line((1,)), None, None, None])


class Worker:
    @transfer("3D")
    def log_probs(self, rollout: Line) -> Line:
        return rollout

    @transfer(RANK_ZERO)
    def describe(self) -> str:
        return "a worker"

    def unmarked(self) -> None: ...


def test_methods_declare_their_protocol() -> None:
    assert protocol_of(Worker.log_probs) is THREE_D
    assert protocol_of(Worker().describe) is RANK_ZERO
    assert Worker().describe() == "a worker"
    with pytest.raises(TypeError, match=r"Worker.unmarked declares no protocol"):
        protocol_of(Worker.unmarked)


@pytest.mark.parametrize("protocol", EVERY, ids=lambda each: each.name)
def test_every_protocol_is_known_by_its_name(protocol: Protocol) -> None:
    @transfer(protocol.name)
    def method() -> None: ...

    assert protocol_of(method) is protocol


def test_an_unknown_protocol_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown protocol '4D'; known are ") as caught:
        transfer("4D")
    for protocol in EVERY:
        assert protocol.name in str(caught.value).split("; ")[1].split("are ")[1].split(", ")


def test_a_protocol_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "_PROTOCOLS", dict(protocols._PROTOCOLS))
    register(
        by_rows(
            "HALVES",
            part=lambda layout, rank: rank % 2,
            collected=lambda layout: [0, 1],
        )
    )

    class Own:
        @transfer("HALVES")
        def square(self, rows: Line) -> Line:
            return Line(tuple(row * row for row in rows.rows))

    protocol = protocol_of(Own.square)
    calls = protocol.calls(two_by_two, [Line((1, 2, 3))])
    method: Callable[..., Line] = Own().square
    outputs = [method(*call.args) for call in calls if call]
    assert outputs == [Line((1, 4)), Line((9,)), Line((1, 4)), Line((9,))]
    assert protocol.collect(two_by_two, outputs) == Line((1, 4, 9))
    with pytest.raises(ValueError, match=r"there is a protocol 'HALVES' already"):
        register(protocol)


def test_worker_classes_of_a_script_travel_with_their_protocols() -> None:
    """Ray ships a class of `__main__` by value, its methods' protocols included."""
    cloudpickle = pytest.importorskip("cloudpickle")

    class Shipped:
        @transfer("PP_AS_DP")
        def method(self) -> None: ...

    again = pickle.loads(cloudpickle.dumps(Shipped))
    rows = Line((1, 2))
    assert protocol_of(again.method).name == "PP_AS_DP"
    assert protocol_of(again.method).distribute(two_by_two, rows)[2] == Line((2,))


def test_each_replica_gets_its_item_and_those_with_rows_are_collected() -> None:
    layout = GenerationLayout(RankLayout(tensor_parallel_size=2, data_parallel_size=2), 2, 1)
    first, second = Line((1, 2)), None
    calls = THREE_D_PER_REPLICA.calls(layout, ([first, second],), {"version": 3})
    assert [call and call.args[0] for call in calls] == [first, first, second, second]
    assert all(call is not None and call.kwargs == {"version": 3} for call in calls)
    assert THREE_D_PER_REPLICA.collect(layout, [first, None, Line((7,)), None]) == Line((1, 2, 7))
    assert THREE_D_PER_REPLICA.collect(layout, [None, None, Line((7,)), None]) == Line((7,))
    assert THREE_D_PER_REPLICA.collect(layout, [None] * 4) is None
    with pytest.raises(ValueError, match="has 3 items for 2 replicas"):
        THREE_D_PER_REPLICA.calls(layout, ([1, 2, 3],))
