"""The CP-SAT solver, imported without pandas until somebody makes a Series of variables.

ortools takes pandas for methods that nothing here calls, and importing it takes longer than most
searches: docs/adr/0031. Everything imports `cp_model` from here.
"""

import builtins
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortools.sat.python import cp_model as cp_model

NAME = "ortools.sat.python.cp_model"


class _Later(type):
    """A class of pandas before pandas is imported: nothing is one until somebody imports it."""

    def __instancecheck__(cls, instance: object) -> bool:
        pandas = sys.modules.get("pandas")
        return pandas is not None and isinstance(instance, getattr(pandas, cls.__name__))

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return getattr(import_module("pandas"), cls.__name__)(*arguments, **named)


class _Pandas(ModuleType):
    """What stands for pandas inside ortools; any but the two classes it names imports pandas."""

    Index = _Later("Index", (), {})
    Series = _Later("Series", (), {})

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("pandas"), name)


def _import(
    name: str,
    globals_: Mapping[str, object] | None = None,
    locals_: Mapping[str, object] | None = None,
    names: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    if name == "pandas" and level == 0:
        return _Pandas(name)
    return builtins.__import__(name, globals_, locals_, names or (), level)


def _imported() -> ModuleType:
    """The module, which alone sees another import statement: no other module is touched."""
    spec = importlib.util.find_spec(NAME)
    if NAME in sys.modules or "pandas" in sys.modules or spec is None or spec.loader is None:
        return import_module(NAME)
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    sys.modules[NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[NAME]
        raise
    vars(import_module(NAME.rpartition(".")[0]))["cp_model"] = module
    return module


if not TYPE_CHECKING:
    cp_model = _imported()
