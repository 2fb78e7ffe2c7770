"""What vLLM needs of the process it is started in, and what it must leave as it was."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process, beside the trainer
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the sampler of log-probabilities is the first runner's
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
}
CPU_SETTINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every process binds itself to the same cores
    "TORCHDYNAMO_DISABLE": "1",  # else the first log-probability compiles for a minute
}


def prepare_environment() -> None:
    """Set what vLLM reads when it is imported; values that are already set stay.

    Call it before anything imports vllm.
    """
    settings = SETTINGS if torch.cuda.is_available() else {**SETTINGS, **CPU_SETTINGS}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        torch._dynamo.config.disable = True  # where torch has read the environment before


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put back the random states of python, numpy and torch, and torch.set_num_threads.

    vLLM seeds them all when it starts and draws from torch's when it samples; a trainer in the
    same process must be able to resume bit for bit.
    """
    python, numpy, set_num_threads = random.getstate(), np.random.get_state(), torch.set_num_threads
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads = set_num_threads  # the CPU worker replaces it with a refusal
