"""The command of a script that starts a job: which one, and what was not read on the way to it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automap.planner.errors import NotImportableError, Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.launch import Answers, LaunchFile, Remark
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.interpreter import Interpreter
from automap.planner.imports.shell.parser import parse
from automap.planner.imports.shell.syntax import ShellError, Simple, Word
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Reading, Started, Walk

MAX_LISTED = 10
PROGRAM = ".py"
Printed = Callable[[str, Walk, Expander], str | None]
"""What a command substitution of exports prints; None: it is not known."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How scripts start a framework."""

    program_in: Callable[[Sequence[Field]], int | None]
    """The number of the word of a command that names the program; None: it starts none."""
    starts: str
    """How a command begins, with {} for the program."""
    printed: Printed = lambda text, walk, expander: None
    sections: tuple[str, ...] = ()
    """Sections that every configuration of its has, and no other framework's; empty: it has no
    configurations."""
    bases: tuple[str, ...] = ()
    """How names of its own configurations begin, which others inherit from."""
    programs: Callable[[LaunchFile], bool] = lambda _: False
    """Whether a file is a program in Python that is one of its launches."""

    def jobs_of(self, reading: Reading) -> list[tuple[Started, int]]:
        """Commands that start it, each with the number of the word that names the program."""
        found = ((command, self.program_in(command.words)) for command in reading.commands)
        return [(command, place) for command, place in found if place is not None]


def prints(function: str, quote: Callable[[str], str]) -> Printed:
    """What tells that a command substitution is `quoted WORD`, and what that prints.

    Args:
        function: Text of the function `quoted` as exports write it; another one is not known.
        quote: What it does to a word.
    """

    def printed(text: str, walk: Walk, expander: Expander) -> str | None:
        if not text.startswith("quoted ") or walk.reading.texts.get("quoted") != function:
            return None
        try:
            [command] = parse(text).commands
        except (ShellError, ValueError):
            return None
        if not isinstance(command, Simple) or len(command.words) != 2:
            return None
        word = command.words[1]
        value = expander.one(word).text if isinstance(word, Word) else None
        return None if value is None else quote(value)

    return printed


def job_of_scripts(
    files: Sequence[LaunchFile], answers: Answers, framework: Framework, dialect: Dialect
) -> tuple[tuple[Started, int], list[Remark]]:
    """The command that is meant, as `job_of` has it, of a framework that scripts alone start.

    Raises:
        NotImportableError: there is no script; or no job, or several, or a script cannot be read.
    """
    scripts = [each for each in files if each.text]
    if not scripts:
        names = ", ".join(each.name for each in files) or "no file"
        title = framework.summary.partition(":")[0]
        remedy = f"name the script that starts {dialect.starts.format(framework.entry)}"
        reason = Reason(summary=f"{names}: {title} is started by a script alone", remedy=remedy)
        raise NotImportableError(framework.target, [reason])
    return job_of(scripts, answers, framework, dialect)


def job_of(
    scripts: Sequence[LaunchFile], answers: Answers, framework: Framework, dialect: Dialect
) -> tuple[tuple[Started, int], list[Remark]]:
    """The command that is meant, the number of its program's word, and what there is to say.

    Raises:
        NotImportableError: there is none, or several, or a script cannot be read.
    """
    try:
        jobs, remarks = _jobs(scripts, answers, dialect)
    except ShellError as error:
        summary = f"{scripts[0].name}: {error}"
        remedy = "what bash itself would not read is not read here: bash -n FILE"
        raise NotImportableError(
            framework.target, [Reason(summary=summary, remedy=remedy)]
        ) from None
    command, place = _chosen(jobs, remarks, scripts, answers, framework, dialect)
    for line in command.open_lines:
        told = f"whether the condition in line {line} holds is not known; it is taken to"
        remarks.append(Remark(kind="not read", text=told, file=command.source, line=line))
    return (command, place), remarks


def started(files: Sequence[LaunchFile], answers: Answers, dialect: Dialect) -> list[list[str]]:
    """Every command that the scripts start, by its words, with what is unknown by its name."""
    texts = {each.name: each.text for each in files if each.text}
    found = []
    for name in texts:
        reading = Interpreter(texts, answers.values, dialect.printed).read(name)
        found += [[word.shown for word in each.words] for each in reading.commands]
    return found


def starts_in(files: Sequence[LaunchFile], answers: Answers, dialect: Dialect) -> str:
    """Where a launch says that it is a framework's, for messages; empty: nowhere that is read."""
    scripts = [each for each in files if each.text and not each.name.endswith(PROGRAM)]
    if not scripts:
        return _programs_in(files, dialect) or _sections_in(files, dialect)
    try:
        jobs = _jobs(scripts, answers, dialect)[0]
    except ShellError:
        jobs = []
    if not jobs:
        return _sections_in(files, dialect)
    command, place = jobs[0]
    return f"{command.source} line {command.line} starts {command.words[place].shown[:80]}"


def _sections_in(files: Sequence[LaunchFile], dialect: Dialect) -> str:
    """Which of the configurations has the sections of a framework; empty: none."""
    for each in files:
        keys = each.document if isinstance(each.document, dict) else {}
        if dialect.sections and all(section in keys for section in dialect.sections):
            return f"{each.name} has the section {' and '.join(dialect.sections)}"
        for base in bases_of(keys):
            if dialect.bases and base.startswith(dialect.bases):
                return f"{each.name} inherits from {base}"
    return ""


def bases_of(document: Mapping[Any, Any]) -> list[str]:
    """Names of the configurations that one inherits from, without their folders and `.yaml`."""
    given = document.get("defaults")
    named = given if isinstance(given, list) else [given]
    names = (each for each in named if isinstance(each, str))
    return [each.rpartition("/")[2].removesuffix(".yaml") for each in names]


def _programs_in(files: Sequence[LaunchFile], dialect: Dialect) -> str:
    """Which of the files is a program that is a launch; empty: none."""
    name = next((each.name for each in files if each.text and dialect.programs(each)), "")
    return f"{name} is a program with its trainer" if name else ""


def _jobs(
    scripts: Sequence[LaunchFile], answers: Answers, dialect: Dialect
) -> tuple[list[tuple[Started, int]], list[Remark]]:
    """What the scripts start; one that another one reads is not read twice."""
    texts = {each.name: each.text for each in scripts}
    jobs: list[tuple[Started, int]] = []
    remarks: list[Remark] = []
    for script in scripts:
        reading = Interpreter(texts, answers.values, dialect.printed).read(script.name)
        found = dialect.jobs_of(reading)
        if not found and len(scripts) > 1:
            continue
        jobs += found
        if not found and reading.ended is not None:
            file, line = reading.ended
            remarks.append(
                Remark(kind="not read", text="the script ends here", file=file, line=line)
            )
        for file, line, what in reading.remarks:
            remarks.append(Remark(kind="not read", text=what, file=file, line=line))
        for guard, before in reading.guards.items():
            if before == len(reading.commands):
                continue  # Nothing comes after it.
            told = f"what the script exits for here (with {guard.status}) is taken to be mended"
            remarks.append(Remark(kind="assumed", text=told, file=guard.source, line=guard.line))
        for line in dict.fromkeys(reading.passed_on):
            told = "the script's own arguments are taken to be none"
            remarks.append(Remark(kind="assumed", text=told, file=script.name, line=line))
        unset = [name for name in reading.unset if name not in answers.values]
        if unset:
            told = f"variables that the script does not set are not set outside: {', '.join(unset)}"
            remarks.append(Remark(kind="assumed", text=told, file=script.name))
    return jobs, remarks


def _chosen(
    jobs: Sequence[tuple[Started, int]],
    remarks: Sequence[Remark],
    scripts: Sequence[LaunchFile],
    answers: Answers,
    framework: Framework,
    dialect: Dialect,
) -> tuple[Started, int]:
    """The job that is meant.

    Raises:
        NotImportableError: there is none, or several.
    """
    names = ", ".join(each.name for each in scripts)
    if not jobs:
        remedy = f"name the script with {dialect.starts.format(framework.entry)}"
        reasons = [Reason(summary=f"{names}: no command starts {framework.entry}", remedy=remedy)]
        reasons += [
            Reason(summary=f"{each.file} line {each.line}: {each.text}")
            for each in remarks
            if each.kind == "not read"
        ]
        raise NotImportableError(framework.target, reasons)
    number = answers.job or (1 if len(jobs) == 1 else 0)
    if not 1 <= number <= len(jobs):
        words = [{word.shown for word in job.words} for job, _ in jobs]
        listed = []
        for i, (job, _) in enumerate(jobs[:MAX_LISTED]):
            own = [each.shown for each in job.words if each.shown not in words[i - 1]]
            with_own = f" with {own[0][:60]}" if own and len(jobs) > 1 else ""
            listed.append(f"{i + 1}: line {job.line}{with_own}")
        summary = f"{names}: {len(jobs)} jobs are started ({', '.join(listed)})"
        reason = Reason(summary=summary, remedy=f"say which with --job 1 to {len(jobs)}")
        raise NotImportableError(framework.target, [reason])
    return jobs[number - 1]
