"""One service for all tests of a process, one browser for all tests of a module."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

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


@pytest.fixture(scope="session")
def site(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sites.site(tmp_path_factory.mktemp("page"), sites.specs()) as found:
        yield found


@pytest.fixture(scope="module")
def browser(built: None) -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as found:
        yield found


Open = Callable[..., tuple[Page, Watched]]


@pytest.fixture
def open_page(site: Site, browser: Browser) -> Iterator[Open]:
    """Opens an address as a person would; at the end nothing forbidden has happened."""
    watched: list[Watched] = []

    def opened(
        address: str, *, width: int = 1280, go: bool = True, **options: Any
    ) -> tuple[Page, Watched]:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        watch = Watched(page, address)
        watched.append(watch)
        if go:
            page.goto(address)
        return page, watch

    yield opened
    for context in browser.contexts:
        context.close()
    assert [each for watch in watched for each in watch.unexpected()] == []


@pytest.fixture
def see(open_page: Open) -> Callable[..., Page]:
    """The page at an address, once it shows its heading."""

    def seen(address: str, **options: Any) -> Page:
        page, _ = open_page(address, **options)
        page.locator("h1").first.wait_for()
        return page

    return seen
