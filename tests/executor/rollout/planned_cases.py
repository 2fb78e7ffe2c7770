"""A mixture's home as a run builds it from a plan: it trains, and generates with what it trained.

A transformers forward with the trainer's saved weights is the judge of both.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import Qwen3MoeForCausalLM

from automap.executor.batch import Batch, concatenate
from automap.executor.layout import GenerationLayout
from automap.executor.settings import RunSettings
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from tests.executor.engines.plain_training import PolicyLoss, as_in_folders
from tests.executor.ranks import Case
from tests.executor.rollout.rollout_cases import (
    SIZES,
    TOLERANCE,
    mixture_config,
    prompts_of,
    rows_of,
    tiny_model,
    worst_error,
)

MIXTURE: dict[str, Any] = {
    **SIZES,
    "num_layers": 2,
    "query_key_norm": True,
    "num_experts": 4,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 64,
}
"""Those of `mixture_config`."""


def parallelism(tensor: int, *, pipeline: int = 1, expert: int = 1) -> Parallelism:
    """A layout of four ranks."""
    data = 4 // tensor // pipeline
    return Parallelism(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=data,
        expert_parallel_size=expert,
    )


def plan_of(training: Parallelism, generation: Parallelism) -> Plan:
    """GRPO of a tiny mixture on four ranks, as placed by hand."""
    spec = JobSpec.model_validate(
        {
            "name": "mixture",
            "algorithm": "grpo",
            "models": {"actor": {"architecture": MIXTURE}, "reward": {"function": True}},
            "workload": {
                "prompts_per_iteration": 4,
                "responses_per_prompt": 2,
                "prompt_length": {"mean": 4, "max": 8},
                "response_length": {"mean": 8, "max": 8},
                "kl": "none",
                "precision": "fp32",
                "iterations": 2,
            },
            "cluster": {"pools": [{"name": "cpu", "gpu": "cpu", "num_nodes": 1}]},
        }
    )
    copy = CopyPlacement(
        id="actor",
        role="actor",
        kind="home",
        pool="cpu",
        first_gpu=0,
        num_gpus=4,
        layout=training,
    )
    on_actor: dict[str, Any] = {"role": "actor", "copy_id": "actor"}
    trains: dict[str, Any] = {"parallelism": training, "micro_batch_size": 2, **on_actor}
    calls = [
        CallPlacement(
            id="actor.generate",
            kind="generate",
            parallelism=generation,
            kv_cache_bytes=2**20,
            **on_actor,
        ),
        CallPlacement(id="reward.forward", role="reward", kind="forward", copy_id=None),
        CallPlacement(id="actor.forward", kind="forward", **trains),
        CallPlacement(id="actor.train", kind="train", recompute="none", **trains),
    ]
    return estimate(spec, Placement(copies=[copy], calls=calls))


def trains_and_generates(folder: Path, *, training: Parallelism, generation: Parallelism) -> None:
    """After every step the engines agree, and each rank was sent just what it lacks."""
    from automap.executor.run.factories import FACTORIES
    from automap.executor.runtime.runnable import check_run
    from automap.executor.workers.process import ProcessContext

    model = tiny_model(mixture_config(), seed=1)
    own = folder / "mixture"
    if dist.get_rank() == 0:
        model.save_pretrained(own)
    dist.barrier()
    plan = plan_of(training, generation)
    assert "automap" in plan.runs_with
    settings = RunSettings.model_validate(
        {
            "models": {"actor": str(own)},
            "functions": {"reward": {"path": "automap.executor.tiny.tasks:count_token"}},
            "data": {"path": str(own)},
            "training": {"default": {"optimizer": {"learning_rate": 1e-2}}},
        }
    )
    setup = check_run(plan, settings)["actor"]
    context = ProcessContext(dist.get_rank(), dist.get_world_size(), "test")
    engine = FACTORIES.build_engine(setup, context)
    rollout = FACTORIES.build_rollout(setup, context, engine)
    layout = setup.generation_layout
    assert layout is not None
    seen = []
    for step in range(3):
        received = rollout.start(changed=True)["reshard_received"]
        assert received == _missing_bytes(engine, layout, as_in_folders(model.state_dict()))
        _packs_beside_what_trains(rollout)
        prompts = prompts_of().take([layout.replica(dist.get_rank())])
        batch = rollout.generate(prompts, responses_per_prompt=2, greedy=False, iteration=0)
        rows = _of_all_replicas(batch, layout)
        seen.append(rows_of(rows))
        rollout.stop()
        found = engine.forward(rows, "log_probs", temperature=1.0).ragged("log_probs")
        assert (found.values - rows.ragged("response_log_probs").values).abs().max() < TOLERANCE
        saved = folder / f"mixture{step}"
        engine.save(saved)
        dist.barrier()
        judge = Qwen3MoeForCausalLM.from_pretrained(saved, dtype=torch.float32)
        assert worst_error(judge, rows, 1.0) < TOLERANCE
        place = setup.layout.coordinates(dist.get_rank())
        part = rows.take(range(place.data, rows.num_rows, setup.layout.data_parallel_size))
        part = part.with_columns(
            advantages=part.ragged("response_log_probs"), weight=torch.ones(part.num_rows)
        )
        engine.train_step(part, PolicyLoss(), temperature=1.0)
    assert seen[0] != seen[1] != seen[2]
    rollout.vllm.shutdown()


def _packs_beside_what_trains(rollout: Any) -> None:
    """Kernels for experts keep a copy of their own, and a run says how large it is."""
    held = rollout.weight_bytes()
    assert rollout.ledger.alive("training") > 0
    own = held["generation_weights"] - rollout.ledger.alive("training")
    assert 0 < held["packed_weights"] <= own


def _missing_bytes(engine: Any, layout: GenerationLayout, weights: dict[str, Tensor]) -> int:
    """What vLLM reads on this rank and its trainer has not, by marking every element."""
    place, size = layout.coordinates(dist.get_rank()), layout.tensor_parallel_size
    held = {name: torch.zeros(each.shape, dtype=torch.bool) for name, each in weights.items()}
    for name, tensor in engine.parameters():
        tensor_rank = layout.training.coordinates(dist.get_rank()).tensor
        for piece in engine.pieces(name, tensor, tensor_rank=tensor_rank):
            held[piece.name].narrow(piece.dim, piece.start, piece.size).fill_(True)
    missing = 0
    for name, each in weights.items():
        wanted = torch.zeros(each.shape, dtype=torch.bool)
        by_columns = any(part in name for part in ("o_proj", "down_proj"))
        stages = layout.pipeline_parallel_size
        if ".layers." in name and int(name.split(".")[2]) * stages // 2 != place.pipeline:
            continue
        if "norm" in name or "mlp.gate." in name:
            wanted.fill_(True)
        elif ".experts." in name and layout.expert_parallel_size > 1:
            expert = int(name.split(".experts.")[1].split(".")[0])
            wanted.fill_(expert // (4 // layout.expert_parallel_size) == place.tensor)
        elif "k_proj" in name or "v_proj" in name:  # two heads, repeated over four ranks
            first = place.tensor * 2 // size
            for head in wanted.chunk(2)[first : first + max(2 // size, 1)]:
                head.fill_(True)
        else:
            wanted.chunk(size, dim=int(by_columns))[place.tensor].fill_(True)
        missing += each.itemsize * int((wanted & ~held[name]).sum())
    return missing


def _of_all_replicas(batch: Batch, layout: GenerationLayout) -> Batch:
    """The rows of all replicas on every rank."""
    everywhere: list[Batch] = [batch] * dist.get_world_size()
    dist.all_gather_object(everywhere, batch)
    for ranks in layout.groups("tensor", "pipeline"):
        assert all(rows_of(everywhere[rank]) == rows_of(everywhere[ranks[0]]) for rank in ranks)
    first = {layout.replica(rank): rank for rank in reversed(range(layout.world_size))}
    return concatenate([everywhere[first[replica]] for replica in range(layout.num_replicas)])


T2D2E4 = parallelism(2, expert=4)
P2D2E2 = parallelism(1, pipeline=2, expert=2)

ON_FOUR: dict[str, Case] = {
    "experts_t2d2e4_to_t2e2": partial(
        trains_and_generates, training=T2D2E4, generation=parallelism(2, expert=2)
    ),
}
MORE_ON_FOUR: dict[str, Case] = {
    "experts_t2d2e4_to_t2": partial(
        trains_and_generates, training=T2D2E4, generation=parallelism(2)
    ),
    "experts_p2d2e2_to_t4e4": partial(
        trains_and_generates, training=P2D2E2, generation=parallelism(4, expert=4)
    ),
    "experts_p2d2e2_to_t2p2e2": partial(
        trains_and_generates, training=P2D2E2, generation=parallelism(2, pipeline=2, expert=2)
    ),
}
