"""`automap import`: what it prints, writes, asks for and refuses."""

import json
import re
from pathlib import Path

import pytest
import yaml

from automap.planner import Placement
from automap.planner.spec import JobSpec
from tests.cli.commands import ROOT, call

LAUNCHES = ROOT / "benchmarks" / "launches"
GRPO = str(LAUNCHES / "grpo-7b.sh")
GIVEN = ("--gpu", "h100", "--lengths", "mean=300", "--prompt-lengths", "mean=120")


def test_a_launch_is_read_written_and_priced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    code, out, err = call(capsys, "import", GRPO, *GIVEN, "--out", str(folder), "--details")
    assert (code, err) == (0, "")
    assert "line 3: 33 of 36 settings for verl@0.9.1 decide something of a plan" in out
    assert "line 28: actor_rollout_ref.rollout.n" not in out
    assert "variables that the script does not set are not set outside: HOME" in out
    assert "per iteration" in out
    assert "actor.train" in out
    spec = JobSpec.model_validate(yaml.safe_load((folder / "spec.yaml").read_text()))
    placement = Placement.model_validate_json((folder / "placement.json").read_text())
    assert spec.workload.prompts_per_iteration == 1024
    assert [copy.id for copy in placement.copies] == ["actor", "reference"]
    files = str(folder / "spec.yaml"), str(folder / "placement.json")
    code, estimated, _ = call(capsys, "estimate", *files, "--quiet")
    assert code == 0
    assert estimated.splitlines()[0][:60] in out


def test_json_has_the_job_its_price_and_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "import", GRPO, *GIVEN, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["plan"]["spec"]["name"] == found["spec"]["name"] == "qwen2_7b_function_rm"
    lines = {each["key"]: each["line"] for each in found["settings"]}
    assert lines["data.train_batch_size"] == 7
    assert found["hazards"] == []


def test_what_is_missing_is_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    pictures = str(LAUNCHES / "pictures.sh")
    code, out, err = call(capsys, "import", pictures, "--gpu", "h100")
    assert (code, out) == (2, "")
    for option in ("--set WORLD_SIZE=", "--model actor=", "--lengths mean=", "--prompt-lengths"):
        assert option in err
    given = ("--set", "WORLD_SIZE=1", "--model", "actor=qwen2.5-7b")
    assert call(capsys, "import", pictures, *GIVEN, *given, "--quiet")[0] == 0


def test_a_model_can_be_a_config_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sizes = {
        "model_type": "qwen2",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32_000,
        "max_position_embeddings": 8192,
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps(sizes), encoding="utf-8")
    given = (*GIVEN, "--model", f"actor={config}", "--json")
    code, out, _ = call(capsys, "import", GRPO, *given)
    assert code == 0
    assert json.loads(out)["spec"]["models"]["actor"]["architecture"]["num_layers"] == 8


def test_lengths_can_be_those_of_a_log_or_of_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, lengths = tmp_path / "log.jsonl", tmp_path / "lengths.yaml"
    data = {"response_length/mean": 250.0, "prompt_length/mean": 90.0}
    log.write_text(json.dumps({"step": 1, "data": data}) + "\n", encoding="utf-8")
    lengths.write_text("histogram: [[100, 3], [1024, 1]]\n", encoding="utf-8")
    base = ("import", GRPO, "--gpu", "h100", "--json", "--log", str(log))
    found = json.loads(call(capsys, *base)[1])["spec"]["workload"]
    assert found["prompt_length"]["mean"] == 90.0
    assert found["response_length"] == {"mean": 250.0, "max": 1024}
    found = json.loads(call(capsys, *base, "--lengths", str(lengths))[1])["spec"]["workload"]
    assert found["response_length"] == {"histogram": [[100.0, 3.0], [1024.0, 1.0]]}


def test_configurations_are_read_with_the_lines_of_their_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [str(LAUNCHES / name) for name in ("config-a.sh", "config-a.yaml", "config-base.yaml")]
    code, out, err = call(capsys, "import", *files, *GIVEN, "--json")
    assert (code, err) == (0, "")
    where = {each["key"]: (each["file"], each["line"]) for each in json.loads(out)["settings"]}
    assert where["data.train_batch_size"] == (files[2], 8)
    assert where["data.max_response_length"] == (files[1], 8)
    assert where["trainer.nnodes"] == (files[0], 4)


HOSTILE = {
    "tags.yaml": "trainer: !!python/object/apply:os.system ['touch owned']\n",
    "anchors.yaml": "a: &a [1]\n" + "".join(f"k{n}: *a\n" for n in range(5000)),
    "laughs.yaml": "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n",
    "deep.yaml": "a: " + "[" * 5000 + "]" * 5000,
    "large.yaml": "a: 1\n" * 300_000,
    "twice.yaml": "trainer: {nnodes: 1}\ntrainer: {nnodes: 2}\n",
    "list.yaml": "- 1\n",
    "empty.sh": "",
    "binary.sh": b"\x7fELF\x00\x01\xff\xfe",
    "nul.sh": b"python3 -m verl.trainer.main_ppo \x00\n",
    "large.sh": "# comment\n" * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    content = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = call(capsys, "import", str(path), *GIVEN)
    assert (code, out) == (2, "")
    assert name in err
    assert len(err) < 2000
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((GRPO, *GIVEN, "--from", "verl@0.9.2"), "unknown target"),
        (("none.sh", *GIVEN), "there is no such file"),
        (("verl@0.9.1", GRPO, *GIVEN), "write --from verl@0.9.1"),
        ((GRPO, *GIVEN[:3], "mean=long"), "is no number"),
        ((GRPO, *GIVEN[:3], "mean=-3"), "--lengths"),
        ((GRPO, *GIVEN[:3], "middle=3"), "--lengths"),
        ((GRPO, "--gpu", "h1000"), "no GPU type"),
        ((GRPO, *GIVEN, "--set", "NODES"), "give NAME=VALUE"),
        ((GRPO, *GIVEN, "--model", "actor=nonsense"), "nonsense"),
        ((GRPO, *GIVEN, "--out", __file__), "it is a file"),
        ((str(LAUNCHES / "seeds.sh"), *GIVEN), "data.seed=2"),
    ],
)
def test_mistakes_are_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = call(capsys, "import", *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_what_does_not_fit_is_said_after_what_was_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = Path(GRPO).read_text(encoding="utf-8").replace("Qwen2-7B", "Qwen2-72B")
    (tmp_path / "large.sh").write_text(text, encoding="utf-8")
    code, out, err = call(capsys, "import", str(tmp_path / "large.sh"), *GIVEN)
    assert code == 3
    assert "settings for verl@0.9.1 decide something of a plan" in out
    assert "actor.train" in err


def test_a_launch_that_runs_as_it_says_runs_with_its_own_framework(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where its budget of tokens is priced as sequences that do not divide the batch."""
    recipe = str(ROOT / "benchmarks" / "launches" / "nemo_rl" / "qwen-7b-megatron.yaml")
    code, out, _ = call(capsys, "import", recipe, *GIVEN)
    assert (code, "fits, and runs as it says" in out) == (0, True)
    assert "nemo-rl@0.7.0" in out.partition("runs with: ")[2].partition("\n")[0]


@pytest.mark.slow
def test_the_verdict_is_one_and_has_its_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = call(capsys, "import", GRPO, *GIVEN)
    assert code == 0
    assert "fits, and runs as it says" in out
    assert "verl@0.9.1 " in out.partition("runs with: ")[2].partition("\n")[0]
    # What is true of every launch is counted; --details lists it.
    assert "more of verl@0.9.1, as for every launch: --details" in out
    assert "prompts are prefilled once per response" not in out
    text = Path(GRPO).read_text(encoding="utf-8")
    keys = "trainer.nnodes=1 actor_rollout_ref.rollout.no_such_key=1"
    assert "trainer.nnodes=1" in text
    launch = tmp_path / "launch.sh"
    launch.write_text(text.replace("trainer.nnodes=1", keys), encoding="utf-8")
    code, out, _ = call(capsys, "import", str(launch), *GIVEN)
    assert code == 3
    assert out.count("no_such_key") == 1
    assert "fits, and runs as it says" not in out
    assert "does not run as it says" in out
    assert "were it to run as it says" in out
    assert "out of memory" not in out
    assert "verl@0.9.1" not in out.partition("runs with: ")[2].partition("\n")[0]
    code, out, _ = call(capsys, "import", str(launch), *GIVEN, "--json")
    assert (code, json.loads(out)["verdict"]) == (3, "does not run as it says")
    code, out, _ = call(capsys, "advise", str(launch), *GIVEN)
    assert code == 3
    assert "were it to run as it says" in out
    assert "left to you, as no change was found that mends it: " in out.splitlines()[-1]


def test_adapters_that_no_price_has_are_of_the_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (ROOT / "benchmarks" / "launches" / "areal" / "grpo-fsdp.yaml").read_text("utf-8")
    assert "  kl_ctl: 0.0" in text
    launch = tmp_path / "grpo.yaml"
    launch.write_text(text.replace("  kl_ctl: 0.0", "  kl_ctl: 0.0\n  use_lora: true"), "utf-8")
    code, out, _ = call(capsys, "import", str(launch), *GIVEN)
    assert code == 3
    assert "is not priced as what it says\n" in out
    assert "actor.use_lora: LoRA, and the price is that of training all weights" in out
    assert "fits, and runs as it says" not in out
    code, out, _ = call(capsys, "import", str(launch), *GIVEN, "--json")
    assert (code, json.loads(out)["verdict"]) == (3, "is not priced as what it says")


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--ds.adam_offload", "--ds.adam_offload: Adam on the host"),
        ("--ds.lora.rank 32", "--ds.lora.rank: LoRA, and the price is that of training all"),
    ],
)
def test_what_saves_memory_without_a_price_leaves_open_whether_it_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argument: str, told: str
) -> None:
    text = (LAUNCHES / "openrlhf" / "hybrid-grpo.sh").read_text("utf-8")
    large = re.sub(r"Qwen2.5-\w+", "Qwen2.5-72B", text)
    launch = tmp_path / "launch.sh"
    launch.write_text(large, "utf-8")
    code, _, err = call(capsys, "import", str(launch), *GIVEN)
    assert (code, "no placement is feasible" in err) == (3, True)
    launch.write_text(large.replace("--ds.zero_stage", f"{argument} --ds.zero_stage"), "utf-8")
    code, _, err = call(capsys, "import", str(launch), *GIVEN)
    assert code == 3
    assert "it does not fit by its price, but may with what saves memory and is not priced" in err
    assert told in err
    assert "no placement is feasible" not in err
    code, out, _ = call(capsys, "advise", str(launch), *GIVEN)
    assert code == 3
    assert "does not fit by its price\n" in out
    assert "no change was found with which it fits, by its price" in out


def test_a_likely_end_of_the_memory_is_of_the_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    launch = tmp_path / "run.sh"
    launch.write_text(
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate "
        "--hf-checkpoint Qwen/Qwen2.5-7B --rollout-batch-size 32 --n-samples-per-prompt 8 "
        "--global-batch-size 256 --rollout-max-response-len 1024 --use-dynamic-batch-size "
        "--max-tokens-per-gpu 9216 --tensor-model-parallel-size 2 --sequence-parallel "
        "--advantage-estimator grpo --sglang-mem-fraction-static 0.88\n",
        encoding="utf-8",
    )
    code, out, _ = call(capsys, "import", str(launch), *GIVEN)
    assert code == 0
    assert re.search(r"may run out of memory \([0-9]+ %\), and else runs as it says", out), out
    assert "fits, and runs as it says" not in out


def test_settings_that_no_plan_needs_are_not_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = " ".join(
        f"{key}=$UNKNOWN"
        for key in (
            "actor_rollout_ref.rollout.multi_turn.tool_config_path",
            "reward.custom_reward_function.path",
            "trainer.total_training_steps",
        )
    )
    text = Path(GRPO).read_text(encoding="utf-8").replace("trainer.save_freq=-1", "")
    launch = tmp_path / "launch.sh"
    launch.write_text(text.replace("trainer.nnodes=1", f"trainer.nnodes=1 {keys}"), "utf-8")
    code, out, err = call(capsys, "import", str(launch), *GIVEN)
    assert (code, err) == (0, "")
    assert out.count("and no plan needs it") == 3


def test_a_model_that_verl_is_not_known_to_train_is_said_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = Path(GRPO).read_text(encoding="utf-8")
    launch = tmp_path / "launch.sh"
    launch.write_text(text.replace("Qwen/Qwen2-7B-Instruct", "deepseek-ai/DeepSeek-V3.2"), "utf-8")
    nodes = ("--set", "trainer.nnodes=64")
    _, out, err = call(capsys, "import", str(launch), *GIVEN, *nodes)
    assert "an indexer that chooses what is attended to" in out + err
    assert "verl@0.9.1" not in out.partition("runs with: ")[2].partition("\n")[0]
