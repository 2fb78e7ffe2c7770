"""Numbers with a unit, as people write them."""

import pytest

from automap.service.errors.fields import in_base_unit


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
