"""The few constants of the cost model: unit, meaning, and source or how each was chosen.

"Chosen" means: set by the physics named and checked against published runs
(docs/concepts/cost-model.md), one value for all models and GPUs, never per run.
"""

# --- bytes of one number -------------------------------------------------------------------
PRECISION_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
"""Bytes per weight by precision name of the spec."""
GRADIENT_BYTES = 4
"""Gradients accumulate in fp32 (Megatron-LM distributed optimizer with bf16 weights)."""
MASTER_BYTES = 4
"""The fp32 copy that the optimizer updates; none when the weights are fp32 already."""
MOMENT_BYTES = 4
"""One moment of the optimizer in fp32."""
NUM_MOMENTS = {"adam": 2, "sgd": 0}
"""Moments per parameter; SGD is without momentum."""

# --- memory --------------------------------------------------------------------------------
CONTEXT_BYTES = 1_610_612_736
"""1.5 GiB per GPU: CUDA context, cuBLAS workspaces. BLOOM tuning notes measure 1.3-1.6 GiB."""
FRAGMENTATION_SHARE = 0.05
"""Share of device memory left to allocator fragmentation. Chosen: a margin, not a measurement."""
VOCABULARY_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of 128 x tensor parallel size."""
TRAIN_LOGITS_BYTES = 8
"""Bytes per logit in training: bf16 output 2, fp32 copy 4 (softmax in place), bf16 gradient 2."""
FORWARD_LOGITS_BYTES = 6
"""Bytes per logit in scoring: bf16 output 2, fp32 copy 4."""
COMMUNICATION_BUFFER_BYTES = 536_870_912
"""0.5 GiB per GPU and kind of group that spans GPUs (tensor, context, data, pipeline, expert), each
a communicator of its own: NCCL keeps buffers of 4 MiB (NCCL_BUFFSIZE) and smaller ones per channel
and connection, 16-32 channels, send and receive for ring and tree. Chosen, and checked by
`python -m benchmarks.fit_memory TABLE.csv`, which fits it to runs read with nvidia-smi."""
HOST_SHARE = 0.9
"""Share of a node's host memory that offloaded state may take. Chosen: a tenth is left for the
software."""
TOKEN_BUDGET_SIGMAS = 3.0
"""Micro-batches that are filled have the mean of so many sequences + 3 sigma (or one longest
sequence plus means, if that is more). Chosen: room for almost any so many sequences; it is a limit
that the software keeps, so memory holds no more."""
PEAK_ITERATIONS = 500
"""Memory is sized for the fullest micro-batch of a run of so many iterations, where software takes
sequences as they come. Chosen: published RLHF runs have a few hundred to a few thousand; the
fullest of ten times as many has at most 10 % more tokens."""

# --- training and scoring ------------------------------------------------------------------
NO_TENSOR_CORE_SHARE = 1 / 16
"""Product rate without tensor cores over that with them: 19.5 of 312 TFLOP/s (A100 data sheet)."""
ATTENTION_BACKWARD_RATIO = 2.5
"""Backward over forward seconds of flash attention: five products for two (Dao 2023,
arXiv:2307.08691); measured 2-2.5 on the shapes of the operator tables."""
GRADIENT_TRAFFIC_BYTES = 6
"""Extra traffic per weight and micro-batch: the weight gradient is added to an fp32 buffer (read
4, write 4) where the measured product writes 2."""
CAST_BYTES = 4
"""Traffic per element of a product's operand that is cast to 8 bits by a kernel of its own: read in
16 bits, written in 8 twice, as it is and transposed (the weight gradient reads the other order)."""
LAYER_FORWARD_LAUNCHES = 20
"""Kernels that one layer's forward launches when training eagerly; backward launches twice as
many. Counted from a Llama layer: norms, projections, rotary, attention, activation, residuals."""
LAUNCH_SECONDS = 5e-6
"""Host time to launch one eager kernel; PyTorch launches about 200,000 kernels a second."""
EXPERT_OPERAND_HOST_SECONDS = 85e-6
"""Host time to allocate, cast and rescale one local expert's operand in 8 bits: three to four
kernels, called from Python for each expert. The host cannot run ahead, because it learns how many
tokens an expert has only after the dispatch. Fitted with `python -m benchmarks.fit_training`."""
BIAS_FORWARD_BYTES = 28
"""Traffic per element of what routed experts give to which a bias is added. Counted: bias times
probability 4; sum 2 + 4 + 4; experts put together 4 + 4; cast to 16 bits 4 + 2."""
BIAS_BACKWARD_BYTES = 36
"""Traffic per element of what they give backward. Counted: cast of the gradient 2 + 4; of the
result's 4 + 2; probability's gradient 4 + 4 and its sum 4; the bias's 4 + 4 and its sum over tokens
4."""
DATA_OVERLAP_SHARE = 0.9
"""Share of a backward (or forward) pass behind which data-parallel collectives hide; chosen: the
first and last bucket never hide."""
OVERLAP_SLOWDOWN = 0.2
"""Compute lost per second of collective that runs beside it. Chosen: NCCL occupies 16-24 of 108-132
multiprocessors and a share of memory bandwidth."""
GPU_SPEED_SPREAD = 0.015
"""Standard deviation of compute speed among GPUs of one type, over the mean. Sinha et al. 2022
(SC22, arXiv:2208.11035) measure a range of 8 % between the whiskers of a box plot in the mean of
five clusters, which are 5.4 standard deviations apart. Memory-bound work hardly varies there."""
PIPELINE_WAIT_SHARE = 0.88
"""Share of what the fullest of p micro-batches has beyond the mean by which a 1F1B pipeline of p
stages takes longer for each of them. Simulated, not measured: 0.7 to 1 for 2 to 8 stages, and 0.7
to 1.1 of forward passes alone, a stage of which keeps what it has until the next is free
(tests/planner/cost/test_slowest.py)."""
STEP_AGREEMENTS = 3
SCORING_AGREEMENTS = 2
"""Small collectives of an optimizer step and of a scoring call over all ranks; counted in
executor/engines: of micro-batches, of the loss and its weight, of the norm; of micro-batches, and
of the results from the last stage. Shown only where nothing runs beside them."""
STEP_OVERHEAD_SECONDS = 0.02
"""Host work of one optimizer step or one scoring call in its processes: rows made into batches,
norm synchronisation, scheduler, logging. Chosen: an order of magnitude; it only shows in very short
calls. Profiles measure it."""

# --- generation ----------------------------------------------------------------------------
ENGINE_ELEMENTWISE_PASSES = 2.4
"""Traffic of a layer's small kernels over that of moving each operand once: with few rows they
reach less of the memory's bandwidth, and quantisation reads its operand once more. Chosen, not
fitted: `benchmarks.fit_generation` holds it where it is."""
ENGINE_EXPERT_LAYER_SECONDS = 44e-6
"""What a layer with experts adds to the engine's layer_seconds: router, top-k, sorting rows by
expert, gathering them and summing up. One value for all engines, fitted together with those of
planner/cost/rollout_engines.py by `python -m benchmarks.fit_generation TABLE.csv`."""
ENGINE_EXPERT_PREFILLS = 2.0
"""Least time of a prefill's layer with experts over that of a dense one: kernels launched. Chosen,
not fitted: an order of magnitude; `benchmarks.fit_generation` holds it where it is."""
PREFILL_CHUNK_TOKENS = 8192
"""Tokens an engine processes in one prefill step (max_num_batched_tokens)."""
CACHE_BLOCK_TOKENS = 16
"""Tokens per block of a paged cache (vLLM's default); half a block per sequence stays empty."""
ENGINE_GRAPH_BYTES = 2_147_483_648
"""2 GiB: captured CUDA graphs, the engine's own NCCL buffers and attention workspace. Chosen."""

# --- transitions ---------------------------------------------------------------------------
SYNC_BUCKET_BYTES = 2_147_483_648
"""Weights travel in buckets of 2 GiB (verl: update_weights_bucket_megabytes 2048)."""
BUCKET_LATENCY_SECONDS = 5e-3
"""Host work per bucket: collect tensors, launch, rendezvous. Chosen: an order of magnitude."""
TENSOR_REFIT_SECONDS = 0.3e-3
"""Host work per tensor of a model that weights cross on their way to an engine: the trainer gathers
it, names it as checkpoints do, and the engine looks it up and copies it in. Chosen: three to four
kernels called from Python (EXPERT_OPERAND_HOST_SECONDS is fitted for as many, 85 us), a collective
that starts (50 to 100 us), and a search among the names of a layer's experts. A dense model has
hundreds of tensors, a mixture tens of thousands."""
HOST_LINK_EFFICIENCY = 0.8
"""Pinned copies reach about 80 % of the link rate (25 of 32 GB/s on PCIe 4 x16). Chosen."""
HOST_UPDATE_BYTES_PER_SECOND = 20e9
"""Host memory traffic of an optimizer that updates on the host, per GPU: one thread of torch's
fused AdamW, as launchers and Ray give a process by default (OMP_NUM_THREADS=1). Chosen: a server
core moved 16 to 21 GB/s (`python -m benchmarks.host_adam`), 1.4 s for 10^9 parameters."""

# --- Automap's executor on CPU cores, where calls take milliseconds -------------------------
CORE_CALL_SECONDS = 10e-3
"""By which a call of a model, or each optimizer step of one, is longer there than its processes'
own work: the way to them and back, rows fetched and stored. A call in rounds or chunks counts once.
Measured: `python -m benchmarks.iteration`."""
CORE_BETWEEN_CALLS_SECONDS = 1e-3
"""From one of them to the next: the controller and numeric steps. Measured as well."""

# --- restarts ------------------------------------------------------------------------------
STORAGE_READ_BYTES_PER_SECOND = 1.25e9
STORAGE_WRITE_BYTES_PER_SECOND = 0.625e9
"""Bandwidth of shared storage per node that reads or writes a checkpoint. Chosen: the standard
storage of NVIDIA's DGX SuperPOD reference architecture (H100) reads 40 and writes 20 GB/s for 32
nodes. Used where a spec does not say what a restart takes."""
START_SECONDS = 120.0
"""Seconds to start processes and communicators, and an engine that compiles and captures its
graphs; loading weights is counted apart. Chosen: an order of magnitude. Used where a spec does not
say what a restart takes."""
