"""Megatron-core's optimizers: AdamW on fp32 masters, whole or split over the data ranks."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer.optimizer import (
    Float16OptimizerWithFloat16Params,
    MegatronOptimizer,
)
from torch import Tensor, nn

from automap.executor.engines.megatron import cpu
from automap.executor.engines.megatron.configuration import DTYPES, Precision
from automap.executor.settings import OptimizerSettings

MOMENTS = ("exp_avg", "exp_avg_sq")
_FIRST_LOSS_SCALE = 2.0**16
"""For fp16; halved at every overflow until gradients are finite."""


class Optimizer:
    """AdamW over all chunks of a pipeline stage; weight decay on every parameter."""

    def __init__(
        self,
        chunks: Sequence[DistributedDataParallel],
        settings: OptimizerSettings,
        *,
        precision: Precision,
        distributed: bool,
    ) -> None:
        self.num_steps = 0
        self._settings = settings
        config = OptimizerConfig(
            optimizer="adam",
            lr=settings.learning_rate,
            min_lr=settings.minimum_learning_rate,
            weight_decay=settings.weight_decay,
            adam_beta1=settings.betas[0],
            adam_beta2=settings.betas[1],
            adam_eps=settings.epsilon,
            clip_grad=settings.clip_grad_norm,
            bf16=precision == "bf16",
            fp16=precision == "fp16",
            params_dtype=DTYPES[precision],
            initial_loss_scale=_FIRST_LOSS_SCALE,
            hysteresis=1,
            use_distributed_optimizer=distributed,
        )
        parameters = [each for chunk in chunks for each in chunk.parameters()]
        with cpu.cuda_type_names(parameters):
            # No overrides: Megatron would spare vectors the weight decay.
            chained = get_megatron_optimizer(
                config, list(chunks), config_overrides={}, use_gloo_process_groups=False
            )
        self._megatron = chained
        # Two if experts are split over ranks: theirs, and one for all else.
        self._inner: list[MegatronOptimizer] = chained.chained_optimizers
        for inner in self._inner:
            for _, _, master in _masters(inner):
                inner.optimizer.state[master] = {
                    "step": torch.zeros(()),
                    **{name: torch.zeros_like(master.detach()) for name in MOMENTS},
                }

    def masters(self) -> Iterator[tuple[nn.Parameter, int, Tensor]]:
        """Parameters of which this rank has fp32 masters: from which element on, and those."""
        for inner in self._inner:
            yield from _masters(inner)

    def moment(self, master: Tensor, name: str) -> Tensor:
        """AdamW's running mean of a master's gradient or of its square."""
        return self._state(master)[name]

    def _state(self, master: Tensor) -> dict[str, Tensor]:
        (state,) = (
            inner.optimizer.state[master]
            for inner in self._inner
            if master in inner.optimizer.state
        )
        return state

    def tensors(self) -> list[Tensor]:
        """Masters, where they are not the weights, and moments."""
        found = []
        for parameter, _, master in self.masters():
            if parameter.dtype != master.dtype:
                found.append(master)
            found += [self.moment(master, name) for name in MOMENTS]
        return found

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Against underflow in fp16; the loss itself otherwise."""
        return self._megatron.scale_loss(loss)

    def forget_gradients(self) -> None:
        """Before the passes: what is left of the last step would be added to."""
        for parameter, _, master in self.masters():
            parameter.grad = None
            master.grad = None

    def take_gradients(self) -> bool:
        """Hand them to the masters; False if they overflowed in fp16 and the scale was lowered.

        Raises:
            FloatingPointError: they overflow at the lowest scale too.
        """
        before = float(self._megatron.get_loss_scale())
        if not self._megatron.prepare_grads():
            return True
        if float(self._megatron.get_loss_scale()) >= before:
            raise FloatingPointError(
                f"gradients are not finite in optimizer step {self.num_steps}, at a loss scale of "
                f"{before}; the weights are unchanged"
            )
        return False

    def gradient_norm(self) -> float:
        """Norm of the whole model's gradient, equal on all ranks."""
        return float(self._megatron.get_grad_norm())

    def check_finite(self, name: str, value: float) -> None:
        """FloatingPointError, before a step has changed anything, if it is not."""
        if not math.isfinite(value):
            raise FloatingPointError(
                f"{name} is {value} in optimizer step {self.num_steps}; the weights are unchanged"
            )

    def step(self, learning_rate: float, norm: float) -> None:
        """Clip by the norm, then update masters and weights."""
        scale = min(1.0, self._settings.clip_grad_norm / (norm + 1e-6))
        gradients = [each.grad for _, _, each in self.masters()]
        if scale < 1.0:
            torch._foreach_mul_([each for each in gradients if each is not None], scale)
        for group in self._megatron.param_groups:
            group["lr"] = learning_rate
        self._megatron.step_with_ready_grads()
        self.num_steps += 1

    def copy_weights_to_masters(self) -> None:
        """After weights were loaded."""
        self._megatron.reload_model_params()

    def progress(self) -> dict[str, float]:
        """What the state holds besides tensors."""
        values: dict[str, float] = {"num_steps": self.num_steps}
        scaler = self._scaler()
        if scaler is not None:
            values |= {name: float(value) for name, value in scaler.state_dict().items()}
        return values

    def load_progress(self, values: dict[str, float]) -> None:
        """Take back what `progress` gave."""
        self.num_steps = int(values["num_steps"])
        for _, _, master in self.masters():
            self._state(master)["step"].fill_(self.num_steps)
        scaler = self._scaler()
        if scaler is not None:
            scaler._scale.fill_(values["scale"])
            scaler._growth_tracker = int(values["growth_tracker"])
            scaler._hysteresis_tracker = int(values["hysteresis_tracker"])

    def _scaler(self) -> Any:
        return getattr(self._inner[0], "grad_scaler", None)


def _masters(inner: MegatronOptimizer) -> Iterator[tuple[nn.Parameter, int, Tensor]]:
    if isinstance(inner, DistributedOptimizer):
        for model_groups, shard_groups in (
            (inner.model_float16_groups, inner.shard_fp32_from_float16_groups),
            (inner.model_fp32_groups, inner.shard_fp32_groups),
        ):
            for parameter, shard in _pairs(model_groups, shard_groups):
                start = inner._get_model_param_range_map(parameter)["param"].start
                yield parameter, start, shard
    elif isinstance(inner, Float16OptimizerWithFloat16Params):
        for parameter, master in _pairs(inner.float16_groups, inner.fp32_from_float16_groups):
            yield parameter, 0, master
    else:
        for parameter in inner.get_parameters():
            yield parameter, 0, parameter


def _pairs(
    one: list[list[nn.Parameter]], other: list[list[Tensor]]
) -> Iterator[tuple[nn.Parameter, Tensor]]:
    for group, peers in zip(one, other, strict=True):
        yield from zip(group, peers, strict=True)
