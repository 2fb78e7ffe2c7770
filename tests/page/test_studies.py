"""Why a plan, what if, two plans' difference, launches: what the page says is what the API says."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from automap.service.cli.terminal import formats
from tests.page.conftest import Open
from tests.page.site import Site
from tests.page.test_plan import rows

See = Callable[..., Page]


@pytest.mark.slow
def test_strategies_are_those_of_the_plan(site: Site, see: See) -> None:
    plan = site.plan("small")
    shown = rows(see(site.of_plan("small", "why")), "Named strategies")
    assert {*shown} == {"this plan", *(each.name for each in plan.alternatives)}
    for each in plan.alternatives:
        seconds, _, _, _, why = shown[each.name]
        expected = "–"
        if each.iteration_seconds is not None:
            expected = formats.seconds(each.iteration_seconds)
        assert seconds == expected
        assert each.reason in why


@pytest.mark.slow
def test_explanation_is_that_of_the_service(site: Site, see: See) -> None:
    page = see(site.of_plan("large", "why"))
    page.get_by_role("button", name="Explain").click()
    page.get_by_role("group", name="Alternatives", exact=True).wait_for(timeout=120_000)
    path = f"/v1/plans/{site.plans['large']['id']}/explain"
    body = {"parts": ["alternatives", "sensitivity"], "scenarios": 32, "search_seconds": 2}
    told = site.server.client.post(path, json=body, timeout=120).json()
    alternatives = rows(page, "Alternatives")
    assert list(alternatives) == [each["text"] for each in told["alternatives"]]
    for each in told["alternatives"]:
        assert each["answer"] in alternatives[each["text"]][-1]
    assert list(rows(page, "Sensitivity")) == [each["subject"] for each in told["sensitivity"]]


@pytest.mark.slow
def test_what_if_plans_other_clusters(site: Site, see: See) -> None:
    page = see(site.of_plan("overlapping", "what-if"))
    page.get_by_label("Numbers of nodes").fill("2 4")
    page.get_by_role("button", name="Plan them").click()
    page.get_by_role("group", name="On other clusters").wait_for(timeout=60_000)
    shown = rows(page, "On other clusters")
    assert [name.split(" × ")[0] for name in shown] == ["2", "4"]
    stored = site.get("/v1/plans?limit=2").json()["items"]
    assert {cells[1] for cells in shown.values()} == {
        formats.seconds(item["iteration_seconds"]) for item in stored
    }
    for item in stored:
        site.server.client.delete(f"/v1/plans/{item['id']}")


@pytest.mark.slow
def test_front_is_drawn_and_listed(site: Site, see: See) -> None:
    page = see(site.of_plan("overlapping", "what-if"))
    page.get_by_role("button", name="Find the Pareto front").click()
    page.get_by_role("group", name="Pareto front").wait_for(timeout=60_000)
    shown = rows(page, "Pareto front")
    stored = site.get(f"/v1/plans?limit={len(shown)}").json()["items"]
    assert sorted(cells[0] for cells in shown.values()) == sorted(
        formats.seconds(item["iteration_seconds"]) for item in stored
    )
    chart = page.get_by_role("img", name=f"Pareto front of {len(shown)} plans")
    expect(chart.locator("circle")).to_have_count(len(shown))
    for item in stored:
        site.server.client.delete(f"/v1/plans/{item['id']}")


def test_difference_of_two_plans(site: Site, see: See) -> None:
    first, second = site.plan("small"), site.plan("overlapping")
    ids = [site.plans[name]["id"] for name in ("small", "overlapping")]
    page = see(site.place("diff", *ids))
    page.get_by_role("group", name="Figures").wait_for()
    figures = rows(page, "Figures")
    assert figures["Seconds per iteration"][:2] == [
        formats.seconds(first.iteration_seconds),
        formats.seconds(second.iteration_seconds),
    ]
    calls = rows(page, "Calls, seconds")
    syncs = {f"{sync.role}.sync" for plan in (first, second) for sync in plan.transitions}
    assert {*calls} == {call.id for plan in (first, second) for call in plan.calls} | syncs
    only_first = {call.id for call in first.calls} - {call.id for call in second.calls}
    assert all(calls[call][1] == "–" for call in only_first)
    told = site.get(f"/v1/plans/{ids[0]}/diff?with={ids[1]}").json()
    placement = rows(page, "Placed or set otherwise")
    assert {*placement} == {each["of"] for each in told["placement"]}
    assert second.copies[0].layout.in_short() in placement["copy actor"][1]
    spec = rows(page, "Asked for otherwise")
    assert {*spec} == {each["field"] for each in told["spec"]}
    assert spec["algorithm"] == ["ppo", "grpo"]


def test_launch_is_that_of_the_service(site: Site, see: See) -> None:
    plan_id = site.plans["overlapping"]["id"]
    page = see(site.of_plan("overlapping", "export"))
    script = page.get_by_label("Launch", exact=True)
    expect(script).to_contain_text("python3 -m verl", timeout=20_000)
    launch = site.get(f"/v1/plans/{plan_id}/export?target=verl@0.9.1").json()
    assert script.text_content() == launch["script"]
    settings = rows(page, "Settings")
    assert {*settings} == {each["key"] for each in launch["settings"]}


def test_plan_that_cannot_be_exported_says_why(site: Site, open_page: Open) -> None:
    page, watched = open_page(site.of_plan("small", "export"))
    watched.expected.append("status of 422")
    refusal = site.get(f"/v1/plans/{site.plans['small']['id']}/export?target=verl@0.9.1").json()
    shown = page.get_by_role("alert")
    for reason in refusal["reasons"]:
        expect(shown).to_contain_text(reason["summary"])
