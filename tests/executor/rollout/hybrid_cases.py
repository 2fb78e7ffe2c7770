"""Training engines and vLLM in the same processes: after every step the two agree.

A transformers forward with the trainer's saved weights is the judge of both.
"""

from functools import partial
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from automap.executor.batch import Batch, concatenate
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.settings import OptimizerSettings, RolloutSettings, TrainingSettings
from tests.executor.engines.plain_training import PolicyLoss, tiny_config
from tests.executor.ranks import Case
from tests.executor.rollout.rollout_cases import (
    PROMPTS,
    TOLERANCE,
    prompts_of,
    rows_of,
    worst_error,
)

SETTINGS = RolloutSettings(temperature=0.8, top_p=0.9, max_running_sequences=16)
TRAINING = TrainingSettings(optimizer=OptimizerSettings(learning_rate=1e-2))


def alternates(
    folder: Path,
    *,
    trainer: Literal["megatron", "fsdp"],
    layout: RankLayout,
    tensor_parallel_size: int,
    family: str = "llama",
    offload: Literal["none", "optimizer", "weights"] = "none",
    lora_rank: int | None = None,
) -> None:
    """Two rounds of generating and training; weights change, and both engines with them."""
    from automap.executor.engines.fsdp import FsdpEngine
    from automap.executor.engines.megatron import MegatronEngine
    from automap.executor.rollout.vllm_engine import VllmEngine
    from tests.executor.rollout.hybrid_engine import HybridEngine

    config = tiny_config(family)
    config.initializer_range = 0.2  # far from uniform
    if family == "qwen2":
        config.hidden_size = 128  # from which Qwen2's head_dim follows; vLLM wants 32 at least
    kind = {"megatron": MegatronEngine, "fsdp": FsdpEngine}[trainer]
    lora = {} if lora_rank is None else {"lora_rank": lora_rank}
    engine = kind(config, layout=layout, precision="fp32", training=TRAINING, seed=5, **lora)
    ranks, transition = _transition(
        trainer, engine, layout, tensor_parallel_size, lora_rank is not None
    )
    rollout = VllmEngine(
        config,
        ranks=ranks,
        precision="fp32",
        rollout=SETTINGS,
        max_model_len=64,
        kv_cache_bytes=8 << 20,
        seed=3,
    )
    hybrid = HybridEngine(engine, rollout, transition, offload=offload)
    seen, received = [], []
    for step in range(3):
        own = _own_prompts(ranks)
        batch = hybrid.to_generation().generate(
            own,
            responses_per_prompt=2,
            max_response_tokens=8,
            end_tokens=[],
            iteration=0,
        )
        received.append(transition.ledger.received_bytes() - sum(received))
        rows = _everyones(batch, ranks)
        seen.append(rows_of(rows))
        hybrid.to_training()
        _check(engine, rows, layout, folder / f"{trainer}{step}")
        part = rows.take(list(range(rows.num_rows))[_data_rank(layout) :: _data_ranks(layout)])
        part = part.with_columns(
            advantages=part.ragged("response_log_probs"), weight=torch.ones(part.num_rows)
        )
        engine.train_step(part, PolicyLoss(), temperature=0.8)
    assert seen[0] != seen[1] != seen[2]
    if lora_rank is not None:  # the base came once, then of the adapter what this rank lacks
        missing, whole = _adapter_bytes(engine, ranks)
        assert missing <= received[1] == received[2] < whole
        assert received[1] == missing or layout.tensor_parallel_size > 1  # copies travel as well
        assert received[0] > 2 * received[1]
    rollout.shutdown()


def _transition(trainer, engine, layout, tensor_parallel_size, has_adapter):  # type: ignore[no-untyped-def]
    """The ranks of this process's replica, and how the weights come to it."""
    from automap.executor.engines.training_engine import LORA_SCALING
    from automap.executor.reshard.lora_transition import AdapterTransition
    from automap.executor.reshard.parts import Target
    from automap.executor.reshard.transition import (
        data_parallel_transition,
        model_parallel_transition,
    )

    rank = dist.get_rank()

    def pieces():  # type: ignore[no-untyped-def]
        place = layout.coordinates(rank)
        for name, tensor in engine.parameters():
            yield from engine.pieces(name, tensor, tensor_rank=place.tensor)

    if trainer == "megatron":
        generation = GenerationLayout(layout, tensor_parallel_size)
        groups = generation.groups("tensor", "pipeline")
        transition = model_parallel_transition(
            pieces, generation, num_key_value_heads=2, bucket_bytes=1 << 15
        )
    else:
        size = tensor_parallel_size
        groups = [list(range(first, first + size)) for first in range(0, layout.world_size, size)]
        target = Target(rank % size, size, 2)
        transition = data_parallel_transition(
            pieces, dist.group.WORLD, target, bucket_bytes=1 << 15
        )
        if has_adapter:
            adapter = data_parallel_transition(
                engine.adapter_pieces, dist.group.WORLD, target, ledger=transition.ledger
            )
            transition = AdapterTransition(
                transition, adapter, scaling=LORA_SCALING, dtype=torch.float32
            )
    return next(group for group in groups if rank in group), transition


def _adapter_bytes(engine, ranks: list[int]) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """Of the parts of factors that vLLM's rank needs, what this FSDP rank lacks; and of all."""
    size, rank = len(ranks), ranks.index(dist.get_rank())
    missing = all_bytes = 0
    held = {piece.name: piece for piece in engine.adapter_pieces()}
    for name, whole in engine.full_tensors(adapter_only=True):
        name = name.removeprefix("base_model.model.")
        by_rows = "lora_B" in name and not any(each in name for each in ("o_proj", "down_proj"))
        by_columns = "lora_A" in name and any(each in name for each in ("o_proj", "down_proj"))
        wanted = torch.zeros(whole.shape, dtype=torch.int8)
        cut = wanted.chunk(size, dim=int(by_columns))[rank] if by_rows or by_columns else wanted
        cut.fill_(1)
        if piece := held.get(name):
            wanted.narrow(piece.dim, piece.start, piece.size).zero_()
        missing += 4 * int(wanted.sum())
        all_bytes += whole.nbytes
    return missing, all_bytes


def _own_prompts(ranks: list[int]) -> Batch:
    """Every replica gets prompts by its first rank; the last replica of several none."""
    prompts = prompts_of()
    replicas = dist.get_world_size() // len(ranks)
    if replicas > 1 and 0 not in ranks and dist.get_world_size() - 1 in ranks:
        return prompts.take([])
    return prompts.take([index for index in range(len(PROMPTS)) if index % 2 == ranks[0] % 2])


def _everyones(batch: Batch, ranks: list[int]) -> Batch:
    """The rows of all replicas on every rank."""
    parts: list[tuple[list[int], Batch]] = [([], batch)] * dist.get_world_size()
    dist.all_gather_object(parts, (ranks, batch))
    unique = {tuple(own): rows for own, rows in parts}
    for own, rows in parts:  # all ranks of a replica have the same
        assert rows_of(rows) == rows_of(unique[tuple(own)])
    return concatenate(list(unique.values()))


def _check(engine, rows: Batch, layout: RankLayout, folder: Path) -> None:  # type: ignore[no-untyped-def]
    """vLLM's log-probabilities are the trainer's, and those of the weights that it saves."""
    found = engine.forward(rows, "log_probs", temperature=0.8).ragged("log_probs")
    error = (found.values - rows.ragged("response_log_probs").values).abs().max()
    assert error < TOLERANCE, f"vLLM and the trainer differ by {error:.1e}"
    engine.save(folder)
    dist.barrier()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    error = worst_error(model, rows, 0.8)
    assert error < TOLERANCE, f"vLLM and what was saved differ by {error:.1e}"


def _data_rank(layout: RankLayout) -> int:
    return layout.coordinates(dist.get_rank()).data


def _data_ranks(layout: RankLayout) -> int:
    return layout.data_parallel_size


T2D2 = RankLayout(tensor_parallel_size=2, data_parallel_size=2)
T4 = RankLayout(tensor_parallel_size=4)
T2P2 = RankLayout(tensor_parallel_size=2, pipeline_parallel_size=2)
D4 = RankLayout(data_parallel_size=4)
C2D2 = RankLayout(context_parallel_size=2, data_parallel_size=2)

ON_FOUR: dict[str, Case] = {
    "megatron_t2p2_to_t2": partial(
        alternates,
        trainer="megatron",
        layout=T2P2,
        tensor_parallel_size=2,
        family="qwen2",
        offload="weights",
    ),
    "fsdp_d4_to_t2": partial(alternates, trainer="fsdp", layout=D4, tensor_parallel_size=2),
}
MORE_ON_FOUR: dict[str, Case] = {
    "megatron_t2d2_to_t1": partial(
        alternates, trainer="megatron", layout=T2D2, tensor_parallel_size=1
    ),
    "fsdp_d4_lora_to_t2": partial(
        alternates, trainer="fsdp", layout=D4, tensor_parallel_size=2, lora_rank=4
    ),
    "fsdp_d2t2_lora_to_t1": partial(
        alternates,
        trainer="fsdp",
        layout=T2D2,
        tensor_parallel_size=1,
        lora_rank=4,
        offload="weights",
    ),
    "fsdp_c2d2_lora_to_t2": partial(
        alternates, trainer="fsdp", layout=C2D2, tensor_parallel_size=2, lora_rank=4
    ),
    "megatron_t2d2_to_t2": partial(
        alternates, trainer="megatron", layout=T2D2, tensor_parallel_size=2
    ),
    "megatron_t4_to_t2": partial(alternates, trainer="megatron", layout=T4, tensor_parallel_size=2),
    "megatron_t4_to_t4": partial(
        alternates, trainer="megatron", layout=T4, tensor_parallel_size=4, family="qwen3"
    ),
    "fsdp_d4_to_t1": partial(
        alternates,
        trainer="fsdp",
        layout=D4,
        tensor_parallel_size=1,
        family="qwen3",
        offload="weights",
    ),
}
