"""What is built and installed is one package, `automap`, with its data; nothing goes around it."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("planner", "profiler", "executor", "service", "migrations")
TEXTS = (".py", ".pyi", ".md", ".sh", ".yaml")
IMPORTED = re.compile(rf"^\s*(?:from|import) ({'|'.join(PARTS)})\b", re.MULTILINE)
STARTED = re.compile(rf"-m[\s\"',]+({'|'.join(PARTS)})\b")


def source_files() -> Iterator[str]:
    """Files of the package, through the links that may lead to its parts."""
    for folder, folders, files in os.walk(ROOT / "automap", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            yield Path(folder, name).relative_to(ROOT).as_posix()


def texts() -> Iterator[Path]:
    """Programs and documents."""
    yield ROOT / "README.md"
    for room in ("automap", "benchmarks", "docs", "examples", "tests"):
        for folder, _, files in os.walk(ROOT / room, followlinks=True):
            yield from (Path(folder, name) for name in files if name.endswith(TEXTS))


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves files, and would use those of an earlier one."""
    folder = tmp_path_factory.mktemp("wheel")
    leftovers = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=leftovers)
    code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    run(sys.executable, "-c", code, folder, cwd=folder / "source")
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {re.sub(r"-.*\.dist-info$", "-", name.split("/")[0]) for name in names} == {
        "automap",
        "automap-",
    }
    packed = {name for name in names if name.startswith("automap/")}
    # The demo sets up the repository itself.
    assert packed == set(source_files()) - {"automap/examples/demo.sh"}
    named = ("py.typed", "migrations/script.py.mako", "examples/tiny-ppo-cpu.yaml")
    assert {f"automap/{name}" for name in named} <= packed
    for suffix in (".parquet", ".toml", ".py"):
        assert any(name.startswith("automap/planner/") and name.endswith(suffix) for name in packed)


def test_the_wheel_is_all_that_the_command_needs_beside_its_dependencies(
    wheel: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "fresh", symlinks=True)
    programs = tmp_path / "fresh" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The dependencies of this environment, but not what it knows of the source.
    dependencies = {"PYTHONPATH": sysconfig.get_path("purelib")}
    where = "import automap; print(automap.__file__)"
    shown = run(programs / "python", "-c", where, cwd=tmp_path, **dependencies)
    assert Path(shown.strip()).is_relative_to(tmp_path)
    example = ROOT / "examples" / "tiny-ppo-cpu.yaml"
    plan = run(programs / "automap", "plan", example, "--json", cwd=tmp_path, **dependencies)
    assert json.loads(plan)["iteration_seconds"] > 0


@pytest.mark.parametrize("pattern", [IMPORTED, STARTED], ids=["imported", "started"])
def test_nothing_goes_around_the_package(pattern: re.Pattern[str]) -> None:
    """From the repository's root that would work, and load a module a second time."""
    files = [file for file in texts() if file != Path(__file__)]
    assert len(files) > 500
    found = {str(file): pattern.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {file: names for file, names in found.items() if names} == {}


def test_what_goes_around_the_package_is_noticed() -> None:
    assert IMPORTED.findall("```python\nfrom planner.spec import JobSpec\n    import service\n")
    assert STARTED.findall('python -m executor.run, ["-m", "profiler.job"]') == [
        "executor",
        "profiler",
    ]
    assert not IMPORTED.findall("from automap.planner import make_plan\nimports planner\n")
    assert not STARTED.findall("python -m automap.executor.run")
