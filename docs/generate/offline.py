"""What a built page would load from elsewhere: nothing, so that the site works without a network.

A reader's click may lead anywhere; what a browser loads by itself may not.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
_SOURCES = ("src", "srcset", "data", "poster", "xlink:href")
_LOADING_LINKS = {"stylesheet", "preload", "modulepreload", "preconnect", "dns-prefetch", "icon"}


def loads_from_elsewhere(site: Path) -> list[str]:
    """One line for each script, style, font or picture that a page of `site` has from a host."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            text = path.read_text(encoding="utf-8")
            urls = [*_urls_of_tags(text), *_IN_STYLES.findall(text)]
            found += [f"{path.relative_to(site)}: {url}" for url in urls]
    return found


def _urls_of_tags(text: str) -> Iterator[str]:
    tags = _Tags()
    tags.feed(text)
    return (url for url in tags.loaded if _ELSEWHERE.match(url))


class _Tags(HTMLParser):
    """Collects what the tags of a page make a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.loaded += [given[name] for name in _SOURCES if name in given]
        if tag == "link" and _LOADING_LINKS & set(given.get("rel", "").lower().split()):
            self.loaded.append(given.get("href", ""))
        if tag in ("image", "use"):  # of SVG
            self.loaded.append(given.get("href", ""))
