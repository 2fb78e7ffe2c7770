"""What engines take beside their kernels; `measure_host_work` starts this as a process.

Models so small that arithmetic is nothing: what a layer or a step of them takes is the framework's
own work on the host and the starting of kernels (profiler/measure/engine_work.py).
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from automap.planner.profiles import Key
from automap.profiler.measure import engine_work
from automap.profiler.measure.engine_work import (
    ENGINE_PARTS,
    FORWARD_PARTS,
    TRAINING_PARTS,
    WEIGHTS_PARTS,
)
from automap.profiler.results.journal import Entry

TABLE = "host_work"
NEEDED = {"megatron-core": "megatron", "fsdp": "transformers", "vllm": "vllm"}


def keys() -> list[Key]:
    """What can be measured with the libraries that are here, the most wanted first."""
    training = (*FORWARD_PARTS, *TRAINING_PARTS)
    parts = [
        *(("megatron-core", "none", part) for part in training),
        *(("vllm", "none", part) for part in (*ENGINE_PARTS, *WEIGHTS_PARTS)),
        *(("fsdp", "none", part) for part in training),
        *(("megatron-core", mode, "layer_training") for mode in ("selective", "full")),
    ]
    return [
        {"framework": framework, "recompute": mode, "part": part}
        for framework, mode, part in parts
        if find_spec(NEEDED[framework])
    ]


def measure_host_work(wanted: Sequence[Key], *, device: str, deadline: float) -> Iterator[Entry]:
    """Each key's entry; see `measured_apart`."""
    from automap.profiler.measure.child_processes import measured_apart

    module = "automap.profiler.measure.host_work"
    return measured_apart(module, TABLE, wanted, device=device, deadline=deadline)


def main() -> None:
    """Measure what the first line of the standard input asks for."""
    from automap.executor.rollout.environment import prepare_environment
    from automap.executor.run.parent import when_stdin_closes
    from automap.profiler.measure.reserved_stdout import reserved_stdout

    task = json.loads(sys.stdin.readline())
    when_stdin_closes(lambda: os._exit(1))
    out = reserved_stdout()
    prepare_environment()
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
    asked = task["keys"]
    groups = list(dict.fromkeys((key["framework"], key["recompute"]) for key in asked))
    for number, (framework, recompute) in enumerate(groups):
        # The first is measured whatever its imports took: they are paid for.
        if number and time.monotonic() >= task["deadline"]:
            break
        wanted = {key["part"] for key in asked if key["framework"] == framework}
        result: dict[str, Any]
        try:
            if framework == "vllm":
                found = engine_work.generation(device)
            else:
                forward = recompute == "none" and not wanted.isdisjoint(FORWARD_PARTS)
                found = engine_work.training(device, framework, recompute, forward=forward)
        except (RuntimeError, ValueError, ImportError, AssertionError) as error:
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


if __name__ == "__main__":
    main()
