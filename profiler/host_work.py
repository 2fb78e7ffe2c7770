"""What engines take beside their kernels: `python -m profiler.host_work`, by measure_host_work.

Models so small that arithmetic is nothing: what a layer or a step of them takes is the framework's
own work on the host and the starting of kernels. A layer is the difference of three and one.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from profiler.journal import Entry
from profiler.tables import Key
from profiler.timing import Measurement

TABLE = "host_work"
NEEDED = {"megatron-core": "megatron", "fsdp": "transformers", "vllm": "vllm"}
NUM_LAYERS = (1, 3)
SEQUENCES, PROMPT_TOKENS, RESPONSE_TOKENS = 16, 4, 8
BATCHES = (1, 16, 64)
STEPS = (8, 24)
LIMIT_SECONDS = 4.0
"""Of one measurement."""
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
}


def keys() -> list[Key]:
    """What can be measured with the libraries that are here, the most wanted first."""
    training = ("layer_forward", "layer_training", "forward_call", "training_step")
    parts = [
        *(("megatron-core", "none", part) for part in training),
        *(("vllm", "none", part) for part in ("engine_step", "engine_sequence")),
        *(("fsdp", "none", part) for part in training),
        *(("megatron-core", mode, "layer_training") for mode in ("selective", "full")),
    ]
    return [
        {"framework": framework, "recompute": mode, "part": part}
        for framework, mode, part in parts
        if find_spec(NEEDED[framework])
    ]


def measure_host_work(wanted: Sequence[Key], *, device: str, deadline: float) -> Iterator[Entry]:
    """Each key's entry as soon as it is measured.

    Raises:
        ProfileError: the process failed or was killed.
    """
    from profiler.processes import told_by

    if not wanted:
        return
    task = {"keys": [dict(key) for key in wanted], "device": device}
    for told in told_by("profiler.host_work", task, ranks=1, deadline=deadline):
        failed = told.get("failed", "")
        measurement = None if failed else Measurement(**told["measurement"])
        yield Entry(TABLE, told["key"], measurement, failed)


def main() -> None:
    """Measure what the first line of the standard input asks for."""
    from executor.parent import when_stdin_closes
    from executor.rollout.environment import prepare_environment
    from profiler.output import reserved_stdout

    task = json.loads(sys.stdin.readline())
    when_stdin_closes(lambda: os._exit(1))
    out = reserved_stdout()
    prepare_environment()
    import torch
    import torch.distributed as dist

    from profiler.devices import choose_device

    device = choose_device(task["device"])
    dist.init_process_group("cuda:nccl,cpu:gloo" if device.kind == "cuda" else "gloo")
    torch.manual_seed(0)
    asked = task["keys"]
    groups = list(dict.fromkeys((key["framework"], key["recompute"]) for key in asked))
    for framework, recompute in groups:
        if time.monotonic() >= task["deadline"]:
            break
        measured = _engine_steps if framework == "vllm" else _training
        result: dict[str, Any]
        try:
            found = measured(device, framework, recompute)
        except (RuntimeError, ValueError, ImportError) as error:
            found, failure = {}, (str(error).splitlines() or [type(error).__name__])[0][:200]
        for key in asked:
            if (key["framework"], key["recompute"]) != (framework, recompute):
                continue
            measurement = found.get(key["part"])
            result = {"measurement": asdict(measurement)} if measurement else {"failed": failure}
            out.write(json.dumps({"key": key, **result}) + "\n")
            out.flush()
    out.close()
    os._exit(0)  # engines leave threads behind that wait for one another


def _training(device: Any, framework: str, recompute: str) -> Mapping[str, Measurement]:
    """Forward and training of one and of three layers, and what is neither layer."""
    forward, training = [], []
    for num_layers in NUM_LAYERS:
        score, train = _trainer(framework, recompute, num_layers)
        forward.append(_timed(device, score))
        training.append(_timed(device, train))
    layers = {
        "layer_forward": _difference(forward, NUM_LAYERS),
        "layer_training": _difference(training, NUM_LAYERS),
    }
    return {
        **layers,
        "forward_call": _shifted(forward[0], -layers["layer_forward"].seconds),
        "training_step": _shifted(training[0], -layers["layer_training"].seconds),
    }


def _trainer(
    framework: str, recompute: str, num_layers: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """(scoring, a training step) of an engine of so many layers."""
    from executor.algorithms.losses import PolicyLoss
    from executor.engines.random_model import config_of
    from executor.layout import RankLayout
    from executor.settings import TrainingSettings
    from planner.architecture import ModelArchitecture

    config = config_of(ModelArchitecture(num_layers=num_layers, **SIZES))
    training: Any = TrainingSettings(engine="fsdp" if framework == "fsdp" else "megatron")
    common: dict[str, Any] = {
        "layout": RankLayout(),
        "precision": "fp32",
        "training": training,
        "micro_batch_size": SEQUENCES,
        "recompute": recompute,
    }
    engine: Any
    if framework == "fsdp":
        from executor.engines.fsdp import FsdpEngine

        engine = FsdpEngine(config, **common)
    else:
        from executor.engines.megatron import MegatronEngine

        engine = MegatronEngine(config, **common)
    batch = _rows()
    loss = PolicyLoss(aggregate="token_mean", clip=None, reads_old_log_probs=False)
    return (
        lambda: engine.forward(batch, "log_probs"),
        lambda: engine.train_step(batch, loss),
    )


def _rows() -> Any:
    import torch

    from executor.batch import Batch, Ragged

    responses = Ragged.of([torch.randint(256, (RESPONSE_TOKENS,)) for _ in range(SEQUENCES)])
    return Batch(
        {
            "prompt_tokens": Ragged.of(
                [torch.randint(256, (PROMPT_TOKENS,)) for _ in range(SEQUENCES)]
            ),
            "response_tokens": responses,
            "advantages": responses.with_values(torch.randn(len(responses.values))),
            "weight": torch.ones(SEQUENCES),
        }
    )


def _engine_steps(device: Any, framework: str, recompute: str) -> Mapping[str, Measurement]:
    """A step of vLLM with few and with many sequences: what it takes at all, and for each."""
    import torch

    from executor.batch import Batch, Ragged
    from executor.engines.random_model import config_of
    from executor.rollout.engine import VllmEngine
    from executor.settings import RolloutSettings
    from planner.architecture import ModelArchitecture

    engine = VllmEngine(
        config_of(ModelArchitecture(num_layers=1, **SIZES)),
        ranks=[0],
        precision="fp32" if device.kind == "cpu" else "bf16",
        rollout=RolloutSettings(max_running_sequences=max(BATCHES)),
        max_model_len=64,
        kv_cache_bytes=64 << 20,
        seed=0,
    )
    engine.has_weights = True  # the random ones that it starts with do

    def generate(batch: int, tokens: int) -> object:
        prompts = Batch(
            {
                "prompt_tokens": Ragged.of([torch.randint(256, (4,)) for _ in range(batch)]),
                "prompt_id": torch.arange(batch),
            }
        )
        return engine.generate(
            prompts,
            responses_per_prompt=1,
            max_response_tokens=tokens,
            end_tokens=[],
            iteration=0,
        )

    steps = []
    for batch in BATCHES:
        ends = [_timed(device, partial(generate, batch, tokens)) for tokens in STEPS]
        steps.append(_difference(ends, STEPS))
    per_sequence = _difference([steps[0], steps[-1]], (BATCHES[0], BATCHES[-1]))
    engine.shutdown()
    return {
        "engine_step": _shifted(steps[0], -per_sequence.seconds),
        "engine_sequence": per_sequence,
    }


def _timed(device: Any, operation: Callable[[], object]) -> Measurement:
    from profiler.timing import measure

    operation()
    return measure(device.sampler(operation), limit_seconds=LIMIT_SECONDS)


def _difference(ends: Sequence[Measurement], counts: Sequence[int]) -> Measurement:
    """Seconds per count between two measurements; at least a hundredth of the second's share."""
    first, last = ends
    steps = counts[-1] - counts[0]
    seconds = max((last.seconds - first.seconds) / steps, 0.01 * last.seconds / counts[-1])
    return replace(
        last,
        seconds=seconds,
        low=max((last.low - first.high) / steps, 0.0),
        high=(last.high - first.low) / steps,
        rejected=first.rejected + last.rejected,
        disturbed=first.disturbed or last.disturbed,
    )


def _shifted(found: Measurement, by: float) -> Measurement:
    """So many seconds more, but at least a hundredth of what it was."""
    least = 0.01 * found.seconds
    return replace(
        found,
        seconds=max(found.seconds + by, least),
        low=max(found.low + by, 0.0),
        high=max(found.high + by, least),
    )


if __name__ == "__main__":
    main()
