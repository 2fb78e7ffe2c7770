"""Charts: their names, and that marks lie where their axes say."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.page.site import Site, Watched

See = Callable[..., Page]
IN_A_PIXEL = 1.0


@pytest.fixture(scope="module")
def plan_page(site: Site, browser: BrowserContext) -> Iterator[Page]:
    page = browser.new_page()
    watched = Watched(page, site.server.address)
    page.goto(site.of_plan("overlapping"))
    page.locator(".gantt [data-call]").first.wait_for()
    yield page
    page.close()
    assert watched.found == []


def numbers(marks: Locator, attribute: str) -> list[float]:
    found: list[Any] = marks.evaluate_all(
        "(marks, name) => marks.map(mark => Number(mark.getAttribute(name)))", attribute
    )
    return [float(each) for each in found]


def test_axis_of_the_gantt_chart_is_its_scale(site: Site, plan_page: Page) -> None:
    period = site.plan("overlapping").iteration_seconds
    chart = plan_page.get_by_role("group", name=re.compile("^Chart of one iteration of .* s: 3 "))
    *ticks, end = chart.locator(".visx-axis-tick").all_text_contents()
    assert end == f"{period:.2f} s"
    assert len(ticks) >= 4
    assert [float(tick) for tick in ticks] == sorted({float(tick) for tick in ticks})
    right = numbers(chart.locator(".idle").first, "x2")[0]
    lines = numbers(chart.locator(".grid line"), "x1")
    for tick, line in zip(ticks, lines, strict=False):
        assert line == pytest.approx(float(tick) / period * right, abs=IN_A_PIXEL)
    assert chart.locator(".idle").count() == 3


def test_bars_of_memory_are_as_long_as_their_bytes(plan_page: Page) -> None:
    table = plan_page.get_by_role("group", name="Memory by phase and kind")
    expect(table.get_by_role("img")).not_to_have_count(0)
    for bar in table.get_by_role("img").all():
        name = bar.get_attribute("aria-label") or ""
        total, capacity = map(float, re.findall(r"^([\d.]+) of ([\d.]+) GiB", name)[0])
        gib = [float(part.rsplit(" ", 1)[1]) for part in name.split(": ")[1].split(", ")]
        assert sum(gib) == pytest.approx(total, abs=0.06 * len(gib))
        wide = numbers(bar.locator(".capacity"), "width")[0]
        widths = numbers(bar.locator(".kind"), "width")
        assert widths == pytest.approx([each / capacity * wide for each in gib], abs=IN_A_PIXEL)
        starts = numbers(bar.locator(".kind"), "x")
        ends = [start + width for start, width in zip(starts, widths, strict=True)]
        assert starts == pytest.approx([0, *ends[:-1]])


def test_line_goes_through_what_a_run_told(site: Site, see: See) -> None:
    job = site.job()
    page = see(site.place("jobs", job.id))
    chart = page.get_by_role("img", name="Seconds over iterations, measured and predicted: ")
    dots = chart.locator("circle")
    expect(dots).to_have_count(job.iteration)
    ticks = chart.locator(".visx-axis-left .visx-axis-tick").all_text_contents()
    values = [float(tick) for tick in ticks]
    lines = numbers(chart.locator(".grid line"), "y1")
    assert len(values) == len(lines) >= 3

    def value(y: float) -> float:
        share = (y - lines[0]) / (lines[-1] - lines[0])
        return values[0] + share * (values[-1] - values[0])

    predicted = job.predicted_iteration_seconds
    assert predicted is not None
    assert value(numbers(chart.locator(".predicted"), "y1")[0]) == pytest.approx(
        predicted, rel=0.02
    )
    # As tests/page/site.py has it: as planned, then slower by a factor.
    drawn = [value(y) for y in numbers(dots, "cy")]
    assert drawn[:4] == pytest.approx([predicted] * 4, rel=0.02)
    assert drawn[4:10] == pytest.approx([1.6 * predicted] * 6, rel=0.02)
    whole = chart.locator(".visx-axis-bottom .visx-axis-tick").all_text_contents()
    assert [int(each) for each in whole] == sorted({int(each) for each in whole})


def test_list_of_plans_does_without_the_code_of_charts(site: Site, browser: BrowserContext) -> None:
    assert browser.browser is not None
    context = browser.browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site.place("plans"), wait_until="networkidle")
    scripts = [url for url in asked if url.endswith(".js")]
    page.goto(site.of_plan("small"))
    page.locator(".gantt [data-call]").first.wait_for()
    later = [url for url in asked if url.endswith(".js") and url not in scripts]
    context.close()
    assert len(scripts) == 1
    assert any("/charts-" in url for url in later), later
