"""A job that runs: what its events and its record say, as it comes."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from automap.service.cli.terminal import formats
from automap.service.storage.database import Database
from tests.page.conftest import Open
from tests.page.site import REWARD, Site, drifting_run
from tests.page.test_plan import rows
from tests.service.support.job_claims import finish, keep, printed
from tests.service.support.servers import free_port, serving
from tests.service.support.workers import add_job

See = Callable[..., Page]


@pytest.mark.slow
def test_calls_are_shown_beside_their_predictions(site: Site, see: See) -> None:
    job = site.job()
    shown = rows(see(site.place("jobs", job.id)), "Seconds of calls")
    assert list(shown) == [call.call for call in job.calls]
    for call in job.calls:
        predicted, measured, _, count = shown[call.call]
        assert call.predicted_seconds is not None
        assert call.measured_seconds is not None
        assert predicted == formats.seconds(call.predicted_seconds)
        assert measured == formats.seconds(call.measured_seconds)
        assert count == formats.count(call.count)


def test_drift_is_shown_with_its_suggestion(site: Site, see: See) -> None:
    job = site.job()
    (told, *_) = job.suggestions
    page = see(site.place("jobs", job.id))
    shown = page.get_by_label(f"Drift after iteration {told.suggestion.after_iteration}")
    assert told.suggestion.replan is not None
    expect(shown).to_contain_text(told.suggestion.replan.answer)
    expect(shown).to_contain_text(told.suggestion.causes[0].kind)


def test_drift_of_a_run_that_is_over_is_still_said(site: Site, see: See) -> None:
    run = drifting_run(site.run.database)
    drift = see(site.place("jobs", run.job_id)).locator(".figure", has_text="Drift")
    expect(drift).to_contain_text("runs otherwise than planned")
    finish(run.database, run.held)
    drift = see(site.place("jobs", run.job_id)).locator(".figure", has_text="Drift")
    expect(drift).to_contain_text("ran otherwise than planned")
    waiting = add_job(run.database)
    drift = see(site.place("jobs", waiting)).locator(".figure", has_text="Drift")
    expect(drift).to_contain_text("nothing is measured")
    site.server.client.post(f"/v1/jobs/{waiting}/cancel")


def test_a_queued_job_is_given_another_priority(site: Site, see: See) -> None:
    waiting = add_job(site.run.database)
    page = see(site.place("jobs", waiting))
    form = page.get_by_role("form", name="Priority")
    button = form.get_by_role("button", name="Set")
    expect(button).to_be_disabled()  # it is that already
    form.get_by_label("Priority").fill("10")
    with page.expect_response(lambda answer: answer.request.method == "PATCH"):
        button.click()
    expect(button).to_be_disabled()
    assert site.get(f"/v1/jobs/{waiting}").json()["priority"] == 10
    site.server.client.post(f"/v1/jobs/{waiting}/cancel")
    expect(form).to_have_count(0)


@pytest.mark.slow
def test_iterations_and_reward_are_drawn_as_they_come(site: Site, see: See) -> None:
    run = site.run
    page = see(site.place("jobs", run.job_id))
    iterations = page.get_by_role("img", name="Seconds over iterations")
    reward = page.get_by_role("img", name="Reward over iterations")
    expect(iterations.locator("circle")).to_have_count(run.number)
    run.keep({"type": "metrics", "iteration": run.number + 1, "metrics": {REWARD: 7.25}})
    run.iterate(1.6)
    expect(iterations.locator("circle")).to_have_count(run.number)
    expect(reward).to_have_attribute(
        "aria-label", f"Reward over iterations: 7.25 after {run.number}"
    )
    expect(page.locator(".progress")).to_contain_text(f"{run.number} of 1,000 iterations")


@pytest.mark.slow
def test_a_job_is_followed_over_a_restart_of_the_service(tmp_path: Path, open_page: Open) -> None:
    url, port = f"sqlite:///{tmp_path}/again.db", free_port()
    with serving(url, port=port) as first:
        run = drifting_run(Database(url))
        page, watched = open_page(f"{first.address}/#/jobs/{run.job_id}")
        watched.expected.append("net::ERR_")
        drawn = page.get_by_role("img", name="Seconds over iterations").locator("circle")
        expect(drawn).to_have_count(run.number)
        first.process.send_signal(signal.SIGTERM)  # which ends the stream of events in order
        first.process.wait()
        expect(page.get_by_role("alert").first).to_contain_text("cannot be reached")
    with serving(url, port=port):
        run.iterate(1.6)
        expect(page.locator(".progress")).to_contain_text(f"{run.number} of 1,000 iterations")
        expect(drawn).to_have_count(run.number)
        expect(page.get_by_role("alert")).to_have_count(0)
        page.close()


@pytest.mark.slow
def test_log_is_shown_and_goes_on(site: Site, see: See) -> None:
    page = see(site.place("jobs", site.job_id))
    log = page.locator("pre.log")
    expect(log).to_contain_text("all engines are up")
    keep(site.run.database, site.run.held, printed(text="one more line\n"))
    expect(log).to_contain_text("one more line")


def test_cancelling_asks_first(site: Site, see: See) -> None:
    database: Database = site.run.database
    job_id = drifting_run(database).job_id
    page = see(site.place("jobs", job_id))
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Cancel").click()
    assert site.get(f"/v1/jobs/{job_id}").json()["cancelling"] is False
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Being ended …")).to_be_disabled()
    assert site.get(f"/v1/jobs/{job_id}").json()["cancelling"] is True
    site.server.client.post(f"/v1/jobs/{job_id}/cancel")


@pytest.mark.slow
def test_job_that_is_over_is_run_again(site: Site, see: See) -> None:
    over = add_job(site.run.database, iterations=7)
    site.server.client.post(f"/v1/jobs/{over}/cancel")
    page = see(site.place("jobs", over))
    page.get_by_role("button", name="Run again").click()
    expect(page.get_by_role("link", name="repeats an earlier one")).to_have_attribute(
        "href", f"#/jobs/{over}"
    )
    again = page.url.rpartition("/")[2]
    assert site.server.client.post(f"/v1/jobs/{again}/cancel").json()["iterations"] == 7
    expect(page.get_by_role("button", name="Run again")).to_be_visible()
