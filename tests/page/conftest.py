"""One service and one browser for all tests of this folder that a process runs."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from tests.page import site as sites
from tests.page.site import Site, Watched, chromium

PATIENCE_MS = 30_000
"""A machine that does much else is slow, and what is not there yet is waited for."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def built() -> None:
    """Skips what needs the built page and a browser, where there are none."""
    reason = sites.missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="package")
def site(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sites.site(tmp_path_factory.mktemp("page"), sites.specs()) as found:
        yield found


@pytest.fixture(scope="package")
def browser(built: None) -> Iterator[BrowserContext]:
    """Its pages share what is cached and compiled; the key is each page's own."""
    with sync_playwright() as playwright, chromium(playwright) as found:
        context = found.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE_MS)
        yield context


Open = Callable[..., tuple[Page, Watched]]


@pytest.fixture
def open_page(browser: BrowserContext) -> Iterator[Open]:
    """Opens an address as a person would; at the end nothing forbidden has happened."""
    opened: list[tuple[Page, Watched]] = []

    def at(address: str) -> tuple[Page, Watched]:
        page = browser.new_page()
        watched = Watched(page, address)
        opened.append((page, watched))
        page.goto(address)
        return page, watched

    yield at
    for page, _ in opened:
        page.close()
    assert [each for _, watched in opened for each in watched.unexpected()] == []


@pytest.fixture
def see(open_page: Open) -> Callable[..., Page]:
    """The page at an address, once it shows its heading."""

    def seen(address: str) -> Page:
        page, _ = open_page(address)
        page.locator("h1").first.wait_for()
        return page

    return seen
