"""The validation of a profile: whole layers against the sum of their operators, and why."""

from automap.planner.catalogue import GpuType
from automap.planner.cost import LayerCheck, LayerKey, Profile, layer_checks
from automap.profiler.measure.layers import TABLE
from automap.profiler.results.journal import Entry, Journal, identity
from automap.profiler.results.profile_report import LayerError

LARGE_ERROR = 0.1
"""Relative error of a sum from which on it is explained."""
LAUNCH_SHARE = 0.5
"""Share of the host's work in the sum from which on the layer waits for its launches."""


def layer_errors(gpu: GpuType, journal: Journal) -> list[LayerError]:
    """Every layer measured, in the order of the tables; the tables must be written."""
    profile = Profile(gpu, folder=journal.folder)
    found = {entry.identity: entry for entry in journal.entries.values() if entry.table == TABLE}
    return [
        _error(check, found.get(_identity(check.key)), alone=not gpu.is_core)
        for check in layer_checks(profile)
    ]


def _identity(key: LayerKey) -> tuple[str, ...]:
    texts = {"framework": key.framework, "recompute": key.recompute, "part": key.part}
    batch = {"num_sequences": key.num_sequences, "sequence_length": key.sequence_length}
    return identity(TABLE, {**texts, "precision": key.precision, **batch, **dict(key.sizes)})


def _error(check: LayerCheck, entry: Entry | None, *, alone: bool) -> LayerError:
    key = check.key
    return LayerError(
        framework=key.framework,
        recompute=key.recompute,
        part=key.part,
        precision=key.precision,
        num_sequences=key.num_sequences,
        sequence_length=key.sequence_length,
        sizes=dict(key.sizes),
        measured_seconds=check.measured,
        sum_seconds=check.summed,
        host_seconds=check.host,
        priced_seconds=check.priced,
        sum_error=check.error,
        price_error=check.priced / check.measured - 1.0,
        explanation=explanation(check, entry, alone=alone),
    )


def explanation(check: LayerCheck, entry: Entry | None, *, alone: bool) -> str:
    """Why the sum is far off, from what is known of the layer; empty where it is not."""
    if abs(check.error) <= LARGE_ERROR:
        return ""
    measurement = entry.measurement if entry else None
    if measurement is not None and measurement.disturbed and measurement.relative_interval > 0.05:
        return "noise: others took the device meanwhile, and the interval is wide"
    share = check.host / check.summed
    if share >= LAUNCH_SHARE:
        return f"launch-bound: {share:.0%} of the sum is the host's work"
    if check.error > 0:
        return "overlap: kernels run beside one another, which a sum of them does not"
    if alone:
        return "between operators: small kernels, and operands that are not in the cache"
    return "contention: operands, results and the other cores' work share cache and memory"
