"""Predict rows of collectives and matrix products, which the cost model's profile is made of."""

from dataclasses import replace

from automap.planner import catalogue
from automap.planner.cost.communication import EFA_FIRST_GENERATION, FITTED, collective_seconds
from automap.planner.cost.operators.profile import load_profile
from automap.planner.layout import SOURCES
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import CollectiveRow, GemmRow
from automap.planner.validation.subjects import PRODUCT_PRECISIONS, pool_with, stated_port

LARGE_BYTES = 1_000_000
"""Bytes from which bandwidth decides a collective's time, and below which latency does."""
FIRST_EFA = "EFA "
"""How `fabric` names the first Elastic Fabric Adapter; later ones are "EFAv2"."""


def collective_subset(row: CollectiveRow) -> str:
    """Subset of a collective: where it runs, and whether bandwidth or latency decides its time."""
    where = "in a node" if row.num_nodes == 1 else "across nodes"
    large = row.size_bytes is not None and row.size_bytes >= LARGE_BYTES
    return f"{where}, {'from' if large else 'below'} 1 MB"


def predict_collective(
    row: CollectiveRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Predict the seconds of one collective.

    Groups take the first GPUs of a node, equally many of each of several nodes.

    Raises:
        CannotPredictError: its size or its network is not stated, or the catalogue has no such
            node.
    """
    if row.size_bytes is None:
        raise CannotPredictError("size_bytes is not stated")
    node = catalogue.node_type(catalogue.gpu_type(row.gpu_type).node)
    port = stated_port(row.fabric or "", node.gpus_per_node)
    if row.num_nodes > 1 and port is None:
        raise CannotPredictError("the network between nodes is not stated")
    pairs = "pairs" in (row.fabric or "").lower()
    if pairs and row.num_gpus > 2:
        raise CannotPredictError("NVLink joins pairs only; the link between pairs is not stated")
    pool = pool_with(row.gpu_type, row.num_nodes, node.gpus_per_node, port)
    if pairs:
        pool = replace(pool, nvlink_domain_gpus=2)
    per_node = row.num_gpus // row.num_nodes
    if per_node > node.gpus_per_node:
        raise CannotPredictError("more GPUs on a node than the catalogue's node type has")
    stride = node.gpus_per_node // per_node if row.num_nodes > 1 else 1
    timed = collective_seconds(
        pool,
        load_profile(pool.gpu),
        row.collective,
        row.size_bytes,
        group_size=row.num_gpus,
        stride=stride,
        links=EFA_FIRST_GENERATION if FIRST_EFA in (row.fabric or "") else FITTED,
    )
    return {"seconds": Estimate(float(timed.seconds), provenance=SOURCES[int(timed.source)])}


def predict_gemm(
    row: GemmRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Predict the seconds of one matrix product from the profile.

    Raises:
        CannotPredictError: the cost model does not know its precision.
    """
    if row.precision not in PRODUCT_PRECISIONS:
        raise CannotPredictError(f"{row.precision or 'precision'} is not in the cost model")
    gpu = catalogue.gpu_type(row.gpu_type)
    precision = PRODUCT_PRECISIONS[row.precision]
    timed = load_profile(gpu).gemm(row.m, row.n, row.k, precision=precision)
    return {"seconds": Estimate(float(timed.seconds), provenance=SOURCES[int(timed.source)])}
