"""What holds in every view: accessible in light and dark, on narrow screens, small, and locked."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import BrowserContext, Page, Request, expect

from tests.page.conftest import Open
from tests.page.site import AXE, Site, Watched
from tests.service.support.servers import serving

See = Callable[..., Page]
FIRST_VIEW_BYTES = 300_000
KEY = "-".join(["first", "key"])
SERIOUS = ("serious", "critical")
SCHEMES: tuple[tuple[Literal["light", "dark"], str], ...] = (
    ("light", "{}"),
    ("dark", "{runOnly: ['color-contrast']}"),
)
WITHOUT_OTHER_PARTS = ("large plan", "export", "documents")
"""Views of many elements, each of a kind that another view has, too."""
VIEWS: dict[str, Callable[[Site], str]] = {
    "plans": lambda site: site.place("plans"),
    "jobs": lambda site: site.place("jobs"),
    "plan": lambda site: site.of_plan("overlapping"),
    "large plan": lambda site: site.of_plan("large"),
    "why": lambda site: site.of_plan("small", "why"),
    "what if": lambda site: site.of_plan("small", "what-if"),
    "export": lambda site: site.of_plan("overlapping", "export"),
    "documents": lambda site: site.of_plan("small", "json"),
    "job": lambda site: site.place("jobs", site.job_id),
    "costs": lambda site: site.place("costs"),
    "form": lambda site: site.place("new"),
    "difference": lambda site: site.place(
        "diff", site.plans["small"]["id"], site.plans["large"]["id"]
    ),
}


def settled(page: Page) -> Page:
    """The page when nothing more is on its way."""
    expect(page.get_by_text("Loading …")).to_have_count(0, timeout=20_000)
    return page


@pytest.fixture(scope="module")
def walked(site: Site, browser: BrowserContext) -> Iterator[tuple[Page, Watched]]:
    """A page that goes from view to view as a person does: without loading itself again."""
    page = browser.new_page()
    watched = Watched(page, site.server.address)
    page.goto(site.place("nowhere"))
    if AXE.is_file():  # the page may have come with a wheel
        page.evaluate(AXE.read_text(encoding="utf-8"))
    yield page, watched
    page.close()


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(view, marks=[pytest.mark.slow] if view in WITHOUT_OTHER_PARTS else [])
        for view in VIEWS
    ],
)
def test_view_is_accessible_in_light_and_dark_and_narrow(
    site: Site, walked: tuple[Page, Watched], view: str
) -> None:
    page, watched = walked
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(VIEWS[view](site))
    expect(page.locator("h1")).not_to_have_text("There is no such page")
    settled(page)
    if AXE.is_file():
        # In the dark only colours differ.
        for scheme, rules in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate(f"axe.run(document, {rules})")
            violations = [each for each in found["violations"] if each["impact"] in SERIOUS]
            assert [_in_short(each) for each in violations] == [], scheme
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert watched.found == []
    page.goto(site.place("nowhere"))  # so that no view is taken for the next one


def _in_short(violation: dict[str, Any]) -> str:
    nodes = [node["html"][:200] for node in violation["nodes"][:5]]
    return f"{violation['id']}: {violation['help']}: {json.dumps(nodes, indent=1)}"


USABLE = """
() => [...document.querySelectorAll("a[href], button, input, select, textarea, [tabindex]")]
    .filter(each => each.tabIndex >= 0 && !each.disabled && each.checkVisibility())
"""
WATCH_FOCUS = """
() => {
  window.reached = new Set();
  window.unseen = [];
  document.addEventListener("focusin", ({ target }) => {
    window.reached.add(target);
    const { outlineStyle } = getComputedStyle(target);
    // What is drawn has a line around its shape instead.
    const drawn = [...target.querySelectorAll("rect")].map(each => getComputedStyle(each).stroke);
    const lines = drawn.filter(each => !["none", "rgba(0, 0, 0, 0)"].includes(each));
    if (outlineStyle === "none" && lines.length === 0) window.unseen.push(target.outerHTML);
  });
}
"""
NOT_REACHED = f"() => ({USABLE})().filter(each => !reached.has(each)).map(each => each.outerHTML)"


@pytest.mark.slow
@pytest.mark.parametrize("view", [view for view in VIEWS if view not in WITHOUT_OTHER_PARTS])
def test_tab_leads_to_all_that_can_be_used_and_shows_where_it_is(
    site: Site, open_page: Open, view: str
) -> None:
    page, _ = open_page(VIEWS[view](site))
    page.locator("h1").first.wait_for()
    settled(page)
    page.evaluate(WATCH_FOCUS)
    pressed, number = 0, 1
    # A date takes several, a text that scrolls one; rows may come while we walk.
    while pressed < number + 12:
        page.keyboard.press("Tab")
        pressed, number = pressed + 1, page.evaluate(f"() => ({USABLE})().length")
    assert number > 5
    assert page.evaluate(NOT_REACHED) == []
    assert page.evaluate("unseen") == []


@pytest.fixture
def nothing_cached(browser: BrowserContext) -> Iterator[BrowserContext]:
    assert browser.browser is not None
    context = browser.browser.new_context()
    yield context
    context.close()


def test_first_view_is_small(site: Site, nothing_cached: BrowserContext) -> None:
    page = nothing_cached.new_page()
    sizes: dict[str, int] = {}

    def count(request: Request) -> None:
        sizes[request.url] = request.sizes()["responseBodySize"]

    page.on("requestfinished", count)
    page.goto(site.of_plan("large"), wait_until="networkidle")
    page.locator(".gantt [data-call]").first.wait_for()
    assert len(sizes) >= 5
    assert sum(sizes.values()) < FIRST_VIEW_BYTES, sizes


@pytest.mark.slow
def test_description_of_the_api_needs_no_other_host(site: Site, open_page: Open) -> None:
    page, _ = open_page(f"{site.server.address}/docs")
    expect(page.locator(".opblock").first).to_be_visible(timeout=20_000)
    documented = site.get("/openapi.json").json()["paths"]
    for path in ("/v1/plans", "/v1/jobs/{job_id}/events"):
        assert path in documented
        expect(page.get_by_text(path, exact=False).first).to_be_visible()


def test_what_a_page_must_not_do_is_noticed(site: Site, open_page: Open) -> None:
    page, watched = open_page(site.place("plans"))
    for harm in (
        "fetch('http://192.0.2.1/').catch(() => 0)",
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\">')",
        "document.head.appendChild(document.createElement('style')).textContent = 'p {}'",
        "console.error('wrong')",
    ):
        before = len(watched.found)
        page.evaluate(harm)
        page.wait_for_timeout(100)
        assert len(watched.found) > before, harm
    watched.found.clear()


def test_unknown_place_says_so(see: See, site: Site) -> None:
    expect(see(site.place("nowhere")).locator("h1")).to_have_text("There is no such page")


@pytest.fixture
def locked(built: None, tmp_path: Path) -> Iterator[str]:
    with serving(f"sqlite:///{tmp_path / 'keys.db'}", api_keys=KEY) as server:
        yield server.address


@pytest.mark.slow
def test_service_with_keys_asks_for_one_and_keeps_it(locked: str, open_page: Open) -> None:
    page, watched = open_page(locked)
    watched.expected.append("status of 401")
    key = page.get_by_label("API key")
    key.fill("wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("does not know the key")
    key.fill(KEY)
    key.press("Enter")
    expect(page.get_by_text("There are no such plans.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("There are no such plans.")).to_be_visible()
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.evaluate("localStorage.length") == 0
