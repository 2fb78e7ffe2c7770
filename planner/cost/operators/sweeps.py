"""Measured collectives as grids of bus bandwidth, and which groups' measurements are in doubt."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from automap.planner.cost.operators.interpolation import Grid
from automap.planner.layout import FloatArray

LEAST_OF_SMALLER_GROUP = 0.5
"""Part of a smaller group's bus bandwidth that a larger one reaches with large buffers. A ring's
links carry as much of a buffer whatever the group's size: among 4 and 8 GPUs joined by NVLink it
was higher than between 2, and among 4 GPUs of which PCIe joins two pairs 0.76 of the PCIe link.
Where two GPUs share a link, as the uplink of a PCIe switch, each has half."""


class SlowGroup(NamedTuple):
    """A group whose collective was measured slower than smaller groups leave possible."""

    collective: str
    num_gpus: int
    bytes_per_second: float
    """Bus bandwidth of its largest buffer."""
    smaller_bytes_per_second: float
    """The highest that a smaller group reached at that size."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Seconds of one collective over sizes of group and buffer."""

    collective: str
    groups: FloatArray
    """Group sizes, rising."""
    sizes: FloatArray
    """Bytes of buffers, rising."""
    seconds: FloatArray
    """[group, buffer]; NaN where nothing was measured."""

    @classmethod
    def of(
        cls, collective: str, *, group: FloatArray, size: FloatArray, seconds: FloatArray
    ) -> "Sweep":
        """The sweep of equally long columns, one measurement a row."""
        groups, sizes = np.unique(group), np.unique(size)
        measured = np.full((len(groups), len(sizes)), np.nan)
        measured[np.searchsorted(groups, group), np.searchsorted(sizes, size)] = seconds
        return cls(collective, groups, sizes, measured)

    def bandwidth(self) -> FloatArray:
        """Bus bandwidth [group, buffer] as in nccl-tests; NaN where nothing was measured."""
        parts = 2.0 if self.collective == "all_reduce" else 1.0
        sent = parts * self.sizes * ((self.groups - 1.0) / self.groups)[:, None]
        reached: FloatArray = sent / self.seconds
        return reached

    def grid(self) -> Grid:
        """Log bus bandwidth over group size and buffer bytes.

        A buffer takes no longer than a larger one, of which it could be a part: single latencies
        scatter by a factor of two, so the least from each size upwards counts.
        """
        least = np.fmin.accumulate(self.seconds[:, ::-1], axis=1)[:, ::-1]
        grid = Grid.of((self.groups, self.sizes), np.log(replace(self, seconds=least).bandwidth()))
        return replace(grid, measured=least == self.seconds)

    def slow_groups(self) -> list[SlowGroup]:
        """Groups below LEAST_OF_SMALLER_GROUP of one that is not slow itself, smallest first.

        Each is judged by its largest buffer, where latency counts least.
        """
        reached, believed, slow = self.bandwidth(), list[int](), list[SlowGroup]()
        for row, own in enumerate(reached):
            largest = int(np.flatnonzero(~np.isnan(own))[-1])
            smaller = max((float(reached[each, largest]) for each in believed), default=0.0)
            if own[largest] < LEAST_OF_SMALLER_GROUP * smaller:
                group = int(self.groups[row])
                slow.append(SlowGroup(self.collective, group, float(own[largest]), smaller))
            else:
                believed.append(row)
        return slow

    def without_slow_groups(self) -> "Sweep":
        """The sweep less the rows of `slow_groups`; larger groups are then like the last left."""
        kept = ~np.isin(self.groups, [slow.num_gpus for slow in self.slow_groups()])
        return replace(self, groups=self.groups[kept], seconds=self.seconds[kept])
