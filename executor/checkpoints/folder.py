"""The checkpoints of a run: written beside, renamed when whole, the last few kept.

`iteration-000010/` holds `manifest.json` (every file with its size), `controller.json`, a folder of
shards per role, and `random/`, the generators of every process. `iteration-000020.partial/` is
being written, or was left by a run that was killed.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from automap.executor.checkpoints.errors import CheckpointError
from automap.executor.checkpoints.manifest import ControllerState, FileEntry, Manifest
from automap.executor.checkpoints.random_state import write_synced
from automap.executor.engines.tensor_folder import sync_to_disk
from automap.planner.plan import Parallelism, code_version

MANIFEST = "manifest.json"
CONTROLLER = "controller.json"
_WHOLE = re.compile(r"iteration-(\d{6,})")
_LEFTOVER = re.compile(r"iteration-\d{6,}\.(partial|removed)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of which every file is there."""

    path: Path
    manifest: Manifest
    controller: ControllerState


class DamagedCheckpointError(CheckpointError):
    """The newest checkpoint lacks something; `older` is the newest whole one, if there is one."""

    def __init__(self, message: str, older: Checkpoint | None) -> None:
        super().__init__(message)
        self.older = older


class CheckpointFolder:
    """The folder of a run's checkpoints; one controller writes to it."""

    def __init__(self, path: Path, *, keep_last: int) -> None:
        """`keep_last` whole checkpoints stay; 1 or more."""
        if keep_last < 1:
            raise ValueError(f"keep_last={keep_last}: give at least 1")
        self.path = path
        self._keep_last = keep_last
        self._writing: int | None = None

    def begin(self, iteration: int) -> Path:
        """An empty folder for the shards of all processes; `commit` or `discard` must follow.

        What a killed run left half-written is removed.

        Raises:
            CheckpointError: another is being written, or the disk refuses.
        """
        if self._writing is not None:
            raise CheckpointError(
                f"checkpoint {_name(self._writing)} is still being written: commit or discard it "
                f"before {_name(iteration)}"
            )
        partial = self._partial(iteration)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.iterdir():
                if _LEFTOVER.fullmatch(leftover.name):
                    shutil.rmtree(leftover)
            partial.mkdir()
        except OSError as error:
            raise CheckpointError(self._refused(iteration, error)) from error
        self._writing = iteration
        return partial

    def commit(
        self, iteration: int, *, roles: Mapping[str, Parallelism], controller: ControllerState
    ) -> Checkpoint:
        """Make a checkpoint of what all processes have written, and drop those beyond keep_last.

        Args:
            iteration: As given to `begin`.
            roles: Role (its folder's name) → layout.
            controller: The controller's own state.

        Raises:
            CheckpointError: a role has written nothing, or the disk refuses; the partial folder
                is removed, and earlier checkpoints are as they were.
        """
        partial, whole = self._partial(iteration), self.path / _name(iteration)
        try:
            for role in roles:
                if not (partial / role / ".metadata").is_file():
                    raise CheckpointError(f"{partial}: role {role!r} has written nothing")
            write_synced(partial / CONTROLLER, controller.model_dump_json(indent=1))
            manifest = Manifest(
                iteration=iteration,
                roles=dict(roles),
                code_version=code_version(),
                files=list(_files(partial)),
            )
            write_synced(partial / MANIFEST, manifest.model_dump_json(indent=1))
            _sync_folders(partial)
            # Only a damaged one, which this run did not resume from, can have the same name.
            self._remove(whole)
            partial.rename(whole)
            sync_to_disk(self.path)
        except (OSError, CheckpointError) as error:
            self.discard(iteration)
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(self._refused(iteration, error)) from error
        self._writing = None
        self._prune()
        return Checkpoint(whole, manifest, controller)

    def discard(self, iteration: int) -> None:
        """Remove what was written of a checkpoint that failed; the whole ones stay."""
        self._writing = None
        shutil.rmtree(self._partial(iteration), ignore_errors=True)

    def newest(self) -> Checkpoint | None:
        """What to resume from; None if there is nothing.

        Raises:
            DamagedCheckpointError: a file of the newest checkpoint is missing or cut short. The
                message names it and the next older whole one.
        """
        paths = self._whole_paths()
        if not paths:
            return None
        newest = paths[-1]
        found = _read(newest)
        if isinstance(found, Checkpoint):
            return found
        older = next(
            (each for path in reversed(paths[:-1]) if isinstance(each := _read(path), Checkpoint)),
            None,
        )
        offer = (
            f"remove or repair that folder to resume from the next older whole one, "
            f"{older.path.name}"
            if older is not None
            else "there is no older whole one: repair it, or start anew with "
            "checkpoint.resume: false"
        )
        raise DamagedCheckpointError(f"checkpoint {newest} is damaged: {found}; {offer}", older)

    def oldest(self) -> int | None:
        """Iteration of the oldest that is kept, whole or not; None: there is none."""
        names = [path.name for path in self._whole_paths()[:1]]
        return int(names[0].removeprefix("iteration-")) if names else None

    def _whole_paths(self) -> list[Path]:
        """Oldest first."""
        if not self.path.is_dir():
            return []
        matches = [(_WHOLE.fullmatch(path.name), path) for path in self.path.iterdir()]
        return [path for _, path in sorted((int(m[1]), path) for m, path in matches if m)]

    def _prune(self) -> None:
        for path in self._whole_paths()[: -self._keep_last]:
            try:
                self._remove(path)
            except OSError as error:
                raise CheckpointError(
                    f"{path} is one more than checkpoint.keep_last={self._keep_last} and cannot "
                    f"be removed: {error}"
                ) from error

    def _remove(self, path: Path) -> None:
        """First out of sight, so that a kill in between leaves no checkpoint without its files."""
        if path.exists():
            removed = path.with_name(path.name + ".removed")
            shutil.rmtree(removed, ignore_errors=True)
            path.rename(removed)
            shutil.rmtree(removed)

    def _partial(self, iteration: int) -> Path:
        return self.path / f"{_name(iteration)}.partial"

    def _refused(self, iteration: int, error: OSError) -> str:
        whole = [path.name for path in self._whole_paths()]
        return f"checkpoint {self.path / _name(iteration)} cannot be written: {error}; " + (
            f"intact: {', '.join(whole)}" if whole else "there is no earlier one"
        )


def _name(iteration: int) -> str:
    return f"iteration-{iteration:06d}"


def _read(path: Path) -> Checkpoint | str:
    """The checkpoint, or what is wrong with it."""
    try:
        manifest = Manifest.model_validate_json((path / MANIFEST).read_text())
        problems = list(_problems(path, manifest))
        if problems:
            return "; ".join(problems[:3]) + (" …" if len(problems) > 3 else "")
        controller = ControllerState.model_validate_json((path / CONTROLLER).read_text())
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValidationError) as error:
        return str(error)
    return Checkpoint(path, manifest, controller)


def _problems(path: Path, manifest: Manifest) -> Iterator[str]:
    for entry in manifest.files:
        file = path / entry.path
        if not file.is_file():
            yield f"{entry.path} is missing"
        elif (found := file.stat().st_size) != entry.num_bytes:
            yield f"{entry.path} has {found:,} bytes instead of {entry.num_bytes:,}"


def _files(folder: Path) -> Iterator[FileEntry]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            yield FileEntry(path=name, num_bytes=path.stat().st_size)


def _sync_folders(folder: Path) -> None:
    for path in [folder, *(each for each in folder.rglob("*") if each.is_dir())]:
        sync_to_disk(path)
