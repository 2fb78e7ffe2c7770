"""The shell script of a SkyRL launch: Ray on the plan's nodes, and the run that it submits."""

import shlex
from collections.abc import Iterable, Iterator

from automap.planner.exports import script
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.skyrl.program import PROGRAM
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Framework

QUOTED = r"""quoted() {
  local text=${1//\'/\'\'}
  printf "'%s'" "${text//'${'/'\${'}"
}"""
"""The function of a script that quotes a value as `values.quoted` does."""


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line, or quoted."""
    framework = subject.framework
    parts = [
        *script.head(subject, launch, iterations="trainer.max_training_steps"),
        *script.placeholders(launch),
        script.need_installed(launch, framework),
        *script.environment(subject, launch),
        *_program(launch),
        *_settings(launch.settings, framework),
        *script.start_of_ray(launch),
        script.submit(_started(launch, framework)),
    ]
    return "\n".join(parts) + "\n"


def _started(launch: Launch, framework: Framework) -> str:
    return '"$PROGRAM"' if launch.files else f"-m {framework.entry}"


def _program(launch: Launch) -> Iterator[str]:
    """Where the file beside the script is, of a launch that has one."""
    if not launch.files:
        return
    yield "\n# The program beside this script."
    yield f'PROGRAM="${{PROGRAM:-$(cd "$(dirname "$0")" && pwd)/{PROGRAM}}}"'
    yield 'if [ ! -f "$PROGRAM" ]; then'
    yield f'  echo "not started: put {PROGRAM} beside this script" >&2'
    yield "  exit 2"
    yield "fi"


def _settings(settings: Iterable[LaunchSetting], framework: Framework) -> Iterator[str]:
    lists = {key for s in framework.settings if s.type == "list" for key in s.keys.values()}

    def words(setting: LaunchSetting) -> str:
        if not setting.placeholder:
            return shlex.quote(f"{setting.key}={setting.value}")
        value = f'$(quoted "${setting.value}")'
        return f'"{setting.key}={f"[{value}]" if setting.key in lists else value}"'

    yield "\n# A value of YAML, in which quotes end nothing and nothing is looked up."
    yield f"{QUOTED}\n"
    yield "# Each setting follows the decision of the plan that it comes from."
    yield "settings=("
    yield from script.explained(settings, words)
    yield ")"
