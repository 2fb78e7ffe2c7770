"""The tiny PPO job on CPU with a measured profile, and rows of host work."""

from pathlib import Path
from typing import Any

import yaml

from automap.planner.profiles import Row
from automap.planner.spec import JobSpec
from tests.docs.documents import ROOT


def tiny_spec(profile: Path | None) -> JobSpec:
    text = (ROOT / "examples/tiny-ppo-cpu.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    if profile is not None:
        document["cluster"]["pools"][0]["profile"] = str(profile)
    return JobSpec.model_validate(document)


def host_work(seconds: dict[tuple[str, str], float]) -> list[Row]:
    return [
        ("host_work", {"framework": framework, "recompute": "none", "part": part}, each)
        for (framework, part), each in seconds.items()
    ]
