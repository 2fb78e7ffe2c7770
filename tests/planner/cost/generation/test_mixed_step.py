"""A step of continuous batching that decodes and takes in prompts: one pass over all tokens."""

from dataclasses import replace

import numpy as np
import pytest

from automap.planner.cost.generation.decode import EngineShapes, step_tables
from automap.planner.cost.generation.forward_pass import eager_seconds
from automap.planner.cost.generation.generate_call import kernel_context
from automap.planner.cost.generation.mixed_step import mixed_step_seconds
from automap.planner.cost.generation.prefill import prefill_seconds
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.cost.operators.profile import load_profile
from automap.planner.layout import FloatArray
from tests.helpers.cost_model import call, ints, model, pool, workload

TENSOR = ints(1, 2, 4)
SHAPES = EngineShapes(TENSOR, np.ones_like(TENSOR), np.ones_like(TENSOR))
PROMPT = 1024
CACHED = 2048.0


def context(name: str = "llama-2-7b") -> KernelContext:
    hardware = pool("h100-80gb-sxm")
    spec = workload(prompt_length={"mean": PROMPT, "max": PROMPT}, rollout_engine="vllm")
    found = kernel_context(model(name), spec, hardware, load_profile(hardware.gpu))
    return replace(found, engine=replace(found.engine, step_seconds=0.0))


def mixed(setting: KernelContext, *, sequences: float, prompts: float) -> FloatArray:
    each = np.ones(len(TENSOR))
    return mixed_step_seconds(
        setting,
        SHAPES,
        sequences=sequences * each,
        cached_tokens=CACHED,
        prompts=prompts * each,
    )


def apart(setting: KernelContext, sequences: int) -> tuple[FloatArray, FloatArray]:
    """(a decode step, the prefill of one prompt) of each shape, as they are priced alone."""
    tables = step_tables(
        setting, SHAPES, largest_batch=sequences, cache_lengths=np.linspace(1024.0, 4096.0, 5)
    )
    rows = np.arange(len(TENSOR))
    decode = sum(tables.at(rows, np.full(len(rows), float(sequences)), np.full(len(rows), CACHED)))
    one = call("generate", num_sequences=1)
    spec = workload(prompts_per_iteration=1, updates_per_epoch=1)
    prefill = prefill_seconds(setting, one, spec, SHAPES, rows, np.ones_like(rows))
    return np.asarray(decode), prefill.seconds.total


@pytest.mark.parametrize("name", ["llama-2-7b", "mixtral-8x7b"])
def test_one_pass_takes_less_than_a_step_and_a_prefill_and_more_than_either(name: str) -> None:
    """Weights are read once; all else of both is there."""
    setting = context(name)
    decode, prefill = apart(setting, 64)
    together = mixed(setting, sequences=64.0, prompts=1.0)
    assert (together < decode + prefill).all()
    assert (together > np.maximum(decode, prefill)).all()


def test_a_prompt_adds_less_than_its_prefill_by_what_a_step_reads_of_weights() -> None:
    """Alone a short prompt waits for all weights; in a step they are there already."""
    setting = replace(context(), engine=replace(context().engine, prefill_layer_seconds=0.0))
    decode, prefill = apart(setting, 256)
    added = mixed(setting, sequences=256.0, prompts=1.0) - decode
    assert (added < 0.9 * prefill).all()


def test_a_pass_takes_no_less_than_launching_its_kernels() -> None:
    slow = replace(context(), engine=replace(context().engine, prefill_layer_seconds=5e-3))
    found = mixed(slow, sequences=1.0, prompts=0.1)
    assert found == pytest.approx(np.full(len(TENSOR), eager_seconds(slow)))


def test_seconds_grow_with_prompts_and_with_sequences() -> None:
    setting = context()
    for few, many in (((16.0, 1.0), (16.0, 4.0)), ((16.0, 4.0), (256.0, 4.0))):
        less = mixed(setting, sequences=few[0], prompts=few[1])
        more = mixed(setting, sequences=many[0], prompts=many[1])
        assert (less < more).all()
