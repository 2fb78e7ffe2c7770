"""Adapters of the FSDP engine, checked on every rank against peft."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from automap.executor.batch import Batch
from automap.executor.engines.fsdp import FsdpEngine
from tests.executor.engines.fsdp_common import (
    LAYOUTS,
    OPTIMIZER,
    RATES,
    all_rows,
    assert_near,
    build,
    own_rows,
    whole,
)
from tests.executor.engines.plain_training import PlainTraining, PolicyLoss, ValueLoss, tiny_config

# LoRA


@contextmanager
def as_peft(engine: FsdpEngine, folder: Path) -> Iterator[PeftModel]:
    """The engine's base and adapter, as peft reads them from files."""
    base = build(engine.layout, training=None)
    base.save(folder / "lora_base")
    # Each rank's own files: nobody waits for another's.
    adapter = folder / f"lora_adapter_{dist.get_rank()}"
    engine._lora_config().save_pretrained(str(adapter))
    save_file(dict(engine.full_tensors(adapter_only=True)), adapter / "adapter_model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(folder / "lora_base", dtype=torch.float32)
    yield PeftModel.from_pretrained(model, adapter, is_trainable=True)


def log_probs(engine: FsdpEngine, batch: Batch) -> torch.Tensor:
    return engine.forward(batch, "log_probs").ragged("log_probs").values


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """To the last bit but one: how products are summed depends on where operands lie in memory."""
    torch.testing.assert_close(found, expected, rtol=3e-7, atol=0)


def lora_trains_like_peft(layout: str, sharding: str, folder: Path) -> None:
    """Three steps of adapters alone, against peft on one process."""
    engine = build(LAYOUTS[layout], lora_rank=4, sharding=sharding, recompute="full")
    base = build(LAYOUTS[layout], training=None)
    batch = own_rows(engine, seed=9)
    at_first = log_probs(base, batch)
    # Adapters begin with zeros.
    assert_same(log_probs(engine, batch), at_first)

    frozen = whole(engine)
    with as_peft(engine, folder) as model:
        plain = PlainTraining(tiny_config("llama"), frozen, OPTIMIZER)
        plain.model = model
        trained = [each for each in model.parameters() if each.requires_grad]
        plain.optimizer = torch.optim.AdamW(
            trained, eps=OPTIMIZER.epsilon, weight_decay=OPTIMIZER.weight_decay
        )
        for step, rate in enumerate(RATES):
            got = engine.train_step(own_rows(engine, seed=step), PolicyLoss())
            expected = plain.step(all_rows(LAYOUTS[layout], seed=step), learning_rate=rate)
            got.pop("learning_rate")
            assert got == pytest.approx(expected, rel=1e-5, abs=1e-6)
    adapter = dict(engine.full_tensors(adapter_only=True))
    theirs = {
        name.replace(".default.", "."): tensor
        for name, tensor in model.named_parameters()
        if tensor.requires_grad
    }
    assert set(adapter) == set(theirs)
    for name, tensor in adapter.items():
        assert_near(tensor, theirs[name].detach(), 1e-5, name)
    assert all(tensor.equal(frozen[name]) for name, tensor in whole(engine).items())

    changed = log_probs(engine, batch)
    assert float((changed - at_first).abs().max()) > 1e-2
    with engine.adapter_disabled():
        assert_same(log_probs(engine, batch), at_first)
    assert_same(log_probs(engine, batch), changed)


def lora_keeps_little_and_saves_merged_weights(folder: Path) -> None:
    engine = build(LAYOUTS["data2"], lora_rank=4, precision="bf16")
    adapter = dict(engine.full_tensors(adapter_only=True))
    names = set(adapter)
    assert len(names) == 2 * 2 * 7
    assert all(name.startswith("base_model.model.model.layers.") for name in names)
    assert {tensor.dtype for _, tensor in engine.parameters()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}
    assert len(engine.optimizer_tensors()) == 2 * len(names)
    assert set(engine.state()["weights"]) == names

    engine = build(LAYOUTS["data2"], lora_rank=4)
    engine.train_step(own_rows(engine, seed=0), PolicyLoss())
    batch = own_rows(engine, seed=1)
    expected = engine.forward(batch, "log_probs").ragged("log_probs").values
    engine.save(folder / "merged")

    merged = build(LAYOUTS["data2"], training=None)
    merged.load(folder / "merged")
    got = merged.forward(batch, "log_probs").ragged("log_probs").values
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)

    got = dict(engine.merged_tensors())
    assert all(tensor.equal(whole(merged)[name]) for name, tensor in got.items())
    assert set(got) == set(whole(merged))


def lora_trains_a_critic_with_its_head(folder: Path) -> None:
    engine = build(LAYOUTS["data2"], lora_rank=2, head="scalar")
    before = dict(engine.full_tensors(adapter_only=True))
    assert "base_model.model.score.weight" in before
    before = {name: tensor.clone() for name, tensor in before.items()}
    engine.train_step(own_rows(engine, seed=0), ValueLoss())
    engine.train_step(own_rows(engine, seed=1), ValueLoss())
    after = dict(engine.full_tensors(adapter_only=True))
    assert not any(after[name].equal(before[name]) for name in after)
    batch = own_rows(engine, seed=2)
    expected = engine.forward(batch, "scores").tensor("scores")
    engine.save(folder / "lora_critic")
    critic = build(LAYOUTS["data2"], head="scalar", training=None, seed=1)
    critic.load(folder / "lora_critic")
    torch.testing.assert_close(
        critic.forward(batch, "scores").tensor("scores"), expected, rtol=0, atol=1e-5
    )
