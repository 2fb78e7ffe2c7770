"""The shell script of a NeMo-RL launch: Ray on the nodes, and the run of its recipe."""

from automap.planner.exports import script
from automap.planner.exports.launch import Launch
from automap.planner.exports.nemo_rl.recipe import RECIPE
from automap.planner.exports.subject import Subject

FOLDER = "NEMO_RL_FOLDER"
_TAGGED = f'$(git -C "${FOLDER}" describe --tags 2>/dev/null || echo unknown)'
VERSION = f"${{NEMO_RL_VERSION:-{_TAGGED}}}"


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line."""
    number = subject.framework.version
    given = [each.variable for each in launch.placeholders if each.variable != FOLDER]
    parts = [
        *script.head(subject, launch, iterations="grpo.max_num_steps"),
        *script.placeholders(launch),
        f"export {' '.join(given)}",
        script.need_version(launch, VERSION, number, f"v{number}"),
        *script.environment(subject, launch),
        f'cd "${FOLDER}"',
        "\n# The recipe, which inherits from the configuration beside it.",
        f'RECIPE="${{RECIPE:-examples/configs/{RECIPE}}}"',
        'if [ ! -f "$RECIPE" ]; then',
        f'  echo "not started: put {RECIPE} into $PWD/examples/configs" >&2',
        "  exit 2",
        "fi",
        *script.start_of_ray(launch),
        f'uv run {subject.framework.entry} --config "$RECIPE"',
    ]
    return "\n".join(parts) + "\n"
