"""Files of a launch as data: scripts as text, configurations with the lines of their keys."""

from contextlib import suppress
from pathlib import Path

from automap.planner.frameworks import framework_names
from automap.planner.imports import LaunchFile
from automap.service.cli.inputs.files import STANDARD_INPUT, read_text
from automap.service.cli.inputs.kinds import refuse_as_launch
from automap.service.cli.terminal.failures import BadInputError
from automap.service.schemas.document_lines import key_lines
from automap.service.schemas.documents import MAX_DOCUMENT_BYTES, DocumentError, load_document

CONFIGURATIONS = (".yaml", ".yml")
MAX_FILES = 50


def read_launch(sources: list[str]) -> list[LaunchFile]:
    """The files, each once.

    Raises:
        BadInputError: one cannot be read, is too large, binary, or no configuration that is safe.
    """
    if len(sources) > MAX_FILES:
        raise BadInputError(f"{len(sources)} files; at most {MAX_FILES} make a launch")
    for source in sources:
        if source in framework_names() and not Path(source).exists():
            raise BadInputError(f"{source} is a framework, not a file", [f"write --from {source}"])
    return [_read(source) for source in dict.fromkeys(sources)]


def _read(source: str) -> LaunchFile:
    name = "standard input" if source == STANDARD_INPUT else source
    text = read_text(source, max_bytes=MAX_DOCUMENT_BYTES)
    if not text.strip():
        raise BadInputError(f"{name}: the file is empty")
    if Path(source).suffix not in CONFIGURATIONS:
        if text.lstrip().startswith("{"):
            with suppress(DocumentError):
                refuse_as_launch(load_document(text, media="json"), name)
        return LaunchFile(name, text)
    try:
        document = load_document(text, media="yaml")
        refuse_as_launch(document, name)
        return LaunchFile(name, document=document, lines=key_lines(text))
    except DocumentError as error:
        raise BadInputError(f"{name}: {error}") from None
