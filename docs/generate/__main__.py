"""Build the documentation site: stage the pages, write the reference, run Zensical, check.

    python -m docs.generate [--stage]

`make docs` runs it. README.md, CONTRIBUTING.md and CHANGELOG.md are pages of the site as well, so
that nothing is written twice; links between pages are turned to where each of them is staged.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from docs.generate import offline, reference

ROOT = Path(__file__).parents[2]
STAGED = ROOT / "build" / "docs"
SITE = ROOT / "site"
FROM_OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "internals/changelog.md",
    "SECURITY.md": "internals/security.md",
    "benchmarks/README.md": "internals/benchmarks.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stage", action="store_true", help="write the pages and build nothing")
    given = parser.parse_args()
    stage()
    if given.stage:
        return
    command = [Path(sys.executable).parent / "zensical", "build", "--strict", "--clean"]
    # From the root, where the extension for formulas is importable.
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    if loads := offline.loads_from_elsewhere(SITE):
        sys.exit("These are loaded from elsewhere:\n" + "\n".join(loads))
    print(f"The site is in {SITE.relative_to(ROOT)}/: open {SITE.relative_to(ROOT)}/index.html")


def stage() -> None:
    """Write every page, committed and generated, to where Zensical reads them."""
    shutil.rmtree(STAGED, ignore_errors=True)
    places = _places()
    for source, place in places.items():
        target = STAGED / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            page = (ROOT / source).read_text(encoding="utf-8")
            target.write_text(_with_links(page, source, places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)
    for name, page in reference.pages().items():
        (STAGED / "reference" / name).write_text(page, encoding="utf-8")
    if missing := [page for page in pages_in_menu() if not (STAGED / page).is_file()]:
        sys.exit(f"zensical.toml lists pages that are not there: {', '.join(missing)}")


def pages_in_menu() -> list[str]:
    """Those that zensical.toml lists, by their places in the site."""
    menu = json.dumps(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    return re.findall(r'"([^"]+\.md)"', menu)


def _places() -> dict[str, str]:
    """File of the repository → page or picture of the site."""
    docs = ROOT / "docs"
    inside = {
        f"docs/{path.relative_to(docs)}": str(path.relative_to(docs))
        for path in sorted(docs.rglob("*"))
        if path.suffix in (".md", ".svg", ".png", ".css")
    }
    return inside | FROM_OUTSIDE


def _with_links(page: str, source: str, places: dict[str, str]) -> str:
    """The page with its links as seen from its place; what has no place on the site is named."""
    here = Path(places[source]).parent

    def turned(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        file, hash_, anchor = target.partition("#")
        if "://" in target or not file:
            return link[0]
        path = (ROOT / source).parent.joinpath(file).resolve().relative_to(ROOT)
        if str(path).startswith("docs/reference/") and str(path) not in places:
            place = str(path.relative_to("docs"))  # a generated page
        elif (place := places.get(str(path), "")) == "":
            return text if text.strip("`") == str(path) else f"{text} (`{path}`)"
        return f"{picture}[{text}]({_relative(Path(place), here)}{hash_}{anchor})"

    return _LINK.sub(turned, page)


def _relative(place: Path, here: Path) -> str:
    up = 0
    while not place.is_relative_to(here):
        here, up = here.parent, up + 1
    return "../" * up + str(place.relative_to(here))


if __name__ == "__main__":
    main()
