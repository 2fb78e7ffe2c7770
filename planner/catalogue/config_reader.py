"""Typed reading of a configuration from outside; all mistakes together make one error."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automap.planner.errors import SpecError

MAX_SIZE = 10**7
MAX_SHOWN_LENGTH = 60
MAX_MISTAKES = 20


@dataclass(frozen=True, slots=True)
class _Mistake:
    state: str
    """`missing`, `null`, or the value as messages quote it."""
    absent: bool
    valid: str
    """What the key must be."""


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """The keys of one `config.json`; `field` is the path in the spec, `source` the file's name.

    A mistake is recorded, and the least valid value takes the key's place, so that the other keys
    are read as well. Callers must ask `mistakes_error` before they use what was read.
    """

    config: Mapping[str, object]
    field: str
    source: str
    _mistakes: dict[str, _Mistake] = dataclasses.field(default_factory=dict)
    _contradictions: list[SpecError] = dataclasses.field(default_factory=list)

    def size(self, key: str, *, maximum: int = MAX_SIZE) -> int:
        """A whole number from 1 to `maximum` that must be there."""
        return self._required(key, minimum=1, maximum=maximum)

    def count(self, key: str, *, maximum: int = MAX_SIZE) -> int:
        """A whole number from 0 to `maximum` that must be there."""
        return self._required(key, minimum=0, maximum=maximum)

    def optional_size(self, key: str) -> int | None:
        """A whole number from 1 to MAX_SIZE; None where the key is missing or null."""
        return self._whole_number(key, minimum=1, maximum=MAX_SIZE)

    def optional_count(self, key: str) -> int:
        """A whole number from 0 to MAX_SIZE; 0 where the key is missing or null."""
        return self._whole_number(key, minimum=0, maximum=MAX_SIZE) or 0

    def words(self, key: str, *, known: Sequence[str]) -> list[str]:
        """A list of known words; empty where the key is missing or null."""
        found = self.config.get(key)
        if found is None:
            return []
        if isinstance(found, list) and all(word in known for word in found):
            return found
        self._unexpected(key, found, f"a list of {', '.join(known)}")
        return []

    def letters(self, key: str, *, known: str) -> str:
        """A text of known letters; empty where the key is missing or null."""
        found = self.config.get(key)
        if found is None:
            return ""
        if isinstance(found, str) and set(found) <= set(known):
            return found
        self._unexpected(key, found, f"a text of the letters {' '.join(known)}")
        return ""

    def missing(self, key: str, valid: str) -> None:
        """Note that a key is missing which must be there; `valid` says what it must be."""
        self._mistakes.setdefault(key, _Mistake("missing", True, valid))

    def with_defaults(self, values: Mapping[str, object]) -> "ConfigReader":
        """This file with values for keys that it lacks; mistakes are noted in common."""
        return dataclasses.replace(self, config={**values, **self.config})

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false; `default` is the documented one of the model class."""
        found = self.config.get(key)
        if isinstance(found, bool):
            return found
        if found is not None:
            self._unexpected(key, found, "true or false")
        return default

    def layer_indices(self, key: str) -> Sequence[int]:
        """A list of layer numbers from 0; empty where the key is missing or null."""
        found = self.config.get(key)
        if found is None:
            return []
        if isinstance(found, list) and all(
            isinstance(index, int) and not isinstance(index, bool) and index >= 0 for index in found
        ):
            return found
        self._unexpected(key, found, "a list of layer numbers from 0")
        return []

    def layer_flags(self, key: str) -> list[bool]:
        """A list of 0 and 1, one per layer; empty where the key is missing or null."""
        found = self.config.get(key)
        if found is None:
            return []
        if isinstance(found, list) and all(each in (0, 1) for each in found):
            return [bool(each) for each in found]
        self._unexpected(key, found, "a list of 0 and 1")
        return []

    def error(self, message: str, *, remedy: str) -> SpecError:
        """An error about this file."""
        return SpecError(self.field, f"{self.source}: {message}", remedy=remedy)

    def contradiction(self, message: str, *, remedy: str) -> None:
        """Note that keys are at odds; it counts only if every key is right by itself."""
        self._contradictions.append(self.error(message, remedy=remedy))

    def mistakes_error(self) -> SpecError | None:
        """One error about every key that is missing or wrong, or else the first contradiction.

        None where there is neither.
        """
        if not self._mistakes:
            return self._contradictions[0] if self._contradictions else None
        shown = dict(list(self._mistakes.items())[:MAX_MISTAKES])
        absent: dict[str, list[str]] = {}
        needed: dict[tuple[bool, str], list[str]] = {}
        for key, mistake in shown.items():
            needed.setdefault((mistake.absent, mistake.valid), []).append(key)
            if mistake.absent:
                absent.setdefault(mistake.state, []).append(key)
        states = [f"{_listed(keys)} {_are(keys)} {state}" for state, keys in absent.items()]
        states += [f"{key} is {wrong.state}" for key, wrong in shown.items() if not wrong.absent]
        if len(self._mistakes) > len(shown):
            states.append(f"and {len(self._mistakes) - len(shown)} more")
        remedies = [
            f"give {_listed(keys)}, {'each ' if len(keys) > 1 else ''}{valid}"
            if is_absent
            else f"{_listed(keys)} must {'each ' if len(keys) > 1 else ''}be {valid}"
            for (is_absent, valid), keys in needed.items()
        ]
        return self.error("; ".join(states), remedy="; ".join(remedies))

    def _required(self, key: str, *, minimum: int, maximum: int) -> int:
        found = self._whole_number(key, minimum=minimum, maximum=maximum)
        if found is None and key not in self._mistakes:
            state = "null" if key in self.config else "missing"
            valid = f"a whole number from {minimum} to {maximum}"
            self._mistakes[key] = _Mistake(state, True, valid)
        return minimum if found is None else found

    def _whole_number(self, key: str, *, minimum: int, maximum: int) -> int | None:
        found = self.config.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not minimum <= found <= maximum:
            self._unexpected(key, found, f"a whole number from {minimum} to {maximum}")
            return None
        return found

    def _unexpected(self, key: str, found: object, valid: str) -> None:
        self._mistakes[key] = _Mistake(shown(found), False, valid)


def _listed(keys: Sequence[str]) -> str:
    """Names joined as in a sentence: `one, two and three`."""
    return " and ".join([", ".join(keys[:-1]), keys[-1]] if len(keys) > 1 else keys)


def _are(keys: Sequence[str]) -> str:
    return "are" if len(keys) > 1 else "is"


def shown(value: object) -> str:
    """A value as messages quote it: at most 60 characters of it."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of more than 4300 digits
        return "a number too long to print"
    return text if len(text) <= MAX_SHOWN_LENGTH else text[:MAX_SHOWN_LENGTH] + "…"
