"""The tables of a profile: their columns, and Parquet files as the planner reads them."""

from planner.measured import COLUMNS
from planner.profile_tables import Key, Row, write_tables

__all__ = ["COLUMNS", "Key", "Row", "write_tables"]
