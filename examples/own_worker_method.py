"""A transfer protocol and a worker method of one's own: `python examples/own_worker_method.py`.

Four processes, two data-parallel replicas of two tensor ranks each. Every replica counts the tokens
of its rows; the protocol adds the numbers up, where `3D` would make a list of them.
"""

import os
import sys

import ray
import torch
import torch.distributed as dist

from automap.executor.batch import Batch, Ragged
from automap.executor.layout import RankLayout
from automap.executor.runtime.group import WorkerGroup
from automap.executor.runtime.placement import DevicePool, DeviceRange, reserve
from automap.executor.runtime.process_sets import ProcessSet
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.workers.process import ProcessContext
from automap.executor.workers.protocols import THREE_D, Layout, Protocol, transfer
from automap.executor.workers.row_references import put


def first_tensor_ranks(layout: Layout) -> list[int]:
    """One rank of each replica."""
    assert isinstance(layout, RankLayout), "no call of it generates"
    return [layout.rank_of(data=data) for data in range(layout.data_parallel_size)]


SUM = Protocol(
    "3D_SUM",
    distribute=THREE_D.distribute,
    collect=lambda layout, outputs: sum(outputs[rank] for rank in first_tensor_ranks(layout)),
    collected=first_tensor_ranks,
)


class TokenCounter:
    """One on each rank. Its process is a rank of a torch.distributed world."""

    def __init__(self, context: ProcessContext) -> None:
        self.rank = context.rank

    @transfer(SUM)
    def num_tokens(self, rollout: Batch) -> int:
        """Tokens of this rank's rows."""
        return int(rollout.ragged("response_tokens").lengths.sum())

    @transfer("ONE_TO_ALL")
    def sum_of_ranks(self) -> int:
        """By a collective among the workers."""
        total = torch.tensor(self.rank)
        dist.all_reduce(total)
        return int(total)


def main() -> None:
    """Start the processes, make both calls, end the processes."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=128 * 2**20)
    four = DeviceRange("cpu", first=0, count=4)
    pools = {"cpu": DevicePool("cpu", gpus_per_node=4, resource="CPU")}
    reservation = reserve([four], pools, timeout_seconds=60)
    processes = ProcessSet.on_devices(four, reservation, run_id="own-worker-method")
    scheduler = Scheduler()
    try:
        processes.join(timeout_seconds=300, collective_timeout_seconds=60)
        layout = RankLayout(tensor_parallel_size=2, data_parallel_size=2)
        counters = WorkerGroup("counter", TokenCounter, processes, layout, scheduler)
        counters.build(TokenCounter, timeout_seconds=60).result()
        responses = [torch.arange(length) for length in (3, 1, 4, 1, 5)]
        rollout = put(Batch({"response_tokens": Ragged.of(responses)}))
        num_tokens, ranks = counters.num_tokens(rollout), counters.sum_of_ranks()  # futures
        sys.stdout.write(f"tokens: {num_tokens.result()}, ranks: {ranks.result()}\n")
    finally:
        scheduler.close()
        processes.kill()
        reservation.release()
        ray.shutdown()


if __name__ == "__main__":
    main()
