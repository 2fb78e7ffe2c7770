"""A run's state on disk: sharded, asynchronous, whole or not there at all."""

from executor.checkpoints.errors import CheckpointError
from executor.checkpoints.folder import Checkpoint, CheckpointFolder, DamagedCheckpointError
from executor.checkpoints.manifest import ControllerState, Manifest
from executor.checkpoints.random_state import RandomState
from executor.checkpoints.shards import ShardSaver, load_shard

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointFolder",
    "ControllerState",
    "DamagedCheckpointError",
    "Manifest",
    "RandomState",
    "ShardSaver",
    "load_shard",
]
