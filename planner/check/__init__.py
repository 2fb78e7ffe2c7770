"""The check: recomputes a plan's feasibility and every number of it, sharing no search code."""
