"""The work between collectives on cores: what a rank does before it has something to send."""

import torch
from torch import Tensor

ROWS, WIDTH = 256, 512
"""Sizes of a product that takes about a millisecond on a core, as a small layer's do."""


class Work:
    """A product, and a buffer written anew: as after a layer, it is in memory just asked for."""

    def __init__(self, elements: int) -> None:
        """`elements`: of the buffer, in fp32."""
        self._rows, self._weights = torch.ones(ROWS, WIDTH), torch.ones(WIDTH, WIDTH)
        self._source = torch.ones(elements)

    def result(self) -> Tensor:
        """The buffer, once the work is done."""
        torch.mm(self._rows, self._weights)
        return self._source + 1.0
