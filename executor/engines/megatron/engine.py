"""The training engine on Megatron-core."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from torch import Tensor, nn
from transformers import PreTrainedConfig

from automap.executor.batch import Batch
from automap.executor.engines.learning_rate import check_schedule, learning_rate
from automap.executor.engines.megatron import passes
from automap.executor.engines.megatron.checkpoint import copy_state, model_state, optimizer_state
from automap.executor.engines.megatron.configuration import Precision, Recompute
from automap.executor.engines.megatron.decoder import DecoderStage
from automap.executor.engines.megatron.model import MegatronModel
from automap.executor.engines.megatron.optimizer import Optimizer
from automap.executor.engines.megatron.parallel_groups import ParallelGroups
from automap.executor.engines.micro_batches import check_budgets, in_order
from automap.executor.engines.offload import Offload
from automap.executor.engines.training_engine import Head, Loss, Output, check_output
from automap.executor.layout import RankLayout
from automap.executor.settings import TrainingSettings


class MegatronEngine(MegatronModel):
    """Scores and trains with tensor, sequence, pipeline and data parallelism.

    Implements `TrainingEngine`. The default process group must be initialised and hold the model's
    ranks alone. Engines of other layouts, and others' use of Megatron-core, may share the process.
    """

    def __init__(
        self,
        config: PreTrainedConfig | Path | str,
        *,
        layout: RankLayout,
        head: Head = "language_model",
        precision: Precision = "bf16",
        training: TrainingSettings | None = None,
        micro_batch_tokens: int = 1,
        forward_tokens: int | None = None,
        recompute: Recompute = "none",
        distributed_optimizer: bool = False,
        virtual_pipeline_parallel_size: int = 1,
        groups: ParallelGroups | None = None,
        seed: int = 0,
    ) -> None:
        """Build the model with random weights; `load` reads others. Collective.

        Args:
            config: of the model, or the folder whose config.json to read.
            layout: over all ranks of the default group.
            head: what the model ends in.
            precision: of weights and computation; masters and sums of gradients are fp32.
            training: how it trains; None: it only scores, and has no optimizer.
            micro_batch_tokens: of a micro-batch at most, packed; a longer row is alone.
            forward_tokens: of one that only scores; None: as many.
            recompute: what training throws away and computes again: nothing, attention, or all but
                the inputs of the layers.
            distributed_optimizer: split masters and moments over the data ranks (ZeRO-1).
            virtual_pipeline_parallel_size: chunks of layers per pipeline rank, interleaved.
            groups: of another engine of the same layout, to share its communicators.
            seed: of the random weights, which do not depend on the layout.

        Raises:
            ValueError: a setting that the engine or the model cannot follow.
        """
        settings = training or TrainingSettings()
        check_schedule(settings.optimizer)
        check_budgets(micro_batch_tokens, forward_tokens)
        super().__init__(
            config,
            layout=layout,
            head=head,
            precision=precision,
            trains=training is not None,
            recompute=recompute,
            sequence_parallel=settings.sequence_parallel,
            virtual_pipeline_parallel_size=virtual_pipeline_parallel_size,
            groups=groups,
            seed=seed,
        )
        self._settings = settings
        self._train_tokens = micro_batch_tokens
        self._forward_tokens = forward_tokens or micro_batch_tokens
        self._chunks: Sequence[nn.Module] = self.stages
        self._optimizer: Optimizer | None = None
        if training is not None:
            with self.groups.active():
                self._prepare_training(precision, distributed_optimizer)

    def forward(self, batch: Batch, output: Output, *, temperature: float = 1.0) -> Batch:
        """See `TrainingEngine`. The result has the one column `output`, on the host.

        Raises:
            ValueError: an output that the head does not give.
        """
        check_output(self.head, output)
        self.require_on_device("weights")

        def score(stage: DecoderStage, own: passes.MicroBatch, hidden: Tensor) -> Any:
            return hidden, passes.predict(stage, own, hidden, output, temperature=temperature)[0]

        with self.groups.active(), torch.no_grad():
            micro_batches, rows = self._micro_batches(batch, train=False)
            kept = passes.run(self._chunks, micro_batches, score, self.groups, forward_only=True)
            counted = [each for each in micro_batches if each.counts]
            sizes = [len(each.last if output == "scores" else each.predicting) for each in counted]
            values = torch.empty(sum(sizes), device=self.device)
            if kept:
                torch.cat(kept, out=values)
            source = self.groups.last_stage_rank
            dist.broadcast(values, source, group=self.groups.pipeline)
        return in_order(batch, rows, values.cpu(), output)

    def train_step(self, batch: Batch, loss: Loss, *, temperature: float = 1.0) -> dict[str, float]:
        """See `TrainingEngine`. In fp16, repeats the passes at half the loss scale on overflow."""
        optimizer = self._optimizer
        if optimizer is None:
            raise ValueError("the engine only scores: training is None")
        self.require_on_device("weights")
        self.require_on_device("optimizer")
        with self.groups.active():
            micro_batches, _ = self._micro_batches(batch, train=True)
            weight = self._sum_over_data_ranks(loss.weight(batch))
            if not weight > 0:
                raise ValueError(f"the weight of the mini-batch must be above 0, got {weight}")
            lose = partial(self._lose, loss=loss, weight=weight, temperature=temperature)
            while True:
                optimizer.forget_gradients()
                sums = self._accumulate(micro_batches, lose)
                means = {name: total / weight for name, total in sums.items()}
                optimizer.check_finite("loss", means["loss"])
                if optimizer.take_gradients():
                    break
            norm = optimizer.gradient_norm()
            optimizer.check_finite("gradient norm", norm)
            rate = learning_rate(self._settings.optimizer, optimizer.num_steps)
            optimizer.step(rate, norm)
        return {**means, "grad_norm": norm, "learning_rate": rate}

    def load(self, folder: Path) -> None:
        """See `MegatronModel`; the optimizer's moments stay as they are."""
        super().load(folder)
        if self._optimizer is not None:
            self.require_on_device("optimizer")
            self._optimizer.copy_weights_to_masters()

    def state(self) -> dict[str, Any]:
        """Weights, masters and moments by Hugging Face names, and progress; see `TrainingEngine`.

        Shares storage with the engine, so a checkpoint reads into it. In fp32 the weights are the
        masters.
        """
        self.require_on_device("weights")
        self.require_on_device("optimizer")
        state: dict[str, Any] = {"weights": model_state(self)}
        if self._optimizer is not None:
            state |= optimizer_state(self, self._optimizer)
            state["progress"] = self._optimizer.progress()
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """See `TrainingEngine`.

        Raises:
            ValueError: the state is of another model or layout, or lacks what the optimizer needs.
        """
        own = self.state()
        missing = set(own) - set(state)
        if missing:
            raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
        for kind, tensors in own.items():
            if kind != "progress":
                copy_state(state[kind], tensors)
        if self._optimizer is not None:
            self._optimizer.load_progress(state["progress"])

    def offload(self, what: Offload) -> None:
        """See `MegatronModel`; sums of gradients, which every step makes anew, are freed."""
        super().offload(what)
        for chunk in self._trained_chunks():
            chunk.offload_grad_buffers()

    def reload(self, *, optimizer: bool = True) -> None:
        """See `MegatronModel`; room for sums of gradients comes with the optimizer."""
        super().reload(optimizer=optimizer)
        for chunk in self._trained_chunks() if optimizer else []:
            chunk.restore_grad_buffers()

    def optimizer_tensors(self) -> list[Tensor]:
        """Local masters (where they are not the weights) and moments."""
        return [] if self._optimizer is None else self._optimizer.tensors()

    def _prepare_training(self, precision: Precision, distributed_optimizer: bool) -> None:
        if self.architecture.num_experts:
            if precision == "fp16":
                raise ValueError("precision must be bf16 or fp32 to train experts, got 'fp16'")
            if self.layout.tensor_parallel_size > 1 and not self.config.sequence_parallel:
                raise ValueError("sequence_parallel must be on to train experts split by tensor")
        reduction = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=distributed_optimizer
        )
        wrapped = [
            DistributedDataParallel(self.config, reduction, stage, disable_bucketing=index > 0)
            for index, stage in enumerate(self.stages)
        ]
        self._chunks = wrapped
        self._optimizer = Optimizer(
            wrapped,
            self._settings.optimizer,
            precision=precision,
            distributed=distributed_optimizer,
        )
        if precision == "fp16":
            self.config.grad_scale_func = self._optimizer.scale_loss
        self.config.finalize_model_grads_func = _finalize

    def _micro_batches(
        self, batch: Batch, *, train: bool
    ) -> tuple[list[passes.MicroBatch], list[Tensor]]:
        for chunk in self._chunks:
            chunk.train(train)
        return passes.make_micro_batches(
            batch,
            self.groups,
            max_tokens=self._train_tokens if train else self._forward_tokens,
            multiple=self.layout.tensor_parallel_size if self.config.sequence_parallel else 1,
            device=self.device,
        )

    def _lose(
        self,
        stage: DecoderStage,
        micro_batch: passes.MicroBatch,
        hidden: Tensor,
        *,
        loss: Loss,
        weight: float,
        temperature: float,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = passes.predict(
            stage,
            micro_batch,
            hidden,
            "values" if self.head == "scalar" else "log_probs",
            temperature=temperature,
            with_entropy=loss.needs_entropy,
        )
        terms = loss.terms(*outputs, micro_batch.batch)
        return terms.loss_sum / weight, {"loss": terms.loss_sum.detach(), **terms.metric_sums}

    def _accumulate(
        self, micro_batches: list[passes.MicroBatch], lose: passes.OnLastStage
    ) -> dict[str, float]:
        """Gradients of a mini-batch; the sums of loss and metrics over it, on every rank."""
        for chunk in self._trained_chunks():
            chunk.zero_grad_buffer()
        kept = passes.run(self._chunks, micro_batches, lose, self.groups, forward_only=False)
        own: dict[str, float] = {}
        for terms in kept if self.place.tensor == 0 else []:
            for name, value in terms.items():
                own[name] = own.get(name, 0.0) + float(value)
        # By name, because ranks without rows, or on other stages, do not know the names.
        everyone: list[dict[str, float]] = [{}] * dist.get_world_size()
        dist.all_gather_object(everyone, own)
        sums: dict[str, float] = {}
        for each in everyone:
            for name, value in each.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def _trained_chunks(self) -> list[DistributedDataParallel]:
        return [each for each in self._chunks if isinstance(each, DistributedDataParallel)]

    def _sum_over_data_ranks(self, value: float) -> float:
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(total, group=self.groups.data)
        return float(total)


def _finalize(model: list[nn.Module], num_tokens: Tensor | None, **others: Any) -> None:
    """Complete the gradients; without Megatron's division by the number of tokens."""
    finalize_model_grads(model, None, **others)
