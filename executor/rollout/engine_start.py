"""How vLLM is started in the processes of one replica, its weights still to come."""

import copy
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from transformers import PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from automap.executor.rollout.environment import prepare_environment, undisturbed
from automap.executor.settings import RolloutSettings
from automap.planner.layout import layers_per_stage
from automap.planner.targets import AUTOMAP

prepare_environment()

from vllm import EngineArgs  # noqa: E402
from vllm.config.model import ModelDType  # noqa: E402
from vllm.utils.gc_utils import freeze_gc_heap  # noqa: E402
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402

from automap.executor.rollout.cpu_experts import map_experts  # noqa: E402
from automap.executor.rollout.plain_weights import without_packing  # noqa: E402
from automap.executor.rollout.replica import replica_groups  # noqa: E402

Precision = Literal["fp32", "bf16", "fp16", "fp8"]
CacheAtSync = Literal["keep", "recompute"]

_DTYPES: dict[str, ModelDType] = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "bfloat16",
}


def start_engine(
    model: Path | PretrainedConfig,
    *,
    ranks: Sequence[int],
    tensor_parallel_size: int,
    expert_parallel_size: int,
    precision: Precision,
    rollout: RolloutSettings,
    max_model_len: int,
    kv_cache_bytes: int,
    seed: int,
    cache_at_sync: CacheAtSync | None,
    plain: bool,
) -> tuple[LLMEngine, bool]:
    """VLLM's engine, and whether its kernels read weights as they are.

    Arguments and errors are those of `VllmEngine`.
    """
    _check_sizes(ranks, tensor_parallel_size, expert_parallel_size)
    # It collects garbage five times while it starts: not among all that was imported, a second.
    freeze_gc_heap()
    if not torch.cuda.is_available():
        map_experts()
    num_stages = len(ranks) // tensor_parallel_size
    # A step that is scheduled before weights come would sample by them and count as older.
    in_turn = num_stages > 1 or cache_at_sync is not None
    with tempfile.TemporaryDirectory() as folder, undisturbed():
        arguments = EngineArgs(
            model=_config_folder(model, Path(folder)),
            tensor_parallel_size=tensor_parallel_size,
            pipeline_parallel_size=num_stages,
            enable_expert_parallel=expert_parallel_size > 1,
            async_scheduling=False if in_turn else None,
            dtype=_DTYPES[precision],
            quantization="fp8" if precision == "fp8" else None,
            max_model_len=max_model_len,
            max_num_seqs=rollout.max_running_sequences,
            enable_prefix_caching=rollout.prefix_caching,
            kv_cache_memory_bytes=kv_cache_bytes,
            seed=seed,
            **_always(),
        )
        described = arguments.create_model_config()
        _check_cores(described.get_head_size(), precision)
        stages = layers_per_stage(described.get_total_num_hidden_layers(), num_stages)
        plain = plain and not torch.cuda.is_available() and not described.is_moe
        with (
            replica_groups(ranks, tensor_parallel_size=tensor_parallel_size, stages=stages),
            without_packing() if plain else nullcontext(),
        ):
            engine = LLMEngine.from_engine_args(arguments)
        if num_stages > 1:
            _make_room_between_stages(engine)
    return engine, plain


def _always() -> dict[str, Any]:
    """Settings that no plan or run changes."""
    on_gpu = torch.cuda.is_available()
    return {
        "distributed_executor_backend": "external_launcher",
        "load_format": "dummy",
        # A prompt cut in two rewinds its sample's generator, which those of a CPU cannot.
        "enable_chunked_prefill": None if on_gpu else False,
        "enable_sleep_mode": on_gpu,
        "enforce_eager": not on_gpu,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # not the folder's: its end tokens would be added
        "disable_log_stats": True,
    }


def _check_sizes(
    ranks: Sequence[int], tensor_parallel_size: int, expert_parallel_size: int
) -> None:
    if dist.get_rank() not in ranks:
        raise ValueError(f"rank {dist.get_rank()} starts a replica of ranks {list(ranks)}")
    if len(ranks) % tensor_parallel_size:
        raise ValueError(
            f"{len(ranks)} ranks of a replica do not divide into tensor groups of "
            f"{tensor_parallel_size}"
        )
    if expert_parallel_size not in (1, tensor_parallel_size):
        raise ValueError(
            f"expert_parallel_size must be 1 or tensor_parallel_size {tensor_parallel_size}, "
            f"got {expert_parallel_size}"
        )


def _make_room_between_stages(engine: LLMEngine) -> None:
    """Give a stage the tensors it receives into: on a CPU nothing else makes them."""
    executor: Any = engine.model_executor
    runner = executor.driver_worker.worker.model_runner
    if runner.intermediate_tensors is None:
        runner.intermediate_tensors = runner.get_model().make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.dtype, device=runner.device
        )


def _config_folder(model: Path | PretrainedConfig, folder: Path) -> str:
    """A folder with the config alone, so that nothing else of the model's folder is read."""
    if isinstance(model, Path):
        shutil.copy(model / "config.json", folder)
        return str(folder)
    named = copy.deepcopy(model)
    if not named.architectures:
        named.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model.model_type]]
    named.save_pretrained(folder)
    return str(folder)


def _check_cores(head_dim: int, precision: Precision) -> None:
    """On CPU vLLM starts with any head, and fails at the first token."""
    if torch.cuda.is_available():
        return
    known = AUTOMAP.rollout.head_dims_on_cores or {head_dim}
    if head_dim not in known:
        sizes = ", ".join(map(str, sorted(known)))
        raise ValueError(f"head_dim {head_dim}: vLLM's attention on CPU is for {sizes}")
    if precision in AUTOMAP.rollout.precisions_on_gpus_only:
        raise ValueError(f"precision {precision}: vLLM has kernels for it on GPUs alone")
