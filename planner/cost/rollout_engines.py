"""Inference engines by name: the few constants in which they differ at the same layers.

Everything else of a generate call holds for all of them (`generation.decode`). All numbers but
`step_seconds` are fitted with `python -m benchmarks.fit_generation TABLE.csv` on published serving
runs of H100, H200 and B200 (docs/concepts/accuracy.md has the errors), around priors by kernels and
launches whose level all engines share.
"""

from dataclasses import dataclass

from automap.planner.spec import RolloutEngine


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """Constants of one inference engine: what it does around products, attention, collectives."""

    name: RolloutEngine
    summary: str
    layer_seconds: float
    """Seconds that the small kernels of a layer take in a decode step beside their memory traffic:
    norms, rotary with cache write, activation, quantisation, each at least its start inside a CUDA
    graph."""
    step_seconds: float
    """Host work of a step that the GPU waits for: scheduling, inputs, launch. 0 where the host
    prepares a step while the GPU runs the one before. Not fitted: vLLM's is chosen on published
    serving runs (Qwen3-32B, Llama-3.1-70B on H100 and H200) at 4-16 concurrent requests. A measured
    profile replaces it (planner/cost/operators/host_work.py)."""
    sequence_seconds: float
    """Host work of a step per running sequence: block tables, sampling, detokenising."""
    all_reduce_share: float
    """Exposed seconds of a decode step's all-reduce over the tables' in isolation: fused with the
    norm that follows, or started by the graph and not by the host."""
    prefill_layer_seconds: float
    """Least time of a layer outside CUDA graphs: a prefill's kernels are launched one by one."""
    prefill_first: bool
    """True: waiting prompts are prefilled before any further decode step, so requests that started
    together stay together. False: prompts join the running decode steps."""
    fp8_cache_generations: tuple[str, ...]
    """GPU generations on which a checkpoint in fp8 also keeps its cache in fp8 by default."""
    captured: bool = True
    """Decode steps are replayed from CUDA graphs; otherwise their kernels are launched one by one,
    as a prefill's are."""
    launched_sequence_seconds: float = 0.0
    launched_token_seconds: float = 0.0
    """Host work of a step per running sequence, and per token that such a sequence has, once the
    step's kernels are launched: inputs of the sampling. It shows only where it, with the launches,
    takes longer than the GPU. 0 where sampling needs nothing of the host."""
    custom_all_reduce: bool = True
    """Whether sums inside a node may go through a kernel of the engine's own; else NCCL's."""
    max_sequences: int | None = None
    """Most sequences that a replica runs at once (vLLM's max_num_seqs); None: all that its cache
    holds."""
    max_sequences_per_gpu: int | None = None
    """What each GPU of a replica takes, where the caller hands over batches of so many."""
    call_seconds: float = 0.0
    """Host work per generate call; 0 unless a profile has measured it."""
    request_seconds: float = 0.0
    """Host work per request of a generate call; 0 unless a profile has measured it."""


ENGINES: dict[RolloutEngine, EngineProfile] = {
    engine.name: engine
    for engine in (
        EngineProfile(
            "vllm",
            "vLLM V1 with CUDA graphs and chunked prefill, 2025 and later",
            layer_seconds=17e-6,
            step_seconds=0.5e-3,
            sequence_seconds=5.3e-6,
            all_reduce_share=0.67,
            prefill_layer_seconds=0.19e-3,
            prefill_first=False,
            fp8_cache_generations=("blackwell", "blackwell-ultra"),
        ),
        EngineProfile(
            "sglang",
            "SGLang with the overlap scheduler, 2025 and later",
            layer_seconds=18e-6,
            step_seconds=0.0,
            sequence_seconds=5.8e-6,
            all_reduce_share=0.7,
            prefill_layer_seconds=0.44e-3,
            prefill_first=True,
            fp8_cache_generations=("blackwell", "blackwell-ultra"),
        ),
        EngineProfile(
            "trtllm",
            "TensorRT-LLM 1.0 and later, PyTorch backend",
            layer_seconds=12e-6,
            step_seconds=0.0,
            sequence_seconds=3.6e-6,
            all_reduce_share=0.64,
            prefill_layer_seconds=0.57e-3,
            prefill_first=False,
            fp8_cache_generations=("ada", "hopper", "blackwell", "blackwell-ultra"),
        ),
    )
}
