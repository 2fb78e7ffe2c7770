"""Model sizes out of a Hugging Face `config.json`; families.py has what differs by family."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.config_reader import ConfigReader, shown
from automap.planner.catalogue.families import FAMILIES
from automap.planner.catalogue.inline_sizes import inline_sizes
from automap.planner.errors import SpecError

MAX_CONFIG_BYTES = 2**20
MAX_SHOWN_PATH = 200


def load_config(path: Path | str, *, field: str = "architecture") -> ModelArchitecture:
    """The architecture in a local `config.json`, or in the one of a local model folder.

    Raises:
        SpecError: no such file, over 1 MiB, not a JSON object, or as architecture_from_config.
    """
    file = Path(path)
    return architecture_from_config(
        read_config(file, field=field), field=field, source=_shortened(file)
    )


def read_config(file: Path, *, field: str) -> Mapping[str, object]:
    """The JSON object in a local file of at most 1 MiB, or in the config.json of a folder.

    Raises:
        SpecError: no such file, too large, or not a JSON object.
    """
    remedy = "give the path of a Hugging Face config.json or of the folder that holds it"
    name = _shortened(file)
    try:
        if file.is_dir():
            file = file / "config.json"
        if not file.is_file():
            raise SpecError(field, f"there is no file {name}", remedy=remedy)
        with file.open("rb") as stream:
            content = stream.read(MAX_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise SpecError(
            field, f"cannot read {name}: {type(error).__name__}", remedy=remedy
        ) from error
    if len(content) > MAX_CONFIG_BYTES:
        raise SpecError(field, f"{file} is larger than a config.json may be (1 MiB)", remedy=remedy)
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SpecError(field, f"{name} is not valid JSON: {error}", remedy=remedy) from error
    if not isinstance(config, dict):
        raise SpecError(field, f"{name} holds no JSON object", remedy=remedy)
    return config


def _shortened(file: Path) -> str:
    """The path as messages name it: the end of a long one."""
    text = str(file)
    return text if len(text) <= MAX_SHOWN_PATH else "…" + text[-MAX_SHOWN_PATH:]


def architecture_from_config(
    config: Mapping[str, object], *, field: str, source: str = "config.json"
) -> ModelArchitecture:
    """The architecture that a Hugging Face configuration describes.

    `source` is the file's name for messages.

    Raises:
        SpecError: an unsupported model_type, with an inline block to complete; or keys that are
            missing, of a wrong type or out of range, all of them at once; or keys at odds with one
            another. Names `field`, the keys, the file and what is valid.
    """
    config, tower = _text_tower(config)
    reader = ConfigReader(config, field=field, source=source)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        found = "no model_type" if model_type is None else f"model_type {shown(model_type)}"
        supported = ", ".join(each for each in FAMILIES if "text" not in each)
        raise SpecError(
            field,
            f"{source} has {found}, which is not supported",
            remedy=f"supported: {supported}; or give the sizes inline, completing: "
            + inline_sizes(config),
        )
    try:
        read = FAMILIES[model_type](reader)
    except ValidationError as error:
        # Values that stand in for missing ones may be at odds: what is missing comes first.
        raise (reader.mistakes_error() or _at_odds(error, reader)) from error
    mistakes = reader.mistakes_error()
    if mistakes is not None:
        raise mistakes
    return read.model_copy(update={"approximation": _joined(read.approximation, tower)})


def _text_tower(config: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """The sizes of a vision-language model's text tower, and what is left out beside it."""
    text = config.get("text_config")
    note = "the vision tower is left out"
    if not isinstance(text, dict):
        return config, note if "vision_config" in config else ""
    outside = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return outside | text, note


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _at_odds(error: ValidationError, reader: ConfigReader) -> SpecError:
    """Every key is there and in range, but they contradict one another."""
    problems = "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'sizes'}: {e['msg']}" for e in error.errors()
    )
    return reader.error(problems, remedy="correct the file")
