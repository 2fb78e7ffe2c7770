"""The shell script of an OpenRLHF launch: Ray on the plan's nodes, and the run that it submits."""

import shlex
from collections.abc import Iterable, Iterator

from automap.planner.exports import script
from automap.planner.exports.arguments import ABSENT
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.script import comment
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
        "ray job submit --address=http://127.0.0.1:8265 -- \\\n"
        f'  python3 -m {framework.entry} "${{settings[@]}}"',
    ]
    return "\n".join(parts) + "\n"


def _settings(settings: Iterable[LaunchSetting], framework: Framework) -> Iterator[str]:
    yield "\n# Each argument follows the decision of the plan that it comes from."
    yield "settings=("
    because = ""
    for each in settings:
        if each.value in ABSENT:
            continue
        if each.because != because:
            yield from comment(each.because, first="  # ", further="  #   ")
            because = each.because
        yield f"  {_words(each, framework)}"
    yield ")"


def _words(setting: LaunchSetting, framework: Framework) -> str:
    """An argument as the shell reads it; a text that people gave cannot become another one."""
    [described] = {s.type for s in framework.settings if setting.key in s.keys.values()}
    if setting.placeholder:
        return f'{setting.key}="${setting.value}"'
    if described == "flag":
        return setting.key
    words = setting.value.split() if described == "numbers" else [setting.value]
    return " ".join([setting.key, *map(shlex.quote, words)])
