"""Which backend the options ask for."""

from automap.service.cli.backends.local import Local
from automap.service.cli.backends.protocol import Backend
from automap.service.cli.options.shared import Where
from automap.service.cli.terminal.failures import BadInputError


def backend_of(where: Where) -> Backend:
    """The service that --server names, or this process.

    Raises:
        BadInputError: --profile, which names folders of this machine, beside --server.
    """
    if where.server is None:
        return Local(where.profile or [])
    if where.profile:
        raise BadInputError("--profile: a service plans with its own tables; leave out --server")
    # Brings the HTTP client in, which takes long.
    from automap.service.cli.backends.client import Service
    from automap.service.cli.backends.remote import Remote

    return Remote(Service(where.server, where.api_key))
