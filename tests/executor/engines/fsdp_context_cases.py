"""Context parallelism of the FSDP engine: slices of rows, and heads in attention, on every rank."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.fsdp import FsdpEngine
from automap.executor.engines.fsdp.context_parallel import ContextGroup
from automap.executor.engines.micro_batches import pack
from automap.executor.layout import RankLayout
from automap.executor.reshard.parts import Target
from automap.executor.reshard.transition import data_parallel_transition
from tests.executor.engines.fsdp_common import (
    LAYOUTS,
    OPTIMIZER,
    RATES,
    assert_near,
    build,
    same_everywhere,
    whole,
)
from tests.executor.engines.fsdp_training_cases import Operators
from tests.executor.engines.plain_training import (
    PlainTraining,
    PolicyLoss,
    random_rows,
    tiny_config,
)


def rows_of_lengths(*lengths: tuple[int, int]) -> Batch:
    """Rows of so many tokens of prompt and response."""
    generator = torch.Generator().manual_seed(1)
    prompts, responses = (
        Ragged.of([torch.randint(256, (each,), generator=generator) for each in column])
        for column in zip(*lengths, strict=True)
    )
    size = (len(responses.values),)
    return Batch(
        {
            "prompt_tokens": prompts,
            "response_tokens": responses,
            "advantages": responses.with_values(torch.randn(size, generator=generator)),
            "weight": torch.ones(len(lengths)),
        }
    )


def slices_of_any_length_give_the_same(layout: str, folder: Path) -> None:
    """Rows shorter than the group, slices without outputs, padding, labels in the next slice."""
    for lengths in ([(1, 1)], [(1, 2)], [(2, 3)], [(6, 1)], [(1, 1), (1, 1), (3, 2)], [(9, 8)]):
        engine = build(LAYOUTS[layout], micro_batch_tokens=24)
        plain = PlainTraining(tiny_config("llama"), whole(engine), OPTIMIZER)
        batch = rows_of_lengths(*lengths)
        got = engine.forward(batch, "log_probs").ragged("log_probs").values
        expected = plain.predict(batch)[0].detach()
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)
        assert same_everywhere(got.tolist())
        own = batch if engine.place.data == 0 else batch.take([])
        step = engine.train_step(own, PolicyLoss())
        assert step.pop("learning_rate") == RATES[0]
        assert step == pytest.approx(
            plain.step([batch], learning_rate=RATES[0]), rel=1e-5, abs=1e-6
        )
        for name, weight in plain.weights().items():
            assert_near(whole(engine)[name], weight, 1e-5, f"{name} of {lengths}")


def slices_are_equal_and_cover_a_row(folder: Path) -> None:
    """Padded at the end; the outputs of all slices are the row's, each once."""
    packed = pack(rows_of_lengths((2, 3), (4, 2)))
    parts = [ContextGroup(None, rank, 4).slice_of(packed, packed.predicting) for rank in range(4)]
    tokens = torch.cat([each.tokens for each in parts])
    assert [len(each.tokens) for each in parts] == [3] * 4
    assert tokens[:11].equal(packed.tokens)
    assert torch.cat([each.positions for each in parts]).tolist() == [*range(5), *range(6), 0]
    assert all(each.lengths.tolist() == [5, 6, 1] for each in parts)
    assert [each.outputs.tolist() for each in parts] == [[0, 1], [2], [3], [4]]
    assert [each.places.tolist() for each in parts] == [[1, 2], [0], [2], [0]]


def ranks_compute_slices_and_heads(folder: Path) -> None:
    """Half the tokens in every layer; four all-to-alls a layer forward, and as many backward."""
    batch, seen = random_rows(4, seed=0), []
    tokens = int(batch.sequence_lengths().sum())
    engine = build(LAYOUTS["context2"], micro_batch_tokens=tokens)
    for layer in engine.network.layers:
        layer.self_attn.register_forward_hook(lambda _, __, output: seen.append(output[0].shape))
    with Operators() as operators:
        engine.forward(batch, "log_probs")
    assert seen == [(1, -(-tokens // 2), 64)] * 2
    assert operators.counts["c10d::alltoall_base_"] == 2 * 4
    with Operators() as operators:
        engine.train_step(batch, PolicyLoss())
    assert operators.counts["c10d::alltoall_base_"] == 2 * 8


def weights_are_sharded_over_data_and_context(layout: str, folder: Path) -> None:
    engine = build(LAYOUTS[layout])
    own = sum(tensor.numel() for _, tensor in engine.parameters())
    every = sum(tensor.numel() for tensor in whole(engine).values())
    assert own == pytest.approx(every / dist.get_world_size(), rel=0.02)
    assert sum(each.numel() for each in engine.optimizer_tensors()) == 2 * own


def reshards_bit_for_bit(layout: str, folder: Path) -> None:
    """To generation on one rank, and split over two: exactly the weights that train."""
    engine = build(LAYOUTS[layout])
    engine.train_step(random_rows(4, seed=0), PolicyLoss())
    expected, rank = whole(engine), dist.get_rank()

    def pieces():  # type: ignore[no-untyped-def]
        for name, tensor in engine.parameters():
            yield from engine.pieces(name, tensor, tensor_rank=engine.place.tensor)

    for size in (1, 2):
        target = Target(rank % size, size, 2)
        transition = data_parallel_transition(
            pieces, dist.group.WORLD, target, bucket_bytes=1 << 15
        )
        found = set()
        for name, tensor in transition.tensors():
            found.add(name)
            read = _read(name, expected[name].shape, rank % size, size)
            assert tensor[read].equal(expected[name][read]), name
        assert found == set(expected)


def _read(name: str, shape: torch.Size, rank: int, size: int) -> tuple[slice, ...]:
    """What one of `size` tensor ranks of vLLM reads of a tensor of tiny Llama."""
    if any(each in name for each in ("o_proj", "down_proj")):
        dim = 1
    elif "norm" in name:
        return (slice(None),)
    else:
        dim = 0
    part = shape[dim] // size
    return (slice(None),) * dim + (slice(rank * part, (rank + 1) * part),)


def wrong_sizes_are_refused(folder: Path) -> None:
    dynamic = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}
    for changes, message in (
        ({"num_attention_heads": 3}, "num_attention_heads 3 must be a multiple of .* 2"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3 must be a multiple or a divisor of .*"),
        ({"rope_parameters": dynamic}, "context_parallel_size must be 1 with rope_type dynamic"),
    ):
        config = tiny_config("llama")
        for name, value in changes.items():
            setattr(config, name, value)
        with pytest.raises(ValueError, match=message):
            FsdpEngine(config, layout=LAYOUTS["context2"])
    with pytest.raises(ValueError, match="4 ranks, the process group 2"):
        build(RankLayout(context_parallel_size=4), training=None)
