"""Profiles measured by `automap profile`: which folder a pool may be priced with."""

import json
from pathlib import Path
from typing import Any

from planner.cluster import GpuType
from planner.errors import SpecError

FINGERPRINT = "fingerprint.json"
REMEDY = "give the --output of an automap profile of this GPU type, or leave it out"


def profile_folder(given: str, gpu: GpuType, *, field: str) -> Path:
    """The folder of a profile, once it is one and of this GPU type.

    Raises:
        SpecError: no such folder, no profile in it, nothing measured, or another device's.
    """
    folder = Path(given)
    measured_on = device_type(folder, field=field)
    if measured_on != gpu.name:
        message = f"{given!r} was measured on {measured_on}, the pool has {gpu.name}"
        raise SpecError(field, message, remedy=REMEDY)
    if not any(folder.glob("*.parquet")):
        raise SpecError(field, f"{given!r} has no tables yet", remedy="let automap profile finish")
    return folder


def device_type(folder: Path, *, field: str) -> str:
    """The catalogue's name of the device that a profile was measured on.

    Raises:
        SpecError: there is no profile in the folder.
    """
    document = fingerprint(folder)
    identity = document.get("identity")
    found = identity.get("device_type") if isinstance(identity, dict) else None
    if not isinstance(found, str):
        what = f"no {FINGERPRINT} in it" if not document else f"its {FINGERPRINT} names no device"
        raise SpecError(field, f"{str(folder)!r} holds no profile: {what}", remedy=REMEDY)
    return found


def fingerprint(folder: Path) -> dict[str, Any]:
    """What a profile was measured on and how; empty where that cannot be read."""
    try:
        document = json.loads((folder / FINGERPRINT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def disturbances(folder: Path) -> list[str]:
    """What disturbed a profile while it was measured, in words."""
    sessions = fingerprint(folder).get("sessions") or []
    began = [session.get("began", {}) for session in sessions]
    busy = [state for state in began if state.get("busy")]
    found = []
    if busy:
        worst = max(busy, key=lambda state: state["load"])
        found.append(f"others kept the machine busy (load {worst['load']}, {worst['cores']} cores)")
    if any(session.get("throttled") for session in sessions):
        found.append("the clock slowed down meanwhile")
    return found
