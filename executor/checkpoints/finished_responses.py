"""Responses that have ended and were not trained on yet, kept so that a kill loses none of them.

With continuous rollouts responses of later iterations are finished, or half done, when a checkpoint
is written. Those finished are on the disk as soon as the engine hands them out, beside the
checkpoints and apart from them: one file of JSON lines for each iteration that will train on them
and each process that wrote. A resumed run reads them instead of generating them again.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.telemetry.json_lines import line_of, read_lines

_COLUMNS = ("response_tokens", "response_log_probs", "token_versions")


@dataclass(frozen=True, slots=True)
class FinishedResponses:
    """A folder of them; processes on several nodes share it, as they do checkpoints."""

    folder: Path

    def append(self, rows: Batch, *, writer: str) -> None:
        """Keep rows with the columns request, iteration and prompt_id, and those of a response.

        Handed to the system when it returns: a process that is killed afterwards loses nothing.

        Args:
            rows: as `InFlight.turn` hands them out.
            writer: another name for each process and attempt: a line that a kill has cut is the
                last of its file.
        """
        of_rows = {name: rows.tensor(name).tolist() for name in ("request", "prompt_id")}
        of_rows["ended"] = rows.tensor("finished").tolist()
        of_tokens = {name: rows.ragged(name).rows() for name in _COLUMNS}
        by_iteration: dict[int, list[bytes]] = {}
        for place, iteration in enumerate(rows.tensor("iteration").tolist()):
            line = {name: values[place] for name, values in of_rows.items()}
            line |= {name: values[place].tolist() for name, values in of_tokens.items()}
            by_iteration.setdefault(iteration, []).append(line_of(line))
        for iteration, lines in by_iteration.items():
            folder = self._of(iteration)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f"{writer}.jsonl").open("ab") as file:
                file.writelines(lines)

    def read(self, iteration: int) -> dict[int, Mapping[str, Any]]:
        """The responses that an iteration will train on, as far as they are finished, by request.

        Raises:
            OSError: the disk refuses.
        """
        files = sorted(self._of(iteration).glob("*.jsonl"))
        return {line["request"]: line for file in files for line in read_lines(file)}

    def drop(self, *, up_to: int) -> None:
        """Forget those of an iteration and of all before it."""
        for number, folder in list(self._folders()):
            if number <= up_to:
                shutil.rmtree(folder)

    def _of(self, iteration: int) -> Path:
        return self.folder / f"iteration-{iteration:06d}"

    def _folders(self) -> Iterator[tuple[int, Path]]:
        if self.folder.is_dir():
            for folder in self.folder.iterdir():
                yield int(folder.name.removeprefix("iteration-")), folder


def response_rows(requests: Batch, lines: Sequence[Mapping[str, Any]]) -> Batch:
    """Requests with what `FinishedResponses.read` found for each, as the engine handed it out."""
    lengths = torch.tensor([len(line["response_tokens"]) for line in lines])

    def ragged(name: str, dtype: torch.dtype) -> Ragged:
        values = [value for line in lines for value in line[name]]
        return Ragged(torch.tensor(values, dtype=dtype), lengths)

    return requests.with_columns(
        response_tokens=ragged("response_tokens", torch.int64),
        response_log_probs=ragged("response_log_probs", torch.float32),
        finished=torch.tensor([line["ended"] for line in lines], dtype=torch.bool),
        token_versions=ragged("token_versions", torch.int64),
        weights_version=torch.tensor([line["token_versions"][0] for line in lines]),
    )
