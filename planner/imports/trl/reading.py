"""Files of a TRL launch to a job and a placement."""

from collections.abc import Sequence
from dataclasses import replace

from automap.planner.frameworks.description import Framework
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.keys import settings_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.trl.layouts import (
    engine_layout,
    layout_of,
    offload_of,
    pools_of,
    recompute_of,
    serves,
)
from automap.planner.imports.trl.overrides import overrides_of, take
from automap.planner.imports.trl.workload import spec_of
from automap.planner.imports.values import Value, read_argument

_WORDS: dict[str, Value] = {
    **dict.fromkeys(("true", "yes"), True),
    **dict.fromkeys(("false",), False),
    **dict.fromkeys(("none", "null", ""), None),
}


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides, algorithm = overrides_of(files, answers, framework, node.gpus_per_node)
    settings = settings_of(overrides, answers, framework, take, engine="zero", reader=read_word)
    if serves(settings):
        settings.framework = served(framework)
    pools = pools_of(settings, node)
    with reasons_first(settings):
        job = resolved(settings, spec_of(settings, answers, algorithm, pools, node))
        placed = placement_of(
            settings,
            job,
            pools,
            offload=offload_of,
            engine=engine_layout,
            layout=layout_of,
            recompute=recompute_of,
        )
    settings.framework = framework
    return imported(settings, job, placed)


def read_word(text: str) -> Value:
    """A value as TRL's and accelerate's parsers read it: True in any case, and numbers."""
    found = _WORDS.get(text.strip().lower(), text)
    return read_argument(found) if isinstance(found, str) else found


def served(framework: Framework) -> Framework:
    """The framework of a launch whose rollouts are by the server."""
    own = {each.decision for each in framework.settings if "server" in each.keys}
    settings = [
        replace(each, keys={"rollout": each.keys["server"]}) if "server" in each.keys else each
        for each in framework.settings
        if "server" in each.keys or "rollout" not in each.keys or each.decision not in own
    ]
    sleeps = [each for each in settings if each.decision != "engine_sleeps"]
    return replace(framework, settings=tuple(sleeps))
