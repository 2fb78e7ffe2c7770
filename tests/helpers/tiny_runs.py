"""The plan of the tiny PPO job, reports of runs of it, and lines of other frameworks' logs."""

from functools import cache
from typing import Any

from automap.executor.telemetry.call_records import CallRecord
from automap.executor.telemetry.run_report import (
    DeviceFingerprint,
    RunOutcome,
    RunProvenance,
    RunReport,
    build_report,
)
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from tests.helpers.measured_profiles import tiny_spec
from tests.helpers.profile_folders import memory_bound

KERNELS = memory_bound({1024: {"add": 10e-6}, 65_536: {"add": 40e-6}})


@cache
def plain_plan() -> Plan:
    return make_plan(tiny_spec(None))


def run_report(plan: Plan, ratio: float, tokens: float = 8.0) -> RunReport:
    records = []
    for iteration in (1, 2, 3):
        begin, end = 1000.0 * iteration, 1000.0 * iteration
        for call in plan.calls:
            end = begin + ratio * call.measurable_seconds
            given: dict[str, Any] = {"iteration": iteration, "role": call.role, "method": "m"}
            records.append(
                CallRecord(
                    **given,
                    call_id=call.id,
                    kind=call.kind,
                    start_seconds=begin,
                    end_seconds=end,
                    ranks=(0,),
                )
            )
        records.append(
            CallRecord(
                iteration=iteration,
                call_id="iteration",
                role="",
                kind="iteration",
                method="",
                start_seconds=begin,
                end_seconds=begin + ratio * plan.iteration_seconds,
                ranks=(),
            )
        )
    lengths = {f"response_length/{name}": tokens for name in ("mean", "p50", "p90", "p99")}
    device = DeviceFingerprint(name="cpu", kind="cpu", num_devices=2, memory_bytes=1)
    return build_report(
        plan,
        records,
        outcome=RunOutcome(state="succeeded"),
        provenance=RunProvenance(code_version="0", versions={}, device=device),
        metrics=dict.fromkeys((1, 2, 3), lengths),
    )


VERL = {
    "timing_s/gen": 4.0,
    "timing_s/update_weights": 1.0,
    "timing_s/old_log_prob": 0.5,
    "timing_s/ref": 0.4,
    "timing_s/values": 0.3,
    "timing_s/update_critic": 2.0,
    "timing_s/update_actor": 3.0,
    "response_length/mean": 6.5,
}
