"""The training engine on PyTorch FSDP2."""

import math
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedConfig

from automap.executor.batch import Batch
from automap.executor.engines.fsdp.model import DTYPES, FsdpModel, Precision
from automap.executor.engines.fsdp.optimizer import ShardedAdamW
from automap.executor.engines.fsdp.parallel import Recompute, Sharding, sharded_modules
from automap.executor.engines.fsdp.passes import Passes
from automap.executor.engines.fsdp.sharded_parameters import copy_local
from automap.executor.engines.learning_rate import check_schedule, learning_rate
from automap.executor.engines.micro_batches import check_budgets, in_order
from automap.executor.engines.training_engine import Head, Loss, Output, check_output
from automap.executor.layout import RankLayout
from automap.executor.settings import TrainingSettings


class FsdpEngine(FsdpModel):
    """Scores and trains a model sharded by FSDP2; implements `TrainingEngine`.

    The default process group must be initialised and hold the model's ranks alone; they run
    tensor first, then context, then data. Between layers every tensor rank holds whole
    activations: `TrainingSettings.sequence_parallel` has no effect. Context ranks get the same
    rows; each computes a slice of them, and all have the outputs.
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
        sharding: Sharding = "full",
        lora_rank: int | None = None,
        seed: int = 0,
    ) -> None:
        """Build the model with random weights; `load` reads others.

        Args:
            config: of the model, or the folder whose config.json to read.
            layout: data, context and tensor parallel sizes; all others are 1.
            head: what the model ends in.
            precision: of the computation. Weights that train are kept in fp32 (the masters) and
                cast when they are gathered; others are kept in this precision.
            training: how it trains; None: it only scores.
            micro_batch_tokens: of a micro-batch at most, packed, over the ranks that share its
                rows; a longer row is alone.
            forward_tokens: of one that only scores; None: as many.
            recompute: what training throws away and computes again.
            sharding: `gradient` keeps gathered weights until their backward (ZeRO-2), `full` does
                not (ZeRO-3). At rest each rank holds 1 ÷ (data × context) of everything.
            lora_rank: of adapters on all linear layers; None: all weights train.
            seed: of the random weights, which do not depend on the layout.

        Raises:
            ValueError: a setting that the engine or the model cannot follow.
        """
        if precision not in DTYPES:
            raise ValueError(f"precision must be bf16 or fp32 with fsdp, got {precision!r}")
        if sharding not in ("gradient", "full"):
            raise ValueError(f"sharding must be gradient or full with fsdp, got {sharding!r}")
        check_budgets(micro_batch_tokens, forward_tokens)
        super().__init__(
            config,
            layout=layout,
            head=head,
            precision=precision,
            trains=training is not None,
            recompute=recompute,
            sharding=sharding,
            lora_rank=lora_rank,
            seed=seed,
        )
        self._passes = Passes(self.network, self.mesh, self.device, self.context)
        self._train_tokens = micro_batch_tokens
        self._forward_tokens = forward_tokens or micro_batch_tokens
        self._keep_gathered = sharding == "gradient"
        self._training = training
        self._optimizer: ShardedAdamW | None = None
        if training is not None:
            check_schedule(training.optimizer)
            self._optimizer = ShardedAdamW(
                self.trained,
                training.optimizer,
                tensor_group=self.mesh["tensor"].get_group(),
                summed=self.summed,
            )

    def forward(self, batch: Batch, output: Output, *, temperature: float = 1.0) -> Batch:
        """See `TrainingEngine`. The result has the one column `output`, on the host.

        Raises:
            ValueError: an output that the head does not give.
        """
        check_output(self.head, output)
        self.require_on_device("weights")
        self.network.eval()
        rows, outputs = [], [torch.zeros(0)]
        with torch.no_grad():
            for part, _ in self._passes.micro_batches(batch, self._forward_tokens):
                prediction, _ = self._passes.run(batch.take(part), output, temperature=temperature)
                if len(part):
                    rows.append(part)
                    outputs.append(prediction.cpu())
        for module in sharded_modules(self.network):
            module.reshard()
        return in_order(batch, rows, torch.cat(outputs), output)

    def train_step(self, batch: Batch, loss: Loss, *, temperature: float = 1.0) -> dict[str, float]:
        """See `TrainingEngine`."""
        if self._training is None or self._optimizer is None:
            raise ValueError("the engine only scores: training is None")
        self.require_on_device("weights")
        self.require_on_device("optimizer")
        optimizer = self._optimizer
        totals, weight = self._accumulate(batch, loss, temperature)
        optimizer.take_gradients()
        norm = float(optimizer.gradient_norm())
        means = {name: total / weight for name, total in totals.items()}
        for name, value in (("loss", means["loss"]), ("gradient norm", norm)):
            if not math.isfinite(value):
                optimizer.forget_gradients()
                raise FloatingPointError(
                    f"{name} is {value} in optimizer step {optimizer.num_steps}; "
                    "the weights are unchanged"
                )
        rate = learning_rate(self._training.optimizer, optimizer.num_steps)
        optimizer.step(rate, norm)
        optimizer.forget_gradients()
        return {**means, "grad_norm": norm, "learning_rate": rate}

    def _accumulate(
        self, batch: Batch, loss: Loss, temperature: float
    ) -> tuple[dict[str, float], float]:
        """Gradients of a mini-batch; its sums (loss and metrics) and weight over all ranks."""
        weight = self._sum_over_ranks({"weight": float(loss.weight(batch))})["weight"]
        if not weight > 0:
            raise ValueError(f"the weight of the mini-batch must be above 0, got {weight}")
        self.network.train()
        sums: dict[str, Tensor] = {}
        for rows, is_last in self._passes.micro_batches(batch, self._train_tokens):
            for module in sharded_modules(self.network):
                module.set_reshard_after_backward(is_last or not self._keep_gathered)
            part = batch.take(rows)
            prediction, entropy = self._passes.run(
                part,
                "values" if self.head == "scalar" else "log_probs",
                temperature=temperature,
                with_entropy=loss.needs_entropy,
            )
            if not part.num_rows:
                (prediction.sum() * 0.0).backward()
                continue
            terms = loss.terms(prediction, entropy, part.to(self.device))
            (terms.loss_sum / weight).backward()
            for name, value in {"loss": terms.loss_sum, **terms.metric_sums}.items():
                sums[name] = sums.get(name, 0.0) + value.detach().double()
        return self._sum_over_ranks({name: float(each) for name, each in sums.items()}), weight

    def _sum_over_ranks(self, own: dict[str, float]) -> dict[str, float]:
        """Sums over the data ranks, the same to the last bit on all ranks.

        By name, because a rank without rows does not know the names. Tensor and context ranks
        have the same rows, and the same sums.
        """
        everyone: list[dict[str, float]] = [{}] * dist.get_world_size()
        dist.all_gather_object(everyone, own)
        sums: dict[str, float] = {}
        for rank, each in enumerate(everyone):
            place = self.layout.coordinates(rank)
            if place.tensor == place.context == 0:
                for name, value in each.items():
                    sums[name] = sums.get(name, 0.0) + value
        return sums

    def state(self) -> dict[str, object]:
        """Trained weights (the masters), moments and number of steps; see `TrainingEngine`.

        Shares storage with the engine, so a checkpoint reads into it. Frozen weights are not in
        it: of LoRA, load the same base first.
        """
        self.require_on_device("weights")
        self.require_on_device("optimizer")
        weights = {each.name: each.like(each.local()) for each in self.trained}
        optimizer = {} if self._optimizer is None else self._optimizer.state()
        return {"weights": weights, "optimizer": optimizer}

    def load_state(self, state: dict[str, object]) -> None:
        """See `TrainingEngine`.

        Raises:
            ValueError: the state is of another model.
        """
        weights, optimizer = state["weights"], state["optimizer"]
        assert isinstance(weights, dict)
        assert isinstance(optimizer, dict)
        own = {each.name: each for each in self.trained}
        if set(weights) != set(own):
            unlike = sorted(set(weights) ^ set(own))
            raise ValueError(f"the state is of another model: {', '.join(unlike[:5])} differ")
        for name, each in own.items():
            copy_local(weights[name], each.local())
        if self._optimizer is not None:
            self._optimizer.load_state(optimizer)

    def optimizer_tensors(self) -> list[Tensor]:
        """Local tensors of the optimizer's state."""
        return [] if self._optimizer is None else self._optimizer.moments()
