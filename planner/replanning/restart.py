"""What it takes to stop a run and start it anew elsewhere: as given, or estimated.

A spec says 0 seconds unless somebody gives others, and no restart takes 0 seconds: 0 counts as not
given. Then all models' state is taken to go through storage, at a rate for each node that holds it.
"""

from automap.planner.assembly.parts import layouts_of
from automap.planner.cost import constants
from automap.planner.cost.memory import training_state, weight_bytes
from automap.planner.job.job import Job
from automap.planner.plan.types import CopyPlacement, Parallelism, Placement
from automap.planner.replanning.result import ReplanOptions, Restart


def restart_of(job: Job, old: Placement, new: Placement, options: ReplanOptions) -> Restart:
    """From one placement to another by way of a checkpoint."""
    workload = job.spec.workload
    checkpoint = options.checkpoint_seconds
    checkpoint = workload.checkpoint_seconds or None if checkpoint is None else checkpoint
    startup = options.startup_seconds
    startup = workload.startup_seconds or None if startup is None else startup
    written, read = _state_bytes(job, old)
    writing = written / (_nodes(job, old) * constants.STORAGE_WRITE_BYTES_PER_SECOND)
    reading = read / (_nodes(job, new) * constants.STORAGE_READ_BYTES_PER_SECOND)
    return Restart(
        checkpoint_seconds=writing if checkpoint is None else checkpoint,
        startup_seconds=constants.START_SECONDS + reading if startup is None else startup,
        checkpoint_estimated=checkpoint is None,
        startup_estimated=startup is None,
    )


def _state_bytes(job: Job, placement: Placement) -> tuple[int, int]:
    """(written, read): weights and optimizer of what trains; of all other models weights alone."""
    written = read = 0
    for copy in placement.copies:
        if copy.kind == "home":
            written += _home_bytes(job, copy) if job.models[copy.role].trainable else 0
            read += _home_bytes(job, copy)
    return written, read


def _home_bytes(job: Job, copy: CopyPlacement) -> int:
    """The bytes of a model's state without replicas, as one GPU that had it all would hold them.

    Weights, and for a trainable model its optimizer state too.
    """
    model, workload = job.models[copy.role], job.spec.workload
    whole = layouts_of(
        copy.model_copy(update={"num_gpus": 1, "layout": Parallelism(), "offload": "none"})
    )
    if not model.trainable:
        return int(weight_bytes(model, whole, precision=workload.precision)[0])
    weights, _, optimizer = training_state(model, workload, whole)
    return int(weights[0] + optimizer[0])


def _nodes(job: Job, placement: Placement) -> int:
    """Nodes on which some model lies."""
    per_node = {pool.name: pool.gpus_per_node for pool in job.pools}
    return len(
        {
            (copy.pool, node)
            for copy in placement.copies
            for node in range(
                copy.first_gpu // per_node[copy.pool],
                (copy.first_gpu + copy.num_gpus - 1) // per_node[copy.pool] + 1,
            )
        }
    )
