"""Python that a user names by a file or a module, imported."""

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType


def load_module(place: str) -> ModuleType:
    """Import the module of `file.py`, or of a name on the Python path.

    Raises:
        Exception: whatever the module's code raises while it is imported.
    """
    if not place.endswith(".py"):
        return importlib.import_module(_moved(place))
    path = Path(place)
    # A name of its own: the file's may be that of a module which it imports itself.
    spec = importlib.util.spec_from_file_location(f"automap_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, for one, look their module up while it runs. Afterwards it must be gone: pickle
    # would send functions of a module that it finds there by name, which no worker could import.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop(spec.name, None)
    return module


_MOVED = {
    "executor.tasks": "automap.executor.tiny.tasks",
    **{
        f"planner.algorithms.{name}": f"automap.planner.dataflow.algorithms.{name}"
        for name in ("ppo", "grpo", "remax", "rloo", "dapo", "safe_rlhf", "reinforce_plus_plus")
    },
}
"""Modules that settings of earlier versions name, by their old name, and where they are now."""


def _moved(name: str) -> str:
    if name not in _MOVED:
        return name
    warnings.warn(f"{name} is now {_MOVED[name]}: name that", FutureWarning, stacklevel=3)
    return _MOVED[name]
