"""The page's sources: locked, from no host in particular, and with nothing inline."""

import json
import re

from automap.service.api.page import BUILT
from tests.page.site import ROOT

PAGE = ROOT / "page"
LOCK = json.loads((PAGE / "package-lock.json").read_text(encoding="utf-8"))
SOURCES = [
    path
    for path in PAGE.rglob("*")
    if path.is_file() and not {"node_modules", "generated"} & {*path.relative_to(PAGE).parts}
]


def test_lock_names_no_host() -> None:
    packages = LOCK["packages"]
    assert len(packages) > 10
    assert not [name for name, each in packages.items() if "resolved" in each]
    assert all("integrity" in each for name, each in packages.items() if name)


def test_lock_is_that_of_the_package() -> None:
    package = json.loads((PAGE / "package.json").read_text(encoding="utf-8"))
    locked = LOCK["packages"][""]
    for kind in ("dependencies", "devDependencies"):
        assert locked[kind] == package[kind]


def test_sources_load_nothing_from_a_host() -> None:
    allowed = {"http://127.0.0.1:8000", "http://www.w3.org"}
    for path in SOURCES:
        if path.name != "package-lock.json":
            found = set(re.findall(r"https?://[^/\"'\s>]+", path.read_text(encoding="utf-8")))
            assert found <= allowed, path


def test_documents_have_nothing_inline() -> None:
    for name in ("index.html", "docs.html"):
        text = (PAGE / name).read_text(encoding="utf-8")
        assert not re.findall(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_licences_go_with_what_is_bundled(built: None) -> None:
    text = (BUILT / "licences.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^## (\S+) - ", text, re.MULTILINE))
    package = json.loads((PAGE / "package.json").read_text(encoding="utf-8"))
    assert {*package["dependencies"], "d3-scale", "swagger-ui-dist"} <= named
    assert text.count("Permission is hereby granted") >= 3
