"""The circle on the machine at hand: profile it, plan, run many plans of a job, compare."""
