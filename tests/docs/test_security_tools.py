"""What `make lint` looks for is found: careless calls, and secrets that somebody would commit."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / name), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_careless_calls_are_found(tmp_path: Path) -> None:
    file = tmp_path / "careless.py"
    settings = ["--quiet", "--configfile", "pyproject.toml"]
    for text, finding in (
        ("import subprocess\nsubprocess.run('ls ' + input(), shell=True)\n", "B602"),
        ("import pickle\npickle.loads(b'')\n", "B301"),
        ("import yaml\nyaml.load('')\n", "B506"),
    ):
        file.write_text(text)
        ended = tool("bandit", *settings, str(file))
        assert (ended.returncode, finding in ended.stdout) == (1, True), ended
    file.write_text("assert True\n")
    assert tool("bandit", *settings, str(file)).returncode == 0


def test_secrets_are_found(tmp_path: Path) -> None:
    file = tmp_path / "settings.py"
    # Written so that this file itself holds none.
    for text in (
        f"AWS = '{'AKIA' + 'IOSFODNN7' + 'EXAMPLQ'}'\n",
        f"{'-----BEGIN'} RSA PRIVATE {'KEY-----'}\nMIIE\n",
        f"URL = 'postgresql://automap:{'hunter' + '2'}@host/name'\n",
    ):
        file.write_text(text)
        ended = tool("detect-secrets-hook", "--baseline", ".secrets.baseline", str(file))
        assert ended.returncode == 1, (text, ended)
    file.write_text("URL = 'postgresql://USER:PASSWORD@host/name'\n")
    ended = tool("detect-secrets-hook", "--baseline", ".secrets.baseline", str(file))
    assert ended.returncode == 0, ended
