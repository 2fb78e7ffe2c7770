"""`automap profile`: the profiler as a child process, its progress and its report shown here."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from automap.planner import catalogue
from automap.planner.catalogue import ModelArchitecture
from automap.planner.errors import SpecError
from automap.profiler.results.profile_report import ClusterReport, ProfileReport, Progress
from automap.profiler.settings import ProfileSettings
from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import ProfileArguments
from automap.service.cli.profile.progress import ProfileProgress
from automap.service.cli.profile.stored import upload
from automap.service.cli.profile.view import print_cluster_report, print_report
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, RunFailedError

DEFAULT_OUTPUT = "automap-profile"
FIELDS = {"budget_seconds": "--budget", "output": "--output", "device": "--device"}


def run_profile(given: ProfileArguments) -> None:
    """Measure this machine, show what was measured, and store it where that is asked for."""
    if given.follow:
        raise BadInputError(
            "--follow: give --on-cluster; a profile of this machine is shown anyway"
        )
    if given.make_default and given.server is None:
        raise BadInputError("--make-default: give --server URL, the service whose default it is")
    _check_installed(given)
    settings = profile_settings(given)
    report = _run(settings, quiet=given.show.quiet)
    profiles = (
        [report] if isinstance(report, ProfileReport) else [it.profile for it in report.kinds]
    )
    stored = []
    if given.server is not None:
        service = Service(given.server, given.api_key)
        for each in profiles:
            stored.append(upload(service, Path(each.folder), make_default=given.make_default))
    if given.show.json:
        document = report.model_dump(mode="json")
        versions = {"stored": [record["version"] for record in stored]} if stored else {}
        console.write_json(json.dumps({**document, **versions}, indent=2))
        _fail_if_incomplete(report)
        return
    if isinstance(report, ClusterReport):
        print_cluster_report(report, quiet=given.show.quiet)
    else:
        print_report(report, quiet=given.show.quiet)
    for record in stored:
        is_default = ", the default" if record["is_default"] else ""
        line = f"{record['device_type']}: stored as {record['version']}{is_default}"
        console.stdout_console().print(line, highlight=False)
    _fail_if_incomplete(report)


def _check_installed(given: ProfileArguments) -> None:
    needed = {"measuring": "torch"}
    if given.ray_address is not None:
        needed = {"--ray-address": "ray", **needed}
    for what, library in needed.items():
        if importlib.util.find_spec(library) is None:
            raise BadInputError(
                f"{what} needs {library}, which this installation lacks",
                ["pip install '.[executor-cpu]', or '.[executor-gpu]' on a machine with GPUs"],
            )


def _fail_if_incomplete(report: ProfileReport | ClusterReport) -> None:
    if isinstance(report, ClusterReport) and report.failures:
        raise RunFailedError(
            "not every kind of node was measured; what was measured is kept",
            [*report.failures, f"start it again to go on: {report.folder}"],
        )


def profile_settings(given: ProfileArguments) -> ProfileSettings:
    try:
        return ProfileSettings(
            output=Path(given.output or DEFAULT_OUTPUT).expanduser().absolute(),
            tables=_names(given.tables or []),
            models={name: _architecture(name) for name in _names(given.models or [])},
            budget_seconds=given.budget,
            device=given.device,
            ranks=given.ranks,
            strict=given.strict,
            ray_address=given.ray_address,
        )
    except ValidationError as error:
        lines = [
            f"{FIELDS.get(str(each['loc'][0]), '--' + str(each['loc'][0]))}: {each['msg']} "
            f"(got {each['input']!r})"
            for each in error.errors()
        ]
        raise BadInputError("the profile cannot be measured", lines) from None


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for each in given for name in each.split(",") if name.strip())


def _architecture(name: str) -> ModelArchitecture:
    try:
        if name.endswith(".json") or name.startswith(("./", "../", "/", "~/")):
            from automap.planner.catalogue import load_config

            return load_config(Path(name).expanduser(), field="--models")
        return catalogue.architecture(name, field="--models")
    except SpecError as error:
        raise BadInputError(str(error)) from None


def _run(settings: ProfileSettings, *, quiet: bool) -> ProfileReport | ClusterReport:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        file = Path(folder) / "settings.json"
        file.write_text(settings.model_dump_json(), encoding="utf-8")
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "automap.profiler.run",
                "--settings",
                str(file),
                "--until-stdin-closes",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            printed = _follow(process, quiet=quiet)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        if "error" in printed:
            raise BadInputError(printed["error"]["headline"], printed["error"]["lines"])
        if code != 0 or "report" not in printed:
            errors.seek(0)
            raise RunFailedError(
                f"the profiler ended with code {code}; what it measured is kept",
                [*errors.read().splitlines()[-5:], f"start it again to go on: {settings.output}"],
            )
        kind = ProfileReport if settings.ray_address is None else ClusterReport
        return kind.model_validate(printed["report"])


def _follow(process: "subprocess.Popen[str]", *, quiet: bool) -> dict[str, Any]:
    """Show the progress; what else the profiler printed last."""
    assert process.stdout is not None
    printed: dict[str, Any] = {}
    with ProfileProgress(quiet=quiet) as bar:
        for line in process.stdout:
            try:
                document = json.loads(line)
            except ValueError:  # half a line: the profiler was killed, as its exit code tells
                break
            if "progress" not in document:
                printed |= document
                continue
            bar.show(Progress.model_validate(document["progress"]))
    return printed
