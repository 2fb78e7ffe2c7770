"""What the keys of a launch are: used, without effect, of another version, unknown."""

import difflib
import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from automap.planner.errors import NotImportableError, Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.interpolations import interpolate
from automap.planner.imports.launch import Answers, ImportedSetting
from automap.planner.imports.settings import Settings
from automap.planner.imports.values import Value, read_value

OFF = ("false", "null", "none", "auto", "")
"""Values of what is not there, and so takes neither time nor memory."""
NEAR = 0.85
"""Likeness from which a key may be meant for another one: 1 is the same."""
NEARER = 0.01
"""By how much more than to any other a key has to be like the one that it is taken for."""
LIKE = 0.7
"""Likeness that each part of such a key has to have."""
ADAPTERS = "LoRA"
"""What a description says of keys that train adapters where none is priced."""


def settings_of(
    overrides: Overrides,
    answers: Answers,
    framework: Framework,
    take: Callable[[Mapping[str, str], Overrides, Framework], None],
    *,
    engine: str = "fsdp",
    reader: Callable[[str], Value] = read_value,
    interpolated: bool = False,
) -> Settings:
    """The settings of a launch, with what the user gave over what its files say.

    Args:
        overrides: What the files say.
        answers: What the user gave.
        framework: What the launch is for.
        take: Sets what the user gave.
        engine: Kind of training engine, where it is known by now.
        reader: Reads a value as the framework does.
        interpolated: References between keys are looked up.
    """
    respell(overrides, answers.respelt)
    renamed(overrides, framework)
    take(answers.values, overrides, framework)
    renamed(overrides, framework)
    if interpolated:
        interpolate(overrides, framework, answers.values)
    return Settings(
        framework,
        overrides,
        answers.values,
        engine=engine,
        reader=reader,
        reasons=overrides.reasons,
    )


def renamed(overrides: Overrides, framework: Framework) -> None:
    """Give settings of an earlier version, which are still read, their name of today."""
    for key, given in list(overrides.given.items()):
        for old, new in framework.renamed.items():
            is_section = old.endswith(".")
            if key == old or (is_section and key.startswith(old)):
                now = new + key.removeprefix(old) if is_section else new
                text = f"{key} is {now} in {framework.target}, which still reads it"
                overrides.remark("replaced", text, given)
                del overrides.given[key]
                overrides.set(replace(given, key=now))
                break


def respell(overrides: Overrides, names: Mapping[str, str]) -> None:
    """Give settings whose key is misspelt the key that is meant."""
    for wrong, right in names.items():
        if wrong in overrides.given and right not in overrides.given:
            overrides.given[right] = replace(overrides.given.pop(wrong), key=right)


def earlier(old: Sequence[Given], framework: Framework, what: str) -> NotImportableError:
    """What refuses a launch of an earlier version: so many of its keys have other names now.

    Args:
        old: Those of its keys that this version has replaced.
        framework: This version.
        what: What its users call keys.
    """
    first = old[0]
    told = f"{first.file} line {first.line} starts an earlier version than {framework.version}"
    names = f"{len(old)} of its {what} have other names now" if len(old) > 1 else "it has old names"
    each = [f"{given.key} is {framework.replaced[given.key] or 'gone'}" for given in old]
    reason = Reason(summary=f"{told}: {names}", remedy=f"rename them: {'; '.join(each)}")
    return NotImportableError(framework.target, [reason])


def classify(settings: Settings, own: Sequence[str] = ()) -> list[ImportedSetting]:
    """Every setting of the launch with what it decides, and a remark on each that decides nothing.

    Call it once all decisions are looked up. Keys of `own` are of the program that is started.
    """
    found = []
    for key, given in settings.overrides.given.items():
        if key in settings.overrides.implied:
            continue
        decides = settings.decides.get(key, "")
        if not decides and not any(fnmatch.fnmatchcase(key, each) for each in own):
            _remark(settings, given)
        found.append(
            ImportedSetting(
                key=key, value=given.value, file=given.file, line=given.line, decides=decides
            )
        )
    return found


def values_of(settings: Settings) -> dict[str, Value]:
    """What verl reads for every key that is described, and has a value where it is left out.

    Call it last: what it finds missing counts no more.
    """
    settings = replace(settings, reasons=[], remarks=[], decides={})
    return {
        settings.key(each.decision, role): settings.value(each.decision, role)
        for each in settings.framework.settings
        for role in each.keys
        if each.engine in (None, settings.engine)
    }


def _remark(settings: Settings, given: Given) -> None:
    """Say of a setting why nothing was made of it; of most there is nothing to say."""
    framework, key = settings.framework, given.key
    if key in framework.without_effect:
        told = f"{key} has no effect; what counts is {framework.without_effect[key]}"
        settings.note("without effect", told, given)
        return
    others = [marks for name, marks in framework.engine_keys.items() if name != settings.engine]
    if any(each in key for marks in others for each in marks):
        told = f"{key} is of the other engine; this launch has {settings.engine}"
        settings.note("without effect", told, given)
        return
    if any(key == each.lstrip("+") for one in framework.settings for each in one.keys.values()):
        return
    now = _replacement(framework, key)
    if now is not None:
        place = (
            f"; in {framework.target} it is {now}"
            if now
            else f", with no place in {framework.target}"
        )
        told = f"{key} is of an earlier version{place}"
        if given.must_exist and not _is_other(framework, key):
            settings.note("does not fit", f"{told}, and does not start with this one", given)
        else:
            settings.note("replaced", told, given)
        return
    what = _unpriced(framework, key)
    if what is not None:
        _note_unpriced(settings, given, what)
    elif not _is_other(framework, key):
        _note_unknown(settings, given)


def _note_unpriced(settings: Settings, given: Given, what: str) -> None:
    """Say what a setting takes that no price has, if it is switched on."""
    framework, value = settings.framework, given.value.strip("'\"").lower()
    default = framework.others.get(given.key, {}).get("default", "")
    costs_off = _matching(framework.unpriced_off, given.key) is not None
    if value == default.lower() or _is_off(value) is not costs_off:
        return
    if what == ADAPTERS:
        told = f"{given.key}: {what}, and the price is that of training all weights"
        settings.note("priced otherwise", told, given)
    else:
        saves = _matching(framework.saves_memory, given.key) is not None
        settings.note("saves memory" if saves else "not priced", f"{given.key}: {what}", given)


def _is_off(value: str) -> bool:
    """Whether a value is that of what is not there; a coefficient of 0 leaves out its term."""
    if value in OFF:
        return True
    try:
        return float(value) == 0
    except ValueError:
        return False


def _note_unknown(settings: Settings, given: Given) -> None:
    framework, key = settings.framework, given.key
    near = _near(framework, key)
    hint = f"; did you mean {near}?" if near else ""
    if given.must_exist:
        told = f"{key[:120]} is no key of {framework.target}, which does not start with it{hint}"
        settings.note("does not fit", told, given)
        return
    told = f"{key[:120]} is not described for {framework.target}, and not read{hint}"
    # So close to a key that decides something, it was hardly meant to decide nothing.
    meant = near and near not in settings.overrides.given
    settings.note("does not fit" if meant else "unknown key", told, given)


def meant(settings: Settings, own: Sequence[str] = ()) -> dict[str, str]:
    """Key that the framework has not → the one of its keys that it is for: no other is as near.

    Keys of `own`, as patterns, are of the program that is started.
    """
    found = dict[str, str]()
    given = settings.overrides.given
    for key in _unknown(settings):
        if not any(fnmatch.fnmatchcase(key, each) for each in own):
            near = _nearest(settings.framework, key)
            if near and near not in given and near not in found.values():
                found[key] = near
    return found


def _nearest(framework: Framework, key: str) -> str:
    """The key, whatever it decides, that one is nearest to; empty: to none, or to several."""
    known = {each.lstrip("+") for one in framework.settings for each in one.keys.values()}
    known |= framework.others.keys() | {each for each in framework.other_keys if "*" not in each}
    near = difflib.get_close_matches(key[:200], known, 2, NEAR)
    several = len(near) > 1 and _likeness(near[0], key) < _likeness(near[1], key) + NEARER
    return "" if not near or several or not _is_like(near[0], key) else near[0]


def _is_like(known: str, key: str) -> bool:
    """Whether each part of a key is like that of another one: what is long in common hides much."""
    ours, theirs = known.split("."), key.split(".")
    alike = (_likeness(*both) >= LIKE for both in zip(ours, theirs, strict=False))
    return len(ours) == len(theirs) and all(alike)


def _likeness(known: str, key: str) -> float:
    return difflib.SequenceMatcher(None, known, key[:200]).ratio()


def _unknown(settings: Settings) -> Iterator[str]:
    framework = settings.framework
    for key in settings.overrides.given:
        if key in framework.without_effect or _is_known(framework, key):
            continue
        if _replacement(framework, key) is None:
            yield key


def misspelt(settings: Settings) -> list[Reason]:
    """Keys that the framework has not, each close to one that it has: what is missing may be it."""
    framework, found = settings.framework, list[Reason]()
    for key in _unknown(settings):
        given, near = settings.overrides.given[key], _near(framework, key)
        if near and near not in settings.overrides.given:
            where = f"{key[:120]} (line {given.line})" if given.line else key[:120]
            told = f"{where} is no key of {framework.target}"
            found.append(Reason(summary=told, remedy=f"did you mean {near}?"))
    return found


def _near(framework: Framework, key: str) -> str:
    """The described key that one is close to; empty: none is."""
    known = [each.lstrip("+") for one in framework.settings for each in one.keys.values()]
    return next(iter(difflib.get_close_matches(key[:200], known, n=1, cutoff=NEAR)), "")


def _unpriced(framework: Framework, key: str) -> str | None:
    """What a key decides that takes time or memory and no price knows; None: nothing."""
    tables = (framework.saves_memory, framework.unpriced_off, framework.unpriced)
    found = (_matching(table, key) for table in tables)
    return next((what for what in found if what is not None), None)


def _matching(patterns: Mapping[str, str], key: str) -> str | None:
    """What the first pattern that a key has stands for; None: it has none of them."""
    found = (what for pattern, what in patterns.items() if fnmatch.fnmatchcase(key, pattern))
    return next(found, None)


def _replacement(framework: Framework, key: str) -> str | None:
    """What took the place of a key of an earlier version, empty for nothing; None: it is none."""
    for old, new in framework.replaced.items():
        if key == old or (old.endswith(".") and key.startswith(old)):
            if not new.endswith("."):
                return new
            # A section may have lost keys on its way.
            now = new + key.removeprefix(old)
            return now if _is_known(framework, now) else ""
    return None


def _is_known(framework: Framework, key: str) -> bool:
    """Whether the framework has a key, whatever it decides."""
    return (
        any(key == each.lstrip("+") for one in framework.settings for each in one.keys.values())
        or _unpriced(framework, key) is not None
        or _is_other(framework, key)
    )


def _is_other(framework: Framework, key: str) -> bool:
    """True for a key that the framework has, and that decides nothing of a plan."""
    matches = (fnmatch.fnmatchcase(key, pattern) for pattern in framework.other_keys)
    return key in framework.others or any(matches)
