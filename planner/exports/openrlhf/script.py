"""The shell script of an OpenRLHF launch: Ray on the plan's nodes, and the run that it submits."""

from collections.abc import Iterable, Iterator

from automap.planner.exports import script
from automap.planner.exports.arguments import ABSENT, words
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Framework


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line, or quoted."""
    framework = subject.framework
    parts = [
        *script.head(subject, launch, iterations="--data.max_samples"),
        *script.placeholders(launch),
        script.need_installed(launch, framework),
        *script.environment(subject, launch),
        *_settings(launch.settings, framework),
        *script.start_of_ray(launch),
        script.submit(f"-m {framework.entry}"),
    ]
    return "\n".join(parts) + "\n"


def _settings(settings: Iterable[LaunchSetting], framework: Framework) -> Iterator[str]:
    yield "\n# Each argument follows the decision of the plan that it comes from."
    yield "settings=("
    there = (each for each in settings if each.value not in ABSENT)
    yield from script.explained(there, lambda each: words(each, framework))
    yield ")"
