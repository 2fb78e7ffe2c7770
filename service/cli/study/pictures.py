"""What every command that draws asks before its work: can the picture be drawn there?"""

from importlib import util
from pathlib import Path

from automap.service.cli.plan.command import need_folder
from automap.service.cli.terminal.failures import BadInputError

PICTURES = (".png", ".svg", ".pdf")


def need_picture(path: str | None, *, option: str = "--picture") -> None:
    """Say so before the work when its picture could not be drawn."""
    if path is None:
        return
    need_folder(path)
    if Path(path).suffix.lower() not in PICTURES:
        raise BadInputError(f"{option}: {path} does not end in {', '.join(PICTURES)}")
    if util.find_spec("matplotlib") is None:
        raise BadInputError(
            f"{option} needs matplotlib, which is not installed",
            [f"pip install 'automap[plot]' (in a checkout: '.[plot]'), or leave {option} out"],
        )
