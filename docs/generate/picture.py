"""The picture of a plan that README.md shows: what `automap plan` prints of an example, as SVG.

    python -m docs.generate.picture

A test draws it again and compares, so the picture is always of this planner.
"""

import io
from pathlib import Path

from rich.console import Console, Group
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.service.cli.inputs.files import read_spec
from automap.service.cli.plan.view import plan_view

ROOT = Path(__file__).parents[2]
EXAMPLE = "hybridflow-ppo-70b-128xa100"
PICTURE = ROOT / "docs" / "assets" / "plan.svg"
COLUMNS = 106
# Rich's own frame loads a font from a host and draws the buttons of a window; this does neither.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#10161d" width="100%" height="100%" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
THEME = TerminalTheme(
    (16, 22, 29),
    (214, 222, 230),
    [
        (16, 22, 29),
        (224, 108, 117),
        (126, 190, 120),
        (222, 184, 96),
        (84, 142, 220),
        (186, 124, 206),
        (86, 182, 194),
        (200, 208, 216),
    ],
)


def picture() -> str:
    """The SVG: the view of the example's plan, in which nothing depends on the machine."""
    plan = make_plan(read_spec(str(ROOT / "examples" / f"{EXAMPLE}.yaml")))
    console = Console(
        file=io.StringIO(), width=COLUMNS, record=True, force_terminal=True, legacy_windows=False
    )
    console.print(_view(plan))
    return console.export_svg(title="", theme=THEME, code_format=FRAME, unique_id="plan")


def _view(plan: Plan) -> Group:
    command = Text(f"$ automap plan {EXAMPLE}.yaml\n", style="dim")
    return Group(command, plan_view(plan, width=COLUMNS))


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")
