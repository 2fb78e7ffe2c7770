"""Weights from a home to its shadow on another device, in two processes, by broadcast."""

import socket
import time
from datetime import timedelta
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from torch.distributed import TCPStore

from automap.executor.engines.training_engine import Piece
from automap.executor.reshard.broadcast import Meeting, WeightReceiver, WeightSender
from automap.executor.reshard.parts import Target
from benchmarks.gpu_check.findings import Figures, NotRunError

DEVICES = 2
TENSORS = {"cuda": (64, 8192), "cpu": (8, 256)}
"""So many square tensors of that size, in bf16: 8.6 GB on GPUs."""
ROUNDS = 3


def measure(device: torch.device, figures: Figures) -> None:
    """Every value must come as it was sent; NCCL between GPUs, gloo between CPU processes.

    Raises:
        NotRunError: one GPU alone: NCCL takes no two processes on the same one.
    """
    if device.type == "cuda" and torch.cuda.device_count() < DEVICES:
        raise NotRunError("weights travel between two GPUs, and one is here")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    sender = context.Process(target=_send, args=(device.type, port))
    receiver = context.Process(target=_receive, args=(device.type, port, results))
    for process in (sender, receiver):
        process.start()
    for process in (receiver, sender):
        process.join()
    if sender.exitcode or receiver.exitcode or results.empty():
        raise RuntimeError(f"exit codes: sender {sender.exitcode}, receiver {receiver.exitcode}")
    wrong, seconds, nbytes = results.get()
    figures.add("values that came otherwise than they were sent", wrong, at_most=0)
    figures.add("weight sync, last round", nbytes / seconds / 1e9, "GB/s")


def weights(kind: str, device: torch.device, number: int) -> torch.Tensor:
    """Tensor of that number, alike in both processes."""
    size = TENSORS[kind][1]
    drawn = torch.randint(-100, 100, (size, size), generator=torch.Generator().manual_seed(number))
    return drawn.bfloat16().to(device)


def _send(kind: str, port: int) -> None:
    device = _device(kind, 0)
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    count = TENSORS[kind][0]
    held = [weights(kind, device, number) for number in range(count)]
    shape = tuple(held[0].shape)
    pieces = [
        Piece(f"model.layers.{number}.mlp.down_proj.weight", shape, 0, 0, shape[0], view)
        for number, view in enumerate(held)
    ]
    sender = WeightSender(_meeting(store), 0, lambda: pieces)
    for _ in range(ROUNDS):
        sender.send()
    if kind == "cuda":
        torch.cuda.synchronize(device)
    store.wait(["received"], timedelta(seconds=120))


def _receive(kind: str, port: int, results: Any) -> None:
    device = _device(kind, 1)
    store = TCPStore("127.0.0.1", port, is_master=False)
    receiver = WeightReceiver(_meeting(store), 0, Target(0, 1, 1), device=device)
    wrong, seconds, nbytes = 0, 0.0, 0
    for each in range(ROUNDS):
        began, nbytes = time.perf_counter(), 0
        for name, parts in receiver.run():
            for values in parts.values():
                nbytes += values.nbytes
                if each == 0:
                    sent = weights(kind, device, int(name.split(".")[2]))
                    wrong += int((values.view(sent.shape) != sent).sum())
        if kind == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
    results.put((wrong, seconds, nbytes))
    store.set("received", "")


def _meeting(store: TCPStore) -> Meeting:
    return Meeting(store, "gpu-check", 1, 1, timeout=timedelta(seconds=120))


def _device(kind: str, index: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
