"""A run's state on disk: sharded, asynchronous, whole or not there at all.

What writes and reads shards is in `shards`: torch's half takes a second to import, and only workers
need it, when there is something to save.
"""

from automap.executor.checkpoints.errors import CheckpointError
from automap.executor.checkpoints.finished_responses import FinishedResponses, response_rows
from automap.executor.checkpoints.folder import Checkpoint, CheckpointFolder, DamagedCheckpointError
from automap.executor.checkpoints.manifest import ControllerState, Manifest
from automap.executor.checkpoints.random_state import RandomState

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointFolder",
    "ControllerState",
    "DamagedCheckpointError",
    "FinishedResponses",
    "Manifest",
    "RandomState",
    "response_rows",
]
