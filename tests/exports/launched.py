"""What a launch script would submit: it is run, with Ray and Python replaced by recorders."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from automap.planner import Launch, catalogue
from automap.planner.spec import JobSpec

_RAY = """#!/usr/bin/env bash
printf '%s\\0' "$@" END >> "$RECORD"
"""
_PYTHON = """#!/usr/bin/env bash
case "$*" in
  *importlib.metadata*) echo "$VERL_VERSION" ;;
  *cluster_resources*) echo 1000000 ;;
esac
"""
_MODEL = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "max_position_embeddings": "max_position_embeddings",
}
"""Field of a config.json → field of the architecture."""


def run_script(
    launch: Launch, folder: Path, *, version: str = "0.9.1", **given: str
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """The script as node 0 runs it, and the arguments of each call of `ray`."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (("ray", _RAY), ("python3", _PYTHON)):
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    script, record = folder / "launch.sh", folder / "record"
    script.write_text(launch.script, encoding="utf-8")
    record.write_text("", encoding="utf-8")
    environment = {"PATH": f"{tools}:{os.defpath}", "RECORD": str(record), "VERL_VERSION": version}
    done = subprocess.run(
        ["bash", str(script)],
        env=environment | given,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls: list[list[str]] = [[]]
    for word in record.read_text(encoding="utf-8").split("\0")[:-1]:
        calls.append([]) if word == "END" else calls[-1].append(word)
    return done, calls[:-1]


def submitted(launch: Launch, folder: Path, **given: str) -> list[str]:
    """The overrides that the script submits, with every placeholder given."""
    values = {each.variable: str(folder / "none") for each in launch.placeholders} | given
    done, calls = run_script(launch, folder, HEAD_ADDRESS="node", NODE_RANK="0", **values)
    assert done.returncode == 0, done.stderr
    [job] = [call for call in calls if call[:2] == ["job", "submit"]]
    start = job.index("--") + 1
    assert job[start : start + 3] == ["python3", "-m", "verl.trainer.main_ppo"]
    return job[start + 3 :]


def model_folder(spec: JobSpec, role: str, parent: Path) -> Path:
    """A folder that verl can open for a model of a job: its config.json and a tokenizer."""
    name = spec.models[role].architecture
    assert isinstance(name, str)
    folder = parent / name
    if folder.is_dir():
        return folder
    folder.mkdir()
    sizes = catalogue.architectures()[name].architecture
    config: dict[str, Any] = {key: getattr(sizes, field) for key, field in _MODEL.items()}
    config |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    if sizes.num_experts:
        config |= {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}
        config |= {"num_experts": sizes.num_experts}
    words = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": words}
    files = {
        "config.json": config,
        "tokenizer.json": tokenizer | {"pre_tokenizer": {"type": "Whitespace"}},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "b"},
    }
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return folder
