"""What `automap keys` and `automap audit` take."""

from dataclasses import dataclass
from typing import Annotated

import typer

from automap.service.cli.options.shared import JsonOption, KeyOption, argument, option

_DATABASE = "Where keys and log are, if not on a --server; default: that of automap serve."


@dataclass(frozen=True)
class KeysArguments:
    action: Annotated[str, typer.Argument(metavar="create|list|revoke", help="What to do.")]
    key: str | None = argument("The key to revoke: its id, or what it begins with.", metavar="ID")
    owner: str | None = option("Whose key it is, or whose keys to list.", metavar="NAME")
    scopes: str = option(
        "What it may do: read, plan, run, admin.",
        metavar="SCOPE,...",
        default="read,plan,run",
    )
    note: str = option("What it is for.", metavar="TEXT", default="")
    expires_days: float | None = option(
        "Good for so many days; default: until it is revoked.", metavar="DAYS"
    )
    server: str | None = option("Ask a running service, with a key that has admin.", metavar="URL")
    api_key: KeyOption = None
    database_url: str | None = option(_DATABASE, metavar="URL")
    json: JsonOption = False


@dataclass(frozen=True)
class AuditArguments:
    owner: str | None = option("Only this owner's requests.", metavar="NAME")
    key: str | None = option("Only requests with this key.", metavar="ID")
    resource: str | None = option("Only requests about this plan, job or other.", metavar="ID")
    refused: bool = option("Only what was refused or failed.", default=False)
    limit: int = option("So many, the latest.", metavar="N", default=50)
    server: str | None = option("Ask a running service, with a key that has admin.", metavar="URL")
    api_key: KeyOption = None
    database_url: str | None = option(_DATABASE, metavar="URL")
    json: JsonOption = False
