"""Pipelines whose stages are not equally long: in Megatron, in vLLM, and from one to the other.

The executor builds both engines from a plan; transformers' unsplit model is the judge.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from automap.executor.engines.tensor_folder import TensorFolder
from automap.executor.reshard.parts import Part, layer_of
from automap.executor.settings import DataSettings, RunSettings
from automap.executor.workers.model_setup import ModelSetup, model_setups
from automap.executor.workers.process import ProcessContext
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from tests.executor.ranks import Case
from tests.executor.rollout.rollout_cases import SIZES, TOLERANCE, prompts_of, worst_error

if TYPE_CHECKING:
    from automap.executor.rollout.vllm_rollout import VllmRollout

PROMPT_TOKENS, RESPONSE_TOKENS = 8, 8
CACHE_BYTES = 2**16
"""Too little for all responses at once: schedulers of unlike caches would not keep in step."""


def plan_of(trained: Parallelism, generated: Parallelism, *, layers: int) -> Plan:
    """The actor of a small GRPO on all devices."""
    spec = JobSpec.model_validate(
        {
            "name": "stages",
            "algorithm": "grpo",
            "models": {
                "actor": {"architecture": {"num_layers": layers, **SIZES}},
                "reward": {"function": True},
            },
            "workload": {
                "prompts_per_iteration": 8,
                "responses_per_prompt": 2,
                "prompt_length": {"mean": PROMPT_TOKENS, "max": PROMPT_TOKENS},
                "response_length": {"mean": RESPONSE_TOKENS, "max": RESPONSE_TOKENS},
                "precision": "fp32",
                "kl": "none",
                "iterations": 1,
            },
            "cluster": {
                "pools": [
                    {"name": "p", "gpu": "a100", "num_nodes": 1, "gpus_per_node": trained.num_gpus}
                ]
            },
        }
    )
    home = CopyPlacement(
        id="actor", role="actor", kind="home", pool="p", first_gpu=0, num_gpus=trained.num_gpus,
        layout=trained,
    )  # fmt: skip
    return estimate(spec, Placement(copies=[home], calls=_calls(spec, trained, generated)))


def _calls(spec: JobSpec, trained: Parallelism, generated: Parallelism) -> list[CallPlacement]:
    found = []
    for call in resolve(spec).dataflow.calls:
        settings: dict[str, Any] = {}
        if call.kind == "generate":
            settings = {"copy_id": "actor", "parallelism": generated, "kv_cache_bytes": CACHE_BYTES}
        elif call.role == "actor":
            settings = {"copy_id": "actor", "parallelism": trained, "micro_batch_size": 2}
        if call.kind == "train":
            settings["recompute"] = "none"
        found.append(CallPlacement(id=call.id, role=call.role, kind=call.kind, **settings))
    return found


def goes_through_stages(
    folder: Path, *, trained: Parallelism, generated: Parallelism, layers: int
) -> None:
    """The weights come bit for bit, and all three models give the same log-probabilities."""
    from automap.executor.run.factories import build_engine, build_rollout

    own = folder / f"{trained.in_short()}-{generated.in_short()}-{layers}".replace(" ", "-")
    if dist.get_rank() == 0:
        torch.manual_seed(1)
        config = LlamaConfig(
            num_hidden_layers=layers, tie_word_embeddings=False, initializer_range=0.1, **SIZES
        )
        LlamaForCausalLM(config).save_pretrained(own)
    dist.barrier()
    plan = plan_of(trained, generated, layers=layers)
    settings = RunSettings(data=DataSettings(path=Path("unused")), models={"actor": own})
    setup = model_setups(resolve(plan.spec), plan.placement(), settings)["actor"]
    context = ProcessContext(dist.get_rank(), dist.get_world_size(), "run")
    engine = build_engine(setup, context)
    _holds_the_stated_layers(setup, plan.copies[0].layers_per_stage, engine)
    rollout = cast("VllmRollout", build_rollout(setup, context, engine))
    _comes_bit_for_bit(setup, own, rollout)
    rollout.start(changed=True)
    rows = rollout.generate(prompts_of(), responses_per_prompt=2, greedy=False, iteration=0)
    rollout.stop()
    assert worst_error(AutoModelForCausalLM.from_pretrained(own), rows, 1.0) < TOLERANCE
    found = engine.forward(rows, "log_probs", temperature=1.0).ragged("log_probs")
    error = (found.values - rows.ragged("response_log_probs").values).abs().max()
    assert error < TOLERANCE, f"vLLM and the trainer differ by {error:.1e}"
    rollout.vllm.shutdown()


def _holds_the_stated_layers(setup: ModelSetup, stated: list[int] | None, engine: Any) -> None:
    """Megatron's part of the model is that of the plan."""
    assert stated is not None
    stage = setup.layout.coordinates(dist.get_rank()).pipeline
    first = sum(stated[:stage])
    found = {int(name.split(".")[2]) for name, _ in engine.parameters() if ".layers." in name}
    assert found == set(range(first, first + stated[stage]))


def _comes_bit_for_bit(setup: ModelSetup, folder: Path, rollout: "VllmRollout") -> None:
    """Exactly the tensors of this rank's layers, and of each the part that vLLM reads."""
    from automap.executor.rollout.weight_sources import _target

    target, stored, came = _target(setup, dist.get_rank()), TensorFolder(folder), set()
    assert rollout._source is not None
    for name, tensor in rollout._source.tensors():
        whole = stored.read(name)
        zeros = (0,) * whole.dim()
        part = target.part(Part(name, tuple(whole.shape), zeros, tuple(whole.shape), whole.dtype))
        if part is not None:
            assert torch.equal(tensor[part.index], whole[part.index]), name
            came.add(name)
    layers = range(*target.layers) if target.layers else range(setup.architecture.num_layers)
    assert {layer for name in came if (layer := layer_of(name)) is not None} == set(layers)


def _stages(trained: dict[str, int], generated: dict[str, int], *, layers: int) -> Case:
    def sizes(given: dict[str, int]) -> Parallelism:
        return Parallelism(**{f"{name}_parallel_size": size for name, size in given.items()})

    return partial(
        goes_through_stages, trained=sizes(trained), generated=sizes(generated), layers=layers
    )


ON_TWO: dict[str, Case] = {
    "p2_to_p2": _stages({"pipeline": 2}, {"pipeline": 2}, layers=5),
    "p2_to_d2": _stages({"pipeline": 2}, {"data": 2}, layers=5),
}
MORE_ON_FOUR: dict[str, Case] = {
    # 1, 1, 2 and 1 layers against 3 and 2: some lie on other ranks than those that take them in.
    "p4_to_p2d2": _stages({"pipeline": 4}, {"pipeline": 2, "data": 2}, layers=5),
    "p4_to_p4": _stages({"pipeline": 4}, {"pipeline": 4}, layers=5),
    "t2p2_to_p4": _stages({"tensor": 2, "pipeline": 2}, {"pipeline": 4}, layers=5),
}
