"""Files of a TRL launch to a job and a placement."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from automap.planner.errors import NotImportableError, SpecError
from automap.planner.frameworks.description import Framework
from automap.planner.imports.keys import classify, values_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile, Whereabouts
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import assume_hardware, resolved
from automap.planner.imports.settings import Settings
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
    take(answers.values, overrides, framework)
    settings = Settings(
        framework,
        overrides,
        answers.values,
        engine="zero",
        reader=read_word,
        reasons=list(overrides.reasons),
    )
    if serves(settings):
        settings.framework = served(framework)
    pools = pools_of(settings, node)
    try:
        job = resolved(settings, spec_of(settings, answers, algorithm, pools, node))
        placement, cache = placement_of(
            settings,
            job,
            pools,
            offload=offload_of,
            engine=engine_layout,
            layout=layout_of,
            recompute=recompute_of,
        )
    except (ValidationError, SpecError):
        if settings.reasons:
            raise NotImportableError(framework.target, settings.reasons) from None
        raise
    if settings.reasons:
        raise NotImportableError(framework.target, settings.reasons)
    settings.framework = framework
    assume_hardware(settings, job)
    places = {
        key: (given.file, *given.place)
        for key, given in overrides.given.items()
        if given.place is not None
    }
    return Imported(
        target=framework.target,
        file=overrides.file,
        line=overrides.line,
        spec=job.spec,
        placement=placement,
        cache_bytes=cache,
        settings=classify(settings),
        remarks=[*overrides.remarks, *settings.remarks],
        values=values_of(settings),
        whereabouts=Whereabouts(overrides.end, places),
    )


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
