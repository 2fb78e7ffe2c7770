"""What a first view of the page takes: bytes as they are sent, and seconds to what is shown.

    python -m benchmarks.first_view [--rounds 5]

Headless Chromium with nothing cached opens the page of a real service on loopback: the list of
plans, a plan on 32 GPUs, one on 4,096, the form. Needs the built page and Chromium
(`AUTOMAP_CHROMIUM`). Seconds are medians, from the navigation's start to the element that is waited
for, by the browser's own clock; the load of the machine is printed beside them.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

from tests.page.site import Site, chromium, missing, site, specs

TARGET_BYTES = 300_000
TARGET_SECONDS = 1.0
SHOWN = """selector => new Promise(resolve => {
  const look = () => document.querySelector(selector)
    ? resolve(performance.now() / 1000) : requestAnimationFrame(look);
  look();
})"""


def main() -> None:
    """Print a row for each view."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if reason := missing():
        sys.exit(f"error: {reason}")
    with (
        TemporaryDirectory() as data,
        site(Path(data), specs()) as found,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
    ):
        print(f"{'view':<16}{'bytes':>10}{'seconds':>10}   load {os.getloadavg()[0]:.1f}")
        for name, (address, selector) in _views(found).items():
            measured = [_first_view(browser, address, selector) for _ in range(rounds)]
            sent = max(each for each, _ in measured)
            print(f"{name:<16}{sent:>10,}{median(seconds for _, seconds in measured):>10.2f}")
    print(f"targets: {TARGET_BYTES:,} bytes, {TARGET_SECONDS:g} s")


def _views(found: Site) -> dict[str, tuple[str, str]]:
    return {
        "plans": (found.place("plans"), ".list tbody tr"),
        "plan, 32 GPUs": (found.of_plan("overlapping"), ".gantt [data-call]"),
        "plan, 4,096 GPUs": (found.of_plan("large"), ".gantt [data-call]"),
        "form": (found.place("new"), "[data-field]"),
    }


def _first_view(browser: Browser, address: str, selector: str) -> tuple[int, float]:
    """Bytes of all bodies as they were sent, and seconds until the element is there."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    sizes: list[int] = []
    page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    page.goto(address, wait_until="commit")
    seconds = float(page.evaluate(SHOWN, selector))
    page.wait_for_load_state("networkidle")
    context.close()
    return sum(sizes), seconds


if __name__ == "__main__":
    main()
