"""What every training engine offers; Megatron-core and FSDP2 implement it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from automap.executor.batch import Batch

Output = Literal["log_probs", "values", "scores"]
Head = Literal["language_model", "scalar"]

OUTPUTS: dict[Head, tuple[Output, ...]] = {
    "language_model": ("log_probs",),
    "scalar": ("values", "scores"),
}

LORA_SCALING = 2
"""Scale of a LoRA adapter's product: its alpha is so many times its rank."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one Hugging Face tensor that lies in an engine's own parameter.

    `view` shares storage with that parameter. Its elements, in order, are those of the Hugging
    Face tensor between `start` and `start + size` along `dim`; its shape may have more dimensions,
    because a fused parameter interleaves several tensors and a view cannot merge strides.
    """

    name: str
    full_shape: tuple[int, ...]
    dim: int
    start: int
    size: int
    view: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the piece as a part of the Hugging Face tensor."""
        return (*self.full_shape[: self.dim], self.size, *self.full_shape[self.dim + 1 :])


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What one micro-batch adds to a loss: sums, so that any split of the rows adds up alike."""

    loss_sum: Tensor
    """Scalar, differentiable."""
    metric_sums: dict[str, Tensor]
    """Detached scalars, each summed with the weights of the loss."""


class Loss(Protocol):
    """A loss as a weighted sum over response tokens, divided by the weight of the mini-batch."""

    @property
    def needs_entropy(self) -> bool:
        """Whether `terms` reads the entropy."""
        ...

    def weight(self, batch: Batch) -> float:
        """What the sums of these rows are divided by, together with all other rows' weights."""
        ...

    def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
        """The sums of a micro-batch.

        Args:
            prediction: [response tokens] log-probabilities of a language model or values of a
                critic, in the order of the batch's ragged columns; float32.
            entropy: [response tokens] of the predicted distributions, or None unless needed.
            batch: the micro-batch.
        """
        ...


def check_output(head: Head, output: Output) -> None:
    """Raise ValueError for an output that the head does not give."""
    if output not in OUTPUTS[head]:
        raise ValueError(f"a {head} head gives {OUTPUTS[head]}, not {output!r}")


class TrainingEngine(Protocol):
    """A model that scores and trains; every method is called on all ranks together (SPMD).

    Tensor, context and pipeline ranks of one replica get the same rows, data-parallel ranks
    different ones.
    """

    def forward(self, batch: Batch, output: Output, *, temperature: float = 1.0) -> Batch:
        """Log-probabilities or values of every response token, or a score of every row.

        The result is the same on all tensor, context and pipeline ranks. `scores` is the scalar
        head at the last token. Rows keep their order.
        """
        ...

    def train_step(self, batch: Batch, loss: Loss, *, temperature: float = 1.0) -> dict[str, float]:
        """One optimizer step on a mini-batch of which `batch` is this data-parallel rank's part.

        Gradients are those of Σ loss_sum ÷ Σ weight over the whole mini-batch, however its rows
        are split. Returns the loss, its metrics (means over the mini-batch), `grad_norm` before
        clipping and `learning_rate`; the same on every rank.

        Raises:
            FloatingPointError: loss or gradient norm is not finite; the weights are unchanged.
        """
        ...

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """This rank's trained weights as the engine stores them: name, local tensor."""
        ...

    def pieces(self, name: str, tensor: Tensor, *, tensor_rank: int) -> Sequence[Piece]:
        """What a tensor-parallel peer's shard of a parameter holds of Hugging Face tensors.

        `tensor` is shaped like the local parameter `name` and comes from the rank `tensor_rank`
        of the same pipeline stage's tensor-parallel group.
        """
        ...

    def load(self, folder: Path) -> None:
        """Read Hugging Face safetensors; a missing scalar head is drawn from the seed."""
        ...

    def save(self, folder: Path) -> None:
        """Write Hugging Face safetensors, config and index; rank 0 writes, whole or not at all."""
        ...

    def state(self) -> dict[str, object]:
        """Weights, masters, optimizer and schedule for torch.distributed.checkpoint.

        Sharded, and loadable on another layout of the same engine.
        """
        ...

    def load_state(self, state: dict[str, object]) -> None:
        """Take back what `state` gave, after torch.distributed.checkpoint has filled it."""
        ...
