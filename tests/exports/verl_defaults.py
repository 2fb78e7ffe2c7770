"""verl's own configuration, flat: what every key has where a launch leaves it out.

.venv-exports/bin/python tests/exports/verl_defaults.py dp megatron
"""

import contextlib
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

with contextlib.redirect_stdout(sys.stderr):
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

CONFIG = Path(verl.__file__).parent / "trainer" / "config"


def main() -> None:
    found = {}
    with (
        contextlib.redirect_stdout(sys.stderr),
        initialize_config_dir(config_dir=str(CONFIG), version_base=None),
    ):
        for engine in sys.argv[1:]:
            config = compose("ppo_trainer", overrides=[f"model_engine={engine}"])
            raw = OmegaConf.to_container(config, resolve=False)
            found[engine] = {key: value_of(config, key) for key in keys(raw, "")}
    sys.stdout.write(json.dumps(found))


def keys(section: Any, before: str) -> Iterator[str]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def value_of(config: DictConfig, key: str) -> Any:
    try:
        value = OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


if __name__ == "__main__":
    main()
