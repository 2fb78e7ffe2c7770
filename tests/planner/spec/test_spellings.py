"""Names and sizes in spellings that people use: the spec, and so the plan, of the canonical one."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from automap.planner import catalogue
from automap.planner.errors import FieldValueError
from automap.planner.planning import make_plan
from automap.planner.spec import AlgorithmName, ClusterSpec, JobSpec, ModelSpec, PoolSpec
from tests.helpers.small_jobs import pool, small_job
from tests.helpers.specs import job_spec

NAMES = sorted(catalogue.architectures())
ALGORITHMS = get_args(AlgorithmName)


def in_any_case(text: str) -> st.SearchStrategy[str]:
    """The text with every letter in either case."""
    return st.tuples(*(st.sampled_from((each.lower(), each.upper())) for each in text)).map("".join)


def what_is_wrong(part: type[ModelSpec | PoolSpec | JobSpec], data: Any) -> FieldValueError:
    """The one mistake that is found in the data."""
    with pytest.raises(ValidationError) as caught:
        part.model_validate(data)
    (error,) = caught.value.errors()
    raised = error["ctx"]["error"]
    assert isinstance(raised, FieldValueError)
    return raised


@given(st.data())
def test_an_algorithm_in_any_case_and_with_hyphens_is_the_same_spec(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ALGORITHMS))
    spelled = data.draw(in_any_case(name))
    spec = job_spec(name)
    for each in (spelled, spelled.replace("_", "-"), f" {spelled.replace('_', ' ')}"):
        document = spec.model_dump(mode="json") | {"algorithm": each}
        assert JobSpec.model_validate(document).model_dump_json() == spec.model_dump_json()


def test_reinforce_plus_plus_is_known_as_its_paper_writes_it() -> None:
    spec = job_spec("reinforce_plus_plus")
    document = spec.model_dump(mode="json") | {"algorithm": "REINFORCE++"}
    assert JobSpec.model_validate(document) == spec


@pytest.mark.parametrize("name", ["gspo", "GSPO", "Dr. GRPO", "dr_grpo", "drgrpo", "cispo"])
def test_a_relative_of_grpo_is_answered_with_what_plans_alike(name: str) -> None:
    data = job_spec("grpo").model_dump(mode="json") | {"algorithm": name}
    wrong = what_is_wrong(JobSpec, data)
    assert "its plan is that of grpo" in wrong.message
    assert "write grpo" in wrong.remedy


@given(st.data())
def test_a_model_of_any_organisation_and_variant_is_the_catalogues(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    entry = catalogue.architectures()[name]
    spelled = data.draw(st.sampled_from([name, *entry.aliases]).flatmap(in_any_case))
    if "/" not in spelled:
        spelled = data.draw(st.sampled_from(("", "unsloth/", "My Lab/"))) + spelled
    spelled += data.draw(st.sampled_from(("", "-Instruct", "-chat-hf", "-Base")))
    found = catalogue.find_model(spelled)
    assert found is entry
    assert ModelSpec(architecture=spelled) == ModelSpec(architecture=name)


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai/DeepSeek-V4",
        "Qwen/Qwen3-Coder-Next",  # no size class of Qwen3's
        "Qwen/Qwen2.5-7B-Instruct-1M",
        "a/b/Llama-3.1-8B",
        "/Llama-3.1-8B",
        "-instruct",
        "",
    ],
)
def test_what_may_be_another_model_is_not_guessed(name: str) -> None:
    assert catalogue.find_model(name) is None
    assert ModelSpec(architecture=name).architecture == name


@given(
    gpu=st.sampled_from(sorted(catalogue.gpu_types())),
    num_nodes=st.integers(1, 1000),
    size=st.none() | st.integers(1, 128),
    states_nodes=st.booleans(),
)
def test_all_gpus_of_a_pool_are_its_nodes(
    gpu: str, num_nodes: int, size: int | None, states_nodes: bool
) -> None:
    per_node = size or catalogue.node_type(catalogue.gpu_type(gpu).node).gpus_per_node
    same: dict[str, Any] = {"name": "a", "gpu": gpu}
    if size is not None:
        same["gpus_per_node"] = size
    given = same | {"num_gpus": num_nodes * per_node}
    canonical = same | {"num_nodes": num_nodes}
    if states_nodes:
        given["num_nodes"] = num_nodes
        canonical["gpus_per_node"] = per_node
    assert PoolSpec.model_validate(given) == PoolSpec.model_validate(canonical)


@pytest.mark.parametrize(
    ("sizes", "field", "remedy"),
    [
        ({"num_gpus": 12}, "num_gpus", "a multiple of 8"),
        ({"num_gpus": 4}, "num_gpus", "1 and 4"),
        ({"num_gpus": 12, "num_nodes": 5}, "num_gpus", "num_nodes and gpus_per_node"),
        ({"num_gpus": 16, "num_nodes": 2, "gpus_per_node": 4}, "num_gpus", "leave num_gpus out"),
        ({"num_gpus": 1024, "num_nodes": 1}, "num_gpus", "num_nodes and gpus_per_node"),
        ({"num_gpus": 64, "num_nodes": 1}, "num_gpus", "num_nodes: 8, or give gpus_per_node: 64"),
        ({"num_gpus": 20, "num_nodes": 2}, "num_gpus", "at most 16, or give gpus_per_node: 10"),
        ({"num_gpus": 10**9}, "num_gpus", "100000 nodes"),
        ({"num_gpus": "64"}, "num_gpus", "whole number"),
        ({"num_gpus": True}, "num_gpus", "whole number"),
        ({"num_gpus": 8, "gpu": "h101"}, "gpu", "h100-80gb-sxm"),
        ({"num_gpus": 8, "gpu": None}, "gpu", "h100"),
    ],
)
def test_gpus_that_fill_no_nodes_are_refused(
    sizes: dict[str, Any], field: str, remedy: str
) -> None:
    wrong = what_is_wrong(PoolSpec, {"name": "h100", "gpu": "h100"} | sizes)
    assert wrong.field == field
    assert remedy in wrong.remedy


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_gpus": 4, "num_nodes": 1},
        {"num_gpus": 12, "num_nodes": 2},
        {"num_gpus": 64, "num_nodes": 1, "gpus_per_node": 64},
    ],
)
def test_nodes_may_be_smaller_than_the_catalogues_and_larger_if_that_is_said(
    sizes: dict[str, int],
) -> None:
    found = PoolSpec.model_validate({"name": "a", "gpu": "h100"} | sizes)
    assert found.gpus_per_node == sizes["num_gpus"] // sizes["num_nodes"]


@pytest.mark.parametrize("name", ["num_nodes", "gpus_per_node"])
def test_a_wrong_size_beside_num_gpus_is_told_of_alone(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ClusterSpec.model_validate(
            {"pools": [{"name": "a", "gpu": "h100", "num_gpus": 8, name: "2"}]}
        )
    assert [each["loc"][-1] for each in caught.value.errors()] == [name]


def test_all_spellings_at_once_give_the_plan_of_the_canonical_ones() -> None:
    canonical = small_job("grpo", cluster__pools=[pool(2)])
    document = canonical.model_dump(mode="json", exclude={"algorithm", "models", "cluster"})
    nodes = pool(2)
    del nodes["num_nodes"]
    spelled = JobSpec.model_validate(
        document
        | {
            "algorithm": "GRPO",
            "models": {
                role: {"architecture": "Qwen/Qwen2.5-0.5B-Instruct"} for role in canonical.models
            },
            "cluster": {"pools": [nodes | {"num_gpus": 8}]},
        }
    )
    assert spelled.model_dump_json() == canonical.model_dump_json()
    found, wanted = (
        make_plan(spec).model_dump(exclude={"search_seconds": True, "search": True})
        for spec in (spelled, canonical)
    )
    assert found == wanted


def test_a_gpu_whose_name_yaml_takes_for_a_number_is_that_gpu() -> None:
    assert PoolSpec.model_validate({"gpu": 4090, "num_nodes": 1}).gpu == "4090"
    with pytest.raises(ValidationError, match="valid string"):
        PoolSpec.model_validate({"gpu": True, "num_nodes": 1})
