"""The check of a GPU, where there is none: what it measures, what it says, how it ends."""

import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("automap.executor.engines.fsdp.attention", exc_type=ImportError)

from benchmarks.gpu_check import __main__ as command  # noqa: E402
from benchmarks.gpu_check import imports, kernels, part, report  # noqa: E402
from benchmarks.gpu_check.findings import Figure, Figures, Finding, NotRunError, read  # noqa: E402
from benchmarks.gpu_check.parts import PARTS  # noqa: E402

CPU = torch.device("cpu")


def test_what_cannot_be_imported_is_named() -> None:
    modules = imports.names()
    assert "automap.executor.reshard.gather" in modules
    assert "automap.executor.run.__main__" not in modules
    (line,) = imports.refusals(["automap.executor.errors", "automap.executor.missing"])
    assert line.startswith("automap.executor.missing: ModuleNotFoundError: ")
    assert "torch 2" in imports.installed()


def test_attention_within_the_rounding_of_bf16_and_no_better() -> None:
    errors = kernels.attention_errors(CPU, window=100)
    assert len(errors) == 4
    assert all(2.0**-12 < error <= kernels.RELATIVE_ERROR for error in errors.values())


def test_a_kernel_that_sees_one_token_too_many_is_outside_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from automap.executor.engines.fsdp.attention import packed_attention as right

    def wrong(*args: object, sliding_window: int | None, **others: object) -> object:
        bf16 = args[1].dtype == torch.bfloat16  # type: ignore[attr-defined]
        window = sliding_window + 1 if bf16 and sliding_window else sliding_window
        return right(*args, sliding_window=window, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(kernels, "packed_attention", wrong)
    assert max(kernels.attention_errors(CPU, window=4).values()) > kernels.RELATIVE_ERROR


def test_fused_adamw_is_that_of_fp64() -> None:
    assert 0 < kernels.adamw_error(CPU) <= kernels.ADAMW_ERROR


def test_a_part_that_ran_on_cores_is_rehearsed_and_not_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _found(monkeypatch, lambda device, figures: figures.add("an error", 1, at_most=2))
    assert (found.state, found.reason) == ("rehearsed", "")
    assert read(f"something else\n{found.written()}\n") == found


@pytest.mark.parametrize("value", [2.5, float("nan")])
def test_a_figure_outside_its_limit_fails_the_part(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    found = _found(monkeypatch, lambda device, figures: figures.add("an error", value, at_most=2))
    assert (found.state, found.reason) == ("failed", "outside its limit: an error")


def test_what_is_not_there_is_named_and_the_part_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(device: object, figures: Figures) -> None:
        raise NotRunError("two GPUs are needed, and one is here")

    def without_a_package(device: object, figures: Figures) -> None:
        raise ModuleNotFoundError("No module named 'vllm'", name="vllm")

    assert _found(monkeypatch, alone).reason == "two GPUs are needed, and one is here"
    found = _found(monkeypatch, without_a_package)
    assert (found.state, found.reason) == ("not run", "vllm is not installed")


def test_a_part_that_raises_keeps_what_it_had_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: object, figures: Figures) -> None:
        figures.add("seconds", 3, "s")
        raise RuntimeError("CUDA error: out of memory")

    found = _found(monkeypatch, broken)
    assert (found.state, found.reason) == ("failed", "RuntimeError: CUDA error: out of memory")
    assert found.figures == (Figure("seconds", 3.0, "s"),)


def test_without_a_gpu_nothing_is_run_and_nothing_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_has_gpu", lambda: False)
    assert command.main(["--report", str(tmp_path / "page.md")]) == 2
    assert "--on cpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_process_that_dies_or_hangs_is_a_failed_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*args: object, **others: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], -11, stdout="no finding")

    def hung(*args: object, **others: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr("subprocess.run", died)
    assert command._run(PARTS[0], "cpu", 60).reason == "its process ended with exit code -11"
    monkeypatch.setattr("subprocess.run", hung)
    assert command._run(PARTS[0], "cpu", 60).reason == "not done after 60 s"


def test_the_page_has_every_part_and_limit() -> None:
    findings = [
        Finding("kernels", "passed", seconds=3, figures=(Figure("error", 0.001, at_most=0.01),)),
        Finding("transfer", "not run", "two GPUs are needed"),
    ]
    page = report.page(findings, "cpu", 61.0)
    assert "| error | 0.001 | at most 0.01 |" in page
    assert "| Weights from GPU to GPU | not run: two GPUs are needed | 0 |" in page
    assert max(map(len, (line for line in page.splitlines() if not line.startswith("|")))) <= 200


def test_ten_minutes_are_for_all_parts_together() -> None:
    found = command._run(PARTS[0], "cpu", -1.0)
    assert (found.state, found.reason) == ("not run", "the 600 s were over")


@pytest.mark.slow
def test_what_can_be_rehearsed_on_cores_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    parts = ["--only", "megatron", "fp8", "transfer"]
    assert command.main(["--on", "cpu", *parts, "--report", str(page)]) == 0
    rows = [
        line.split(" | ") for line in page.read_text().splitlines() if "vLLM in turns |" in line
    ]
    assert [row[1] for row in rows] == ["rehearsed"]
    assert "Rollouts in 8 bits | not run: vLLM has kernels" in page.read_text()
    assert "Weights from GPU to GPU | rehearsed" in page.read_text()


def _found(monkeypatch: pytest.MonkeyPatch, measure: object) -> Finding:
    monkeypatch.setattr(kernels, "measure", measure)
    return part._found("kernels", "kernels:measure", "cpu")
