"""The tables of a profile: their columns, and Parquet files as the planner reads them."""

from automap.planner.profiles import COLUMNS, Key, Row, write_tables

__all__ = ["COLUMNS", "Key", "Row", "write_tables"]
