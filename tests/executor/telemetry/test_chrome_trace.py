"""The timeline: a Chrome trace with a row per device."""

import json
from pathlib import Path
from typing import Any

from automap.executor.telemetry.chrome_trace import chrome_trace, write_timeline
from tests.executor.telemetry.clock import Clock, recorded_run


def rows_of(trace: dict[str, Any]) -> dict[int, str]:
    return {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }


def test_the_timeline_has_a_row_per_device() -> None:
    clock = Clock()
    clock.call("actor.generate", 2.0, iteration=1, ranks=(0, 1), num_bytes={"fetched": 12})
    clock.call("group_normalise", 0.5, iteration=1, kind="operation", ranks=())
    clock.call("critic.train", 1.0, iteration=1, kind="train", ranks=(3,))
    clock.end(1, clock.now - 3.5)
    trace = chrome_trace(clock.records, device_names={3: "critic's"})
    assert rows_of(trace) == {
        0: "iterations",
        1: "controller",
        2: "device 0",
        3: "device 1",
        4: "critic's",
    }
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    shown = {(event["name"], event["tid"]): (event["ts"], event["dur"]) for event in spans}
    assert shown == {
        ("actor.generate", 2): (0.0, 2e6),
        ("actor.generate", 3): (0.0, 2e6),
        ("group_normalise", 1): (2e6, 0.5e6),
        ("critic.train", 4): (2.5e6, 1e6),
        ("iteration 1", 0): (0.0, 3.5e6),
    }
    generate = next(event for event in spans if event["name"] == "actor.generate")
    assert generate["cat"] == "generate"
    assert generate["args"] == {
        "iteration": 1,
        "role": "actor",
        "method": "generate",
        "ranks": "0-1",
        "fetched_bytes": 12,
    }


def test_with_many_devices_a_row_is_a_set_of_them() -> None:
    clock = Clock()
    clock.call("actor.generate", 1.0, iteration=1, ranks=tuple(range(64)))
    clock.call("critic.train", 1.0, iteration=1, kind="train", ranks=(*range(64, 96), 100))
    rows = rows_of(chrome_trace(clock.records))
    assert set(rows.values()) == {
        "iterations",
        "controller",
        "devices 0-63",
        "devices 64-95, 100",
    }


def test_the_timeline_file_is_json(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_timeline(path, recorded_run().records)
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] == "ms"
    assert all(event["dur"] >= 0 for event in trace["traceEvents"] if event["ph"] == "X")
    assert list(tmp_path.iterdir()) == [path]
    write_timeline(path, [])
    assert json.loads(path.read_text())["traceEvents"]
