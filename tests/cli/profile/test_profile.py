"""`automap profile` and `--profile` as typed: what is refused, and what is shown."""

import json
from pathlib import Path

import pytest

from automap.profiler.results.profile_report import ProfileReport
from automap.service.cli.profile.view import print_report
from tests.cli.commands import TINY, call
from tests.helpers.profile_folders import memory_bound, profile_folder

KERNELS = memory_bound({1024: {"add": 10e-6}, 65_536: {"add": 40e-6}})
REPORT = {
    "folder": "/profiles/here",
    "device": "cpu",
    "resumed": 7,
    "seconds": 61.4,
    "budget_seconds": 60,
    "tables": [
        {
            "table": "gemm",
            "wanted": 2000,
            "measured": 1500,
            "failed": 1,
            "samples": 12000,
            "rejected": 120,
            "disturbed": 3,
            "median_interval": 0.0123,
        }
    ],
    "held_out": [
        {
            "table": "gemm fp32",
            "left_out": "m",
            "shapes": 300,
            "median_error": 0.031,
            "mean_error": 0.052,
        },
        {
            "table": "decode_attention",
            "left_out": "batch_size, kv_length",
            "shapes": 90,
            "median_error": 0.081,
            "mean_error": 0.09,
        },
    ],
    "conditions": {"load": 3.2, "cores": 2, "busy": True, "drift": 0.25, "throttled": True},
}


def test_the_report_shows_coverage_error_and_what_disturbed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(ProfileReport.model_validate(REPORT), quiet=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "cpu: 1,500 of 2,000 shapes measured, 7 of them before; 61 s of a budget of 60 s" in shown
    )
    assert "gemm 1,500 2,000 1 12,000 120 3 1.2%" in shown
    assert "gemm fp32 m 300 3.1% 5.2% decode" in shown
    assert "90 8.1% 9.0% above 5%" in shown
    assert "busy when this began (load 3.2 on 2 cores)" in shown
    assert "took 25% longer at the end" in shown
    assert "--profile /profiles/here" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "llama-9"), "the catalogue has no model 'llama-9'"),
        (("--models", "./nowhere/config.json"), "nowhere/config.json"),
        (("--budget", "0"), "--budget: '0': give a finite number above 0"),
        (("--device", "tpu"), "--device: Input should be 'cpu' or 'cuda' (got 'tpu')"),
        (("--ranks", "0"), "--ranks: Input should be greater than or equal to 1 (got 0)"),
    ],
)
def test_bad_input_is_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    pytest.importorskip("torch")
    code, out, err = call(capsys, "profile", "--output", str(tmp_path), *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "the spec cannot be planned" not in err


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, out, err = call(capsys, "profile", "--device", "cuda", "--output", str(tmp_path))
    assert (code, out) == (2, "")
    assert "--device cuda: PyTorch sees no CUDA device here" in err


def test_plan_and_estimate_take_a_profile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    code, out, err = call(capsys, "plan", TINY, "--profile", str(folder), "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert str(folder) in plan["provenance"]["measured_profiles"]["cpu"]
    assert plan["spec"]["cluster"]["pools"][0]["profile"] == str(folder)
    (tmp_path / "plan.json").write_text(out)
    code, out, _ = call(
        capsys,
        "estimate",
        TINY,
        str(tmp_path / "plan.json"),
        "--profile",
        str(folder),
        "--details",
    )
    assert code == 0
    assert "cpu: version " in out


def test_a_spec_names_a_profile_relative_to_itself(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = profile_folder(tmp_path / "measured", KERNELS)
    text = (
        Path(TINY).read_text().replace("gpus_per_node: 2}", "gpus_per_node: 2, profile: measured}")
    )
    (tmp_path / "spec.yaml").write_text(text)
    code, out, _ = call(capsys, "plan", str(tmp_path / "spec.yaml"), "--json")
    assert code == 0
    assert json.loads(out)["spec"]["cluster"]["pools"][0]["profile"] == str(folder)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (None, "--profile: '{0}' holds no profile: no fingerprint.json in it"),
        ("h100-80gb-sxm", "--profile: {0} was measured on h100-80gb-sxm, which no pool has"),
    ],
)
def test_a_folder_that_no_pool_can_use_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, device: str | None, message: str
) -> None:
    if device is not None:
        profile_folder(tmp_path, KERNELS, device_type=device)
    code, _, err = call(capsys, "plan", TINY, "--profile", str(tmp_path))
    assert code == 2
    assert message.format(tmp_path) in err


def test_two_profiles_of_one_type_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = [str(profile_folder(tmp_path / name, KERNELS)) for name in "ab"]
    code, _, err = call(capsys, "plan", TINY, "--profile", folders[0], "--profile", folders[1])
    assert code == 2
    assert "were both measured on cpu" in err


def test_a_service_takes_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(
        capsys, "plan", TINY, "--profile", str(tmp_path), "--server", "http://127.0.0.1:9"
    )
    assert code == 2
    assert "--profile" in err
