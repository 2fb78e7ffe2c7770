"""The tiny model and its tasks: rewards by hand, files as the data module reads them, learning."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from automap.executor.data import PromptData, answers_of
from automap.executor.settings import DataSettings
from automap.executor.tiny import __main__ as tiny
from automap.executor.tiny import tasks
from automap.executor.tiny.tiny_model import END_TOKEN, VOCAB_SIZE, write_tiny_model
from tests.executor.tiny.plain_grpo import Reward, learn


def test_count_token_is_the_share_of_the_prompts_last_token() -> None:
    rewards = tasks.count_token([[5], [5, 6], [5], [5]], [[5, 5, 5], [5, 6, 6, 1], [6], []], None)
    assert rewards == [1.0, 0.5, 0.0, 0.0]
    with pytest.raises(ValueError, match="shorter"):
        tasks.count_token([[5], [5]], [[5]], None)


def test_copy_is_the_share_of_tokens_in_their_places() -> None:
    prompts = [[5, 6, 7, 8]] * 5
    responses = [[5, 6, 7, 8, 1, 1], [5, 6], [6, 7, 8], [5, 9, 7, 9], []]
    assert tasks.copy(prompts, responses, None) == [1.0, 0.5, 0.0, 0.5, 0.0]


def test_unknown_symbols_are_a_cost() -> None:
    assert tasks.unknown_symbols([[32]] * 3, [[32, 35], [33, 36, 1, 31], []]) == [0.0, 0.75, 0.0]


def test_prompts_are_the_same_for_a_seed_and_read_as_data(tmp_path: Path) -> None:
    for task in ("count_token", "copy"):
        path, again, other = (tmp_path / f"{task}-{name}.jsonl" for name in "abc")
        tasks.write_prompts(path, task=task, num_prompts=200, seed=1)
        tasks.write_prompts(again, task=task, num_prompts=200, seed=1)
        tasks.write_prompts(other, task=task, num_prompts=200, seed=2)
        assert path.read_bytes() == again.read_bytes() != other.read_bytes()
        data = PromptData(
            DataSettings(path=path, answer_column="answer"),
            max_prompt_length=4,
            vocab_size=VOCAB_SIZE,
        )
        batch = data.next_batch(200)
        prompts = [row.tolist() for row in batch.ragged("prompt_tokens").rows()]
        answers = [
            [int(part) for part in each.split()] for each in answers_of(batch.ragged("answer"))
        ]
        if task == "count_token":
            assert set(Counter(map(len, prompts))) == {1, 2, 3, 4}
            assert all(
                set(prompt) == set(answer) for prompt, answer in zip(prompts, answers, strict=True)
            )
            assert tasks.count_token(prompts, answers) == [1.0] * 200
        else:
            assert {len(prompt) for prompt in prompts} == {3}
            assert tasks.copy(prompts, answers) == [1.0] * 200
        assert {token for prompt in prompts for token in prompt} == {32, 33, 34, 35}
    with pytest.raises(ValueError, match="num_prompts=0"):
        tasks.write_prompts(tmp_path / "x.jsonl", task="copy", num_prompts=0)


def test_the_tiny_model_is_a_folder_that_follows_from_its_seed(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    write_tiny_model(tmp_path / "a", seed=1)
    assert torch.equal(torch.rand(3), expected), "the global generator moved"
    write_tiny_model(tmp_path / "b", seed=1)
    write_tiny_model(tmp_path / "c", seed=2)
    first, same, other = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    assert [config[name] for name in sizes] == [64, 2, 4, 2]
    assert config["head_dim"] == 32, "vLLM on a CPU takes no smaller one"
    assert config["eos_token_id"] == END_TOKEN
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert model.num_parameters() == 131_392
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    # Untrained, it hardly prefers any token: the reward of chance is 1/256.
    probabilities = model(torch.tensor([[32, 33, 34]])).logits[0, -1].softmax(-1)
    assert probabilities.max() < 2 / VOCAB_SIZE


def test_one_command_writes_model_and_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.main(["--output", str(tmp_path / "tiny"), "--task", "copy", "--num-prompts", "7"])
    said = capsys.readouterr().out
    assert "reward: automap.executor.tiny.tasks:copy" in said
    assert len((tmp_path / "tiny" / "prompts.jsonl").read_text().splitlines()) == 7
    assert (tmp_path / "tiny" / "model" / "model.safetensors").exists()


def test_reward_functions_need_no_torch() -> None:
    """A reward runs in a process of its own, which starts in no time."""
    code = "import sys, automap.executor.tiny.tasks; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def rewards_of(folder: Path, task: tasks.TaskName, *, seed: int, iterations: int) -> list[float]:
    """Settings that work: other tests and examples use them too."""
    write_tiny_model(folder / "model", seed=seed)
    tasks.write_prompts(folder / "prompts.jsonl", task=task, seed=seed)
    rows = (folder / "prompts.jsonl").read_text().splitlines()
    reward: Reward = {"count_token": tasks.count_token, "copy": tasks.copy}[task]
    return learn(
        folder / "model",
        [json.loads(row)["prompt"] for row in rows],
        reward,
        iterations=iterations,
        prompts_per_iteration=32 if task == "count_token" else 64,
        response_length=8 if task == "count_token" else 3,
        updates=4 if task == "count_token" else 8,
        learning_rate=3e-3 if task == "count_token" else 1e-3,
        seed=seed,
    )


def test_counting_is_learned_in_twenty_iterations(tmp_path: Path) -> None:
    """A policy blind to the prompt earns 0.25 at best."""
    torch.set_num_threads(1)
    rewards = rewards_of(tmp_path, "count_token", seed=0, iterations=20)
    assert rewards[0] < 0.05
    assert sum(rewards[-3:]) / 3 > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", ["count_token", "copy"])
def test_both_tasks_are_learned_from_several_seeds(
    tmp_path: Path, task: tasks.TaskName, seed: int
) -> None:
    torch.set_num_threads(1)
    rewards = rewards_of(tmp_path, task, seed=seed, iterations=40)
    assert rewards[0] < 0.05
    assert sum(rewards[-3:]) / 3 > 0.6
