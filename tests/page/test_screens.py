"""Screens from a phone to a wall: nothing sticks out, and a wall is filled."""

from collections.abc import Callable

import pytest
from playwright.sync_api import FloatRect, Locator, Page, ViewportSize, expect

from tests.page.conftest import Open
from tests.page.site import Site
from tests.page.test_everywhere import settled

WALL: ViewportSize = {"width": 3840, "height": 2160}
SIZES = ((360, 800), (720, 900), (1280, 900), (1920, 1080), (2560, 1440), (3840, 2160))
LEAST_SHARE = 0.85
"""Of a wall's width, from the leftmost text or drawing below the title to the rightmost."""
MOST_CHARACTERS = 125
VIEWS: dict[str, Callable[[Site], str]] = {
    "plans": lambda site: site.place("plans"),
    "jobs": lambda site: site.place("jobs"),
    "plan": lambda site: site.of_plan("overlapping"),
    "why": lambda site: site.of_plan("small", "why"),
    "export": lambda site: site.of_plan("overlapping", "export"),
    "job": lambda site: site.place("jobs", site.job_id),
    "form": lambda site: site.place("new"),
    "costs": lambda site: site.place("costs"),
}
EXTENT = """
async () => {
  // What is drawn follows the width by a frame or two.
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  const boxes = [...document.querySelectorAll("main *")]
    .filter(each => each.children.length === 0 && each.checkVisibility())
    .filter(each => !each.closest(".title"))
    .map(each => {
      const range = document.createRange();
      range.selectNodeContents(each);
      return (each.innerText && each.tagName !== "PRE" ? range : each).getBoundingClientRect();
    })
    .filter(box => box.width > 0);
  return [Math.min(...boxes.map(box => box.left)), Math.max(...boxes.map(box => box.right))];
}
"""
LONG_LINES = """
most => [...document.querySelectorAll("main p, main li, main td")].filter(each => {
  const text = document.createRange();
  text.selectNodeContents(each);
  const size = parseFloat(getComputedStyle(each).fontSize);
  return each.innerText.length > most && text.getBoundingClientRect().width > 0.55 * size * most;
}).map(each => each.innerText)
"""
TEXT = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
WIDTH = "document.documentElement.scrollWidth"


@pytest.mark.parametrize(
    "view",
    [pytest.param(view, marks=[pytest.mark.slow] if view == "why" else []) for view in VIEWS],
)
def test_view_fits_every_screen_and_fills_a_wall(site: Site, open_page: Open, view: str) -> None:
    page, _ = open_page(VIEWS[view](site))
    page.locator("h1").first.wait_for()
    settled(page)
    if view == "why":
        page.get_by_role("button", name="Explain").click()
        page.get_by_role("group", name="Alternatives", exact=True).wait_for(timeout=120_000)
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(WIDTH) == width
    left, right = page.evaluate(EXTENT)
    assert right - left >= LEAST_SHARE * WALL["width"]
    assert page.evaluate(LONG_LINES, MOST_CHARACTERS) == []


def test_wall_shows_a_plan_on_one_screen(site: Site, open_page: Open) -> None:
    page, _ = open_page(site.of_plan("overlapping"))
    page.locator(".gantt [data-call]").first.wait_for()
    settled(page)
    usual = page.evaluate(TEXT)
    assert _below(page, "Memory", "One period of the repeating schedule")
    page.set_viewport_size(WALL)
    assert not _below(page, "GPUs", "One period of the repeating schedule")
    assert page.evaluate("document.documentElement.scrollHeight") == WALL["height"]
    assert 1.25 * usual <= page.evaluate(TEXT) <= 1.5 * usual
    # What is drawn grows with the text.
    name = page.locator(".gantt .row-label").first
    row = page.locator(".gantt .bar-of rect").first
    assert _box(name)["height"] < _box(row)["height"]


def test_wall_lists_in_columns_what_others_say_in_small(site: Site, open_page: Open) -> None:
    plan_id = site.plans["large"]["id"]
    changed = {"labels": {"team": "math"}, "notes": "The cheapest so far."}
    site.server.client.patch(f"/v1/plans/{plan_id}", json=changed)
    page, _ = open_page(site.place("plans"))
    row = page.locator(".list tbody tr", has=page.locator(f"a[href='#/plans/{plan_id}']"))
    expect(row.locator("small")).to_contain_text("rloo · by local")
    expect(row).not_to_contain_text("The cheapest so far.")
    height = _box(row)["height"] / page.evaluate(TEXT)
    page.set_viewport_size(WALL)
    expect(row.locator("small")).to_have_count(0)
    heads = page.locator(".list thead th").all_inner_texts()
    cells = dict(zip(heads, row.locator("th, td").all_inner_texts(), strict=True))
    assert cells["Algorithm"] == "rloo"
    assert cells["Objective"] == "throughput"
    assert cells["Owner"] == "local"
    assert cells["Labels"] == "team:math"
    assert cells["Notes"] == "The cheapest so far."
    assert _box(row)["height"] / page.evaluate(TEXT) < 0.8 * height
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(row.locator("small")).to_contain_text("rloo · by local")
    site.server.client.patch(f"/v1/plans/{plan_id}", json={"labels": {}, "notes": None})


def _below(page: Page, lower: str, upper: str) -> bool:
    heads = [page.get_by_role("heading", name=name).first for name in (lower, upper)]
    low, high = [_box(head) for head in heads]
    return low["y"] > high["y"] + high["height"]


def _box(of: Locator) -> FloatRect:
    box = of.bounding_box()
    assert box is not None
    return box
