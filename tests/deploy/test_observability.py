"""The dashboard and the alert rules speak of metrics that a real scrape has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from automap.service.app import create_app
from automap.service.telemetry.metrics import Metrics
from tests.service.support.databases import migrated, settings_for

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
FUNCTIONS = {
    *("sum", "max", "min", "by", "rate", "increase", "histogram_quantile", "and", "or", "le"),
}
LABELS = {
    *("queue", "status", "state", "method", "route", "serves", "why", "proof", "gpus", "le"),
    *("job", "instance", "task", "of", "unit"),
}
DURATION = re.compile(r"\[(\d+[smhd]|\$__rate_interval)\]")
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"])


def expressions() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a service says in whose life everything has happened once."""
    from fastapi.testclient import TestClient

    url = f"sqlite:///{tmp_path_factory.mktemp('scrape')}/automap.db"
    migrated(url).dispose()
    app = create_app(settings_for(url))
    client = TestClient(app, raise_server_exceptions=False)
    client.get("/healthz")
    assert client.post("/v1/budgets", json={"of": "owner:ada", "amount": 5000}).status_code == 201
    happened(app.state.metrics)
    return client.get("/metrics").text


def happened(metrics: Metrics) -> None:
    metrics.attempts.labels("plans").inc()
    metrics.leases_lost.labels("plans").inc()
    metrics.planner_starts.labels("plans").inc()
    metrics.planner_ends.labels("plans", "time").inc()
    metrics.count_proof("gap", 0.1)
    with (
        metrics.busy_planner("plans"),
        metrics.timed_planning(task="plan", num_gpus=8, objective="throughput"),
    ):
        pass


def series_of(scrape: str) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in scrape.splitlines() if line[0] != "#"}


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_series_of_an_expression_is_scraped(expression: str, scrape: str) -> None:
    bare = DURATION.sub("", TEXT.sub("", expression))
    names = set(NAME.findall(bare)) - FUNCTIONS - LABELS - {"up"}
    assert names or expression.startswith("up")
    assert names <= series_of(scrape)


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_is_well_formed(expression: str) -> None:
    bare = TEXT.sub("", expression)
    for opening, closing in ("()", "[]", "{}"):
        assert bare.count(opening) == bare.count(closing)
    assert DURATION.sub("", bare).count("[") == 0
    for name, after in re.findall(r"(\w+)(\(|\[)", bare):
        if after == "[":
            assert name.endswith(("_total", "_bucket")) or name.startswith("process_")
    for inside in re.findall(r"\b(?:rate|increase)\(\s*([^()]*)\)", bare):
        assert DURATION.search(inside), "a rate needs a range"
    # A counter is told as a rate, a bucket within a quantile.
    for counter in re.findall(r"automap_\w+_total", bare):
        assert re.search(rf"(rate|increase)\(\s*{counter}", bare)
    assert ("_bucket" in bare) == ("histogram_quantile(" in bare)


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_labels_and_their_values_are_those_of_the_series(expression: str, scrape: str) -> None:
    for name, selectors in re.findall(r"(\w+)\{((?:[^{}\"]|\"[^\"]*\")*)\}", expression):
        series = [line for line in scrape.splitlines() if line.startswith(f"{name}{{")]
        known = {label for line in series for label in re.findall(r'(\w+)="', line)}
        for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selectors):
            assert label in known | {"job", "instance"}, (name, label)
    grouped = re.findall(r"by \(([\w, ]+)\)", expression)
    for label in (each.strip() for group in grouped for each in group.split(",")):
        assert label in LABELS


def test_rules_are_complete() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_panels_fill_their_places() -> None:
    places: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not places & own, panel["title"]
        places |= own


def test_prometheus_finds_the_service() -> None:
    given = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = given["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("automap", "/metrics")
    assert given["rule_files"] == ["alerts.yml"]


def test_the_guide_lists_the_metrics_of_a_scrape(scrape: str) -> None:
    found = set()
    for family in text_string_to_metric_families(scrape):
        if family.name.startswith("automap_"):
            labels = sorted({name for each in family.samples for name in each.labels} - {"le"})
            total = "_total" if family.type == "counter" else ""
            shown = ", ".join(f"`{label}`" for label in labels)
            found.add(
                f"| `{family.name}{total}` | {family.type} | {shown} | {family.documentation} |"
            )
    guide = (FOLDER.parents[1] / "docs" / "guides" / "operating.md").read_text()
    assert {line for line in guide.splitlines() if line.startswith("| `automap_")} == found
