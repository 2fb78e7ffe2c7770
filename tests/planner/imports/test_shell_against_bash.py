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


@pytest.mark.slow
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


FOLLOWED = r"""
M=Org-7B; if [[ "$M" == *"7B"* ]]; then N=8; else N=16; fi; start $N
M=Org-7B; case "$M" in *"7B"*) N=8;; *) N=16;; esac; start $N
M=Org-7B; P=Org; case "$M" in "$P"*) N=8;; *) N=16;; esac; start $N
M=Org-7B; P=Org; if [[ $M == ${P}* ]]; then N=8; else N=16; fi; start $N
M='*b'; if [[ 'ab' == "$M" ]]; then N=1; elif [[ ab == $M ]]; then N=2; fi; start $N
A=foobar; start ${A%"bar"} ${A#"f"*} ${A%%[^f]*}
f() { if [ "$1" = a ]; then N=1; return; fi; N=2; }; f a; start $N
f() { return 1; }; if f; then N=1; else N=2; fi; start $N
for x in 1 2 3; do N=$x; break; done; start $N
for x in 1 2; do for y in 1 2; do break 2; done; done; start $x $y
for x in 1 2 3; do if [ $x = 1 ]; then continue; fi; A=p$x; done; start $A
start one; exit 0; start two
f() { n=$1; shift; start n=$n "$@"; set -- q r; start "$@"; }; f x a=1 b=2
set -- a=1 b=2; start "$@" $#; shift; start $1; set -euo pipefail; start "$@"
X=(a=1 b=2 c=3); start "${X[@]:1}" "${X[@]:0:2}"
f() { start "${@:2}" ${@:2:1}; }; f name 'a b' c
f() { local N=4; start $N; }; N=8; f; start $N
f() { local N=4; g; start $N; }; g() { N=5; }; N=8; f; start $N
N=8; (N=4; cd /); start $N
N=8; : | N=4; start $N
f() ( A=2 ); A=1; f; start $A
A=1; (exit 1) || A=2; start $A
A=1; f() { start $A; }; A=2 f; start $A
if [ -n $A ]; then N=1; else N=2; fi; start $N
A=010; if [ $A -eq 10 ]; then N=1; else N=2; fi; start $N
A=false; B=0; $A && B=1; start $B
A=a; case $A in a) C=1;;& *) C=2;; esac; start $C
A=a; case $A in a) C=1;& b) D=2;; *) C=3;; esac; start $C $D
A=0; export A=1 B=x$A; start $A $B
export "A=1 2"; start "$A"
A=3; until false; do A=$((A-1)); if [ $A = 1 ]; then break; fi; done; start $A
A=3; while [ $A -gt 0 ]; do A=$((A-1)); done; start $A
A=0; ! true && A=1; ! false && B=2; start a$A $B
A=5; (( A > 3 )) && B=1; start $A $B
A=1; f() { exit 0; }; (f); start $A
""".strip().splitlines()
"""What leaves, scopes and patterns are followed."""


@pytest.mark.parametrize("script", FOLLOWED)
def test_what_bash_leaves_and_matches_is_followed(script: str, tools: Path) -> None:
    assert by_reading(script) == by_bash(script, tools)


UNKNOWN = r"""
N=3; start $((--N)) $N
N=3; B=$((N+=2)); start $B $N
N=2; let N=N*2; start $N
N=2; ((N*=2)); start $N
A=1,2,3; IFS=,; for x in $A; do B=$x; done; start $B
X=(1 2); IFS=,; start "${X[*]}"
A=3; B=$[A+1]; start $B
declare -i A=3; A+=2; start $A
X=([0]=a [1]=b); start ${X[0]}
declare -A M=([a]=1 [b]=2); start ${M[a]}
X=(a b); unset 'X[0]'; start "${X[@]}"
X=(a b); start "${X[@]/#/--}"
X=(a b); start "p${X[@]}"
A=x; B=x; for ((i=0;i<2;i++)); do B=$A; A=y; done; start $B
A=x; B=x; while read -r line; do B=$A; A=y; done; start $B
printf -v A %s hi; start $A
[[ a7 =~ 7 ]]; A=${BASH_REMATCH[0]}; start $A
A=$(echo 'p q'); X=($A); start ${#X[@]}
f() { start $#; }; f $(echo 'p q')
P='@(a|b)'; [[ a == $P ]] && B=1; start x$B
[[ a == [[:alpha:]] ]] && B=1; start x$B
f() { grep -q a b && return; N=2; }; N=1; f; start $N
""".strip().splitlines()
"""What is not followed."""


@pytest.mark.parametrize("script", UNKNOWN)
def test_what_is_not_followed_is_unknown(script: str) -> None:
    assert None in by_reading(script)[-1]
