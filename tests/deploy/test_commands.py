"""Every command of the container files, run one by one on a machine without an engine.

An image is built in an overlay over this machine's own root: what a command changes goes into
memory, and with it in the end. A virtual environment stands for the base image's Python. What takes
gigabytes, torch and its like, is this environment's own, and Debian's packages are this machine's.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfiles import ROOT, USER, Instruction, instructions, last

OF_THIS_MACHINE = ("apt-get", "executor-cpu.lock")
PAGE_STAGES = ("description", "page")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket() as some:
    fcntl.ioctl(some, 0x8914, struct.pack("16sh", b"lo", 0x41))
"""
READY_SECONDS = 90

CAN_BUILD = (
    sys.platform == "linux"
    and os.geteuid() == 0
    and shutil.which("unshare") is not None
    and subprocess.run(["unshare", "--mount", "--net", "true"], check=False).returncode == 0
)


class Image:
    """The script that builds an image, and runs what it is for."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.folder = "/"
        self.variables: dict[str, str] = {}
        self.lines = [
            "set -eux",
            'root="$1"; mkdir "$root"; mount -t tmpfs -o size=3g none "$root"',
            'mkdir "$root/upper" "$root/work" "$root/image"; image="$root/image"',
            'parts="lowerdir=/,upperdir=$root/upper,workdir=$root/work"',
            'mount -t overlay none -o "$parts" "$image"',
            "for each in dev proc; do mount --rbind /$each $image/$each; done",
            'mount -t tmpfs none "$image/tmp"',
            f"chroot $image {shlex.quote(_python())} -m venv /opt/image",
        ]

    def build(self) -> None:
        skipped = False
        for each in instructions(self.file):
            if each.name == "FROM":
                stage = each.text.partition(" AS ")[2]
                skipped = stage in PAGE_STAGES and not (ROOT / "page").exists()
            elif not skipped:
                self.add(each)

    def add(self, instruction: Instruction) -> None:
        match instruction.name:
            case "WORKDIR":
                self.folder = instruction.text
                self.lines.append(f"mkdir -p $image{self.folder}")
            case "ENV":
                self.variables |= dict(each.split("=", 1) for each in instruction.text.split())
            case "COPY" if not instruction.text.startswith("--from="):  # it is all in one place
                *sources, target = instruction.text.split()
                self.lines += [f"mkdir -p $image{self.folder}"]
                self.lines += [self._copied(source, target, sources) for source in sources]
            case "RUN" if not any(name in instruction.text for name in OF_THIS_MACHINE):
                self.lines.append(self.command(instruction.text))

    def _copied(self, source: str, target: str, sources: list[str]) -> str:
        place = f"$image{self.folder}/{target}"
        if (ROOT / source).is_dir():
            return f"mkdir -p {place} && cp -a {ROOT}/{source}/. {place}/"
        if target.endswith("/") or len(sources) > 1:
            return f"mkdir -p {place} && cp {ROOT}/{source} {place}"
        return f"mkdir -p $(dirname {place}) && cp {ROOT}/{source} {place}"

    def command(self, text: str, *, user: int = 0, **variables: str) -> str:
        """A command of the image, in its folder and with its variables alone."""
        given = {
            "PATH": f"/opt/image/bin:{SYSTEM_PATH}",
            "HOME": "/root" if user == 0 else "/home/automap",
            **({name: value for name, value in os.environ.items() if _of_the_net(name)}),
            **self.variables,
            **variables,
        }
        words = [f"{name}={value}" for name, value in given.items()]
        inside = f"cd {self.folder} && {text}"
        return f"chroot --userspec={user}:{user} $image env -i {shlex.join(words)} sh -c " + (
            shlex.quote(inside)
        )

    def read_only(self, *writable: str) -> None:
        """From here on as with a read-only root file system."""
        self.lines += [
            f"mount -t tmpfs -o uid={USER},mode=700 none $image{place}" for place in writable
        ]
        self.lines += [
            "mount -o remount,ro $image",
            "if touch $image/somewhere; then exit 3; fi",
            "chmod 1777 $image/tmp",
        ]

    def serve(self, command: list[str], check: str, *, wanted: list[str], **variables: str) -> None:
        """Run the image until it is well, then what is wanted of it."""
        running = self.command("exec " + shlex.join(command), user=USER, **variables)
        well = self.command(check, user=USER)
        inside = [
            "set -eu",
            f"{shlex.quote(sys.executable)} -c {shlex.quote(LOOPBACK_UP)}",
            f"{running} & server=$!",
            "trap 'kill $server; wait $server || true' EXIT",
            f"end=$(( $(date +%s) + {READY_SECONDS} ))",
            f"until {well}; do kill -0 $server; test $(date +%s) -lt $end; sleep 0.5; done",
            *(self.command(each, user=USER, **variables) for each in wanted),
        ]
        script = shlex.quote("\n".join(inside))
        self.lines.append(f"export image; unshare --net bash -c {script}")

    def run(self, folder: Path) -> str:
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", "\n".join(self.lines), "image", folder / "root"],
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        return done.stdout


def _of_the_net(name: str) -> bool:
    """How this machine reaches the registries of packages."""
    return name.lower().startswith(("pip_", "npm_config_")) or name.lower().endswith("_proxy")


def _python() -> str:
    """This environment's interpreter without the environment."""
    return str(Path(sys.base_prefix) / "bin" / "python3")


def secrets(folder: Path) -> Path:
    """Made up, and where the image looks for them; the database is a file."""
    made = folder / "secrets"
    subprocess.run([ROOT / "deploy" / "secrets.sh", made, "sqlite:////data/a.db"], check=True)
    return made


@pytest.mark.slow
@pytest.mark.skipif(not CAN_BUILD, reason="needs root on Linux, to mount and to change the root")
def test_the_api_is_built_and_answers(tmp_path: Path) -> None:
    image = Image("Dockerfile")
    image.build()
    made = secrets(tmp_path)
    # What an engine does with a secret: a file that the user of the container can read.
    image.lines.append(f"mkdir $image/secrets && cp {made}/automap_* $image/secrets/")
    image.read_only("/data")
    key = (made / "automap_api_keys").read_text()
    ask = (
        "python -c 'import urllib.request as r; print(r.urlopen(r.Request("
        f'"http://127.0.0.1:8000/v1/plans", headers={{"Authorization": "Bearer {key}"}}'
        ")).read().decode())'"
    )
    image.serve(
        json.loads(last("Dockerfile", "CMD")),
        shlex.join(json.loads(last("Dockerfile", "HEALTHCHECK").partition("CMD ")[2])),
        wanted=[ask, "automap db check", "id -u"],
        AUTOMAP_SECRETS_FOLDER="/secrets",
    )
    out = image.run(tmp_path)
    assert '"items":[]' in out
    assert out.splitlines()[-1] == str(USER)


@pytest.mark.slow
@pytest.mark.skipif(not CAN_BUILD, reason="needs root on Linux, to mount and to change the root")
def test_the_worker_is_built_and_well(tmp_path: Path) -> None:
    image = Image("Dockerfile.executor")
    image.lines += [
        "packages=$(echo $image/opt/image/lib/*/site-packages)",
        # What a new environment brings of its own is older than what is locked.
        "rm -rf $packages/setuptools*",
        # Mounted, because its user may not come to where they are.
        f"mkdir $image/opt/ours && mount --bind {sysconfig.get_path('purelib')} $image/opt/ours",
        "echo /opt/ours > $packages/ours.pth",
    ]
    image.build()
    image.read_only("/work", "/home/automap")
    [check] = [command for name, command in health_checks() if name == "compose worker"]
    image.serve(
        json.loads(last("Dockerfile.executor", "CMD")),
        check,
        wanted=["id -u", "python -m ray.scripts.scripts --version"],
        AUTOMAP_WORKER_HEALTH_FILE="/tmp/well",
        AUTOMAP_RAY_ADDRESS="http://127.0.0.1:8265",
    )
    assert str(USER) in image.run(tmp_path).splitlines()


def health_checks() -> Iterator[tuple[str, str]]:
    """Those that look at the worker's file, as a shell gets them."""
    compose: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    kind, command = compose["services"]["worker"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    yield "compose worker", command.replace("$$", "$")
    worker: Any = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "worker.yaml").read_text())
    [container] = worker["spec"]["template"]["spec"]["containers"]
    *shell, command = container["livenessProbe"]["exec"]["command"]
    assert shell == ["sh", "-c"]
    yield "kubernetes worker", command


@pytest.mark.parametrize("command", [command for _, command in health_checks()])
def test_a_worker_is_well_as_long_as_it_says_so(command: str, tmp_path: Path) -> None:
    file = tmp_path / "well"
    here = command.replace("/tmp/well", str(file))
    assert here != command

    def well() -> bool:
        return subprocess.run(["sh", "-c", here], check=False, stderr=-3).returncode == 0

    assert not well()
    file.touch()
    assert well()
    os.utime(file, (time.time() - 100, time.time() - 100))
    assert not well()
