"""What a run prints: told apart, whatever it is and however it arrives."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.executor.telemetry.proofs import CHAIN_LENGTH, Proofs
from automap.service.runs import call_seconds
from automap.service.runs.output import MARK, OutputReader, Printed


def read(*pieces: bytes, offset: int = 0) -> tuple[list[Any], str, int]:
    reader = OutputReader(offset)
    parts = [reader.feed(piece) for piece in pieces] + [reader.finish()]
    assert reader.received == offset + sum(map(len, pieces))
    return (
        [event for part in parts for event in part.events],
        "".join(part.text for part in parts),
        parts[-1].end_offset,
    )


def line(**event: Any) -> bytes:
    return MARK + json.dumps(event).encode() + b"\n"


def test_events_and_text_are_told_apart() -> None:
    output = b"loading\n" + line(type="state", state="running") + b"done\n"
    assert read(output) == ([{"type": "state", "state": "running"}], "loading\ndone\n", len(output))


def test_an_event_may_follow_half_a_line() -> None:
    events, text, _ = read(b"Processed prompts: 50%" + line(type="log"))
    assert events == [{"type": "log"}]
    assert text == "Processed prompts: 50%\n"


@pytest.mark.parametrize(
    "broken",
    [b"{", b"[1]", b'"text"', b"{}", b'{"type": 1}', b"", b"[" * 100_000, b"9" * 5000, b"\xff"],
)
def test_what_is_no_event_stays_text(broken: bytes) -> None:
    events, text, _ = read(MARK + broken + b"\n")
    assert events == []
    assert text.startswith(MARK.decode())


def test_what_no_database_holds_is_replaced() -> None:
    output = MARK + b'{"type": "metrics", "loss": NaN, "big": 1e999, "a\\u0000": "\\ud800 b"}\n'
    events, _, _ = read(output, b"\xff \x00 \xc3\xa9\n")
    assert events == [{"type": "metrics", "loss": None, "big": None, "a�": "? b"}]
    assert read(b"\xff \x00 \xc3\xa9\n")[1] == "� � é\n"
    json.dumps(events, allow_nan=False).encode()


def test_a_progress_bar_leaves_its_last_state() -> None:
    assert read(b"10%\r50%\r100%\r\n")[1] == "100%\n"


def test_colours_are_left_out() -> None:
    output = b"\x1b[36m(Worker pid=7)\x1b[0m \x1b[1;31mbad\x1b[0m\r\n\x1b]0;title\x07plain [0m\n"
    assert read(output)[1] == "(Worker pid=7) bad\nplain [0m\n"
    assert read(b"50%\r\x1b[2K100%\x1b[K\r\n")[1] == "100%\n"
    event = line(type="log", text="\x1b[0m")
    assert read(b"\x1b[36m" + event)[0] == [{"type": "log", "text": "\x1b[0m"}]


def test_an_endless_line_is_passed_on_but_a_long_event_is_waited_for() -> None:
    reader = OutputReader()
    assert reader.feed(b"x" * 100_000).text == "x" * 100_000
    reader = OutputReader()
    long = line(type="finished", report={"text": "y" * 100_000})
    assert not reader.feed(long[:90_000])
    assert reader.feed(long[90_000:]).events[0]["type"] == "finished"


OUTPUT = (
    b"one\n"
    + line(type="iteration", iteration=1, seconds=0.5)
    + "zwei é█\r\n".encode()
    + b"half "
    + line(type="call", call="actor.train", seconds=0.1)
    + b"\xf0\x9f\x92 broken\n"
    + line(type="finished", report={"a": [1, 2]})
    + b"no end"
)


@given(st.lists(st.integers(0, len(OUTPUT)), max_size=6))
def test_it_does_not_matter_how_it_arrives(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(OUTPUT)]
    pieces = [OUTPUT[a:b] for a, b in itertools.pairwise(places)]
    assert read(*pieces) == read(OUTPUT)


@given(st.integers(0, len(OUTPUT)))
def test_reading_on_from_the_last_end_loses_and_repeats_nothing(cut: int) -> None:
    first = OutputReader().feed(OUTPUT[:cut])
    rest = read(OUTPUT[first.end_offset :], offset=first.end_offset)
    whole = read(OUTPUT)
    assert (first.events + rest[0], first.text + rest[1], rest[2]) == whole


def test_nothing_is_false_and_something_is_not() -> None:
    assert not Printed(end_offset=3)
    assert Printed(text="a")


def test_the_median_of_the_latest_is_shown() -> None:
    known = call_seconds.NOTHING
    for seconds in (100.0, *[1.0] * 20, *[3.0] * 22):
        known = call_seconds.with_events(known, [{"type": "iteration", "seconds": seconds}])
    assert call_seconds.iteration_seconds(known) == 3.0
    assert call_seconds.NOTHING["iteration"] == {"count": 0, "seconds": []}


def test_calls_that_no_plan_has_are_shown_too() -> None:
    events = [
        {"type": "call", "call": "actor.sync", "seconds": 0.5, "bytes": 10},
        {"type": "call", "call": "actor.sync", "seconds": 1.5},
        {"type": "call", "call": "actor.sync", "seconds": "long"},
        {"type": "call", "seconds": 1.0},
    ]
    (shown,) = call_seconds.calls_of({}, call_seconds.with_events(call_seconds.NOTHING, events))
    assert (shown.call, shown.predicted_seconds, shown.count) == ("actor.sync", None, 2)
    assert (shown.measured_seconds, shown.measured_bytes) == (1.0, 10)


class Sender:
    """Sends events as a run does."""

    def __init__(self) -> None:
        self._proofs = Proofs()

    def line(self, **event: Any) -> bytes:
        return line(**event, **self._proofs.take())


FORGED = {
    "without": {},
    "made up": {"proof": "0" * 32},
    "of a chain of its own": Proofs().take(),
    "no text": {"proof": 7},
}


@pytest.mark.parametrize("proof", FORGED.values(), ids=FORGED)
def test_what_a_function_prints_is_no_event_of_the_run(proof: dict[str, Any]) -> None:
    sender = Sender()
    report = {"type": "finished", "report": {"reward": 1.0}, **proof}
    events, text, _ = read(
        sender.line(type="state"),
        line(**report) + b"(Worker pid=7) " + line(**report),
        sender.line(type="failed"),
    )
    assert [event["type"] for event in events] == ["state", "failed"]
    assert text.count('"reward": 1.0') == 2  # it is output like all other


def test_what_was_sent_before_is_no_event_again() -> None:
    sender = Sender()
    first, second = sender.line(type="state"), sender.line(type="log")
    events, _, _ = read(first, second, first, second)
    assert [event["type"] for event in events] == ["state", "log"]


def test_proofs_go_on_for_ever_though_events_are_torn() -> None:
    sender, reader = Sender(), OutputReader()
    count = 2 * CHAIN_LENGTH + 100
    found = 0
    for number in range(count):
        sent = sender.line(type="call", number=number)
        if number and number % 10 in (3, 4, 5):
            sent = sent[:-20] + b"torn\n"
        elif number % 1000 == 999:  # another worker reads on
            reader = OutputReader(reader.received, reader.feed(b"\n").proofs)
        found += len(reader.feed(sent).events)
    assert found == count - 3 * (count // 10)


def test_a_program_without_proofs_is_believed() -> None:
    assert len(read(line(type="state"), line(type="log"))[0]) == 2
