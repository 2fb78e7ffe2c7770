"""Measured operator times of one GPU type, interpolated; every answer says where it is from."""

from typing import NamedTuple

from planner.layout import FloatArray, IntArray


class Timed(NamedTuple):
    """Seconds per row and the provenance code of each (index into layout.SOURCES)."""

    seconds: FloatArray
    source: IntArray
