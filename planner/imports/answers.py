"""What a launch leaves open and the user says: models by name, and lengths."""

from collections.abc import Collection

from automap.planner import catalogue
from automap.planner.imports.launch import Answers
from automap.planner.imports.settings import Settings
from automap.planner.spec import LengthSpec


def architecture_of(settings: Settings, answers: Answers, role: str) -> object:
    """The model of a role, by the user's word, or by its path's name in the catalogue."""
    settings.decides.setdefault(settings.key("model", role), "folder of the model")
    if role in answers.models:
        named = answers.models[role]
        return named if isinstance(named, str) else named.model_dump(mode="json")
    given = settings.given("model", role)
    # The name of a folder is enough, wherever it lies.
    last = given.value.rstrip("/").rpartition("/")[2] if given is not None else ""
    if given is None or (given.unknown is not None and (not last or "${" in last)):
        shown = "is not set" if given is None else f"is {given.value[:60]}"
        settings.ask(f"{settings.where('model', role)} {shown}", f"--model {role}=NAME|config.json")
        return "qwen2.5-7b"
    path = last if given.unknown is not None else settings.text("model", role).rstrip("/")
    cached = [each for each in path.split("/") if each.startswith("models--")]
    for name in (path, "/".join(path.split("/")[-2:]), path.rpartition("/")[2], *cached):
        found = catalogue.find_model(name.replace("models--", "").replace("--", "/"))
        if found is not None:
            return found.name
    settings.ask(
        f"{settings.where('model', role)} is {path[:80]!r}, which the catalogue does not know",
        f"--model {role}=NAME|config.json",
    )
    return "qwen2.5-7b"


def need_known_models(settings: Settings, answers: Answers, found: Collection[str]) -> None:
    """Ask about models that the user names and the launch has not; one of a reference is spare."""
    for role in sorted(answers.models.keys() - {"reference", *found}):
        if not answers.spare_models:
            told = f"--model {role}: the launch has no such model"
            settings.ask(told, f"one of {', '.join(found)}")


def lengths_of(
    settings: Settings, given: LengthSpec | None, what: str, longest: int | None = None
) -> LengthSpec:
    """A length with the launch's maximum, `longest`; the launch has no other number of it."""
    longest = longest or settings.size(f"{what}_length")
    if given is None:
        option = "--lengths" if what == "response" else "--prompt-lengths"
        settings.ask(
            f"no launch says how long {what}s are, only that they end at {longest} tokens",
            f"{option} mean=TOKENS (or p50, p90, p99), or --log FILE",
        )
        return LengthSpec(mean=float(max(longest // 2, 1)), max=longest)
    if given.histogram is not None or given.max is not None:
        return given
    known = {name: getattr(given, name) for name in ("mean", "p50", "p90", "p99")}
    if given.mean is not None and given.mean > longest:
        option = "--lengths" if what == "response" else "--prompt-lengths"
        settings.ask(
            f"{option} mean={given.mean:g} is above the launch's longest of {longest} tokens",
            f"{option} mean= at most {longest}",
        )
    cut = {name: min(value, float(longest)) for name, value in known.items() if value is not None}
    if any(value > longest for value in known.values() if value is not None):
        settings.assume(f"{what}s end at the launch's {longest} tokens")
    return LengthSpec(**cut, max=longest)
