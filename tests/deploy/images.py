"""Images of the container files, built and run on a machine without an engine.

An image is built in an overlay over this machine's own root: what a command changes goes into
memory, and with it in the end. A virtual environment stands for the base image's Python. What takes
gigabytes, torch and its like, is this environment's own, and Debian's packages are this machine's.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from tests.deploy.dockerfiles import ROOT, USER, Instruction, instructions

OF_THIS_MACHINE = ("apt-get", "executor-cpu.lock")
PAGE_STAGES = ("description", "page")
IGNORED = ("node_modules", "generated")
"""Folders of the page that .dockerignore leaves out."""
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
            "for each in dev proc sys; do mount --rbind /$each $image/$each; done",
            'mount -t tmpfs none "$image/tmp"',
            # Where the interpreter is, its user must come to, too; here it may be root's own.
            *(f"chmod o+x $image{folder}" for folder in Path(sys.base_prefix).parents[:-1]),
            f"chroot $image {shlex.quote(python())} -m venv /opt/image",
        ]

    def build(self) -> None:
        skipped, folders = False, dict[str, str]()
        stage = ""
        for each in instructions(self.file):
            if each.name == "FROM":
                folders[stage] = self.folder
                base, _, stage = each.text.partition(" AS ")
                # A stage goes on where the one that it is made from ended.
                self.folder = folders.get(base, "/")
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
            case "RUN":
                # Each of its commands by itself, as the shell takes them.
                commands = instruction.text.split(" && ")
                kept = [each for each in commands if not any(of in each for of in OF_THIS_MACHINE)]
                self.lines += [self.command(each) for each in kept]

    def _copied(self, source: str, target: str, sources: list[str]) -> str:
        place = f"$image{self.folder}/{target}"
        if (ROOT / source).is_dir():
            left_out = " ".join(f"--exclude=./{each}" for each in IGNORED)
            packed = f"tar -C {ROOT}/{source} {left_out} -c ."
            return f"mkdir -p {place} && {packed} | tar -x -C {place}"
        if target.endswith("/") or len(sources) > 1:
            return f"mkdir -p {place} && cp {ROOT}/{source} {place}"
        return f"mkdir -p $(dirname {place}) && cp {ROOT}/{source} {place}"

    def command(self, text: str, *, user: int = 0, **variables: str) -> str:
        """A command of the image, in its folder and with its variables alone."""
        net = {name: value for name, value in os.environ.items() if _of_the_net(name)}
        return self.alone(text, {**net, **self.variables, **variables}, user=user)

    def alone(self, text: str, variables: Mapping[str, str], *, user: int, folder: str = "") -> str:
        """A command with these variables and nothing of this machine's."""
        given = {
            "PATH": f"/opt/image/bin:{SYSTEM_PATH}",
            "HOME": "/root" if user == 0 else "/home/automap",
            **variables,
        }
        words = [f"{name}={value}" for name, value in given.items()]
        inside = f"cd {folder or self.folder} && {text}"
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


def python() -> str:
    """This environment's interpreter without the environment."""
    return str(Path(sys.base_prefix) / "bin" / "python3")


def secrets(folder: Path, *database_url: str) -> Path:
    """Made up, and where the image looks for them."""
    made = folder / "secrets"
    subprocess.run([ROOT / "deploy" / "secrets.sh", made, *database_url], check=True)
    return made


def executor_image() -> Image:
    """That of the worker and of Ray, with this environment's own torch, Ray and vLLM."""
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
    # As pip would have written it, had it installed Ray.
    script = "#!/opt/image/bin/python\nfrom ray.scripts.scripts import main\nmain()\n"
    ray = "$image/opt/image/bin/ray"
    image.lines.append(f"printf %s {shlex.quote(script)} > {ray} && chmod 755 {ray}")
    return image
