"""What is told of options that are wrong: by the name that was typed, and in one style."""

import json

import pytest

from tests.cli.commands import TINY, TWO_NODES, call
from tests.planner.check.broken_plans import BARRIER_PLAN


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """SPEC, PLAN (of this version), OLD (of another), WRONG (edited), EMPTY."""
    folder = tmp_path_factory.mktemp("options")
    plan = json.loads(BARRIER_PLAN.model_dump_json(by_alias=True))
    old = {**plan, "provenance": {**plan["provenance"], "code_version": "0.0.1"}}
    texts = {
        "SPEC": TWO_NODES,
        "PLAN": json.dumps(plan),
        "OLD": json.dumps(old),
        "WRONG": json.dumps({**old, "iteration_seconds": 1.0}),
        "EMPTY": "{}",
        "PARTIAL": json.dumps({**plan, "calls": None}),
        "LOG": "not json",
    }
    names = {}
    for name, text in texts.items():
        file = folder / f"{name.lower()}.yaml"
        file.write_text(text, encoding="utf-8")
        names[name] = str(file)
    return names


def told(capsys, files, line: str) -> tuple[int, str]:
    code, out, err = call(capsys, *(files.get(word, word) for word in line.split()))
    assert "Traceback" not in err
    return code, " ".join((out + err).split())


CALLS = [call.id for call in BARRIER_PLAN.calls]
POOL = BARRIER_PLAN.copies[0].pool
ONE = f"--call {CALLS[0]}"


@pytest.mark.parametrize(
    ("line", "headline"),
    [
        ("what-if SPEC", "error: nothing is varied give --nodes"),
        ("what-if SPEC --gpu foo", "error: --gpu: the catalogue has no GPU type 'foo'"),
        ("what-if SPEC --nodes 1 --pool x", "error: --pool: the cluster has no pool 'x'"),
        ("what-if SPEC --nodes 1000000000", "error: --nodes: 1000000000 is not a number of nodes"),
        ("replan PLAN --call foo=1", "error: --call foo: the plan has no such call"),
        (f"replan PLAN {ONE}=-1", f"error: {ONE}: '-1': give a finite number above 0"),
        (f"replan PLAN {ONE}=nan", f"error: {ONE}: 'nan': give a finite number above 0"),
        (f"replan PLAN {ONE}=1 {ONE}=2", f"error: --call: {CALLS[0]} is given twice"),
        ("replan PLAN --lose-node foo", "error: --lose-node foo: the cluster has no such pool"),
        (
            f"replan PLAN --lose-node {POOL}:9999",
            "nothing is left plan the job anew on other pools",
        ),
        (f"replan PLAN --add-nodes {POOL}:99999999", f"error: --add-nodes {POOL}: the pool would"),
        ("replan PLAN --move-by foo", "error: --move-by: Input should be 'restart' or 'reshard'"),
        ("replan PLAN --startup-seconds inf", "error: --startup-seconds: 'inf': give a finite"),
        ("pareto SPEC --tolerance nan", "error: --tolerance: 'nan': give a finite number from 0"),
        ("profile --budget nan", "error: --budget: 'nan': give a finite number above 0"),
        ("plan SPEC -s verl -s openrlhf", "error: --strategy: is given 2 times; give it once"),
        ("plan SPEC --profile /none", "error: --profile: '/none' holds no profile"),
        ("plan SPEC --fly", "error: No such option: --fly `automap plan --help` shows"),
        ("plan", "error: Missing argument 'SPEC' `automap plan --help` shows"),
        ("simulate PLAN --iterations 0", "error: --iterations: Input should be greater"),
        ("simulate PLAN --picture x.txt", "error: --picture: x.txt does not end in .png"),
        ("pareto SPEC --picture x.txt", "error: --picture: x.txt does not end in .png"),
        ("explain PLAN --profile x", "is a plan, which has its prices already"),
        (
            "calibrate LOG --format verl --plan PLAN --spec SPEC --output-spec x",
            "is no JSON object",
        ),
        ("simulate SPEC --server http://127.0.0.1:9 --picture x.png", "a service draws none"),
        ("explain SPEC --server http://127.0.0.1:9 --profile x", "error: --profile: a service"),
    ],
)
def test_an_option_is_named_as_it_was_typed(capsys, files, line, headline):
    code, text = told(capsys, files, line)
    assert code == 2
    assert headline in text
    assert "the spec cannot be planned" not in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("replan PLAN --measured PLAN", "this is a plan, not the report of a run"),
        ("replan PLAN --measured EMPTY", "a report is the report.json that automap run writes"),
        ("calibrate PLAN --spec SPEC --output-spec x", "this is a plan, not the report of a run"),
        ("plan PLAN", "this is a plan, not a job spec"),
        ("explain EMPTY", "this is not a plan or a job spec"),
        ("simulate PARTIAL", "read as a plan for its `copies` and `iteration_seconds`: 1 mistake"),
        ("estimate SPEC EMPTY", "a placement has copies and calls"),
        ("run SPEC --settings PLAN", "this is a plan, not run settings"),
    ],
)
def test_a_file_is_told_for_what_it_is(capsys, files, line, said):
    code, text = told(capsys, files, line)
    assert code == 2
    assert said in text


def test_a_plan_of_another_version_is_named_once(capsys, files):
    code, text = told(capsys, files, "simulate OLD -n 1 -q")
    assert code == 0
    assert text.count("was made by another version: code_version 0.0.1 (here ") == 1
    code, text = told(capsys, files, "simulate WRONG")
    assert code == 2
    cause, figures = "cannot be simulated, it was made by another version", "seconds is 1.0"
    assert 0 < text.index(cause) < text.index(figures)


@pytest.mark.parametrize("command", ["plan", "compare", "pareto", "explain", "simulate"])
def test_an_address_where_nothing_answers_is_bad_input(capsys, files, command):
    code, text = told(capsys, files, f"{command} {TINY} --server http://127.0.0.1:9")
    assert code == 2
    assert "--server: cannot reach http://127.0.0.1:9" in text


@pytest.mark.parametrize("command", ["explain", "simulate", "replan"])
def test_a_service_is_not_asked_of_a_plan_that_it_lacks(capsys, files, command):
    code, text = told(capsys, files, f"{command} PLAN --server http://127.0.0.1:9")
    assert code == 2
    assert "the service does not know this plan" in text
