"""Who sends what to whom, checked by marking elements one by one. No processes."""

import math
from collections import Counter
from itertools import pairwise, product

import pytest
import torch

from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.reshard.broadcast import sender_ranks
from automap.executor.reshard.buckets import aligned, buckets_of, units_of
from automap.executor.reshard.moves import move_buckets, moves_by_tensor, moves_of
from automap.executor.reshard.parts import Part, Target, by_name, covers, part_of
from tests.executor.reshard.reshard_cases import SPREAD, vllm_slice
from tests.executor.reshard.sharded_model import Llama, ShardedLlama, kind_of

SIZES = [(1, 4), (2, 2), (4, 1), (2, 4), (4, 2), (1, 8)]
"""Pipeline and tensor parallel sizes."""


def members_of(llama: Llama, layout: GenerationLayout) -> list[list[list[Part]]]:
    """What each member of each micro-data-parallel group holds."""
    return [
        [
            [part_of(piece) for piece in ShardedLlama(llama, layout.training, rank).pieces()]
            for rank in group
        ]
        for group in layout.groups("micro_data")
    ]


def elements(part: Part) -> set[tuple[int, ...]]:
    return set(product(*(range(each.start, each.stop) for each in part.index)))


@pytest.mark.parametrize(("stages", "ranks"), SIZES)
@pytest.mark.parametrize("llama", [Llama(), Llama(num_layers=5, vocab_size=125), Llama(tied=True)])
def test_every_part_is_sent_once_by_a_holder(stages: int, ranks: int, llama: Llama) -> None:
    layout = GenerationLayout(RankLayout(ranks, stages), 1, 1)
    for members in members_of(llama, layout):
        units = units_of(members)
        sent = Counter(part for unit in units for parts in unit.sent for part in parts)
        held = Counter(part for parts in members for part in set(parts))
        assert set(sent.values()) <= {1}
        assert set(sent) == {part for part, times in held.items() if times < len(members)}
        for unit in units:
            for member, parts in enumerate(unit.sent):
                assert set(parts) <= set(members[member])
        buckets = list(buckets_of(units, 1 << 13))
        assert Counter(unit.name for bucket in buckets for unit in bucket.units) == Counter(
            unit.name for unit in units
        )


@pytest.mark.parametrize(("stages", "ranks"), SIZES)
def test_equal_stages_send_equally_much(stages: int, ranks: int) -> None:
    llama = Llama()
    for members in members_of(llama, GenerationLayout(RankLayout(ranks, stages), 1, 1)):
        for bucket in buckets_of(units_of(members), 1 << 13):
            matrices = {kind_of(unit.name) for unit in bucket.units} == {"layers"}
            assert bucket.is_even or not matrices
            assert {unit.kind for unit in bucket.units} == {bucket.kind}


def test_layers_keep_their_order_within_a_stage() -> None:
    members = members_of(Llama(), GenerationLayout(RankLayout(4, 2), 1, 1))[0]
    buckets = buckets_of(units_of(members), 1 << 13)
    names = [unit.name for bucket in buckets for unit in bucket.units if bucket.kind == "layers"]
    for stage in (range(4), range(4, 8)):
        own = [name for name in names if int(name.split(".")[2]) in stage]
        assert own == [
            name
            for name in Llama().shapes()
            if kind_of(name) == "layers" and int(name.split(".")[2]) in stage
        ]


@pytest.mark.parametrize("limit", [1, 1 << 12, 1 << 14, 1 << 30])
def test_buckets_are_as_large_as_they_may(limit: int) -> None:
    members = members_of(Llama(), GenerationLayout(RankLayout(4), 1))[0]
    buckets = list(buckets_of(units_of(members), limit))
    sizes = [sum(bucket.sizes) for bucket in buckets]
    assert all(size <= limit or len(b.units) == 1 for size, b in zip(sizes, buckets, strict=True))
    for first, second in pairwise(buckets):
        if first.kind == second.kind:
            assert sum(first.sizes) + sum(second.units[0].sizes) > limit


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("vocab_size", [125, 128, 200])
def test_targets_are_what_vllm_narrows_to(size: int, heads: int, vocab_size: int) -> None:
    llama = Llama(num_layers=1, num_key_value_heads=heads, vocab_size=vocab_size)
    for rank, name in product(range(size), llama.shapes()):
        whole, target = llama.value(name), Target(rank, size, heads)
        shape = tuple(whole.shape)
        part = target.part(Part(name, shape, (0,) * len(shape), shape, whole.dtype))
        assert part is not None
        assert torch.equal(whole[part.index], whole[vllm_slice(name, whole, target)]), name


@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_rank_reads_its_experts_whole_and_none_reads_those_of_others(size: int) -> None:
    llama = Llama(num_layers=1, num_experts=4)
    each = 4 // size
    readers: Counter[str] = Counter()
    for rank, name in product(range(size), llama.shapes()):
        target = Target(rank, size, 8, experts=(rank * each, (rank + 1) * each))
        whole = llama.value(name)
        shape = tuple(whole.shape)
        part = target.part(Part(name, shape, (0,) * len(shape), shape, whole.dtype))
        read = whole[vllm_slice(name, whole, target)]
        assert (part is None) == (read.numel() == 0)
        if part is not None:
            assert torch.equal(whole[part.index], read), name
            readers[name] += 1
    experts = {name for name in llama.shapes() if ".experts." in name}
    assert len(experts) == 12
    assert {readers[name] for name in experts} == {1}
    assert {readers[name] for name in llama.shapes() if name not in experts} == {size}


@pytest.mark.parametrize("layout", [RankLayout(2), *SPREAD.values(), RankLayout(2, 1, 2, 2, 8)])
def test_senders_hold_every_tensor_once_but_for_what_their_copies_share(
    layout: RankLayout,
) -> None:
    llama = Llama(num_layers=2, num_experts=8)
    senders = sender_ranks(layout)
    held = {
        rank: {part_of(piece) for piece in ShardedLlama(llama, layout, rank).pieces()}
        for rank in senders
    }
    for name, shape in llama.shapes().items():
        parts = {part for own in held.values() for part in own if part.name == name}
        assert sum(math.prod(part.shape) for part in parts) == math.prod(shape)
    for left in senders:  # each is needed
        others = set[Part]().union(*(held[rank] for rank in senders if rank != left))
        assert held[left] - others


def test_targets_leave_other_stages_layers_out() -> None:
    target = Target(0, 1, 2, layers=(2, 4))
    shape = (4, 4)
    found = [
        target.part(Part(name, shape, (0, 0), shape, torch.float32)) is not None
        for name in [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(6)]
    ]
    assert found == [False, False, True, True, False, False]
    assert target.part(Part("lm_head.weight", shape, (0, 0), shape, torch.float32)) is not None


def box(*ranges: tuple[int, int], name: str = "x.o_proj.weight") -> Part:
    start = tuple(first for first, _ in ranges)
    shape = tuple(last - first for first, last in ranges)
    return Part(name, (12, 10), start, shape, torch.float32)


def test_parts_meet_in_boxes() -> None:
    rows, columns = box((3, 9), (0, 10)), box((0, 12), (5, 7))
    common = rows.common(columns)
    assert common == box((3, 9), (5, 7)) == columns.common(rows)
    assert elements(common) == elements(rows) & elements(columns)
    assert common.within(rows) == (slice(0, 6), slice(5, 7))
    assert common.within(columns) == (slice(3, 9), slice(0, 2))
    assert rows.common(box((0, 3), (0, 10))) is None
    assert covers([box((0, 5), (0, 10)), box((5, 12), (0, 10))], columns)
    assert not covers([box((0, 5), (0, 10)), box((6, 12), (0, 10))], columns)
    assert not covers([rows, rows], columns)


@pytest.mark.parametrize("take_turns", [True, False])
def test_moves_bring_what_is_wanted_and_missing(take_turns: bool) -> None:
    rows = [box((0, 4), (0, 10)), box((4, 8), (0, 10)), box((8, 12), (0, 10))]
    held = [[rows[0]], [rows[1]], [rows[2]], [rows[0]], []]
    wanted = [box((0, 12), (0, 5)), box((0, 12), (5, 10)), None, box((2, 6), (0, 10)), rows[0]]
    moves = moves_of(held, wanted, take_turns=take_turns)
    for member, want in enumerate(wanted):
        own = [move for move in moves if move.target == member]
        found = Counter(element for move in own for element in elements(move.sent))
        assert set(found) == (set() if want is None else elements(want))
        assert set(found.values()) <= {1}
        for move in own:
            assert move.held in held[move.source]
            assert elements(move.sent) <= elements(move.held)
            assert (move.nbytes == 0) == (move.source == member)
            assert move.nbytes in (0, aligned(4 * math.prod(move.sent.shape)))
        already = {element for part in held[member] for element in elements(part)}
        sent = sum(len(elements(move.sent)) for move in own if move.source != member)
        assert sent == len(set(found) - already)
    to_others = {m.source for m in moves if m.held == rows[0] and m.target not in (0, 3)}
    assert to_others == ({0, 3} if take_turns else {0})


def test_moves_need_somebody_who_holds() -> None:
    with pytest.raises(ValueError, match=r"no rank holds all of x\.o_proj\.weight"):
        moves_of([[box((0, 4), (0, 10))], []], [None, box((0, 5), (0, 10))])


@pytest.mark.parametrize("limit", [1, 1 << 12, 1 << 30])
def test_moves_travel_in_buckets_of_one_kind(limit: int) -> None:
    llama = Llama(num_layers=2)
    parts = [
        [part_of(piece) for piece in ShardedLlama(llama, RankLayout(4), rank).pieces()]
        for rank in range(4)
    ]
    described = [(own, Target(rank % 2, 2, 8)) for rank, own in enumerate(parts)]
    by_kind = moves_by_tensor(described)
    buckets = list(move_buckets(by_kind, limit))
    assert [move for bucket in buckets for move in bucket.moves] == [
        move for tensors in by_kind.values() for moves in tensors for move in moves
    ]
    for bucket in buckets:
        received = [sum(bucket.splits(member, 4)[1]) for member in range(4)]
        assert sum(received) == sum(sum(bucket.splits(member, 4)[0]) for member in range(4))
        names = by_name(move.sent for move in bucket.moves)
        assert max(received) <= limit or len(names) == 1
        assert {kind_of(name) for name in names} == {bucket.kind}
