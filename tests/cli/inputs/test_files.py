"""Files to specs and placements, and what a user is told when they are wrong."""

import json

import pytest
import yaml

from automap.planner.errors import SpecError
from automap.service.cli.inputs.files import read_placement, read_spec
from automap.service.cli.terminal.failures import BadInputError
from tests.cli.sample_plans import asynchronous_plan, ppo_plan

SPEC = """
name: tiny
algorithm: grpo
models:
  actor: {architecture: tiny-llama}
  reward: {function: true}
workload:
  prompts_per_iteration: 8
  prompt_length: {mean: 16, max: 16}
  response_length: {mean: 16, max: 16}
  kl: none
cluster: {pools: [{name: cpu, gpu: cpu, num_nodes: 1}]}
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def write(folder, text, name="spec.yaml"):
    file = folder / name
    file.write_text(text)
    return str(file)


def complaint(source) -> str:
    with pytest.raises(BadInputError) as caught:
        read_spec(source)
    return "\n".join([caught.value.headline, *caught.value.lines])


def test_yaml_and_json_give_the_same_spec(tmp_path):
    from_yaml = read_spec(write(tmp_path, SPEC))
    as_json = from_yaml.model_dump_json(exclude_unset=True)
    assert read_spec(write(tmp_path, as_json, "spec.json")) == from_yaml


def test_yaml_may_begin_with_a_bracket(tmp_path):
    spec = read_spec(write(tmp_path, SPEC))
    in_brackets = yaml.safe_dump(yaml.safe_load(SPEC), default_flow_style=True)
    assert in_brackets.startswith("{")
    assert read_spec(write(tmp_path, in_brackets, "flow.yaml")) == spec
    assert "not JSON" in complaint(write(tmp_path, in_brackets, "flow.json"))
    assert "not JSON" in complaint(write(tmp_path, '{"name": [', "broken.yaml"))


def test_a_config_json_is_found_beside_the_spec(tmp_path):
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", json.dumps(CONFIG), "config.json")
    for path in ("./model/config.json", "./model"):
        spec = read_spec(write(tmp_path, SPEC.replace("tiny-llama", path)))
        assert spec.models["actor"].architecture.num_layers == 2


def test_a_missing_config_json_names_field_and_file(tmp_path):
    with pytest.raises(SpecError) as caught:
        read_spec(write(tmp_path, SPEC.replace("tiny-llama", "./nowhere/config.json")))
    assert caught.value.field == "models.actor.architecture"
    assert "nowhere/config.json" in str(caught.value)


def test_a_name_with_a_slash_is_a_name_and_no_path(tmp_path):
    spec = read_spec(write(tmp_path, SPEC.replace("tiny-llama", "Qwen/Qwen2.5-0.5B")))
    assert spec.models["actor"].architecture == "qwen2.5-0.5b"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("prompts_per_iteration: 8", "prompts_per_iteratoin: 8", "prompts_per_iteration'"),
        ("num_nodes: 1", "num_nodes: 0", "num_nodes"),
        ("num_nodes: 1", "num_nodes: 0", "got 0; use a number of at least 1"),
        ("algorithm: grpo", "algorithm: grop", "did you mean 'grpo'?"),
        ("algorithm: grpo", "algorithm: pppo", "'ppo'"),
        ("algorithm: grpo", "", "either algorithm or dataflow"),
        ("name: tiny\n", "name: tiny\nname: twice\n", "line 3"),
        ("name: tiny\n", "name: [tiny\n", "not YAML"),
        ("name: tiny\n", "name: &x tiny\n", "anchors"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(tmp_path, old, new, told):
    assert SPEC.count(old) == 1
    assert told in complaint(write(tmp_path, SPEC.replace(old, new)))


@pytest.mark.parametrize("text", ["- 1", "just a text", "[]"])
def test_a_document_without_fields_is_told_so(tmp_path, text):
    told = complaint(write(tmp_path, text))
    assert "document: the document must be a mapping of fields" in told
    assert "JobSpec" not in told


def test_a_union_is_complained_about_once(tmp_path):
    told = complaint(write(tmp_path, SPEC.replace("num_nodes: 1", "nodes: 1")))
    assert "cluster.pools.0.nodes" in told or "cluster.pools[0].nodes" in told
    assert "valid string" not in told


def test_unreadable_files_are_bad_input(tmp_path):
    assert "no such file" in complaint(str(tmp_path / "none.yaml"))
    assert "folder" in complaint(str(tmp_path))
    assert "empty" in complaint(write(tmp_path, "", "empty.yaml"))
    assert "bytes" in complaint(write(tmp_path, "name: " + "x" * 2**21, "large.yaml"))
    assert "mapping" in complaint(write(tmp_path, "- 1", "list.yaml")) or "dictionary" in complaint(
        write(tmp_path, "- 1", "list.yaml")
    )


@pytest.mark.parametrize("make_plan", [ppo_plan, asynchronous_plan])
def test_a_plan_and_a_record_of_it_read_as_its_placement(tmp_path, make_plan):
    plan = make_plan()
    text = plan.model_dump_json(by_alias=True)
    assert read_placement(write(tmp_path, text, "plan.json")) == plan.placement()
    record = f'{{"id": "1", "status": "succeeded", "plan": {text}}}'
    assert read_placement(write(tmp_path, record, "record.json")) == plan.placement()
    alone = plan.placement().model_dump_json(by_alias=True)
    assert read_placement(write(tmp_path, alone, "placement.json")) == plan.placement()


def test_a_placement_with_unknown_fields_is_refused(tmp_path):
    with pytest.raises(BadInputError):
        read_placement(write(tmp_path, '{"copies": [], "calls": [], "speed": 1}', "p.json"))


def ppo_document():
    return json.loads(ppo_plan().model_dump_json(by_alias=True))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (("copies", 1), "copies.1.ofload"),
        (("calls", 2), "calls.2.ofload"),
        (("copies", 0, "layout"), "copies.0.layout.ofload"),
        ((), "ofload"),
    ],
)
@pytest.mark.parametrize("wrap", [False, True])
def test_a_misspelt_field_of_an_edited_plan_is_refused_where_it_stands(tmp_path, path, told, wrap):
    document = ppo_document()
    document["calls"].reverse()  # the order of the file, not that of the calls' starts, counts
    place = document
    for part in path:
        place = place[part]
    place["ofload"] = "optimizer"
    if wrap:
        document, told = {"id": "1", "plan": document}, f"plan.{told}"
    with pytest.raises(BadInputError) as caught:
        read_placement(write(tmp_path, json.dumps(document), "plan.json"))
    (line,) = caught.value.lines
    assert line.startswith(f"{told}: ")


def test_a_record_with_an_unknown_field_is_refused(tmp_path):
    record = {"id": "1", "plan": ppo_document(), "plam": 1}
    with pytest.raises(BadInputError) as caught:
        read_placement(write(tmp_path, json.dumps(record), "record.json"))
    assert caught.value.lines[0].startswith("plam: ")


def test_what_is_no_copy_in_a_plan_is_refused(tmp_path):
    document = ppo_document()
    document["copies"].append("actor")
    with pytest.raises(BadInputError) as caught:
        read_placement(write(tmp_path, json.dumps(document), "plan.json"))
    assert caught.value.lines[0].startswith("copies.4: ")


def test_a_misspelt_field_is_corrected_to_one_of_its_own_level(tmp_path):
    # "num_gpus" is a field of a placement's copies, not of a pool.
    told = complaint(write(tmp_path, SPEC.replace("num_nodes: 1", "num_nodes: 1, num_gpu: 8")))
    assert "cluster.pools.0.num_gpu: " in told
    assert "num_gpus" not in told
