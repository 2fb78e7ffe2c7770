"""Lists of plans and jobs: what is stored, found by words and state, page by page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from automap.service.cli.terminal import formats
from tests.page.site import Site
from tests.service.support.workers import add_plan

See = Callable[..., Page]


def names(page: Page) -> list[str]:
    return page.locator(".list tbody th a").all_inner_texts()


def test_plans_are_listed_as_stored(site: Site, see: See) -> None:
    page = see(site.place("plans"))
    expect(page.locator(".list tbody tr").first).to_be_visible()
    items = site.get("/v1/plans").json()["items"]
    assert names(page) == [item["spec_name"] for item in items]
    rows = page.locator(".list tbody tr").all_inner_texts()
    for row, item in zip(rows, items, strict=True):
        assert f"✓ {item['status']}" in row  # a sign and a word, whatever the colour
        assert formats.seconds(item["iteration_seconds"]) in row
        assert formats.count(item["gpus_used"]) in row
        assert formats.price(item["price_per_iteration"]) in row


def test_words_and_filters_find_plans(site: Site, see: See) -> None:
    page = see(site.place("plans"))
    page.get_by_label("Search").fill("qwen2.5-7b GRPO")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    assert names(page) == [site.plans["overlapping"]["spec_name"]]
    page.get_by_label("Search").fill("")
    page.get_by_label("Algorithm").select_option("ppo")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    assert names(page) == [site.plans["small"]["spec_name"]]
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("There are no such plans.")).to_be_visible()
    page.reload()  # filters are part of the address
    expect(page.get_by_label("State")).to_have_value("failed")


def test_two_plans_are_chosen_to_compare(site: Site, see: See) -> None:
    page = see(site.place("plans"))
    for name in ("small", "overlapping"):
        page.get_by_label(f"Compare {site.plans[name]['spec_name']}").check()
    page.get_by_role("button", name="Compare the two").click()
    ids = [site.plans[name]["id"] for name in ("small", "overlapping")]
    expect(page).to_have_url(site.place("diff", *ids))


@pytest.mark.slow
def test_older_plans_come_page_by_page(site: Site, see: See) -> None:
    before = len(site.get("/v1/plans?limit=200").json()["items"])
    added = [add_plan(site.run.database) for _ in range(51)]
    try:
        page = see(site.place("plans"))
        expect(page.locator(".list tbody tr")).to_have_count(50)
        page.get_by_role("button", name="Older plans").click()
        expect(page.locator(".list tbody tr")).to_have_count(51 + before)
        expect(page.get_by_role("button", name="Older plans")).to_have_count(0)
    finally:
        for plan_id in added:
            site.server.client.delete(f"/v1/plans/{plan_id}")


def test_jobs_are_listed_with_progress_and_drift(site: Site, see: See) -> None:
    page = see(site.place("jobs"))
    job = site.job()
    row = page.locator(".list tbody tr").filter(has=page.locator(f"a[href$='{job.id}']"))
    expect(row).to_have_count(1)
    text = row.inner_text()
    assert f"{job.iteration} of {job.iterations}" in text
    assert "⚠ drifts" in text
    assert job.measured_iteration_seconds is not None
    assert formats.seconds(job.measured_iteration_seconds) in text
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name=job.spec_name)).to_be_visible()
