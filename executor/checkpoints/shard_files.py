"""What each process does for a checkpoint: write its shards while it works on, and read them."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import WriteResult

from automap.executor.checkpoints.errors import CheckpointError, os_error_behind


class ShardSaver:
    """One process's saves, of which at most one is in flight."""

    def __init__(self) -> None:
        self._pending: Future[Metadata] | None = None
        self._folder = Path()

    def save_shard(
        self, state: Mapping[str, Any], folder: Path, process_group: dist.ProcessGroup | None
    ) -> None:
        """Copy the state and write it in the background; `wait` says how that went.

        Called by all ranks of the group, for their roles in the same order. Waits for the save
        before it. Returns as soon as the state may change again.

        Args:
            state: As `TrainingEngine.state` gives it.
            folder: The role's folder in the checkpoint that is being written.
            process_group: A gloo group used for nothing else: the background thread talks over it.
                None: this process alone.

        Raises:
            CheckpointError: the save before this one failed.
        """
        self.wait()
        self._folder = folder
        stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )
        with _translated(folder, "written"):
            pending = async_save(
                dict(state),
                storage_writer=_Writer(folder, single_file_per_rank=True, sync_files=True),
                process_group=process_group,
                async_stager=stager,
                no_dist=process_group is None,
            )
        assert isinstance(pending, Future), "staging does not happen in the background"
        pending.add_done_callback(lambda _: stager.close())
        self._pending = pending

    def wait(self) -> None:
        """Until the save in flight, if there is one, is on the disk.

        Raises:
            CheckpointError: a rank of the group could not write; the message says why.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            with _translated(self._folder, "written"):
                pending.result()


def load_shard(
    state: dict[str, Any], folder: Path, process_group: dist.ProcessGroup | None
) -> None:
    """Fill a state in place from a role's folder; the layout may be another than that which wrote.

    Called by all ranks of the group; None: this process alone.

    Raises:
        CheckpointError: the folder does not hold this state.
    """
    with _translated(folder, "read"):
        load(
            state,
            storage_reader=FileSystemReader(folder),
            process_group=process_group,
            no_dist=process_group is None,
        )


class _Writer(FileSystemWriter):
    """Lets the system's error through, which torch's zip writer turns into one about positions."""

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> torch.futures.Future[list[WriteResult]]:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            cause = os_error_behind(error)
            raise (cause or error) from None


@contextmanager
def _translated(folder: Path, verb: str) -> Iterator[None]:
    """Turns what torch.distributed.checkpoint raises into a message with rank and cause."""
    try:
        yield
    except CheckpointException as error:
        causes = [f"rank {rank}: {cause}" for rank, (cause, _) in error.failures.items()]
        raise CheckpointError(f"{folder} cannot be {verb}: {'; '.join(causes)}") from error
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{folder} cannot be {verb}: {error}") from error
