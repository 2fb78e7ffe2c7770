"""How names are compared: spelling of any kind, and what variants of a model are called."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

_VARIANT = re.compile(
    r"-(instruct|chat|base|hf|it|unsloth|thinking|coder|math|fp8|bf16|terminus|2507|0324|0528|1124)(?=-|$)"
)
"""What names of weights say that were trained on, or saved, in another way: the architecture is
the same. A model of such a name with sizes or positions of its own (Qwen3-Coder-480B,
Qwen3-4B-2507) is an entry."""


def normalised(name: str) -> str:
    """How names are compared: lower case; blanks, underscores and slashes count as hyphens."""
    return re.sub(r"[\s_/]+", "-", name.strip().lower())


def of_any_variant(name: str) -> str:
    """A model's name without the organisation before it and without its variant, normalised.

    `meta-llama/Llama-3.1-8B-Instruct` and `Llama-3.1-8B` are both `llama-3.1-8b`.
    """
    organisation, slash, rest = name.strip().partition("/")
    return _VARIANT.sub("", normalised(rest if organisation and slash else name))


def with_fewer_variants(name: str) -> Iterator[str]:
    """A model's name without its organisation, normalised, and then with a variant less each time.

    The last goes first: `Qwen2.5-Math-7B-Instruct` is `qwen2.5-math-7b` before it is `qwen2.5-7b`.
    """
    organisation, slash, rest = name.strip().partition("/")
    left = normalised(rest if organisation and slash else name)
    yield left
    for found in reversed(list(_VARIANT.finditer(left))):
        left = left[: found.start()] + left[found.end() :]
        yield left


def unambiguous(spellings: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """What each spelling stands for, without those that stand for several things."""
    found: dict[str, str] = {}
    several: set[str] = set()
    for spelling, meant in spellings:
        if found.setdefault(spelling, meant) != meant:
            several.add(spelling)
    return MappingProxyType({each: found[each] for each in found if each not in several})
