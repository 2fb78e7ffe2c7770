"""Numbers with a unit, as people write them."""

from typing import Any

import pytest
from pydantic import ValidationError

from automap.planner.spec import ClusterSpec
from automap.service.errors.fields import field_errors, in_base_unit


@pytest.mark.parametrize(
    ("text", "field", "number"),
    [
        ("200Gb", "inter_node_bytes_per_second", 25e9),
        ("200 Gb/s", "inter_node_bytes_per_second", 25e9),
        ("400Gbps", "inter_node_bytes_per_second", 50e9),
        ("400 Gbit/s", "inter_node_bytes_per_second", 50e9),
        ("25GB/s", "host_link_bytes_per_second", 25e9),
        ("1.5 TB", "host_memory_bytes", 1.5e12),
        ("64 GiB", "host_memory_bytes", 64 * 2**30),
        ("10ms", "seconds_per_response", 0.01),
        ("2h", "startup_seconds", 7200),
        ("10 apples", "startup_seconds", None),
        ("25 GB/h", "inter_node_bytes_per_second", None),
        ("8 GB", "num_nodes", None),
        ("many", "startup_seconds", None),
        ("", "startup_seconds", None),
    ],
)
def test_a_text_with_a_unit(text: str, field: str, number: float | None) -> None:
    assert in_base_unit(text, field) == (None if number is None else pytest.approx(number))


EIGHT = {"gpu": "h100"}


@pytest.mark.parametrize(
    ("pool", "remedy"),
    [
        (EIGHT, "50000000000 if each GPU has 400Gb/s, or 6250000000 if a node of 8 has"),
        ({**EIGHT, "gpus_per_node": 4}, "or 12500000000 if a node of 4 has, 400Gb/s ÷ 4"),
        ({"gpu": "h100", "num_gpus": 4, "num_nodes": 2}, "or 25000000000 if a node of 2 has"),
        ({"gpu": "gb200"}, "or 12500000000 if a node of 4 has"),
        ({"gpu": "unknown"}, "; if a node has, divide by its GPUs"),
    ],
)
def test_a_networks_speed_is_told_for_a_gpu_and_for_a_node(
    pool: dict[str, Any], remedy: str
) -> None:
    """A node's 400 Gb/s, taken for those of each GPU, are a network eight times as fast."""
    given = {"name": "a", "num_nodes": 2, **pool, "inter_node_bytes_per_second": "400Gb/s"}
    document = {"pools": [given]}
    with pytest.raises(ValidationError) as refused:
        ClusterSpec.model_validate(document)
    (error,) = field_errors(refused.value, document)
    assert error.field == "pools.0.inter_node_bytes_per_second"
    assert error.remedy.startswith("the field is bytes per second and GPU: write 50000000000")
    assert remedy in error.remedy
