"""What must hold of the transition between training and generation, checked on eight ranks.

Every value is compared, bit for bit, with the whole tensor that all ranks know.
"""

import dataclasses
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from automap.executor.engines.training_engine import Piece
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.reshard.broadcast import Meeting, WeightReceiver, WeightSender, sender_ranks
from automap.executor.reshard.gather import AllGather
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.parts import Held, Target, is_whole, layer_of
from automap.executor.reshard.transition import (
    Transition,
    any_transition,
    data_parallel_transition,
    gather_within,
    model_parallel_transition,
)
from automap.planner.layout import layers_per_stage
from tests.executor.ranks import Case
from tests.executor.reshard.generation_buffer import GenerationBuffer
from tests.executor.reshard.sharded_model import Llama, ShardedLlama, expert_of, kind_of

BUCKET = 1 << 14
Sizes = tuple[int, int, int, int, int]
"""p, t, d of training, p and t of generation."""
LAYOUTS: list[Sizes] = [
    (1, 8, 1, 1, 1),
    (1, 8, 1, 1, 2),
    (2, 4, 1, 1, 1),
    (2, 4, 1, 1, 2),
    (2, 4, 1, 2, 2),
    (4, 2, 1, 2, 1),
    (8, 1, 1, 1, 1),
    (2, 2, 2, 1, 2),
    (1, 4, 2, 1, 2),
    (1, 4, 2, 1, 4),
]
MORE_LAYOUTS: list[Sizes] = [
    (p, t, 8 // p // t, p_g, t_g)
    for p in (1, 2, 4, 8)
    for t in (1, 2, 4, 8)
    if p * t <= 8
    for p_g in (1, 2, 4, 8)
    for t_g in (1, 2, 4, 8)
    if p % p_g == 0 and t % t_g == 0 and (p, t, 8 // p // t, p_g, t_g) not in LAYOUTS
]


MIXTURE = Llama(num_layers=2, vocab_size=250, num_experts=8)
SPREAD = {
    "t2d4": RankLayout(tensor_parallel_size=2, data_parallel_size=4),
    "t2d4e8": RankLayout(tensor_parallel_size=2, data_parallel_size=4, expert_parallel_size=8),
    "t4d2e2": RankLayout(tensor_parallel_size=4, data_parallel_size=2, expert_parallel_size=2),
    "p2d4e4": RankLayout(pipeline_parallel_size=2, data_parallel_size=4, expert_parallel_size=4),
}
"""Experts on unlike ranks while they train; of `t4d2e2` each is split over two."""


def layout_of(sizes: Sizes, **options: str) -> GenerationLayout:
    p, t, d, p_g, t_g = sizes
    training = RankLayout(
        tensor_parallel_size=t,
        pipeline_parallel_size=p,
        data_parallel_size=d,
        order=options.get("order", "megatron"),
    )
    return GenerationLayout(training, t_g, p_g, options.get("grouping", "interval"))


def check_values(held: Held, llama: Llama, *, step: int) -> None:
    for part, values in held.items():
        whole = llama.value(part.name, step=step)
        assert torch.equal(values.reshape(part.shape), whole[part.index].to(part.dtype)), part


def check_shard(
    buffer: GenerationBuffer, layout: GenerationLayout, llama: Llama, step: int
) -> None:
    """The buffer holds this rank's generation shard: nothing less, nothing more, right values."""
    place = layout.coordinates(dist.get_rank())
    target = Target(place.tensor, layout.tensor_parallel_size, llama.num_key_value_heads)
    found = set()
    for name, held in buffer.tensors():
        check_values(held, llama, step=step)
        found.add(name)
        whole = dataclasses.replace(
            part := next(iter(held)), start=(0,) * len(part.start), shape=part.full_shape
        )
        read = target.part(whole)
        assert read is not None
        assert sum(part.nbytes for part in held) == read.nbytes, name
        assert all(part.common(read) == part for part in held), name
    stages = layout.pipeline_parallel_size
    expected = {n for n in llama.shapes() if place.pipeline in llama.stage_of(n, stages)}
    assert found == expected


def settle(ledger: Ledger) -> None:
    """Gloo's own thread lets go of a bucket a moment after the collective."""
    for _ in range(1000):
        if ledger.alive("bucket") == 0:
            return
        time.sleep(0.001)
    raise AssertionError("a bucket is still alive")


def maximum(value: int) -> int:
    tensor = torch.tensor(value)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor)


def gathers_exactly(folder: Path, *, sizes: Sizes, order: str) -> None:
    """Values, bytes and memory of an ordinary model; the weights that train are a block."""
    layout, llama, ledger = layout_of(sizes, order=order), Llama(), Ledger()
    model = ShardedLlama(llama, layout.training, dist.get_rank())
    gather = gather_within(model.pieces, layout, bucket_bytes=BUCKET, ledger=ledger)
    buffer = GenerationBuffer(gather, model.weights)
    for step in (1, 2):
        model.step(step)
        buffer.fill()
        check_shard(buffer, layout, llama, step)
        assert ledger.alive("training", "generation") == buffer.shard_bytes  # no byte twice
        buffer.release()
        assert ledger.alive("generation") == 0
        settle(ledger)
    assert ledger.peak_bytes <= buffer.shard_bytes + ledger.peaks["bucket"]
    largest = max(llama.value(name).nbytes for name in llama.shapes())
    assert ledger.peaks["bucket"] <= max(BUCKET, largest * layout.training.pipeline_parallel_size)
    expected = layout.received_fraction * llama.nbytes(kind="layers")
    if layout.training.tensor_parallel_size == layout.tensor_parallel_size:
        # No two members are tensor peers: norms are split as all else is, by stages.
        norms = sum(llama.value(n).nbytes for n in llama.shapes() if "layernorm" in n)
        stages = layout.training.pipeline_parallel_size
        expected += (layout.micro_data_parallel_size - 1) * norms // stages
    assert ledger.received_bytes("layers") == 2 * expected


def counts_exactly(folder: Path, *, sizes: Sizes) -> None:
    """HybridFlow's Table 2, of a model whose every byte is evenly split."""
    llama = Llama(only_matrices=True)
    total = llama.nbytes(kind="layers")
    for grouping in ("interval", "vanilla"):
        layout, ledger = layout_of(sizes, grouping=grouping), Ledger()
        training, d_g = layout.training, layout.micro_data_parallel_size
        t_p = training.tensor_parallel_size * training.pipeline_parallel_size
        model = ShardedLlama(llama, training, dist.get_rank())
        gather = gather_within(model.pieces, layout, bucket_bytes=BUCKET, ledger=ledger)
        buffer = GenerationBuffer(gather, model.weights)
        buffer.fill()
        check_shard(buffer, layout, llama, 0)
        redundant = ledger.alive("training", "generation") - buffer.shard_bytes
        if grouping == "interval":
            assert ledger.received_bytes() == (d_g - 1) * total // t_p
            assert redundant == 0
            assert ledger.alive("training", "generation") == total * d_g // t_p
            assert ledger.peak_bytes <= total * d_g // t_p + ledger.peaks["bucket"]
        else:
            gathered = 0 if d_g == 1 else (t_p - 1) * total // t_p
            assert ledger.received_bytes() == gathered
            assert maximum(redundant) == layout.redundant_fraction * total
            if training.pipeline_parallel_size == 1 < d_g < t_p:
                assert maximum(redundant) == total // t_p
        buffer.release()


def repeats_few_heads(folder: Path) -> None:
    """Two key-value heads over eight tensor ranks: repeated, and counted apart."""
    llama, ledger = Llama(num_key_value_heads=2), Ledger()
    for t_g in (1, 2, 4):
        layout, ledger = layout_of((1, 8, 1, 1, t_g)), Ledger()
        model = ShardedLlama(llama, layout.training, dist.get_rank())
        gather = gather_within(model.pieces, layout, bucket_bytes=BUCKET, ledger=ledger)
        buffer = GenerationBuffer(gather, model.weights)
        buffer.fill()
        check_shard(buffer, layout, llama, 0)
        even = llama.nbytes(kind="layers") - _key_value_bytes(llama)
        assert ledger.received_bytes("layers") == layout.received_fraction * even
        assert ledger.received_bytes("replicated") <= _key_value_bytes(llama)
        buffer.release()


def _key_value_bytes(llama: Llama) -> int:
    return sum(llama.value(n).nbytes for n in llama.shapes() if "k_proj" in n or "v_proj" in n)


def puts_weights_away(folder: Path, *, training: str) -> None:
    """Released or on the host while generating, and exactly back afterwards."""
    layout, llama, ledger = layout_of((2, 4, 1, 1, 2)), Llama(), Ledger()
    model = ShardedLlama(llama, layout.training, dist.get_rank())
    gather = gather_within(model.pieces, layout, bucket_bytes=BUCKET, ledger=ledger)
    buffer = GenerationBuffer(gather, model.weights, training=training)
    for step in (1, 2):
        model.step(step)
        before = model.memory.clone()
        buffer.fill()
        assert ledger.alive("training") == 0
        check_shard(buffer, layout, llama, step)
        assert ledger.alive("generation") == buffer.shard_bytes
        buffer.release()
        assert torch.equal(model.memory, before)
        assert ledger.alive("generation") == 0
        settle(ledger)
    assert ledger.peak_bytes <= buffer.shard_bytes + ledger.peaks["bucket"]


def converts(folder: Path) -> None:
    """Trained in fp32, generated in bf16: half the bytes travel."""
    layout, llama, ledger = layout_of((1, 8, 1, 1, 2)), Llama(), Ledger()
    model = ShardedLlama(llama, layout.training, dist.get_rank())
    options = {"dtype": torch.bfloat16, "bucket_bytes": BUCKET, "ledger": ledger}
    gather = gather_within(model.pieces, layout, **options)
    with pytest.raises(ValueError, match="rebuild"):
        GenerationBuffer(gather, model.weights, training="released")
    rebuilt: list[int] = []

    def rebuild() -> None:
        rebuilt.append(1)
        model.step(5)

    buffer = GenerationBuffer(gather, model.weights, training="released", rebuild=rebuild)
    buffer.fill()
    check_shard(buffer, layout, llama, 0)
    assert ledger.received_bytes("layers") == 3 * llama.nbytes(kind="layers") // 8 // 2
    buffer.release()
    assert rebuilt == [1]
    assert torch.equal(next(model.pieces()).view, _first_piece(llama, layout, step=5))


def _first_piece(llama: Llama, layout: GenerationLayout, *, step: int) -> Tensor:
    other = ShardedLlama(llama, layout.training, dist.get_rank())
    other.step(step)
    return next(other.pieces()).view


def survives_odd_shapes(folder: Path) -> None:
    """A vocabulary that does not divide, unequal stages, tied ends in two stages."""
    for llama in (Llama(vocab_size=125, num_layers=5), Llama(tied=True, num_layers=6)):
        for sizes in ((2, 4, 1, 1, 1), (4, 2, 1, 1, 1), (4, 2, 1, 2, 1)):
            layout = layout_of(sizes)
            model = ShardedLlama(llama, layout.training, dist.get_rank())
            buffer = GenerationBuffer(
                gather_within(model.pieces, layout, bucket_bytes=BUCKET), model.weights
            )
            buffer.fill()
            place = layout.coordinates(dist.get_rank())
            found = dict(buffer.tensors())
            for name, held in found.items():
                check_values(held, llama, step=0)
                assert sum(part.nbytes for part in held) == llama.value(name).nbytes
            stages = layout.pipeline_parallel_size
            assert set(found) == {
                name for name in llama.shapes() if place.pipeline in llama.stage_of(name, stages)
            }
            buffer.release()


def fills_what_vllm_reads(folder: Path) -> None:
    """Full-shape tensors with this rank's slice in them, whatever each side pads to."""
    # Training cuts 200 rows at 25·r; vLLM pads them to 256 and cuts at 128.
    llama, layout = Llama(vocab_size=200), layout_of((1, 8, 1, 1, 2))
    model = ShardedLlama(llama, layout.training, dist.get_rank())
    transition = model_parallel_transition(
        model.pieces, layout, num_key_value_heads=8, bucket_bytes=BUCKET
    )
    target = Target(layout.coordinates(dist.get_rank()).tensor, 2, 8)
    check_slices(transition.tensors, target, llama)
    vocabulary = sum(llama.value(n).nbytes for n in llama.shapes() if kind_of(n) == "ends")
    assert transition.ledger.received_bytes("ends") == vocabulary * 7 // 8
    assert transition.ledger.received_bytes("layers") == 3 * llama.nbytes(kind="layers") // 8


def check_slices(
    tensors: Callable[[], Iterator[tuple[str, Tensor]]], target: Target, llama: Llama
) -> None:
    """Whoever loads the tensors finds his slices in them, and lets go of each as it comes."""
    found = set()
    for name, tensor in tensors():
        whole = llama.value(name)
        assert tensor.shape == whole.shape
        index = vllm_slice(name, whole, target)
        assert torch.equal(tensor[index], whole[index]), name
        found.add(name)
    assert found == set(llama.shapes())


def vllm_slice(name: str, whole: Tensor, target: Target) -> tuple[slice, ...]:
    """What vLLM's loaders narrow a tensor to, written down a second time."""
    rank, size = target.tensor_rank, target.tensor_parallel_size
    expert = expert_of(name)
    if target.experts and expert is not None:
        first, last = target.experts
        return (slice(None) if first <= expert < last else slice(0),)
    if "norm" in name or "mlp.gate." in name:
        return (slice(None),)
    if "o_proj" in name or "down_proj" in name:
        return slice(None), slice(*_even(whole.shape[1], rank, size))
    if "k_proj" in name or "v_proj" in name:
        heads = target.num_key_value_heads
        width = len(whole) // heads
        first = rank // max(size // heads, 1) * max(heads // size, 1)
        return (slice(first * width, (first + max(heads // size, 1)) * width),)
    if "embed" in name or "lm_head" in name:
        padded = (len(whole) + 63) // 64 * 64
        first, last = _even(padded, rank, size)
        return (slice(first, min(last, len(whole))),)
    return (slice(*_even(len(whole), rank, size)),)


def _even(count: int, rank: int, size: int) -> tuple[int, int]:
    return count // size * rank, count // size * (rank + 1)


def data_shards(llama: Llama, step: int = 0) -> list[Piece]:
    """As FSDP2 cuts them: dimension 0 in chunks, the last of which may be short or missing."""
    pieces = []
    for name in llama.shapes():
        whole = llama.value(name, step=step)
        chunks = list(whole.chunk(dist.get_world_size()))
        if dist.get_rank() < len(chunks):
            start = sum(map(len, chunks[: dist.get_rank()]))
            own = chunks[dist.get_rank()].clone()
            pieces.append(Piece(name, tuple(whole.shape), 0, start, len(own), own))
    return pieces


def exchanges_data_shards(folder: Path, *, llama: Llama, tensor_parallel_size: int) -> None:
    """From eight data ranks: a rank receives its generation shard less what it holds."""
    size = tensor_parallel_size
    target = Target(dist.get_rank() % size, size, llama.num_key_value_heads)
    pieces = data_shards(llama)
    transition = data_parallel_transition(
        lambda: pieces, dist.group.WORLD, target, bucket_bytes=BUCKET
    )
    check_slices(transition.tensors, target, llama)
    ledger = transition.ledger
    wanted = held = 0
    for name in llama.shapes():
        whole = llama.value(name)
        flags = torch.zeros(whole.shape, dtype=torch.int8)
        flags[vllm_slice(name, whole, target)] = 1
        wanted += int(flags.sum()) * whole.itemsize
        for piece in pieces:
            if piece.name == name:
                held += int(flags[piece.start : piece.start + piece.size].sum()) * whole.itemsize
    assert ledger.received_bytes() == wanted - held
    total = sum(llama.value(name).nbytes for name in llama.shapes())
    if llama.vocab_size % 8 == 0 and size == 1:
        assert ledger.received_bytes() == total * 7 // 8
    assert ledger.peaks["bucket"] <= 8 * BUCKET
    # Nothing is kept: a tensor at a time, and the bucket.
    assert ledger.peaks["assembly"] <= 2 * max(llama.value(n).nbytes for n in llama.shapes())


def exchanges_any_two(
    folder: Path,
    *,
    training: RankLayout,
    tensor: int,
    pipeline: int = 1,
    expert: int = 1,
    llama: Llama,
) -> None:
    """No training shard lies inside a generation shard: a rank receives just what it lacks."""
    model = ShardedLlama(llama, training, dist.get_rank())
    layout = GenerationLayout.of(
        training,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        expert_parallel_size=expert,
    )
    place = layout.coordinates(dist.get_rank())
    layers = stage(llama.num_layers, pipeline, place.pipeline)
    experts = None
    if expert > 1:
        own = llama.num_experts // expert
        experts = (place.tensor * own, (place.tensor + 1) * own)
    target = Target(place.tensor, tensor, 8, (layers.start, layers.stop), experts)
    transition = any_transition(model.pieces, dist.group.WORLD, target, bucket_bytes=BUCKET)
    found, missing = set(), 0
    held = {piece.name: piece for piece in model.pieces()}
    for name, values in transition.tensors():
        whole = llama.value(name)
        index = vllm_slice(name, whole, target)
        assert torch.equal(values[index], whole[index]), name
        found.add(name)
        lacks = torch.zeros(whole.shape, dtype=torch.int8)
        lacks[index] = 1
        if piece := held.get(name):
            lacks.narrow(piece.dim, piece.start, piece.size).zero_()
        missing += int(lacks.sum()) * whole.itemsize
    assert found == {
        name
        for name in llama.shapes()
        if ("layers" not in name or int(name.split(".")[2]) in layers)
        and (expert_of(name) is None or experts is None or expert_of(name) in range(*experts))
    }
    assert transition.ledger.received_bytes() == missing


def stage(num_layers: int, stages: int, number: int) -> range:
    """Layers of a pipeline stage."""
    cut = layers_per_stage(num_layers, stages)
    return range(sum(cut[:number]), sum(cut[: number + 1]))


def part_into_two_worlds() -> tuple[bool, int, int]:
    """Ranks 0 to 3 become one torch world and 4 to 7 another.

    Returns:
        Whether this process trains, its rank, and a port for a store of both worlds.
    """
    ports = [free_port() for _ in range(3)]
    dist.broadcast_object_list(ports, src=0)
    number = dist.get_rank()
    dist.barrier()
    dist.destroy_process_group()
    trains, rank = number < 4, number % 4
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{ports[trains]}", rank=rank, world_size=4
    )
    return trains, rank, ports[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def syncs_separate_worlds(folder: Path, *, all_sizes: bool) -> None:
    """Every receiver gets its generation shard, no more, bit for bit, at every sync."""
    trains, rank, port = part_into_two_worlds()
    serves = trains and rank == 0
    store = dist.TCPStore("127.0.0.1", port, is_master=serves, wait_for_workers=False)
    layouts = (RankLayout(2, 2), RankLayout(4), RankLayout(2, data_parallel_size=2), RankLayout())
    spread = (
        RankLayout(2, data_parallel_size=2, expert_parallel_size=4),
        RankLayout(4, 1, 1, 1, 2),
    )
    cases = [*product(layouts[::2], (1, 2), (2,), (1,)), (spread[0], 2, 1, 2)]
    if all_sizes:
        cases = [*product(layouts, (1, 2, 4), (1, 2), (1,))]
        cases += product(spread, (2, 4), (1,), (1, 2, 4))
    for number, (training, t_g, p_g, e_g) in enumerate(cases):
        if t_g * p_g <= 4 and e_g in (1, t_g):
            sender = [each for each in sender_ranks(training) if each < 4]
            meeting = Meeting(store, f"meeting{number}", len(sender), 4, timedelta(seconds=60))
            num_experts = 4 if training in spread else 0
            llama = Llama(
                vocab_size=200, num_key_value_heads=2, num_layers=5, num_experts=num_experts
            )
            if trains and rank in sender:
                send_steps(meeting, sender.index(rank), ShardedLlama(llama, training, rank))
            elif not trains:
                layers = stage(5, p_g, rank // t_g % p_g)
                own = rank % t_g
                experts = (own * 4 // e_g, (own + 1) * 4 // e_g) if e_g > 1 else None
                target = Target(own, t_g, 2, (layers.start, layers.stop), experts)
                receive_steps(meeting, rank, target, llama)
    dist.barrier()
    if serves:
        store.wait([f"left{each}" for each in range(7)])
    else:
        store.set(f"left{rank + 3 if trains else rank}", "")


def send_steps(meeting: Meeting, index: int, model: ShardedLlama) -> None:
    sender = WeightSender(meeting, index, model.pieces, bucket_bytes=BUCKET)
    for step in (1, 2):
        model.step(step)
        sender.send()


def receive_steps(meeting: Meeting, index: int, target: Target, llama: Llama) -> None:
    receiver = WeightReceiver(meeting, index, target)
    first, last = target.layers or (0, 0)
    names = [n for n in llama.shapes() if layer_of(n) is None or first <= layer_of(n) < last]
    names = [n for n in names if llama.value(n)[vllm_slice(n, llama.value(n), target)].numel()]
    for step in (1, 2):
        found = set()
        for name, tensor in Transition([receiver], receiver.ledger).tensors():
            whole = llama.value(name, step=step)
            index = vllm_slice(name, whole, target)
            assert torch.equal(tensor[index], whole[index]), name
            found.add(name)
        assert found == set(names)
        settle(receiver.ledger)
    wanted = sum((whole := llama.value(n))[vllm_slice(n, whole, target)].numel() * 4 for n in names)
    assert receiver.ledger.received_bytes() == 2 * wanted
    largest = max(llama.value(n).nbytes for n in names)
    assert receiver.ledger.peaks["bucket"] <= max(BUCKET, largest)


def refuses_holes(folder: Path) -> None:
    """Ranks that together lack a tensor's rows are told so, all of them."""
    llama = Llama()
    pieces = [
        piece for piece in data_shards(llama) if dist.get_rank() != 3 or "q_proj" not in piece.name
    ]
    with pytest.raises(ValueError, match=r"no rank holds all of .*q_proj"):
        data_parallel_transition(lambda: pieces, dist.group.WORLD, Target(0, 2, 8))


def ledger_sees_storages(folder: Path) -> None:
    """Storages count once, for as long as they live and as large as they are."""
    ledger = Ledger()
    tensor = torch.zeros(100)
    ledger.watch("generation", [tensor, tensor[:50], tensor.view(torch.int32)])
    assert ledger.alive("generation") == 400
    other = torch.zeros(10)
    ledger.watch("bucket", [other])
    assert (ledger.alive("generation", "bucket"), ledger.peak_bytes) == (440, 440)
    tensor.untyped_storage().resize_(0)
    assert ledger.alive("generation") == 0
    tensor.untyped_storage().resize_(200)
    assert ledger.alive("generation") == 200
    del tensor
    assert ledger.alive("generation") == 0
    assert ledger.peak_bytes == 440


def gathers_alone(folder: Path) -> None:
    """A group of one moves nothing and hands out the weights themselves."""
    llama, ledger = Llama(), Ledger()
    layout = layout_of((1, 1, 8, 1, 1))
    model = ShardedLlama(llama, layout.training, dist.get_rank())
    gather = gather_within(model.pieces, layout, ledger=ledger)
    assert isinstance(gather, AllGather)
    for _, held in gather.run():
        assert all(is_whole(part) for part in held)
        assert all(
            values.untyped_storage().data_ptr() == model.memory.untyped_storage().data_ptr()
            for values in held.values()
        )
        check_values(held, llama, step=0)
    assert ledger.received_bytes() == 0


def _name(sizes: Sizes) -> str:
    return "p{}t{}d{}_to_p{}t{}".format(*sizes)


ON_EIGHT: dict[str, Case] = {
    "ledger": ledger_sees_storages,
    "alone": gathers_alone,
    **{f"counts_{_name(s)}": partial(counts_exactly, sizes=s) for s in LAYOUTS},
    **{f"gathers_{_name(s)}": partial(gathers_exactly, sizes=s, order="megatron") for s in LAYOUTS},
    "few_heads": repeats_few_heads,
    "released": partial(puts_weights_away, training="released"),
    "host": partial(puts_weights_away, training="host"),
    "converts": converts,
    "odd_shapes": survives_odd_shapes,
    "vllm_reads": fills_what_vllm_reads,
    **{
        f"data_to_t{size}": partial(
            exchanges_data_shards, llama=Llama(vocab_size=200), tensor_parallel_size=size
        )
        for size in (1, 2, 4)
    },
    "data_few_heads": partial(
        exchanges_data_shards,
        llama=Llama(num_key_value_heads=2, vocab_size=125),
        tensor_parallel_size=4,
    ),
    "copies_to_t4": partial(
        exchanges_any_two,
        training=RankLayout(data_parallel_size=8),
        tensor=4,
        llama=Llama(vocab_size=250),
    ),
    "t2d4_to_t8": partial(
        exchanges_any_two,
        training=RankLayout(tensor_parallel_size=2, data_parallel_size=4),
        tensor=8,
        llama=Llama(vocab_size=250),
    ),
    "interleaved_p4t2_to_p2t2": partial(
        exchanges_any_two,
        training=RankLayout(tensor_parallel_size=2, pipeline_parallel_size=4),
        tensor=2,
        pipeline=2,
        llama=Llama(chunks=2, vocab_size=250),
    ),
    **{
        f"experts_{name}_to_t{tensor}e{expert}": partial(
            exchanges_any_two, training=training, tensor=tensor, expert=expert, llama=MIXTURE
        )
        for name, training in SPREAD.items()
        for tensor, expert in ((1, 1), (2, 1), (2, 2), (8, 8))
    },
    "experts_p2d4e4_to_t2p2e2": partial(
        exchanges_any_two,
        training=SPREAD["p2d4e4"],
        tensor=2,
        pipeline=2,
        expert=2,
        llama=MIXTURE,
    ),
    # 2, 1, 1, 1, 2, 1, 1, 1 layers against 2, 3, 3, 2.
    "uneven_p8_to_p4": partial(
        exchanges_any_two,
        training=RankLayout(pipeline_parallel_size=8),
        tensor=1,
        pipeline=4,
        llama=Llama(vocab_size=250, num_layers=10),
    ),
    "holes": refuses_holes,
    # The last: the world is split for good.
    "separate_worlds": partial(syncs_separate_worlds, all_sizes=False),
}
MORE_ON_EIGHT: dict[str, Case] = {
    **{f"counts_{_name(s)}": partial(counts_exactly, sizes=s) for s in MORE_LAYOUTS},
    **{
        f"gathers_{order}_{_name(s)}": partial(gathers_exactly, sizes=s, order=order)
        for order in ("megatron", "hybridflow")
        for s in (*LAYOUTS, *MORE_LAYOUTS)
    },
    "separate_worlds_of_all_sizes": partial(syncs_separate_worlds, all_sizes=True),  # the last too
}
