"""AdamW on each rank's own parts of the parameters, and its sharded state."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from automap.executor.engines.fsdp.sharded_parameters import ShardedParameter, copy_local
from automap.executor.settings import OptimizerSettings

MOMENTS = ("exp_avg", "exp_avg_sq")


class ShardedAdamW:
    """One AdamW over plain local tensors, fused on a GPU.

    Parameters that tensor parallelism splits and those that it does not lie on unlike meshes;
    torch's fused and clipping functions refuse to mix them as DTensors.
    """

    def __init__(
        self,
        parameters: list[ShardedParameter],
        settings: OptimizerSettings,
        *,
        tensor_group: dist.ProcessGroup,
        summed: frozenset[str],
    ) -> None:
        """Allocate the moments, zero.

        Args:
            parameters: those that train.
            settings: of AdamW and clipping.
            tensor_group: ranks of the same data shard.
            summed: names of those whose gradients must be summed over the tensor ranks.
        """
        self.parameters = parameters
        self.num_steps = 0
        self._settings = settings
        self._tensor_group = tensor_group
        self._summed = summed
        self._masters = [each.local() for each in parameters]
        self._adam = torch.optim.AdamW(
            self._masters,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=self._masters[0].is_cuda,
        )
        for master in self._masters:
            self._adam.state[master] = {
                "step": torch.zeros((), device=master.device if master.is_cuda else "cpu"),
                **{name: torch.zeros_like(master) for name in MOMENTS},
            }

    def take_gradients(self) -> None:
        """Hand the parameters' gradients to AdamW, complete over the tensor ranks."""
        for each, master in zip(self.parameters, self._masters, strict=True):
            gradient = each.parameter.grad
            each.parameter.grad = None
            if gradient is None:
                raise RuntimeError(f"{each.name} got no gradient")
            assert isinstance(gradient, DTensor)
            master.grad = gradient.to_local()
            if each.name in self._summed:
                dist.all_reduce(master.grad, group=self._tensor_group)

    def gradient_norm(self) -> Tensor:
        """Norm of the whole model's gradient, equal on all ranks."""
        total = torch.zeros((), dtype=torch.float64, device=self._masters[0].device)
        for each, master in zip(self.parameters, self._masters, strict=True):
            assert master.grad is not None
            copies = 1 if each.tensor_dim is not None else dist.get_world_size(self._tensor_group)
            total += torch.linalg.vector_norm(master.grad).double() ** 2 / copies
        dist.all_reduce(total)
        return total.sqrt()

    def step(self, learning_rate: float, norm: float) -> None:
        """Clip by the norm, then update the weights."""
        scale = min(1.0, self._settings.clip_grad_norm / (norm + 1e-6))
        if scale < 1.0:
            for master in self._masters:
                assert master.grad is not None
                master.grad.mul_(scale)
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        self.num_steps += 1

    def forget_gradients(self) -> None:
        """Free them."""
        for each, master in zip(self.parameters, self._masters, strict=True):
            each.parameter.grad = None
            master.grad = None

    def moments(self) -> list[Tensor]:
        """Local tensors of the optimizer's state."""
        return [self._adam.state[master][name] for master in self._masters for name in MOMENTS]

    def state(self) -> dict[str, object]:
        """Moments by name and the number of steps; shares storage with the optimizer."""
        moments = {
            each.name: {name: each.like(self._adam.state[master][name]) for name in MOMENTS}
            for each, master in zip(self.parameters, self._masters, strict=True)
        }
        return {"moments": moments, "num_steps": torch.tensor(self.num_steps)}

    def load_state(self, state: dict[str, object]) -> None:
        """Take over what `state` gave and a checkpoint filled."""
        moments, num_steps = state["moments"], state["num_steps"]
        assert isinstance(moments, dict)
        assert isinstance(num_steps, Tensor)
        for each, master in zip(self.parameters, self._masters, strict=True):
            own = self._adam.state[master]
            for name in MOMENTS:
                copy_local(moments[each.name][name], own[name])
            own["step"].fill_(num_steps)
        self.num_steps = int(num_steps)
