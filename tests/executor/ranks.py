"""Runs cases on several processes with a gloo group, all in one start: imports are slow."""

import datetime
import faulthandler
import multiprocessing
import socket
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed as dist

PRELOAD = (
    "automap.executor.rollout.vllm_engine",
    "automap.executor.engines.megatron",
    "automap.executor.engines.fsdp",
)
"""Imported once for all ranks of all tests: they are forked from the process that did."""
DEADLINE_SECONDS = 400
"""A rank that is not done by then prints where it is and ends."""
Case = Callable[[Path], None]
"""Runs on every rank of the default group, with a folder that all ranks share; raises to fail."""


def run_cases(cases: dict[str, Case], *, world_size: int, folder: Path) -> dict[str, str | None]:
    """What went wrong in each case, None if nothing did.

    A failed case ends the processes, because the others may wait in a collective; those after it
    are reported as not run.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert all(map(find_spec, PRELOAD)), "one that is missing would be passed over in silence"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    queue = context.SimpleQueue()
    processes = [
        context.Process(target=_rank, args=(rank, world_size, port, cases, folder, queue))
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    reports: dict[int, dict[str, str | None]] = {}
    for process in processes:
        process.join()
    while not queue.empty():
        rank, report = queue.get()
        reports[rank] = report
    return {name: _verdict(name, reports, world_size) for name in cases}


def _verdict(name: str, reports: dict[int, dict[str, str | None]], world_size: int) -> str | None:
    lines = []
    for rank in range(world_size):
        outcome = reports.get(rank, {}).get(name, "not run: an earlier case failed")
        if outcome is not None:
            lines.append(f"rank {rank}: {outcome}")
    return "\n".join(lines) or None


def _rank(
    rank: int,
    world_size: int,
    port: int,
    cases: dict[str, Case],
    folder: Path,
    queue: "multiprocessing.SimpleQueue[tuple[int, dict[str, str | None]]]",
) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(DEADLINE_SECONDS, exit=True)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=60),
    )
    report: dict[str, str | None] = {}
    for name, case in cases.items():
        try:
            case(folder)
            dist.barrier()
            report[name] = None
        except Exception:
            report[name] = traceback.format_exc()
            break
    queue.put((rank, report))
    faulthandler.cancel_dump_traceback_later()
    if None in report.values() and all(each is None for each in report.values()):
        dist.destroy_process_group()
