"""A plan: the page says what the API and the command line say, and points at it everywhere."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from automap.planner.catalogue import gpu_type
from automap.planner.plan.types import Plan
from automap.service.cli.plan.headline import headline, iteration
from automap.service.cli.plan.timeline import events_of, rows_of
from automap.service.cli.terminal import formats
from tests.page.conftest import Open
from tests.page.site import Site, Watched
from tests.service.support.samples import Json, tiny_spec

See = Callable[..., Page]
Shown = tuple[Page, Plan]
PLANS = ("small", "large", "overlapping")


@pytest.fixture(scope="module", params=PLANS)
def shown(site: Site, browser: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Shown]:
    """The view of each plan, opened once for all tests that only read it."""
    page = browser.new_page()
    watched = Watched(page, site.server.address)
    page.goto(site.of_plan(request.param))
    page.locator(".gantt [data-call]").first.wait_for()
    yield page, site.plan(request.param)
    page.close()
    assert watched.found == []


def rows(page: Page, table: str) -> dict[str, list[str]]:
    """First cell → the others, of the table with this name."""
    found = page.get_by_role("group", name=table, exact=True).locator("tbody tr")
    expect(found).not_to_have_count(0)  # some are asked for after the rest of the page is drawn
    cells = found.evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return {first: others for first, *others in cells}


def test_first_figures_are_those_of_the_command_line(shown: Shown) -> None:
    page, plan = shown
    figures = page.locator(".figures").inner_text()
    seconds, _, interval = iteration(plan).partition(" s ")
    assert f"{seconds} s" in figures
    assert interval.strip("()") in figures
    risk = plan.out_of_memory_probability
    assert risk is not None
    assert formats.chance(risk) in figures
    assert f"{formats.count(plan.tokens_per_second)} tokens/s" in figures
    line = headline(plan).plain
    proof = re.split(r"[;,]", line.split("out of memory: ")[1].split(", ", 1)[1])[0]
    assert proof in figures
    assert ", ".join(plan.runs_with) in figures


def test_table_has_every_call_as_the_plan_has_it(shown: Shown) -> None:
    page, plan = shown
    table = rows(page, "Calls")
    events = events_of(plan)
    assert [re.sub(r"\s+", " ", first) for first in table] == [
        f"{event.key} {event.name}" for event in events
    ]
    for event, cells in zip(events, table.values(), strict=True):
        assert formats.seconds(event.duration_seconds) in cells
        call = event.call
        if call is not None and call.copy_id:
            assert call.parallelism is not None
            assert call.parallelism.in_short() in cells
            assert f"{formats.gib(call.peak_bytes)}/{formats.gib(call.capacity_bytes)}" in cells
            assert call.model_flops_utilization is not None
            assert formats.percent(call.model_flops_utilization) in cells


def test_price_is_that_of_the_plan_by_type_of_gpu(shown: Shown) -> None:
    page, plan = shown
    table = rows(page, "Price")
    [pool] = plan.spec.cluster.pools  # type: ignore[union-attr]
    hours = plan.gpus_used * plan.run_seconds / 3600
    assert table == {
        gpu_type(pool.gpu, field="gpu").name: [
            formats.count(plan.gpus_used),
            formats.price(plan.price_per_iteration),
            formats.price(plan.price_per_million_tokens),
            formats.price(plan.run_price),
            formats.rate(hours),
        ]
    }


def test_chart_has_a_bar_for_every_event_of_every_row(shown: Shown) -> None:
    page, plan = shown
    bars = page.locator(".gantt [data-call]")
    expected = [
        (event.name, piece.start_seconds / plan.iteration_seconds)
        for row in rows_of(events_of(plan))
        for event in row.events
        for piece in event.within(plan.iteration_seconds)
    ]
    found = bars.evaluate_all(
        "bars => bars.map(bar => [bar.dataset.call, bar.querySelector('rect').x.baseVal.value])"
    )
    assert sorted(call for call, _ in found) == sorted(call for call, _ in expected)
    # Bars lie on a common scale: the axis ends where the iteration does.
    left = page.locator(".gantt .idle").first.evaluate("line => line.x1.baseVal.value")
    right = page.locator(".gantt .idle").first.evaluate("line => line.x2.baseVal.value")
    shares = sorted((call, (x - left) / (right - left)) for call, x in found)
    for (call, share), (name_, wanted) in zip(shares, sorted(expected), strict=True):
        assert call == name_
        assert share == pytest.approx(wanted, abs=0.01)


def test_memory_of_phases_adds_up_to_the_peaks_of_the_plan(shown: Shown) -> None:
    page, plan = shown
    calls = {call.id: call for call in plan.calls if call.copy_id}
    fullest: dict[str, str] = {}
    cells = page.locator(".cells")
    for index in range(cells.count()):
        cells.nth(index).focus()
        page.keyboard.press("Enter")
        for phase, (_, gib, *_more) in rows(page, "Memory by phase and kind").items():
            fullest[phase] = max(fullest.get(phase, "0"), gib, key=float)
    fullest.pop("all the time")
    assert fullest == {call: formats.gib(calls[call].peak_bytes) for call in calls}


def test_pointing_at_a_call_shows_it_in_chart_map_and_tables(site: Site, see: See) -> None:
    page = see(site.of_plan("overlapping"))
    page.locator(".gantt [data-call='actor.train']").hover()
    expect(page.locator("tr.lit[data-call]")).to_have_attribute("data-call", "actor.train")
    expect(page.locator("tr.lit[data-phase]")).to_have_attribute("data-phase", "actor.train")
    expect(page.locator(".cells.lit")).to_have_count(2)  # the nodes of its sixteen GPUs
    expect(page.locator(".cells.dim")).to_have_count(2)
    page.locator("tr[data-call='actor.generate']").hover()
    expect(page.locator(".gantt .lit")).to_have_attribute("data-call", "actor.generate")
    page.mouse.move(0, 0)
    expect(page.locator(".lit")).to_have_count(0)


def test_everything_that_is_pointed_at_is_reached_by_keyboard(site: Site, see: See) -> None:
    page = see(site.of_plan("overlapping"))
    bar = page.locator(".gantt [data-call='actor.train']")
    bar.focus()
    expect(page.locator("tr.lit[data-call]")).to_have_attribute("data-call", "actor.train")
    page.keyboard.press("Space")
    expect(bar).to_have_attribute("aria-pressed", "true")
    button = page.get_by_role("button", name="e actor.train", exact=True)
    expect(button).to_have_attribute("aria-pressed", "true")
    button.press("Enter")  # lets it go again
    expect(bar).to_have_attribute("aria-pressed", "false")
    cells = page.locator(".cells[data-segment='h100:16']").first
    cells.press("Enter")
    expect(page.locator("#memory")).to_contain_text("h100[16-31]")


def test_map_says_what_runs_out_of_memory(site: Site, see: See) -> None:
    plan = site.plan("overlapping")
    cells = see(site.of_plan("overlapping")).locator(".cells[data-segment='h100:0']").first
    label = str(cells.get_attribute("aria-label"))
    (call,) = (call for call in plan.calls if f" in {call.id}, " in label)
    assert call.out_of_memory_probability is not None
    chance = f"runs out with a chance of {formats.chance(call.out_of_memory_probability)}"
    assert chance in label


def test_name_labels_and_notes_are_changed(site: Site, open_page: Open) -> None:
    path = f"/v1/plans/{site.plans['large']['id']}"
    page, watched = open_page(site.of_plan("large"))
    watched.expected.append("status of 422")
    form = page.get_by_role("form", name="Name, labels, notes")

    def change(name: str, labels: str, notes: str) -> None:
        page.get_by_role("button", name="Edit name, labels, notes").click()
        form.get_by_label("Name", exact=True).fill(name)
        form.get_by_label("Labels").fill(labels)
        form.get_by_label("Notes").fill(notes)
        form.get_by_role("button", name="Save").click()

    change("renamed", "team:math draft", "one\ntwo")
    expect(page.get_by_role("heading", level=1)).to_have_text("renamed")
    stored = site.get(path).json()
    assert stored["labels"] == {"team": "math", "draft": ""}
    assert stored["notes"] == "one\ntwo"
    expect(page.locator("a.label")).to_have_text(["team:math", "draft"])
    change("", "not/a/label/", "")
    expect(form.get_by_role("alert")).to_contain_text("not/a/label/")
    form.get_by_label("Labels").fill("draft")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("large")
    stored = site.get(path).json()
    assert (stored["labels"], stored["notes"]) == ({"draft": ""}, None)
    site.server.client.patch(path, json={"labels": {"draft": None}})


def test_nodes_of_a_large_cluster_that_are_alike_are_drawn_once(site: Site, see: See) -> None:
    plan = site.plan("large")
    assert plan.gpus_used == 4096
    page = see(site.of_plan("large"))
    expect(page.locator(".map")).to_contain_text("nodes 0–255: 256 alike")
    expect(page.locator(".map")).to_contain_text("nodes 256–511: 256 alike")
    assert page.locator("*").count() < 1500


@pytest.fixture
def warned(site: Site) -> Iterator[Json]:
    """A plan over a network that is slower than gigabit Ethernet."""
    spec = tiny_spec()
    spec["cluster"]["pools"][0]["inter_node_bytes_per_second"] = 1e8
    record: Json = site.server.client.post("/v1/plans", json=spec).json()
    yield record
    site.server.client.delete(f"/v1/plans/{record['id']}")


def test_warnings_come_first(site: Site, see: See, warned: Json) -> None:
    page = see(site.place("plans", warned["id"]))
    shown = page.get_by_role("list", name="Warnings")
    lines = [line.removeprefix("Warning: ") for line in shown.inner_text().splitlines()]
    assert lines == warned["plan"]["warnings"] != []
    where, figures = shown.bounding_box(), page.locator(".figures").bounding_box()
    assert where is not None
    assert figures is not None
    assert where["y"] < figures["y"]


def test_colours_of_a_role_are_the_same_everywhere(site: Site, see: See) -> None:
    page = see(site.of_plan("small"))
    for call in site.plan("small").calls:
        colours = {
            page.locator(where).first.evaluate(
                "it => getComputedStyle(it).getPropertyValue('--fill')"
            )
            for where in (
                f".gantt [data-call='{call.id}']",
                f"tr[data-call='{call.id}'] .call",
                f".legend li:has-text('{call.role}')",
            )
        }
        assert len(colours) == 1
        assert colours != {""}
