"""The shell script of an AReaL launch: Ray where there are several nodes, and the program."""

import shlex

from automap.planner.exports import script
from automap.planner.exports.areal.document import CONFIG
from automap.planner.exports.launch import Launch
from automap.planner.exports.subject import Subject

PROGRAM = "TRAIN_PROGRAM"


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line."""
    framework = subject.framework
    given = [each.variable for each in launch.placeholders if each.variable != PROGRAM]
    printed = f"import importlib.metadata as m; print(m.version({framework.name!r}))"
    parts = [
        *script.head(subject, launch, iterations="total_train_steps"),
        *script.placeholders(launch),
        f"export {' '.join(given)}",
        script.need_version(launch, f"$(python3 -c {shlex.quote(printed)})", framework.version),
        *script.environment(subject, launch),
        f'CONFIG="${{CONFIG:-{CONFIG}}}"',
        'if [ ! -f "$CONFIG" ]; then',
        f'  echo "not started: {CONFIG} is not in $PWD" >&2',
        "  exit 2",
        "fi",
        *(script.start_of_ray(launch) if launch.num_nodes > 1 else []),
        f'python3 "${PROGRAM}" --config "$CONFIG"',
    ]
    return "\n".join(parts) + "\n"
