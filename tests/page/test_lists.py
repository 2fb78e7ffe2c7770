"""Lists of plans and jobs: what is stored, found by words and state, page by page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from automap.service.cli.terminal import formats
from tests.page.site import Site
from tests.page.test_plan import rows
from tests.service.support.workers import add_plan

See = Callable[..., Page]


def names(page: Page) -> list[str]:
    return page.locator(".list tbody th > a").all_inner_texts()


@pytest.mark.slow
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
    expect(page.locator(".list tbody th > a")).to_have_text([site.plans["small"]["spec_name"]])
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


def test_owner_and_label_narrow_the_list_and_its_csv(site: Site, see: See) -> None:
    path = f"/v1/plans/{site.plans['small']['id']}"
    site.server.client.patch(path, json={"labels": {"team": "math"}})
    page = see(site.place("plans"))
    page.get_by_role("link", name="team:math").click()
    expect(page.locator(".list tbody tr")).to_have_count(1)
    page.get_by_role("link", name="local", exact=True).click()  # of one owner, whatever the label
    expect(page.locator(".list tbody tr")).to_have_count(len(site.get("/v1/plans").json()["items"]))
    page.get_by_label("Order").select_option("iteration_seconds")
    wanted = site.get("/v1/plans?owner=local&sort=iteration_seconds").json()["items"]
    expect(page.locator(".list tbody th > a")).to_have_text([item["name"] for item in wanted])
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "plans.csv"
    text = download.value.path().read_bytes()
    assert text == site.get("/v1/plans?owner=local&sort=iteration_seconds&format=csv").content
    page.get_by_role("button", name="Whatever the owner").click()
    expect(page).to_have_url(f"{site.place('plans')}?sort=iteration_seconds")
    site.server.client.patch(path, json={"labels": {"team": None}})


def test_costs_are_those_of_the_service(site: Site, see: See) -> None:
    page = see(site.place("costs"))
    day = str(site.job().started_at)[:10]
    assert list(rows(page, "Costs")) == [day]
    page.get_by_label("By").select_option("model")
    (item,) = site.get("/v1/costs?by=model").json()["items"]
    expect(page.get_by_role("rowheader", name=item["group"])).to_be_visible()
    runs, _, price, _ = rows(page, "Costs")[item["group"]]
    assert runs == formats.count(item["jobs"])
    assert float(price) == pytest.approx(item["price"], rel=0.5)  # the run goes on
    page.get_by_label("By").select_option("label")
    page.get_by_label("Key of the label").fill("team")
    expect(page.get_by_role("rowheader", name="without that label")).to_be_visible()
    page.get_by_label("To").fill("2020-01-01")
    expect(page.get_by_text("Nothing has run then.")).to_be_visible()


def test_budgets_are_those_of_the_service(site: Site, see: See) -> None:
    body = {"of": "label:team:math", "unit": "gpu_hours", "amount": 12}
    made = site.server.client.post("/v1/budgets", json=body).json()
    try:
        page = see(site.place("costs"))
        expect(page.get_by_role("rowheader", name="label:team:math")).to_be_visible()
        unit, amount, spent, _, warning = rows(page, "Budgets")["label:team:math"]
        assert (unit, float(amount), float(spent)) == ("GPU-hours", 12.0, 0.0)
        assert warning == "none"
    finally:
        site.server.client.delete(f"/v1/budgets/{made['id']}")


@pytest.mark.slow
def test_older_plans_come_page_by_page(site: Site, see: See) -> None:
    before = len(site.get("/v1/plans?limit=200").json()["items"])
    added = [add_plan(site.run.database) for _ in range(51)]
    try:
        page = see(site.place("plans"))
        expect(page.locator(".list tbody tr")).to_have_count(50)
        # One more comes: what it pushes out of the first page stays where it was.
        added.append(add_plan(site.run.database))
        expect(page.locator(".list tbody tr")).to_have_count(51)
        page.get_by_role("button", name="Older plans").click()
        expect(page.locator(".list tbody tr")).to_have_count(52 + before)
        expect(page.get_by_role("button", name="Older plans")).to_have_count(0)
        links = page.locator(".list tbody th > a").evaluate_all("all => all.map(a => a.hash)")
        assert len(set(links)) == 52 + before
        site.server.client.delete(f"/v1/plans/{added.pop()}")
        expect(page.locator(".list tbody tr")).to_have_count(51 + before)
    finally:
        for plan_id in added:
            site.server.client.delete(f"/v1/plans/{plan_id}")


def test_jobs_are_listed_with_progress_and_drift(site: Site, see: See) -> None:
    page = see(site.place("jobs"))
    job = site.job()
    row = page.locator(".list tbody tr").filter(has=page.locator(f"a[href$='{job.id}']"))
    expect(row).to_have_count(1)
    text = row.inner_text()
    assert f"{job.iteration} of {formats.count(job.iterations)}" in text
    assert "⚠ drifts" in text
    assert job.measured_iteration_seconds is not None
    assert formats.seconds(job.measured_iteration_seconds) in text
    row.get_by_role("link", name=job.spec_name).click()
    expect(page.get_by_role("heading", name=job.spec_name)).to_be_visible()
