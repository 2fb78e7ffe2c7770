"""The shell script of a verl launch: it starts Ray on the plan's nodes and submits the run."""

import shlex
from collections.abc import Iterable, Iterator

from automap.planner.exports import script
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.subject import Subject

QUOTED = r"""quoted() {
  local text=${1//\'/\\\'}
  printf "'%s'" "${text//'${'/'\\${'}"
}"""
"""The function of a script that quotes a value as `hydra_quoted` does."""


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line, or quoted."""
    framework = subject.framework
    parts = [
        *script.head(subject, launch, iterations="trainer.total_training_steps"),
        *script.placeholders(launch),
        script.need_installed(launch, framework),
        *script.environment(subject, launch),
        *_settings(launch.settings),
        *script.start_of_ray(launch),
        script.submit(f"-m {framework.entry}"),
    ]
    return "\n".join(parts) + "\n"


def _settings(settings: Iterable[LaunchSetting]) -> Iterator[str]:
    yield "\n# A value for Hydra, in which quotes end nothing and nothing is looked up."
    yield f"{QUOTED}\n"
    yield "# Each setting follows the decision of the plan that it comes from."
    yield "settings=("
    yield from script.explained(settings, _words)
    yield ")"


def _words(setting: LaunchSetting) -> str:
    if setting.placeholder:
        return f'"{setting.key}=$(quoted "${setting.value}")"'
    return shlex.quote(f"{setting.key}={setting.value}")
