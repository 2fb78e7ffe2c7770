"""Typed reading of a configuration from outside: each mistake names its key, file and remedy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import SpecError

MAX_SIZE = 10**7
MAX_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """The keys of one `config.json`; `field` is the path in the spec, `source` the file's name."""

    config: Mapping[str, object]
    field: str
    source: str

    def size(self, key: str, *, maximum: int = MAX_SIZE) -> int:
        """A whole number from 1 to `maximum` that must be there.

        Raises:
            SpecError: the key is missing, null, of another type, or out of range.
        """
        return self._required(key, minimum=1, maximum=maximum)

    def count(self, key: str, *, maximum: int = MAX_SIZE) -> int:
        """As `size`, but 0 is allowed."""
        return self._required(key, minimum=0, maximum=maximum)

    def optional_size(self, key: str, *, maximum: int = MAX_SIZE) -> int | None:
        """As `size`, but None where the key is missing or null."""
        return self._whole_number(key, minimum=1, maximum=maximum)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false; `default` is the documented one of the model class.

        Raises:
            SpecError: the key has a value of another type.
        """
        found = self.config.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self._unexpected(key, found, "true or false")
        return found

    def layer_indices(self, key: str) -> Sequence[int]:
        """A list of layer numbers; empty where the key is missing or null.

        Raises:
            SpecError: the value is no list of whole numbers from 0.
        """
        found = self.config.get(key)
        if found is None:
            return []
        if not isinstance(found, list) or not all(
            isinstance(index, int) and not isinstance(index, bool) and index >= 0 for index in found
        ):
            raise self._unexpected(key, found, "a list of layer numbers from 0")
        return found

    def error(self, message: str, *, remedy: str) -> SpecError:
        """The error to raise about this file."""
        return SpecError(self.field, message, remedy=remedy)

    def _required(self, key: str, *, minimum: int, maximum: int) -> int:
        found = self._whole_number(key, minimum=minimum, maximum=maximum)
        if found is None:
            state = "null" if key in self.config else "missing"
            raise self.error(
                f"{self.source}: {key} is {state}",
                remedy=f"give {key}, a whole number from {minimum} to {maximum}",
            )
        return found

    def _whole_number(self, key: str, *, minimum: int, maximum: int) -> int | None:
        found = self.config.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not minimum <= found <= maximum:
            raise self._unexpected(key, found, f"a whole number from {minimum} to {maximum}")
        return found

    def _unexpected(self, key: str, found: object, valid: str) -> SpecError:
        return self.error(
            f"{self.source}: {key} is {shown(found)}", remedy=f"{key} must be {valid}"
        )


def shown(value: object) -> str:
    """A value as messages quote it: at most 60 characters of it."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of more than 4300 digits
        return "a number too long to print"
    return text if len(text) <= MAX_SHOWN_LENGTH else text[:MAX_SHOWN_LENGTH] + "…"
