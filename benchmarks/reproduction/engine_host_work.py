"""Host seconds that vLLM 0.3.1 takes per running sequence of a decode step, timed in its own code.

    pip download vllm==0.3.1 --no-deps --only-binary :all: && unzip -d FOLDER vllm-0.3.1-*.whl
    python -m benchmarks.reproduction.engine_host_work FOLDER

Runs the engine's scheduler, input preparation, sampler and outputs over one batch, without a model
and without a GPU, and prints processor time. `benchmarks/reproduction/software.py` has the figures.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SEQUENCES = 128
PROMPT_TOKENS = 1024
RESPONSE_TOKENS = (8, 512, 1000)
STEPS = 6
BLOCK_TOKENS = 16
VOCABULARY = 64
"""Small, so that the sampler's tensor operations, which are a GPU's, take nothing."""
COMPILED = (
    "_C",
    "_moe_C",
    "_punica_C",
    "engine.arg_utils",
    "engine.metrics",
    "engine.ray_utils",
    "lora.worker_manager",
    "lora.layers",
    "model_executor.model_loader",
    "model_executor.layers.attention",
    "model_executor.parallel_utils.cupy_utils",
    "model_executor.parallel_utils.custom_all_reduce",
)
"""Modules of vLLM that load CUDA or need a GPU; no code that is timed calls them."""
LAUNCHED = "inputs of the sampling"
"""The part that follows the launch of a step's kernels; the GPU waits for the others."""


class _Uncalled(ModuleType):
    """A module whose names can be imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def load(folder: Path) -> None:
    """Make `vllm` importable from an unpacked wheel, without what needs a GPU."""
    sys.path.insert(0, str(folder))
    package = ModuleType("vllm")
    package.__path__ = [str(folder / "vllm")]
    sys.modules["vllm"] = package
    for name in COMPILED:
        sys.modules[f"vllm.{name}"] = _Uncalled(f"vllm.{name}")


class Engine:
    """A scheduler with one batch that decodes, and what makes a step of it."""

    def __init__(self, *, response_tokens: int, logprobs: int | None) -> None:
        from vllm import config, sampling_params, sequence
        from vllm.core.scheduler import Scheduler
        from vllm.model_executor import sampling_metadata
        from vllm.worker.model_runner import ModelRunner

        cache = config.CacheConfig(BLOCK_TOKENS, 0.9, 0, "auto")
        cache.num_gpu_blocks, cache.num_cpu_blocks = 200 * SEQUENCES, 1
        tokens = SEQUENCES * PROMPT_TOKENS
        self.scheduler = Scheduler(
            config.SchedulerConfig(tokens, SEQUENCES, 2 * PROMPT_TOKENS, tokens), cache, None
        )
        asked = sampling_params.SamplingParams(logprobs=logprobs, max_tokens=PROMPT_TOKENS)
        for number in range(SEQUENCES):
            one = sequence.Sequence(number, "", [7] * PROMPT_TOKENS, BLOCK_TOKENS)
            group = sequence.SequenceGroup(str(number), [one], asked, time.monotonic())
            self.scheduler.add_seq_group(group)
        self.scheduler.schedule()
        for group in self.scheduler.running:
            self._grow(group.get_seqs()[0], response_tokens)
        sampling_metadata.in_wsl = lambda: True  # memory is pinned by CUDA alone
        runner = ModelRunner.__new__(ModelRunner)
        runner.sliding_window, runner.lora_config, runner.device = None, None, "cpu"
        runner.block_size, runner.in_wsl, runner.kv_cache_dtype = BLOCK_TOKENS, True, "auto"
        runner.is_driver_worker, runner.graph_runners = True, {}
        runner.model_config = type("Eager", (), {"enforce_eager": True})()
        self.runner = runner

    def _grow(self, one: Any, response_tokens: int) -> None:
        for _ in range(response_tokens):
            one.append_token_id(5, {5: -0.1})
        blocks = self.scheduler.block_manager
        while len(blocks.block_tables[one.seq_id]) < len(one.logical_token_blocks):
            blocks.block_tables[one.seq_id].append(blocks.gpu_allocator.allocate())

    def step(self, timed: Callable[[str], None]) -> None:
        """One decode step; `timed` is told what has ended."""
        from vllm.model_executor.layers import sampler
        from vllm.model_executor.sampling_metadata import SamplingTensors

        batch, scheduled = self.scheduler.schedule()
        self.runner._prepare_decode(batch)
        asked = self.runner._prepare_sample(batch, [], None)
        timed("schedule and inputs of the model")
        SamplingTensors.from_sampling_metadata(asked, VOCABULARY, torch.device("cpu"), torch.float)
        timed(LAUNCHED)
        probabilities = torch.full((SEQUENCES, VOCABULARY), 1 / VOCABULARY)
        logarithms = probabilities.log()
        timed("")
        drawn = sampler._sample(probabilities, logarithms, asked)
        found = sampler._get_logprobs(logarithms, asked, drawn)
        outputs = sampler._build_sampler_output(drawn, asked, *found)
        timed("sampling")
        self._process(scheduled.scheduled_seq_groups, outputs)
        timed("outputs")

    def _process(self, groups: list[Any], outputs: list[Any]) -> None:
        from vllm.engine.llm_engine import LLMEngine
        from vllm.outputs import RequestOutput

        engine = LLMEngine.__new__(LLMEngine)
        engine.scheduler = self.scheduler
        engine.scheduler_config = self.scheduler.scheduler_config
        engine._decode_sequence = lambda *_: None  # text is of no use to training
        engine.get_tokenizer_for_seq = lambda _: Tokenizer
        for group, output in zip(groups, outputs, strict=True):
            engine._process_sequence_group_outputs(group, output)
        self.scheduler.free_finished_seq_groups()
        for group in groups:
            RequestOutput.from_seq_group(group)


class Tokenizer:
    """What the engine asks of one: no sequence ends while it is timed."""

    eos_token_id = -1


def timed_steps(*, response_tokens: int, logprobs: int | None) -> dict[str, float]:
    """Seconds per sequence of each part of a step, the least of all steps."""
    engine = Engine(response_tokens=response_tokens, logprobs=logprobs)
    parts: dict[str, list[float]] = {}
    for _ in range(STEPS):
        last = time.process_time()

        def timed(part: str) -> None:
            nonlocal last
            parts.setdefault(part, []).append(time.process_time() - last)
            last = time.process_time()

        engine.step(timed)
    return {part: min(took) / SEQUENCES for part, took in parts.items() if part}


def main() -> None:
    """Print what was timed, and the constants of an engine that follow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="an unpacked wheel of vLLM 0.3.1")
    load(parser.parse_args().folder)
    warnings.simplefilter("ignore")  # of a torch that is newer than this vLLM
    torch.set_num_threads(1)
    launched = {}
    for logprobs in (None, 1):
        for response in RESPONSE_TOKENS:
            parts = timed_steps(response_tokens=response, logprobs=logprobs)
            launched[response] = parts[LAUNCHED]
            waited = sum(took for part, took in parts.items() if part != LAUNCHED)
            shown = ", ".join(f"{part} {1e6 * took:.0f}" for part, took in parts.items())
            asked = "with log-probabilities" if logprobs else "without"
            print(
                f"{PROMPT_TOKENS + response} tokens, {asked}: {1e6 * waited:.0f} µs wait ({shown})"
            )
    first, last = RESPONSE_TOKENS[0], RESPONSE_TOKENS[-1]
    each = (launched[last] - launched[first]) / (last - first)
    once = launched[first] - each * (PROMPT_TOKENS + first)
    print(f"{LAUNCHED}: {1e6 * once:.0f} µs per sequence and {1e9 * each:.0f} ns per token it has")


if __name__ == "__main__":
    main()
