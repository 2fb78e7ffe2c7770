"""The pictures of docs/guides/page.md: every view of the page, of a service started for it.

    python -m docs.generate.screenshots [FOLDER]

`make screenshots` runs it, and it prints what each picture weighs.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, sync_playwright

from docs.generate.small_png import small_png
from tests.page.site import Site, chromium, example, missing, site

PICTURES = Path(__file__).parents[2] / "docs" / "assets" / "page"
WIDTH = 1200
TALLEST = 1300
MOST_BYTES = 600_000
SPECS = {
    "seven": "hybridflow-ppo-7b-16xa100",
    "two pools": "grpo-two-pools-h100-l40s",
    "overlapping": "grpo-async-qwen2.5-7b-32xh100",
    "thousand": "hybridflow-ppo-70b-1024xa100",
}


def main() -> None:
    if reason := missing():
        sys.exit(f"error: {reason}")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    specs = {name: example(file) for name, file in SPECS.items()}
    with (
        TemporaryDirectory() as data,
        site(Path(data), specs) as found,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
    ):
        labels = {"labels": {"team": "math"}, "notes": "The cheapest so far."}
        found.server.client.patch(f"/v1/plans/{found.plans['two pools']['id']}", json=labels)
        for name, (address, prepare) in _views(found).items():
            _draw(browser, folder / f"{name}.png", address, prepare)
    total = sum(path.stat().st_size for path in folder.glob("*.png"))
    print(f"all pictures: {total:,} bytes")
    if total > MOST_BYTES:
        sys.exit(f"error: that is more than {MOST_BYTES:,}")


View = tuple[str, Callable[[Page], None]]


def _views(found: Site) -> dict[str, View]:
    ids = [found.plans[name]["id"] for name in ("overlapping", "two pools")]
    return {
        "plans": (found.place("plans"), _nothing),
        "plan": (found.of_plan("two pools"), _point_at_training),
        "large-plan": (found.of_plan("thousand"), _nothing),
        "why": (found.of_plan("overlapping", "why"), _explain),
        "what-if": (found.of_plan("overlapping", "what-if"), _find_front),
        "export": (found.of_plan("overlapping", "export"), _wait_for_launch),
        "job": (found.place("jobs", found.job_id), _nothing),
        "costs": (f"{found.place('costs')}?by=model", _nothing),
        "form": (found.place("new"), _make_a_mistake),
        "difference": (found.place("diff", *ids), _nothing),
    }


def _draw(browser: Browser, file: Path, address: str, prepare: Callable[[Page], None]) -> None:
    page = browser.new_page(viewport={"width": WIDTH, "height": 700}, color_scheme="light")
    page.goto(address, wait_until="load")
    page.locator("h1").first.wait_for()
    page.get_by_text("Loading …").first.wait_for(state="hidden")
    prepare(page)
    page.wait_for_timeout(300)
    height = min(TALLEST, int(page.evaluate("document.documentElement.scrollHeight")))
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_timeout(300)
    file.write_bytes(small_png(browser, page.screenshot()))
    page.close()
    print(f"{file.name}: {file.stat().st_size:,} bytes")


def _nothing(page: Page) -> None:
    pass


def _point_at_training(page: Page) -> None:
    page.locator(".gantt [data-call='actor.train']").click()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")


def _explain(page: Page) -> None:
    page.get_by_role("button", name="Explain").click()
    page.get_by_role("group", name="Alternatives", exact=True).wait_for(timeout=300_000)


def _find_front(page: Page) -> None:
    page.get_by_label("Numbers of nodes").fill("2 4 8")
    page.get_by_role("button", name="Plan them").click()
    page.get_by_role("group", name="On other clusters").wait_for(timeout=120_000)
    page.get_by_role("button", name="Find the Pareto front").click()
    page.get_by_role("group", name="Pareto front").wait_for(timeout=120_000)


def _wait_for_launch(page: Page) -> None:
    page.get_by_label("Launch", exact=True).wait_for(timeout=60_000)


def _make_a_mistake(page: Page) -> None:
    page.get_by_label("Nodes").fill("0")
    page.evaluate("document.activeElement.blur()")


if __name__ == "__main__":
    main()
