"""Launches that are written again: where they go, and what was changed."""

from pathlib import Path

from rich.text import Text

from automap.planner.imports import LaunchFile, Rewritten
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.files import need_folder, write_whole


def need_output(option: str, output: str) -> None:
    """Say before the work that a launch cannot be written there."""
    need_folder(output)
    if Path(output).is_dir():
        raise BadInputError(f"{option} {output}: it is a folder; name the file to write")


def write_launch(written: Rewritten, output: str) -> None:
    """The launch as a file; its mark of the encoding and its mode are those of the one it was."""
    source, text = Path(written.file), written.text
    if source.is_file():
        with source.open("rb") as file:
            text = "\ufeff" + text if file.read(3) == b"\xef\xbb\xbf" else text
    write_whole(output, text, like=written.file)


def show_rewritten(written: Rewritten, output: str, files: list[LaunchFile]) -> None:
    """What was changed, on standard error: the launch may be on standard output."""
    out = console.stderr_console()
    counts = {
        "changed": written.changed,
        "added at the command's end": written.added,
        "taken out": written.removed,
    }
    told = ", ".join(f"{len(keys)} {what}" for what, keys in counts.items() if keys)
    same = any(each.name == written.file and each.text == written.text for each in files)
    line = f"{formats.printable(output)}: {'nothing to change' if same else told}"
    out.print(Text(line), soft_wrap=True)
    for each in written.notes:
        out.print(Text(f"  {formats.printable(each)}"), soft_wrap=True)
