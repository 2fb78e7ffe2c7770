"""The form that makes a spec: form and YAML are one, and what is wrong is said while typing."""

from collections.abc import Callable

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.page.conftest import Open
from tests.page.site import Site

See = Callable[..., Page]


def spec(page: Page) -> dict:  # type: ignore[type-arg]
    text = page.get_by_role("textbox", name="YAML").input_value()
    return yaml.safe_load(text)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_fields_write_the_yaml_and_the_yaml_the_fields(site: Site, see: See) -> None:
    page = see(site.place("new"))
    page.get_by_label("Name").fill("mine")
    page.get_by_label("actor").select_option("llama-3.1-8b")
    page.get_by_label("Nodes").fill("4")
    page.get_by_label("Response tokens, at most").fill("2048")
    written = spec(page)
    assert written["name"] == "mine"
    assert written["models"]["actor"] == {"architecture": "llama-3.1-8b"}
    assert written["cluster"]["pools"][0]["num_nodes"] == 4
    assert written["workload"]["response_length"] == {"mean": 1024, "max": 2048}
    area = page.get_by_role("textbox", name="YAML")
    area.fill("# mine\n" + area.input_value().replace("algorithm: grpo", "algorithm: ppo"))
    expect(page.get_by_label("Algorithm")).to_have_value("ppo")
    page.get_by_label("critic").select_option("llama-3.1-8b")
    assert area.input_value().startswith("# mine\n")  # comments stay
    assert "critic" in spec(page)["models"]


def test_what_the_schema_forbids_is_said_while_typing(site: Site, see: See) -> None:
    page = see(site.place("new"))
    plan = page.get_by_role("button", name="Plan", exact=True)
    expect(plan).to_be_enabled()
    nodes = page.get_by_label("Nodes")
    nodes.fill("0")
    expect(nodes).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#remarks")).to_contain_text("cluster.pools.0.num_nodes must be >= 1")
    expect(page.locator("#remarks")).to_contain_text("line 17")
    expect(plan).to_be_disabled()
    nodes.fill("2")
    expect(page.locator("#remarks li")).to_have_count(0)
    area = page.get_by_role("textbox", name="YAML")
    area.fill(area.input_value().replace("kl: loss", "kl: los\n  colour: red"))
    expect(page.locator("#remarks")).to_contain_text("workload.colour there is no such field")
    expect(page.locator("#remarks")).to_contain_text("workload.kl must be one of")
    area.fill("name: [")
    expect(page.locator("#remarks li")).not_to_have_count(0)


def test_what_the_service_refuses_is_said_at_the_field(site: Site, open_page: Open) -> None:
    page, watched = open_page(site.place("new"))
    watched.expected.append("status of 422")
    area = page.get_by_role("textbox", name="YAML")
    area.fill(area.input_value().replace("gpu: h100,", "gpu: a100-ultra,"))
    page.get_by_role("button", name="Plan", exact=True).click()
    field = page.locator("[data-field='cluster.pools.0.gpu']")
    expect(field).to_contain_text("a100-ultra")
    expect(field.locator("select")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#remarks")).to_contain_text("cluster.pools.0.gpu")


@pytest.mark.slow
def test_a_spec_is_planned_and_shown(site: Site, see: See) -> None:
    page = see(f"{site.place('new')}?from={site.plans['small']['id']}")
    page.get_by_label("Name").fill("again")
    written = spec(page)
    assert written["algorithm"] == "ppo"
    assert "constraints" not in written  # nothing that is the default anyway
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator(".gantt [data-call]").first.wait_for(timeout=60_000)
    plan_id = page.url.rpartition("/")[2]
    planned = site.get(f"/v1/plans/{plan_id}").json()
    assert planned["spec_name"] == "again"
    assert planned["spec"] == {**site.plans["small"]["spec"], "name": "again"}
    site.server.client.delete(f"/v1/plans/{plan_id}")
