"""Numbers that were written with a unit, where the field's name says the unit already."""

import re

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z][A-Za-z/]*)\s*")
_DATA = re.compile(r"([kKMGTP]?)(i?)(B|bytes?|b|bits?)")
_SECONDS = {"ms": 1e-3, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def in_base_unit(text: str, field: str) -> float | None:
    """The number that a text such as 200Gb/s means in the unit of a field; None: it does not say.

    A link's speed in Gb or GB is one per second, as everybody writes it.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = float(found[1]), found[2]
    if field.endswith("_bytes_per_second"):
        unit = re.sub(r"(/s|/sec|ps)$", "", unit)
        scale = _bytes_of(unit)
    elif field.endswith("_bytes"):
        scale = _bytes_of(unit)
    elif field.endswith("_seconds") or "seconds_per_" in field:
        scale = _SECONDS.get(unit)
    else:
        return None
    return None if scale is None else number * scale


def _bytes_of(unit: str) -> float | None:
    found = _DATA.fullmatch(unit)
    if found is None:
        return None
    base = 1024 if found[2] else 1000
    bits = found[3].startswith("bit") or found[3] == "b"
    return float(base ** _POWERS[found[1]]) / (8 if bits else 1)
