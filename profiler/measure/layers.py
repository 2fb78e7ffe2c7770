"""Whole layers, end to end in an engine; `measure_layers` starts this as a process.

What a layer takes is half of what a model of three takes longer than a model of one, in one pass
over one micro-batch: forward, and forward, backward and optimizer step together.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import product
from typing import Any

from automap.planner.catalogue import RARE_FIELDS, ModelArchitecture
from automap.planner.cost import LAYER_SIZES, Peaks, layer_architecture
from automap.planner.profiles import Key
from automap.profiler.machine.devices import Device
from automap.profiler.measure import engine_work
from automap.profiler.measure.host_work import NEEDED
from automap.profiler.results.journal import Entry
from automap.profiler.results.measurement import Measurement

TABLE = "layers"
BATCHES = ((8, 64), (64, 64), (2, 512), (24, 128))
"""Sequences of a micro-batch and their tokens, the most wanted first."""
NUM_LAYERS = (1, 3)
LIMIT_SECONDS = 0.8
"""Time limit of one measurement."""
LONGEST_SHARE = 1 / 100
"""Share of the budget that one pass over a layer may take, by the roofline."""
SIZES = LAYER_SIZES[2:]
USUAL = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
"""Sizes of the layer that is measured where no model is named."""


def keys(
    device: Device, models: Sequence[ModelArchitecture], *, budget_seconds: float
) -> list[Key]:
    """Layers of the models' sizes, without recomputation first; dense and gated ones only."""
    own = [{name: getattr(arch, name) for name in SIZES} for arch in models if _is_plain(arch)]
    layers = own or ([] if models else [USUAL])
    modes = [(framework, mode) for mode in ("none", "selective", "full") for framework in NEEDED]
    precision = device.precisions[0]
    found: list[Key] = []
    for (framework, mode), batch, layer in product(modes, BATCHES, layers):
        if framework == "vllm" or not find_spec(NEEDED[framework]):
            continue
        if _least_seconds(device, layer, batch) > budget_seconds * LONGEST_SHARE:
            continue
        for part in ("forward", "training") if mode == "none" else ("training",):
            sizes = dict(zip(LAYER_SIZES[:2], batch, strict=True)) | layer
            names = {"framework": framework, "recompute": mode, "part": part}
            found.append({**names, "precision": precision, **sizes})
    return found


def _is_plain(arch: ModelArchitecture) -> bool:
    """Whether its sizes alone describe a layer of the model."""
    latent = arch.attention_parameters_per_layer or arch.key_value_bytes_per_token_per_layer
    special = latent or RARE_FIELDS & set(arch.model_dump())
    return arch.gated_mlp and not arch.num_experts and not special


def _least_seconds(device: Device, layer: dict[str, int], batch: tuple[int, int]) -> float:
    """Seconds of a training step, by arithmetic alone."""
    parameters = layer_architecture(layer).dense_layer_parameters
    peaks = Peaks.of(device.gpu)
    return 6.0 * parameters * batch[0] * batch[1] / peaks.flops_per_second(device.precisions[0])


def measure_layers(wanted: Sequence[Key], *, device: str, deadline: float) -> Iterator[Entry]:
    """Each key's entry; see `measured_apart`."""
    from automap.profiler.measure.child_processes import measured_apart

    module = "automap.profiler.measure.layers"
    return measured_apart(module, TABLE, wanted, device=device, deadline=deadline)


def difference(short: Measurement, long: Measurement) -> Measurement | None:
    """Seconds of one layer, from models of both depths; None: lost in the noise."""
    layers = NUM_LAYERS[1] - NUM_LAYERS[0]
    seconds = (long.seconds - short.seconds) / layers
    if seconds <= 0:
        return None
    halves = ((each.high - each.low) / 2 for each in (short, long))
    half = sum(each**2 for each in halves) ** 0.5 / layers
    return Measurement(
        seconds=seconds,
        low=max(seconds - half, 0.0),
        high=seconds + half,
        samples=short.samples + long.samples,
        rejected=short.rejected + long.rejected,
        disturbed=short.disturbed or long.disturbed,
    )


def _measured(device: Any, key: dict[str, Any]) -> Measurement | None:
    timed = []
    sizes = {name: key[name] for name in SIZES}
    rows = engine_work.batch_of(key["num_sequences"], key["sequence_length"])
    for num_layers in NUM_LAYERS:
        architecture = layer_architecture(sizes, num_layers=num_layers)
        engine = engine_work.trainer(
            key["framework"],
            key["recompute"],
            architecture,
            key["num_sequences"] * key["sequence_length"],
            key["precision"],
        )
        loss = engine_work.loss()

        def run(engine: Any = engine, loss: Any = loss) -> object:
            if key["part"] == "forward":
                return engine.forward(rows, "log_probs")
            return engine.train_step(rows, loss)

        timed.append(engine_work.timed(device, run, limit_seconds=LIMIT_SECONDS))
    return difference(*timed)


def main() -> None:
    """Measure what the first line of the standard input asks for."""
    from automap.executor.run.parent import when_stdin_closes
    from automap.profiler.measure.reserved_stdout import reserved_stdout

    task = json.loads(sys.stdin.readline())
    when_stdin_closes(lambda: os._exit(1))
    out = reserved_stdout()
    import torch
    import torch.distributed as dist

    from automap.profiler.machine.devices import choose_device

    device = choose_device(task["device"])
    dist.init_process_group(
        "cuda:nccl,cpu:gloo" if device.kind == "cuda" else "gloo",
        store=dist.HashStore(),  # a world of one
        rank=0,
        world_size=1,
    )
    torch.manual_seed(0)
    for key in task["keys"]:
        if time.monotonic() >= task["deadline"]:
            break
        result: dict[str, Any]
        try:
            found = _measured(device, key)
            result = {"measurement": asdict(found)} if found else {"failed": "lost in the noise"}
        except (RuntimeError, ValueError, ImportError, AssertionError, MemoryError) as error:
            failure = (str(error).splitlines() or [type(error).__name__])[0][:200]
            result = {"failed": failure}
        out.write(json.dumps({"key": key, **result}) + "\n")
        out.flush()
    out.close()
    os._exit(0)  # engines leave threads behind that wait for one another


if __name__ == "__main__":
    main()
