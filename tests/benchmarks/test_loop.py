"""The loop's figures, page and picture, from made-up runs; its plans on this and other machines."""

from pathlib import Path
from xml.dom import minidom

import pytest

from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from benchmarks.loop import plot, table
from benchmarks.loop.jobs import SIZES, Variant, pool_of, spec_of, variants
from benchmarks.loop.learning import from_one, leaving_one_out
from benchmarks.loop.runs import Outcome
from tests.helpers.measured_profiles import tiny_spec
from tests.helpers.profile_folders import profile_folder
from tests.helpers.tiny_runs import KERNELS, plain_plan, run_report


def outcomes(*ratios: float) -> list[Outcome]:
    """Runs of one plan that take so many times what is planned."""
    return [
        Outcome(
            Variant(f"plan {number}", "megatron-core", {}),
            plain_plan(),
            run_report(plain_plan(), ratio),
        )
        for number, ratio in enumerate(ratios)
    ]


def test_tau_counts_pairs_in_the_same_order() -> None:
    assert table.kendall_tau([(1, 10), (2, 20), (3, 30)]) == 1.0
    assert table.kendall_tau([(1, 30), (2, 20), (3, 10)]) == -1.0
    assert table.kendall_tau([(1, 10), (2, 30), (3, 20)]) == pytest.approx(1 / 3)


def test_the_three_figures_are_of_what_was_measured() -> None:
    found = table.summary(outcomes(1.0, 1.25, 2.0))
    assert found["error"] == pytest.approx((0.0 + 0.2 + 0.5) / 3)
    assert found["chosen"] == 1.0


@pytest.mark.slow
def test_page_and_picture_show_every_plan(tmp_path: Path) -> None:
    profile = profile_folder(tmp_path / "profile", KERNELS)
    cluster = "cluster:\n  pools:\n  - {name: cpu, gpu: cpu, num_nodes: 1, gpus_per_node: 2}\n"
    (profile / "cluster.yaml").write_text(cluster)
    measured = make_plan(tiny_spec(profile))
    runs = [
        Outcome(each.variant, measured, run_report(measured, 1.5)) for each in outcomes(1.0, 1.0)
    ]
    versions = tmp_path / "versions"
    versions.mkdir()
    one, out = from_one(runs, profile, versions), leaving_one_out(runs, profile, versions)
    # Half as much again everywhere: one run teaches nearly all of it.
    assert all(gain.after < 0.1 < 0.3 < gain.before for gain in (*one, *out))
    page = table.markdown(runs, one, out, conditions="made up.", command="make loop")
    for name in ("plan 0", "plan 1", "actor.generate", "penalise_kl", "≤ 20%"):
        assert (name in page) == (name != "penalise_kl")
    plot.draw(tmp_path / "loop.svg", runs)
    circles = minidom.parse(str(tmp_path / "loop.svg")).getElementsByTagName("title")
    titles = [each.firstChild.nodeValue for each in circles]
    assert len(titles) == 2 * 7
    assert any(title.startswith("plan 1: actor.train") for title in titles)


@pytest.mark.parametrize(("kind", "gpu"), [("cpu", "cpu"), ("cuda", "h200-141gb-sxm")])
@pytest.mark.parametrize("devices", [1, 2, 8])
def test_there_are_plans_for_one_device_and_for_more(
    kind: str, gpu: str, devices: int, tmp_path: Path
) -> None:
    profile = profile_folder(tmp_path, KERNELS, device_type=gpu)
    pool = f"name: here, gpu: {gpu}, num_nodes: 1, gpus_per_node: {devices}"
    (profile / "cluster.yaml").write_text(f"cluster: {{pools: [{{{pool}}}]}}")
    found = variants(devices)
    assert len(found) >= 6
    for variant in found:
        job = resolve(spec_of(variant, SIZES[kind], pool_of(profile)))
        assert sum(pool.num_gpus for pool in job.pools) == min(devices, 2)
