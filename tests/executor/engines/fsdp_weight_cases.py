"""Weights, folders, checkpoints and host memory of the FSDP engine, on every rank."""

import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from automap.executor.batch import concatenate
from automap.executor.engines import tensor_folder
from automap.executor.engines.fsdp import FsdpEngine
from tests.executor.engines.fsdp_common import (
    LAYOUTS,
    all_rows,
    assert_near,
    build,
    own_rows,
    same_everywhere,
    whole,
)
from tests.executor.engines.plain_training import PolicyLoss, tiny_config

# Weights


def pieces_cover_every_tensor_once(layout: str, vocab_size: int, folder: Path) -> None:
    """All ranks' shards, put together by what `pieces` says, are the whole tensors."""
    engine = build(LAYOUTS[layout], vocab_size=vocab_size, training=None)
    shards: list[dict[str, Tensor]] = [{}] * dist.get_world_size()
    dist.all_gather_object(shards, dict(engine.parameters()))
    expected = whole(engine)
    assert set(shards[0]) == set(expected)
    for name, tensor in expected.items():
        built = torch.full_like(tensor, math.nan)
        held = set()
        for rank, own in enumerate(shards):
            place, shard = engine.layout.coordinates(rank), engine.layout.data_shard(rank)
            pieces = engine.pieces(name, own[name], tensor_rank=place.tensor, data_shard=shard)
            for piece in pieces:
                assert piece.full_shape == tuple(tensor.shape)
                built.narrow(piece.dim, piece.start, piece.size).copy_(piece.view)
                held.add((piece.start, piece.size))
        assert built.equal(tensor), name
        replicated = 1 if len(tensor.shape) == 2 else engine.layout.tensor_parallel_size
        assert len(held) * replicated <= len(shards)
    name, tensor = next(iter(engine.parameters()))
    for piece in engine.pieces(name, tensor, tensor_rank=engine.place.tensor):
        assert piece.view.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def folders_go_both_ways(layout: str, family: str, folder: Path) -> None:
    """Our folder in transformers, transformers' folder in the engine."""
    engine = build(LAYOUTS[layout], family, training=None)
    ours, theirs = folder / f"ours_{layout}_{family}", folder / f"theirs_{layout}_{family}"
    engine.save(ours)
    engine.save(ours)
    model = AutoModelForCausalLM.from_pretrained(ours, dtype=torch.float32)
    expected = whole(engine)
    for name, parameter in model.named_parameters():
        assert parameter.equal(expected[name]), name
    assert not list(folder.glob(".*"))
    if dist.get_rank() == 0:
        torch.manual_seed(1)
        other = AutoModelForCausalLM.from_config(tiny_config(family))
        other.save_pretrained(theirs, max_shard_size="100KB")
        assert len(list(theirs.glob("*.safetensors"))) > 1
    dist.barrier()
    engine.load(theirs)
    other = AutoModelForCausalLM.from_pretrained(theirs, dtype=torch.float32)
    got = whole(engine)
    for name, parameter in other.named_parameters():
        assert got[name].equal(parameter), name


def large_folders_have_several_files(folder: Path) -> None:
    engine, place = build(LAYOUTS["data2"], training=None), folder / "several"
    expected = whole(engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_folder, "FILE_BYTES", 100_000)
        engine.save(place)
    files = sorted(place.glob("*.safetensors"))
    sizes = [sum(tensor.nbytes for tensor in load_file(file).values()) for file in files]
    assert len(sizes) > 3
    assert max(sizes) <= 100_000
    model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    assert all(parameter.equal(expected[name]) for name, parameter in model.named_parameters())
    other = build(LAYOUTS["data2"], training=None, seed=1)
    other.load(place)
    assert all(tensor.equal(expected[name]) for name, tensor in whole(other).items())
    dist.barrier()
    if dist.get_rank() == 0:
        files[1].unlink()
    dist.barrier()
    with pytest.raises(FileNotFoundError, match=f"{files[1].name} is named in .* not exist"):
        other.load(place)


def a_critic_starts_from_a_language_model(folder: Path) -> None:
    actor = build(LAYOUTS["data2"], training=None)
    actor.save(folder / "actor")
    for layout in ("data2", "tensor2"):
        critic = build(LAYOUTS[layout], head="scalar", training=None, seed=3)
        critic.load(folder / "actor")
        weights, head = whole(actor), "score.weight"
        for name, tensor in whole(critic).items():
            assert name == head or tensor.equal(weights[name])
        assert whole(critic)[head].shape == (1, 64)
    critic.save(folder / "critic")
    reward = AutoModelForSequenceClassification.from_pretrained(folder / "critic")
    assert reward.score.weight.float().equal(whole(critic)[head])


def loading_says_what_is_wrong(folder: Path) -> None:
    engine = build(LAYOUTS["data2"], training=None)
    before = whole(engine)
    with pytest.raises(FileNotFoundError, match="holds neither"):
        engine.load(folder / "nowhere")
    build(LAYOUTS["data2"], head="scalar", training=None).save(folder / "headless")
    with pytest.raises(ValueError, match=r"lacks 1 tensors: lm_head\.weight"):
        engine.load(folder / "headless")
    build(LAYOUTS["data2"], vocab_size=128, training=None).save(folder / "narrow")
    with pytest.raises(ValueError, match=r"embed_tokens.weight of .* has shape \(128, 64\)"):
        engine.load(folder / "narrow")
    assert all(tensor.equal(before[name]) for name, tensor in whole(engine).items())


def a_failed_save_leaves_the_old_folder(folder: Path) -> None:
    engine = build(LAYOUTS["data2"], training=None)
    place = folder / "kept"
    engine.save(place)
    old = load_file(place / "model.safetensors")
    engine.load(folder / "theirs_data2_llama")

    def disk_full(path: object) -> None:
        raise OSError(28, "No space left on device")

    engine.network.model.config.save_pretrained = disk_full
    with pytest.raises(OSError, match="No space left") as caught:
        engine.save(place)
    assert same_everywhere(str(caught.value))
    assert all(
        tensor.equal(old[name]) for name, tensor in load_file(place / "model.safetensors").items()
    )
    assert not list(folder.glob(".kept*"))


# State


def checkpoint(engine: FsdpEngine, folder: Path) -> None:
    dcp.save(engine.state(), checkpoint_id=folder)


def restore(engine: FsdpEngine, folder: Path) -> None:
    state = engine.state()
    dcp.load(state, checkpoint_id=folder)
    engine.load_state(state)


def resumes_bit_for_bit_and_on_another_layout(folder: Path) -> None:
    engine = build(LAYOUTS["data2"], sharding="gradient")
    checkpoint(engine, folder / "state0")
    for step in range(2):
        engine.train_step(own_rows(engine, seed=step), PolicyLoss())
    checkpoint(engine, folder / "state2")
    expected = engine.train_step(own_rows(engine, seed=2), PolicyLoss())
    after = whole(engine)
    torch.save((expected, after), folder / f"after{dist.get_rank()}.pt")

    for start, path in ((2, "state2"), (0, "state0")):
        same = build(LAYOUTS["data2"], seed=99)
        restore(same, folder / path)
        for step in range(start, 3):
            got = same.train_step(own_rows(same, seed=step), PolicyLoss())
        assert got == expected
        assert all(tensor.equal(after[name]) for name, tensor in whole(same).items())
    continues_from_another_layout("tensor2", folder)


def continues_from_another_layout(layout: str, folder: Path) -> None:
    expected, after = torch.load(folder / "after0.pt")
    engine = build(LAYOUTS[layout], seed=99)
    restore(engine, folder / "state2")
    # Other data ranks, other shares of the same rows.
    rows = all_rows(LAYOUTS["data2"], seed=2)
    mine = [
        each
        for index, each in enumerate(rows)
        if index % engine.layout.data_parallel_size == engine.place.data
    ]
    batch = rows[0].take([]) if not mine else concatenate(mine)
    got = engine.train_step(batch, PolicyLoss())
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for name, tensor in whole(engine).items():
        assert_near(tensor, after[name], 1e-5, name)


def a_state_of_another_model_is_refused(folder: Path) -> None:
    engine = build(LAYOUTS["data2"])
    with pytest.raises(ValueError, match=r"state is of another model: .*q_norm"):
        engine.load_state(build(LAYOUTS["data2"], "qwen3").state())


# Host memory


def offload_frees_storages_and_reload_brings_them_back(folder: Path) -> None:
    engine, twin = build(LAYOUTS["data2"]), build(LAYOUTS["data2"])
    for each in (engine, twin):
        each.train_step(own_rows(each, seed=0), PolicyLoss())
    weights = [tensor for _, tensor in engine.parameters()]
    moments = engine.optimizer_tensors()
    assert sum(tensor.nbytes for tensor in moments) == 2 * sum(each.nbytes for each in weights)

    def held(tensors: list[Tensor]) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    everything = held(weights) + held(moments)
    engine.offload("optimizer")
    assert held(moments) == 0 < held(weights)
    engine.forward(own_rows(engine, seed=1), "log_probs")
    with pytest.raises(RuntimeError, match="optimizer of the model are on the host"):
        engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    engine.offload("weights")
    assert held(moments) == held(weights) == 0
    assert engine.offloaded_bytes() == everything
    with pytest.raises(RuntimeError, match="weights of the model are on the host"):
        engine.forward(own_rows(engine, seed=1), "log_probs")
    engine.reload(optimizer=False)
    assert held(moments) == 0 < held(weights)
    engine.forward(own_rows(engine, seed=1), "log_probs")
    with pytest.raises(RuntimeError, match="optimizer of the model are on the host"):
        engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    engine.offload("weights")
    engine.reload()
    assert held(weights) + held(moments) == everything
    assert engine.offloaded_bytes() == 0
    ours = engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    assert ours == twin.train_step(own_rows(twin, seed=1), PolicyLoss())
    assert all(tensor.equal(whole(twin)[name]) for name, tensor in whole(engine).items())
