"""Candidates priced per second on one core, as whole calls.

The mix is what a search prices: for one actor on a 128-GPU A100 pool, every valid layout with
several micro-batch sizes, recomputations and offloads for training and scoring, and generation
layouts with several cache budgets. A candidate is one row of one call. Prints the median of a few
repetitions per kind and for the mix.

    python -m benchmarks.pricing [repetitions]
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from automap.planner import catalogue
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.generation.generate_call import price_generate
from automap.planner.cost.generation.kv_cache import full_kv_cache_bytes
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.training.forward_call import price_forward
from automap.planner.cost.training.train_call import price_train
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import GenerationLayouts, IntArray, Layouts
from automap.planner.spec import WorkloadSpec

NUM_GPUS = 128
NUM_SEQUENCES = 1024
TARGET_PER_SECOND = 200_000


def a100_pool() -> Pool:
    """16 nodes of 8 A100 with the catalogue's links."""
    gpu = catalogue.gpu_type("a100-80gb-sxm")
    node = catalogue.node_type(gpu.node)
    return Pool(
        name="a100",
        gpu=gpu,
        num_nodes=NUM_GPUS // node.gpus_per_node,
        gpus_per_node=node.gpus_per_node,
        first_gpu=0,
        nvlink_domain_gpus=node.nvlink_domain_gpus,
        intra_node_bytes_per_second=node.intra_node_bytes_per_second,
        inter_node_bytes_per_second=node.inter_node_bytes_per_second,
        host_memory_bytes=node.host_memory_bytes,
        host_link_bytes_per_second=node.host_link_bytes_per_second,
        price_per_gpu_hour=node.price_per_gpu_hour,
    )


def training_rows() -> tuple[Layouts, IntArray, IntArray]:
    """(layouts, micro-batch sizes, recomputations) of every candidate."""
    powers = [2**k for k in range(8)]
    rows = []
    for tensor, pipeline, context in itertools.product(powers[:4], powers[:5], powers[:4]):
        for num_gpus in powers:
            data, rest = divmod(num_gpus, tensor * pipeline * context)
            if rest or data == 0:
                continue
            for rest_of_row in itertools.product(
                (1, 2, 5) if pipeline > 1 else (1,),  # virtual stages
                range(4),  # sharding
                range(3),  # offload
                (1, 2, 4, 8, 16, 32),  # micro-batch
                range(3),  # recompute
            ):
                virtual, *others = rest_of_row
                rows.append(
                    (num_gpus, tensor, pipeline, virtual, context, data, 1, *others)  # expert 1
                )
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    return Layouts(*columns[:9]), columns[9], columns[10]


def generation_rows() -> tuple[GenerationLayouts, IntArray]:
    """(parallel sizes, sixteenths of the full cache budget) of every candidate."""
    powers = [2**k for k in range(8)]
    rows = []
    for tensor, pipeline, replicas in itertools.product(
        powers[:4], powers[:4], range(1, NUM_GPUS + 1)
    ):
        rows += [(tensor, pipeline, 1, replicas, share) for share in range(1, 17)]
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    return GenerationLayouts(*columns[:4]), columns[4]


def median_seconds(work: Callable[[], object], repetitions: int) -> float:
    """Median wall time of the work, after one run to load tables."""
    work()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    pool = a100_pool()
    profile = load_profile(pool.gpu)
    model = Model("actor", catalogue.architecture("llama-2-70b"), False, True, None)
    workload = WorkloadSpec(
        prompts_per_iteration=NUM_SEQUENCES,
        prompt_length={"mean": 512, "max": 1024},
        response_length={"mean": 700, "max": 2048},
        updates_per_epoch=8,
    )

    def call(kind: str) -> Call:
        return Call(
            id=f"actor.{kind}",
            role="actor",
            model="actor",
            kind=kind,
            num_sequences=NUM_SEQUENCES,
            num_updates=8,
        )

    layouts, micro_batch, recompute = training_rows()
    engine, share = generation_rows()
    budget = full_kv_cache_bytes(model, call("generate"), workload, engine) * share // 16
    work = {
        "train": lambda: price_train(
            model,
            call("train"),
            workload,
            pool,
            profile,
            layouts,
            micro_batch_size=micro_batch,
            recompute=recompute,
        ),
        "forward": lambda: price_forward(
            model, call("forward"), workload, pool, profile, layouts, micro_batch_size=micro_batch
        ),
        "generate": lambda: price_generate(
            model, call("generate"), workload, pool, profile, engine, kv_cache_bytes=budget
        ),
    }
    rows = {"train": len(layouts), "forward": len(layouts), "generate": len(share)}
    total_seconds = 0.0
    for kind, priced in work.items():
        seconds = median_seconds(priced, repetitions)
        total_seconds += seconds
        print(f"{kind:9} {rows[kind]:7,} candidates {rows[kind] / seconds:11,.0f} per second")
    rate = sum(rows.values()) / total_seconds
    print(f"{'mix':9} {sum(rows.values()):7,} candidates {rate:11,.0f} per second", end="")
    print(f" (target {TARGET_PER_SECOND:,})")


if __name__ == "__main__":
    main()
