"""`automap profile --on-cluster`: a job of a service that measures its cluster."""

from automap.service.cli.profile.command import ProfileOptions, profile_settings
from automap.service.cli.profile.on_cluster import measure_request
from automap.service.cli.remote import Service
from automap.service.cli.run.jobs import start_job
from automap.service.cli.terminal.failures import BadInputError


def run_measurement(options: ProfileOptions) -> None:
    """Have a service measure the cluster of its workers, and store what it has measured."""
    if options.server is None:
        raise BadInputError("--on-cluster: give --server URL, the service whose cluster it is")
    for name, given in (("--output", options.output), ("--ray-address", options.ray_address)):
        if given is not None:
            raise BadInputError(f"--on-cluster: the service chooses where; leave out {name}")
    start_job(
        Service(options.server, options.api_key),
        "profiles",
        measure_request(profile_settings(options), make_default=options.make_default),
        follow=options.follow,
        as_json=options.as_json,
    )
