"""Bytes of weights that a rank holds while it generates, against vLLM with a copy of its own.

    python -m benchmarks.weights [--rounds 5] [--layers 8] [--hidden 256] [--vocabulary 8192]

Two gloo processes train and generate in turn with a Llama of random weights, on the engines that a
run builds. Two ways take turns: vLLM's weights as the buffer of the reshard, and vLLM with packed
weights of its own beside the trainer's (what mixtures of experts still do). Bytes are those that
the ledger counts on rank 0, and what kernels packed; the theory is the generation shard, of which
the training shard is a part, counted from the model's shapes. Seconds are medians of the slowest
rank's, after a round that is not counted: `reshard` until vLLM has all weights and, with lent
weights, of giving them back; `generate` of the same responses. Nothing is asserted.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from automap.executor.batch import Batch, Ragged
from automap.executor.settings import RunSettings
from automap.executor.workers.model_setup import ModelSetup, model_setups
from automap.planner.catalogue import ModelArchitecture
from automap.planner.job import resolve
from benchmarks.rank_processes import run_ranks
from tests.executor.small_plans import Place, small_plan

PLACES = {
    "Megatron t2 → t1": ("megatron", Place(0, 2, tensor=2)),
    "Megatron t2 → t2": ("megatron", Place(0, 2, tensor=2, generation_tensor=2)),
    "Megatron d2 → t1": ("megatron", Place(0, 2)),
    "FSDP2 d2 → t1": ("fsdp", Place(0, 2, sharding="full")),
}
PROMPTS = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """One way through one layout."""

    generation_bytes: int
    peak_bytes: int
    packed_bytes: int
    reshard_seconds: float
    generate_seconds: float


def setup_of(engine: str, place: Place, architecture: ModelArchitecture) -> ModelSetup:
    """The actor's, with a larger model than the tests'."""
    plan = small_plan("grpo", {"actor": place, "reward": None}, kl="none")
    training = {"actor": {"engine": engine}}
    settings = RunSettings.model_validate({"data": {"path": "unused"}, "training": training})
    setup = model_setups(resolve(plan.spec), plan.placement(), settings)["actor"]
    return replace(setup, architecture=architecture)


def shard_bytes(setup: ModelSetup) -> int:
    """A rank's share of the matrices that it generates with, and all vectors, in fp32."""
    from transformers import AutoModelForCausalLM

    from automap.executor.engines.random_model import config_of

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(setup.architecture))
    layout = setup.generation_layout
    assert layout is not None
    ranks = layout.tensor_parallel_size
    return sum(4 * each.numel() // (ranks if each.ndim == 2 else 1) for each in model.parameters())


def measure(setup: ModelSetup, *, plain: bool, rounds: int) -> Measured:
    """Build both engines, take turns with them, and shut vLLM down."""
    from automap.executor.run import factories
    from automap.executor.workers.process import ProcessContext

    setup = replace(setup, rollout=setup.rollout.model_copy(update={"max_running_sequences": 32}))
    context = ProcessContext(dist.get_rank(), dist.get_world_size(), "benchmark")
    engine = factories.build_engine(setup, context)
    rollout: Any = factories.build_rollout(setup, context, engine, plain=plain)
    tokens = [torch.arange(3, 9) for _ in range(PROMPTS)]
    prompts = Batch({"prompt_tokens": Ragged.of(tokens), "prompt_id": torch.arange(PROMPTS)})
    moved, generated, held = [], [], {}
    for number in range(rounds + 1):
        seconds = _timed(lambda: rollout.start(changed=True))
        held = rollout.weight_bytes()
        generated.append(
            _timed(
                lambda number=number: rollout.generate(
                    prompts, responses_per_prompt=1, greedy=False, iteration=number
                )
            )
        )
        moved.append(seconds + _timed(rollout.stop))
    rollout.vllm.shutdown()
    return Measured(
        generation_bytes=int(held["generation_weights"]),
        peak_bytes=int(held["peak_weights"]),
        packed_bytes=int(held["packed_weights"]),
        reshard_seconds=statistics.median(moved[1:]),
        generate_seconds=statistics.median(generated[1:]),
    )


def _timed(function: Any) -> float:
    dist.barrier()
    begin = time.perf_counter()
    function()
    elapsed = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(elapsed, dist.ReduceOp.MAX)
    return float(elapsed)


def show(rows: list[tuple[str, int, Measured, Measured]]) -> None:
    """Bytes over the theory's, of both ways; seconds of ours over the baseline's."""
    table = Table(title="× the generation shard", title_justify="left")
    table.add_column("training → generation", no_wrap=True)
    for column in ("shard MiB", "held", "peak", "own copy: held", "peak", "of it packed"):
        table.add_column(column, justify="right")
    for column in ("reshard ×", "ms", "generate ×", "ms"):
        table.add_column(column, justify="right")
    for name, shard, ours, own in rows:
        table.add_row(
            name,
            f"{shard / 2**20:.1f}",
            f"{ours.generation_bytes / shard:.3f}",
            f"{ours.peak_bytes / shard:.3f}",
            f"{own.generation_bytes / shard:.3f}",
            f"{own.peak_bytes / shard:.3f}",
            f"{own.packed_bytes / shard:.3f}",
            f"{ours.reshard_seconds / own.reshard_seconds:.2f}",
            f"{ours.reshard_seconds * 1e3:.1f}",
            f"{ours.generate_seconds / own.generate_seconds:.2f}",
            f"{ours.generate_seconds * 1e3:.1f}",
        )
    Console(width=130).print(table)


def _rank(rank: int, port: int, architecture: ModelArchitecture, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    rows = []
    for name, (engine, place) in PLACES.items():
        setup = setup_of(engine, place, architecture)
        ours, own = (measure(setup, plain=plain, rounds=rounds) for plain in (True, False))
        rows.append((name, shard_bytes(setup), ours, own))
    if rank == 0:
        show(rows)
    dist.destroy_process_group()


def main() -> None:
    """Start the processes and wait for them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    given = parser.parse_args()
    architecture = ModelArchitecture.model_validate(
        {
            "num_layers": given.layers,
            "hidden_size": given.hidden,
            "intermediate_size": 4 * given.hidden,
            "num_attention_heads": given.hidden // 32,
            "num_key_value_heads": given.hidden // 64,
            "head_dim": 32,
            "vocab_size": given.vocabulary,
            "max_position_embeddings": 512,
        }
    )
    run_ranks(_rank, 2, architecture, given.rounds)


if __name__ == "__main__":
    main()
