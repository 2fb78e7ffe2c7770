"""The reader of scripts: what it leaves unknown, and what it never does."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from automap.planner.imports.shell.interpreter import Interpreter
from automap.planner.imports.shell.syntax import ShellError
from automap.planner.imports.shell.walk import Reading


def read(script: str, *others: tuple[str, str], **given: str) -> Reading:
    scripts = {"launch.sh": script} | dict(others)
    return Interpreter(scripts, given, lambda *_: None).read("launch.sh")


def words(reading: Reading) -> list[str]:
    return [word.shown for word in reading.commands[-1].words]


def test_what_only_a_machine_knows_is_named_by_its_variable() -> None:
    found = read("GPUS=$(nvidia-smi -L | wc -l)\nstart n=$GPUS m=$((GPUS * 2)) k=$HOSTS\n")
    assert words(found) == ["start", "n=${GPUS}", "m=${GPUS}", "k=${HOSTS}"]
    unknown = [word.unknown for word in found.commands[0].words]
    assert [each and (each.line, each.unset) for each in unknown] == [
        None,
        (1, False),
        (1, False),
        (2, True),
    ]


def test_what_the_user_gives_wins() -> None:
    script = (
        "GPUS=$(nvidia-smi -L | wc -l)\nN=${N:-1}\nif [ $N -gt 1 ]; then A=x; fi\nstart $GPUS$A"
    )
    assert words(read(script, GPUS="8", N="2")) == ["start", "8x"]


def test_what_a_condition_leaves_open_is_unknown_after_it() -> None:
    script = "A=1; B=1\nif ping -c 1 host; then A=2; else A=3; fi\nstart $A $B"
    found = read(script)
    assert words(found) == ["start", "${A}", "1"]
    assert "line 2" in found.commands[-1].words[1].unknown.why  # type: ignore[union-attr]
    assert words(read(script, A="5")) == ["start", "5", "1"]


def test_a_job_under_an_open_condition_says_so() -> None:
    found = read("if nvidia-smi; then\n  start a\nfi")
    assert [each.open_lines for each in found.commands if each.words[0].text == "start"] == [(1,)]


def test_only_files_that_are_named_are_read(tmp_path: Path) -> None:
    script = f"source {tmp_path}/models.sh\n. $(dirname $0)/env.sh\nstart $A $B"
    (tmp_path / "models.sh").write_text("A=secret", encoding="utf-8")
    found = read(script)
    assert words(found) == ["start", "${A}", "${B}"]
    assert [line for _, line, _ in found.remarks] == [1, 2]
    both = read(script, ("models.sh", "A=1"), ("somewhere/env.sh", "B=2"))
    assert words(both) == ["start", "1", "2"]


def test_nothing_is_run(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    touch = f"touch {owned}"
    script = f"""
A=$({touch}); B=`{touch}`; eval "{touch}"; bash -c "{touch}"; X[$({touch})]=1
start "$({touch})" $((A[$({touch})])) ${{A:-$({touch})}} <({touch})
cat <<EOF
$({touch})
EOF
"""
    read(script)
    assert not owned.exists()


def test_a_line_that_ends_a_command_by_mistake_is_named() -> None:
    found = read("start a.b=1 \\\n  # a comment\n  c.d=2 \\\n  e.f=3\n")
    assert [(line, what[:3]) for _, line, what in found.remarks] == [(3, "c.d")]


HOSTILE = {
    "a loop of a script into itself": ". launch.sh\n. launch.sh\n",
    "a function that calls itself": "f() { f; f; }; f",
    "doubling": "A=aaaaaaaa\n" + "A=$A$A\n" * 40 + "start $A",
    "doubling arrays": "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + "start",
    "nested loops": "".join(f"for i{n} in 1 2 3 4 5 6 7 8 9; do " for n in range(8)),
    "nested expansions": "start " + "${A:-" * 5000 + "}" * 5000,
    "nested substitutions": "start " + "$(" * 50_000,
    "nested arithmetic": "start " + "$((" * 5000 + "1" + "))" * 5000,
    "parentheses": "(" * 50_000,
    "braces": "{ " * 50_000,
    "quotes": '"' * 50_001,
    "ifs": "if " * 50_000,
    "a function's definitions": "f() " * 20_000,
    "binary": "\x7fELF\0\0",
    "megabytes": "A=1\n" * 300_000,
    "a power": "start $((2**2**2**2**2**2))",
    "digits": f"start $(({'9' * 10_000}))",
    "cuts": "A=" + "ab" * 4000 + "\nstart ${A%%*a*a*a*a*a*b}",
    "heredocs": "cat <<A <<B\n" * 1000,
    "backslashes": "\\" * 100_001,
    "cases": "case a in " * 10_000,
    "tests": "if [ " + "a -o " * 20_000 + "b ]; then start; fi",
    "ands": "start" + " && start" * 30_000,
    "negations": "! " * 30_000 + "start",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scripts_end_soon(name: str) -> None:
    script = HOSTILE[name]
    if name == "nested loops":
        script += "start" + "; done" * 8
    began = time.process_time()
    with suppress(ShellError):
        read(script)
    # Each takes under a second; what grows without bounds takes hours.
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("A=1\nstart 'a", 2),
        ('A=1\n\nstart "a', 3),
        ("if true; then\nstart\n", 1),
        ("A=(1\n2\n", 1),
        ("start ${A:-b", 1),
        ("A=1\nfi )", 2),
        ("start\n)\n", 2),
        ("start\n;; start", 2),
        ("start\n(;;)", 2),
        ("case a in\nb) start\n", 1),
    ],
)
def test_what_is_no_script_is_named_with_its_line(script: str, line: int) -> None:
    with pytest.raises(ShellError) as caught:
        read(script)
    assert caught.value.line == line


def test_parentheses_inside_one_another_are_bounded() -> None:
    assert words(read("start $((" + "(" * 8 + "1" + ")" * 8 + "))")) == ["start", "1"]
    [_, deep] = read("start $((" + "(" * 90 + "1" + ")" * 90 + "))").commands[-1].words
    assert "inside one another" in deep.shown


def test_a_script_that_is_read_again_and_again_ends() -> None:
    loop = "for i in " + " ".join("1" * 500) + "; do source env.sh; done\nstart $A"
    scripts = {"launch.sh": loop, "env.sh": "A=1\n" + "# long\n" * 1000}
    with pytest.raises(ShellError, match="expands to more than"):
        Interpreter(scripts, {}, lambda *_: None).read("launch.sh")
    scripts["env.sh"] = "A=1\n"
    assert words(Interpreter(scripts, {}, lambda *_: None).read("launch.sh")) == ["start", "1"]


def test_a_guard_that_ends_the_script_is_told_and_read_on() -> None:
    found = read('if [ -z "$MODEL" ]; then exit 1; fi\nstart a')
    assert words(found) == ["start", "a"]
    assert (found.guards, found.remarks) == ({("launch.sh", 1, 1): 0}, [])


def test_a_status_of_any_length_is_read() -> None:
    assert read("exit " + "1" * 5000).guards == {("launch.sh", 1, 11111111 % 256): 0}
    assert read("exit 256\nstart a").commands == []
