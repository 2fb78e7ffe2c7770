"""The shell script of an AReaL launch: Ray where there are several nodes, and the program."""

from automap.planner.exports import script
from automap.planner.exports.areal.document import CONFIG
from automap.planner.exports.launch import Launch
from automap.planner.exports.subject import Subject

PROGRAM = "TRAIN_PROGRAM"


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line."""
    given = [each.variable for each in launch.placeholders if each.variable != PROGRAM]
    parts = [
        *script.head(subject, launch, iterations="total_train_steps"),
        *script.placeholders(launch),
        f"export {' '.join(given)}",
        script.need_installed(launch, subject.framework),
        *script.environment(subject, launch),
        f'CONFIG="${{CONFIG:-$(dirname "${{BASH_SOURCE[0]}}")/{CONFIG}}}"',
        'if [ ! -f "$CONFIG" ]; then',
        f'  echo "not started: put {CONFIG} beside this script" >&2',
        "  exit 2",
        "fi",
        *(script.start_of_ray(launch) if launch.num_nodes > 1 else []),
        f'python3 "${PROGRAM}" --config "$CONFIG"',
    ]
    return "\n".join(parts) + "\n"
