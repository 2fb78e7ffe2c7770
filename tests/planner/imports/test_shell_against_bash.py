"""The reader of scripts against bash itself: the words that a stub command is given."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from automap.planner.imports.shell.interpreter import Interpreter
from tests.helpers.shell_scripts import scripts

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="no bash")
STUB = """#!{bash}
printf '%s\\0' "$@" END >> "$RECORD"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the one command that scripts of these tests start."""
    folder = tmp_path_factory.mktemp("tools")
    stub = folder / "start"
    stub.write_text(STUB.format(bash=BASH), encoding="utf-8")
    stub.chmod(0o755)
    return folder


def by_bash(script: str, tools: Path) -> list[list[str]]:
    """The words of each start, when bash runs the script with nothing else to run."""
    record = tools / "record"
    record.write_bytes(b"")
    done = subprocess.run(
        [BASH, "--norc", "-c", script],
        env={"PATH": str(tools), "RECORD": str(record)},
        cwd=tools,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert not done.stderr, done.stderr
    calls: list[list[str]] = [[]]
    for word in record.read_bytes().decode().split("\0")[:-1]:
        calls.append([]) if word == "END" else calls[-1].append(word)
    return calls[:-1]


def by_reading(script: str) -> list[list[str | None]]:
    """The words of each start, by reading."""
    found = Interpreter({"script": script}, {}, lambda *_: None).read("script")
    starts = [each.words for each in found.commands if each.words[0].text == "start"]
    return [[word.text for word in words[1:]] for words in starts]


@settings(
    max_examples=int(os.environ.get("SHELL_EXAMPLES", "100")),
    # The same ones every time, unless more are asked for.
    derandomize="SHELL_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=scripts())
def test_words_are_those_that_bash_gives(script: str, tools: Path) -> None:
    assert by_reading(script) == by_bash(script, tools)


HANDWRITTEN = (
    "A=1; start $A",
    'A=\'x  y\'; start $A "$A" a$A"$A"b',
    'A=(1 "2 3" 4); A+=(5); start "${A[@]}" ${A[1]} "${#A[@]}" ${A[@]}',
    'A=("a b" c); B=("${A[@]}" d); start "${B[@]}"',
    'start "${A:-x y}" ${A:-x y} "${A:-"x y"}" ${A-p} ${A:-"q  r" s}',
    'A=; start "${A:-x}" "${A-x}" "${A:+y}" "${A+y}" $A "$A"',
    "start ${A:=5} $A",
    "A=a; start ${A:+${A:+''}} ${B:-${B:-'x y' z}}",
    'M=Org/Name-7B; start "${M##*/}" "${M#*/}" "${M%%-*}" "${M%/*}" ${M,,} ${M^^}',
    "A=8; B=3; start $((A*B)) $(( (A+B) / 2 )) $((A%B)) $((-A/B)) $((A>B?1:2)) $((2**5))",
    "A=010; start $((A)) $((0x1f)) $(( $A + 1 ))",
    'start \'it\'"\'"\'s\' "a\\"b" "a\\$b" \'a\\b\' a\\ b "\\n"',
    "start a=b c.d=\"e f\" '+x=[1,2]' ~y ++z=1",
    "start \\\n  a \\\n  b # c\nstart d",
    'if [ "$A" = x ]; then B=1; else B=2; fi; start $B',
    'A=5; if [ $A -gt 4 ] && [ "$A" != 6 ]; then start big; elif true; then start small; fi',
    'A=5; if [[ $A == 5* && -n "$A" ]]; then start yes; fi',
    'A=5; if [[ -z "$A" || $A = 5 ]]; then start o; fi',
    'A=meg; case "$A" in fsdp|dp) B=1;; m*) B=2;; *) B=3;; esac; start $B',
    'for i in 1 "2 3" x a=b; do start $i; done; case a=b in a=*) start c=d;; esac',
    'f() { local X=$1; start "$X" "$@" $#; }; f a "b c"',
    'f() { start "$@" last; }\nf 1 2; f',
    'f() { local A=$1; shift; start $A "$@"; shift 2; start "$#" "$@"; }; f 1 "2 3" 4 5',
    'A=(1 2); A=("${A[@]}" 3); start "${A[@]}"',
    'A=(\n  a=1   # one\n  # two\n  \'b=["x","y"]\'\n)\nstart "${A[@]}"',
    'A=abc; start "${A:1}" "${A:0:2}" ${#A}',
    'A=x; B=A; start "${!B}"',
    '[ -n "$A" ] && start no; [ -z "$A" ] && start yes || start other',
    "A=1 B=2; export C=$A$B D; start $C",
    "A='a b'; export B=$A; start \"$B\"",
    "start a > /dev/null 2>&1 b; (start c); { start d; }",
    "cat() { :; }; cat <<EOF\nstart no $A\nEOF\nstart yes",
    'A=(x); start "${A[@]}" ${A[0]} "${A}" $A',
    'E=(); start "${E[@]}" x ${E[@]+"${E[@]}"}',
    "start 'a'b\"c\"d$'e'",
    "unset A; A+=x; A+=y; start $A",
    'A[0]=p; A[1]=q; start "${A[@]}"',
    'eval \'A=1 B="2 3"\'; start $A "$B"',
    "X='start a b'; $X c; eval \"$X d\"",
)


@pytest.mark.parametrize("script", HANDWRITTEN)
def test_words_of_usual_forms(script: str, tools: Path) -> None:
    assert by_reading(script) == by_bash(script, tools)
