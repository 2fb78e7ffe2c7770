"""`automap keys` and `automap audit`."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from rich.console import Console
from rich.text import Text

from automap.service.cli.access.records import Records, records_of
from automap.service.cli.options.access import AuditArguments, KeysArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, need_valid, refusing_options
from automap.service.cli.terminal.tables import NOTHING, WIDE_COLUMNS, plain_table
from automap.service.schemas.access import (
    ApiKeyQuery,
    ApiKeyRecord,
    AuditQuery,
    AuditRecord,
    NewApiKey,
)
from automap.service.storage.api_keys import PREFIX

_ACTIONS = ("create", "list", "revoke")


def run_keys(given: KeysArguments) -> None:
    """Make, list or revoke keys.

    Raises:
        BadInputError: no such action, or one with what belongs to another.
    """
    need_valid("keys", [given.action], _ACTIONS)
    if (given.key is not None) != (given.action == "revoke"):
        raise BadInputError("keys: `revoke` takes the ID of a key, the others take none")
    records = records_of(given)
    if given.action == "create":
        _create(records, given)
    elif given.action == "list":
        with refusing_options():
            query = ApiKeyQuery(owner=given.owner)
        _show(records.keys(query.owner), as_json=given.json)
    else:
        record = records.revoke(_key_id(given.key or ""))
        _show([record], as_json=given.json)


def run_audit(given: AuditArguments) -> None:
    """Show the latest requests that could change something, or were refused."""
    with refusing_options():
        query = AuditQuery(
            owner=given.owner,
            key_id=None if given.key is None else str(_key_id(given.key)),
            resource_id=given.resource,
            min_status=400 if given.refused else None,
            limit=given.limit,
        )
    items = records_of(given).requests(query)
    if given.json:
        console.write_json(json.dumps([each.model_dump(mode="json") for each in items], indent=2))
        return
    out = console.stdout_console()
    wide, widest = out.width >= WIDE_COLUMNS, out.width >= console.MAX_WIDTH
    rows = [
        (
            _moment(each.created_at),
            each.owner or NOTHING,
            *(((each.key_id or NOTHING)[:16], each.remote_address or NOTHING) if wide else ()),
            str(each.status),
            each.method,
            _asked_of(each, " " if wide else "\n"),
            *((each.request_id or NOTHING,) if widest else ()),
        )
        for each in items
    ]
    columns = ("time", "owner", *(("key", "from") if wide else ()), "status", "method", "of")
    columns += ("request",) if widest else ()
    _print(columns, rows, out)


def _asked_of(record: AuditRecord, separator: str) -> str:
    """The route, what it named there, whole on a line, and what changed."""
    about = (record.route, record.resource_id, record.change)
    return separator.join(each for each in about if each)


def _create(records: Records, given: KeysArguments) -> None:
    if given.owner is None:
        raise BadInputError("keys create: say whose key it is: --owner NAME")
    expires_at = None
    if given.expires_days is not None:
        try:
            expires_at = datetime.now(UTC) + timedelta(days=given.expires_days)
        except (OverflowError, ValueError):
            raise BadInputError("--expires-days: give a number of days") from None
        if given.expires_days <= 0:
            raise BadInputError(
                f"--expires-days: {given.expires_days:g} would make a key that opens nothing",
                ["give more than 0 days, or leave it out for a key without an end"],
            )
    with refusing_options():
        new = NewApiKey.model_validate(
            {
                "owner": given.owner,
                "scopes": [scope.strip() for scope in given.scopes.split(",")],
                "note": given.note,
                "expires_at": expires_at,
            }
        )
    made = records.create(new)
    if given.json:
        console.write_json(made.model_dump_json(indent=2))
        return
    # The key alone on stdout: KEY=$(automap keys create …)
    console.stderr_console().print(
        Text(f"A key of {made.owner} ({', '.join(made.scopes)}), shown this once:")
    )
    print(made.key)


def _show(keys: Sequence[ApiKeyRecord], *, as_json: bool) -> None:
    if as_json:
        console.write_json(json.dumps([key.model_dump(mode="json") for key in keys], indent=2))
        return
    columns = ("id", "owner", "scopes", "state", "expires", "last used", "note")
    rows = [
        (
            key.prefix,
            key.owner,
            ",".join(key.scopes),
            _state(key),
            NOTHING if key.expires_at is None else _moment(key.expires_at),
            NOTHING if key.last_used_at is None else _moment(key.last_used_at),
            key.note,
        )
        for key in keys
    ]
    _print(columns, rows)


def _state(key: ApiKeyRecord) -> str:
    if key.usable:
        return "good"
    return "expired" if key.revoked_at is None else "revoked"


def _print(
    columns: Sequence[str], rows: Sequence[Sequence[str]], out: Console | None = None
) -> None:
    table = plain_table()
    for name in columns:  # an id is there to be copied, whatever the width
        table.add_column(name, overflow="fold", no_wrap=name in ("id", "time", "status", "method"))
    for row in rows:
        table.add_row(*(Text(formats.printable(cell)) for cell in row))
    (out or console.stdout_console()).print(table)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _key_id(text: str) -> UUID:
    """An id; a key's beginning, or all of it, stands for its id."""
    try:
        return UUID(text.removeprefix(PREFIX).partition("_")[0])
    except ValueError:
        raise BadInputError(f"{formats.printable(text)!r} is the id of no key") from None
