"""Shell scripts at random, of the forms in which launches are written."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

SCALARS = ("A", "B", "C")
ARRAYS = ("X", "Y")
NEVER_SET = "Z"
_PLAIN = st.text("ab1.=/,:+_-", min_size=1, max_size=6).filter(lambda text: text[0] not in "=-+")
_LOOSE = st.text("ab1 .='\\$\"`#;|&()<>", max_size=6)


def _single(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _double(text: str) -> str:
    for each in '\\"$`':
        text = text.replace(each, "\\" + each)
    return f'"{text}"'


def _escaped(text: str) -> str:
    return "".join(each if each.isalnum() or each in "./,:_-" else "\\" + each for each in text)


@st.composite
def _literals(draw: DrawFn) -> str:
    if draw(st.booleans()):
        return draw(_PLAIN)
    return draw(st.sampled_from((_single, _double, _escaped)))(draw(_LOOSE))


@st.composite
def _numbers(draw: DrawFn, depth: int = 0) -> str:
    if depth > 2 or draw(st.booleans()):
        return draw(st.sampled_from(("N", "$N", "${N}", "3", "17", "0x1f", "010", "-4")))
    left, right = draw(_numbers(depth + 1)), draw(_numbers(depth + 1))
    operators = ("+", "-", "*", "<", ">=", "==", "&&", "||", "&", "|", "^")
    return f"({left} {draw(st.sampled_from(operators))} {right})"


@st.composite
def _expansions(draw: DrawFn, depth: int = 0) -> str:
    name = draw(st.sampled_from((*SCALARS, NEVER_SET)))
    operator = draw(st.sampled_from((":-", "-", ":+", "+", ":=")))
    operand = (
        draw(_literals()) if depth > 1 or draw(st.booleans()) else draw(_expansions(depth + 1))
    )
    if "}" in operand and not operand.startswith("$"):
        operand = "x"
    forms = [
        f"${{{name}{operator}{operand}}}",
        f"$(({draw(_numbers())}))",
        f"${{{draw(st.sampled_from(SCALARS))}}}",
        f"${{#{draw(st.sampled_from(SCALARS))}}}",
        f"${{{draw(st.sampled_from(ARRAYS))}[0]}}",
        f"${{#{draw(st.sampled_from(ARRAYS))}[@]}}",
    ]
    return draw(st.sampled_from(forms))


@st.composite
def _words(draw: DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            parts.append(draw(_expansions()))
        elif kind == 1:
            inner = draw(_expansions())
            parts.append(inner if "'" in inner or '"' in inner else f'"a {inner}"')
        else:
            parts.append(draw(_literals()))
    return "".join(parts)


@st.composite
def _arguments(draw: DrawFn) -> str:
    if draw(st.integers(0, 3)) == 0:
        array = draw(st.sampled_from(ARRAYS))
        return draw(st.sampled_from((f'"${{{array}[@]}}"', f"${{{array}[@]}}")))
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(SCALARS))
        return draw(st.sampled_from((f"${name}", f'"${name}"', f"/${name}.b=$N")))
    return draw(_words())


@st.composite
def _conditions(draw: DrawFn) -> str:
    name = draw(st.sampled_from(SCALARS))
    other = draw(_PLAIN)
    return draw(
        st.sampled_from(
            (
                f'[ "${name}" = {_single(other)} ]',
                f'[[ "${name}" != {_single(other)} ]]',
                f'[ -n "${name}" ]',
                f'[ -z "${{{NEVER_SET}:-}}" ]',
                f"[ $N -gt {draw(st.integers(-3, 9))} ]",
                f'[[ -n "${name}" && $N -le 5 ]]',
                f'[ -n "${name}" ] || [ $N -eq 3 ]',
                f'[[ "${name}" == *{_single(other)}* ]]',
                f'[[ "${name}" == "$A"* ]]',
            )
        )
    )


@st.composite
def _statements(draw: DrawFn, depth: int = 0) -> str:
    kind = draw(st.integers(0, 10 if depth < 2 else 4))
    if kind == 0:
        return f"{draw(st.sampled_from(SCALARS))}={draw(_words())}"
    if kind == 1:
        return f"{draw(st.sampled_from(SCALARS))}+={draw(_words())}"
    if kind == 2:
        items = "\n  ".join(draw(st.lists(_arguments(), max_size=3)))
        sign = draw(st.sampled_from(("", "+")))
        return f"{draw(st.sampled_from(ARRAYS))}{sign}=(\n  {items}\n)"
    if kind == 3:
        return f"N={draw(st.integers(-3, 20))}"
    if kind == 4:
        joins = draw(st.sampled_from((" ", " \\\n  ")))
        return joins.join(["start", *draw(st.lists(_arguments(), max_size=3))])
    inner = draw(_statements(depth + 1))
    if kind == 5:
        other = draw(_statements(depth + 1))
        return f"if {draw(_conditions())}; then\n{inner}\nelse\n{other}\nfi"
    if kind == 6:
        word = f'"${draw(st.sampled_from(SCALARS))}"'
        return f"case {word} in\n  a*|1) {inner} ;;\n  *b) : ;;\n  *) N=7 ;;\nesac"
    if kind == 7:
        items = " ".join(draw(st.lists(_arguments(), max_size=2)))
        return f"for A in {items}; do\n{inner}\ndone"
    made = (_guarded, _aside, _left)[kind - 8]
    return made(inner, draw(st.integers(0, 4)), draw(_conditions()))


def _guarded(inner: str, _: int, condition: str) -> str:
    return f"{condition} && {{ {inner}\n}}"


def _aside(inner: str, kind: int, condition: str) -> str:
    """A statement whose assignments end with it, or go on."""
    return (
        f"({inner}\n)",
        f": | {{ {inner}\n}}",
        f"f() {{ local A=4 N=2\n{inner}\n}}\nf x 'y z'",
        f"f() (\n{inner}\n)\n{condition} && f",
        f"N=5 A=x true\n{inner}",
    )[kind]


def _left(inner: str, kind: int, condition: str) -> str:
    """A statement in something that is perhaps left before it."""
    return (
        f"g() {{\nif {condition}; then return; fi\n{inner}\n}}\ng",
        f"for B in 1 2 3; do\nif {condition}; then break; fi\n{inner}\ndone",
        f"for C in 1 2; do\nif {condition}; then continue; fi\n{inner}\ndone",
        f"(\nif {condition}; then exit 1; fi\n{inner}\n:\n) || B=left",
        f'g() {{ shift; start "$@" "${{@:2}}" $#\n{inner}\n}}\ng 1 "$A" "${{X[@]:1}}"',
    )[kind]


@st.composite
def scripts(draw: DrawFn) -> str:
    """Some statements over variables that are set at the head, and a command at the end."""
    head = ["A=a", "B='b c'", "C=", "N=3", "X=(1 '2 3')", "Y=()"]
    body = draw(st.lists(_statements(), min_size=1, max_size=6))
    last = " ".join(["start", *draw(st.lists(_arguments(), min_size=1, max_size=4))])
    comments = draw(st.sampled_from(("", '  # it\'s "a" comment', "\n# another")))
    return "\n".join([*head, *body, last + comments]) + "\n"
