"""What the tests of the cost model share, all from the catalogue."""

from typing import Any, Literal

import numpy as np

from automap.planner import catalogue
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.estimates import CallEstimates
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import IntArray, Layouts
from automap.planner.spec import WorkloadSpec
from automap.planner.spec.lengths import LengthSpec

GIB = 2**30


def pool(gpu_name: str = "a100-80gb-sxm", *, num_nodes: int = 16) -> Pool:
    gpu = catalogue.gpu_type(gpu_name)
    node = catalogue.node_type(gpu.node)
    return Pool(
        name=gpu_name,
        gpu=gpu,
        num_nodes=num_nodes,
        gpus_per_node=node.gpus_per_node,
        first_gpu=0,
        nvlink_domain_gpus=node.nvlink_domain_gpus,
        intra_node_bytes_per_second=node.intra_node_bytes_per_second,
        inter_node_bytes_per_second=node.inter_node_bytes_per_second,
        host_memory_bytes=node.host_memory_bytes,
        host_link_bytes_per_second=node.host_link_bytes_per_second,
        price_per_gpu_hour=node.price_per_gpu_hour,
    )


def model(
    name: str = "llama-2-7b",
    *,
    scalar_head: bool = False,
    trainable: bool = True,
    lora_rank: int | None = None,
) -> Model:
    return Model("actor", catalogue.architecture(name), scalar_head, trainable, lora_rank)


def workload(**changes: Any) -> WorkloadSpec:
    fields: dict[str, Any] = {
        "prompts_per_iteration": 1024,
        "prompt_length": {"mean": 1024, "max": 1024},
        "response_length": {"mean": 1024, "max": 1024},
        "updates_per_epoch": 8,
    }
    return WorkloadSpec(**(fields | changes))


def call(
    kind: Literal["generate", "forward", "train"],
    *,
    num_sequences: int = 1024,
    num_updates: int = 8,
    **changes: Any,
) -> Call:
    return Call(
        id=f"actor.{kind}",
        role="actor",
        model="actor",
        kind=kind,
        num_sequences=num_sequences,
        num_updates=num_updates,
        **changes,
    )


def layouts(
    tensor: Any = 1,
    pipeline: Any = 1,
    context: Any = 1,
    data: Any = 1,
    *,
    virtual: Any = 1,
    expert: Any = 1,
    sharding: Any = 0,
    offload: Any = 0,
) -> Layouts:
    """Columns from scalars or lists, broadcast to one length."""
    given = (tensor, pipeline, virtual, context, data, expert, sharding, offload)
    columns = [
        np.atleast_1d(column).astype(np.int64)
        for column in np.broadcast_arrays(*(np.asarray(one) for one in given))
    ]
    t, p, _, c, d, *_ = columns
    return Layouts(t * p * c * d, *columns)


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def assert_same_rows(whole: CallEstimates, single: CallEstimates, row: int) -> None:
    """Row `row` of one estimate is the only row of the other."""
    np.testing.assert_allclose(whole.seconds.total[row], single.seconds.total[0], rtol=1e-9)
    for name in whole.seconds.__dataclass_fields__:
        np.testing.assert_allclose(
            getattr(whole.seconds, name)[row], getattr(single.seconds, name)[0], rtol=1e-9
        )
    for name in whole.transient.__dataclass_fields__:
        assert getattr(whole.transient, name)[row] == getattr(single.transient, name)[0], name
    assert whole.source[row] == single.source[0]


def expected_maximum(lengths: LengthSpec, num_draws: int) -> float:
    """Mean of the longest of `num_draws` independent lengths, in tokens."""
    points, weights = lengths.distribution()
    all_below = np.minimum(np.cumsum(weights), 1.0) ** num_draws
    all_below[-1] = 1.0
    return float(points @ np.diff(all_below, prepend=0.0))
