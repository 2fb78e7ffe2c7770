"""One part of the check, in a process of its own: `python -m benchmarks.gpu_check.part kernels`."""

import argparse
import importlib
import sys
import time
import traceback

from benchmarks.gpu_check.findings import Figures, Finding, NotRunError, State, quiet
from benchmarks.gpu_check.parts import PARTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[part.name for part in PARTS])
    parser.add_argument("--on", choices=["cuda", "cpu"], required=True)
    given = parser.parse_args()
    (part,) = (each for each in PARTS if each.name == given.name)
    with quiet():
        finding = _found(part.name, part.function, given.on)
    sys.stdout.write(f"{finding.written()}\n")


def _found(name: str, function: str, kind: str) -> Finding:
    figures, began = Figures(), time.monotonic()
    state: State
    try:
        import torch

        device = torch.device("cuda", 0) if kind == "cuda" else torch.device("cpu")
        module, _, called = function.partition(":")
        measure = getattr(importlib.import_module(f"benchmarks.gpu_check.{module}"), called)
        measure(device, figures)
    except NotRunError as error:
        state, reason = "not run", str(error)
    except ModuleNotFoundError as error:
        state, reason = "not run", f"{error.name} is not installed"
    except Exception as error:
        traceback.print_exc()
        state, reason = "failed", f"{type(error).__name__}: {error}".splitlines()[0]
    else:
        state, reason = _judged(figures, kind)
    seconds = time.monotonic() - began
    return Finding(name, state, reason, seconds, tuple(figures.all))


def _judged(figures: Figures, kind: str) -> tuple[State, str]:
    broken = [each.what for each in figures.all if not each.holds]
    if broken:
        return "failed", f"outside its limit: {'; '.join(broken)}"
    return ("passed" if kind == "cuda" else "rehearsed"), ""


if __name__ == "__main__":
    main()
