"""`automap profile --on-cluster`: a job of a service that measures its cluster."""

from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import ProfileArguments
from automap.service.cli.profile.command import profile_settings
from automap.service.cli.profile.on_cluster import measure_request
from automap.service.cli.run.jobs import start_job
from automap.service.cli.terminal.failures import BadInputError


def run_measurement(given: ProfileArguments) -> None:
    """Have a service measure the cluster of its workers, and store what it has measured."""
    if given.server is None:
        raise BadInputError("--on-cluster: give --server URL, the service whose cluster it is")
    for name, value in (
        ("--output", given.output),
        ("--tables", given.tables),
        ("--ray-address", given.ray_address),
    ):
        if value is not None:
            raise BadInputError(f"--on-cluster: the service chooses where; leave out {name}")
    start_job(
        Service(given.server, given.api_key),
        "profiles",
        measure_request(profile_settings(given), make_default=given.make_default),
        follow=given.follow,
        as_json=given.show.json,
    )
