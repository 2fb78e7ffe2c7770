"""Logs of metrics, one set per step: JSON lines, or what TensorBoard's writers leave."""

import logging
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

from automap.planner.runs import Steps, read_lines
from automap.service.cli.terminal.failures import BadInputError

EVENT_FILES = "*tfevents*"
"""How TensorBoard's writers name their files."""


def read_log(source: str) -> Steps:
    """The steps of a log, in order: of a file of JSON lines, an event file, or a folder of such.

    Raises:
        BadInputError: it cannot be read, or there is nothing in it.
        SpecError: a line is no JSON object.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return _read_events(_folder_of_events(path, source), source)
    if path.match(EVENT_FILES):
        return _read_events(path, source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source}: cannot read it: {error}") from None
    return read_lines(text, source=source)


def _folder_of_events(folder: Path, source: str) -> Path:
    """The one folder in here with event files; writers like to make one per run."""
    found = sorted({file.parent for file in folder.rglob(EVENT_FILES) if file.is_file()})
    if not found:
        raise BadInputError(
            f"{source}: no TensorBoard event file is in this folder ({EVENT_FILES})",
            ["name the folder that the run logged to, or a file of JSON lines"],
        )
    if len(found) > 1:
        names = ", ".join(str(each) for each in found[:5])
        raise BadInputError(
            f"{source}: {len(found)} runs have logged below this folder", [f"name one: {names}"]
        )
    return found[0]


def _read_events(path: Path, source: str) -> Steps:
    """All scalars; what a restarted run logged again counts as it was logged last."""
    if find_spec("tensorboard") is None:
        raise BadInputError(
            f"{source}: TensorBoard's logs need the package tensorboard, which is not installed",
            ["pip install tensorboard, or give a log of JSON lines"],
        )
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.util import tensor_util

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of every restart
    everything = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    events = event_accumulator.EventAccumulator(str(path), size_guidance=everything)
    try:
        events.Reload()
    except Exception as error:  # the library documents none
        raise BadInputError(f"{source}: TensorBoard cannot read it: {error}") from None
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    tags = events.Tags()
    for name in tags[event_accumulator.SCALARS]:
        for event in events.Scalars(name):
            steps[event.step][name] = float(event.value)
    for name in tags[event_accumulator.TENSORS]:
        for event in events.Tensors(name):
            value = tensor_util.make_ndarray(event.tensor_proto)
            if value.size == 1 and value.dtype.kind in "fiu":
                steps[event.step][name] = float(value.item())
    if not steps:
        raise BadInputError(
            f"{source}: there is no scalar in it",
            ["name the event file, or its folder, that the metrics of the run were logged to"],
        )
    return {step: steps[step] for step in sorted(steps)}
