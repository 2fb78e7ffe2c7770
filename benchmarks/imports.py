"""Of the launches of benchmarks.launch_corpus, how many are imported, and why the others are not.

    python -m benchmarks.imports [--target verl@0.9.1] [--prices]

Every launch is given a GPU type and lengths, which none has; then, where it is not imported, also
the options that its file names. With --prices each is priced as well. The command exits with 1
where less than 90 % are imported without help, or one is not with it.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from automap import estimate
from automap.planner import Imported, import_launch
from automap.planner.errors import InfeasibleError, NotImportableError, SpecError
from automap.planner.frameworks import framework_names
from automap.planner.imports import Answers
from automap.planner.spec import LengthSpec
from benchmarks.launch_corpus import Written, corpus, file_of

TARGET = "verl@0.9.1"
WANTED = 0.9
"""Share that is to be imported without help."""


def imported(
    written: Written, help: Sequence[str] = (), target: str = TARGET
) -> Imported | list[str]:
    """The launch, or why it is not one."""
    values: dict[str, str] = {}
    models: dict[str, str] = {}
    job, files = None, list(written.files)
    for option, value in zip(help[::2], help[1::2], strict=True):
        name, _, given = value.partition("=")
        if option == "--job":
            job = int(value)
        elif option == "--file":
            files.append(file_of(value))
        else:
            (models if option == "--model" else values)[name] = given
    lengths = {"prompt_length": _lengths(200), "response_length": _lengths(400)}
    try:
        answers = Answers("h100", values, models=models, job=job, **lengths)
        return import_launch(files, target, answers)
    except NotImportableError as error:
        return [reason.summary for reason in error.reasons]


def _lengths(mean: int) -> LengthSpec:
    """A mean; the launch has the maximum."""
    fields = dict.fromkeys(LengthSpec.model_fields)
    return LengthSpec.model_construct(None, **{**fields, "mean": float(mean)})


def _priced(found: Imported) -> str:
    try:
        return f"{estimate(found.spec, found.placement).iteration_seconds:.1f} s"
    except InfeasibleError:
        return "does not fit"
    except SpecError as error:
        return f"cannot be priced: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=TARGET, choices=framework_names())
    parser.add_argument("--prices", action="store_true")
    given = parser.parse_args()
    target = given.target
    console = Console(highlight=False, width=160)
    launches, began = corpus(target.partition("@")[0]), time.perf_counter()
    alone = {each.name: imported(each, target=target) for each in launches}
    seconds = time.perf_counter() - began
    helped = {each.name: imported(each, each.help, target) for each in launches}
    for name, found in alone.items():
        if isinstance(found, list):
            console.print(f"{name}: {'; '.join(found)}", markup=False)
    for name, found in helped.items():
        if isinstance(found, list):
            console.print(f"with help, {name}: {'; '.join(found)}", markup=False)
        elif given.prices:
            console.print(f"{name}: {_priced(found)}", markup=False)
    good = [sum(not isinstance(found, list) for found in each.values()) for each in (alone, helped)]
    shares = [each / len(launches) for each in good]
    console.print(
        f"{len(launches)} launches: {good[0]} imported without help ({shares[0]:.0%}), {good[1]} "
        f"with it ({shares[1]:.0%}); {1000 * seconds / len(launches):.0f} ms each"
    )
    sys.exit(0 if shares[0] >= WANTED and shares[1] == 1 else 1)


if __name__ == "__main__":
    main()
