"""`automap profiles`: what a service has stored of measured profiles."""

import json
import shutil
from pathlib import Path
from typing import Any

from rich.text import Text

from automap.planner.profiles import (
    BASED_ON,
    FINGERPRINT,
    MEASUREMENTS,
    SHIPPED,
    write_missing_tables,
)
from automap.planner.profiles import FILE as CORRECTIONS
from automap.planner.runs import check_output
from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import ProfilesArguments
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import plain_table


def upload(service: Service, folder: Path, *, make_default: bool) -> dict[str, Any]:
    """Store the profile in a folder; what the service says of it.

    Raises:
        BadInputError: there is no profile in the folder, or the service refuses it.
    """
    try:
        fingerprint = json.loads((folder / FINGERPRINT).read_text(encoding="utf-8"))
        lines = (folder / MEASUREMENTS).read_text(encoding="utf-8").splitlines()
        measured = [json.loads(line) for line in lines]
        learnt = folder / CORRECTIONS
        corrections = json.loads(learnt.read_text(encoding="utf-8")) if learnt.exists() else None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{folder} holds no profile: {error}") from None
    body = {
        "fingerprint": fingerprint,
        "measurements": [each for each in measured if "failed" not in each],
        "corrections": corrections,
        "make_default": make_default,
    }
    stored: dict[str, Any] = service.ask("POST", "profiles", data=body).json()
    return stored


def run_profiles(given: ProfilesArguments) -> None:
    """Store, fetch, list, compare, delete, or choose the default, as the command was asked.

    Raises:
        BadInputError: options without the version they are about; what the service found wrong.
    """
    service = Service(given.account.server, given.account.api_key)
    version, as_json = given.version, given.json
    if given.delete or given.fetch is not None:
        option, what = ("--delete", "delete") if given.delete else ("--fetch", "write")
        others = (given.store, given.diff, given.make_default, given.delete and given.fetch)
        if version is None or any(others):
            raise BadInputError(f"{option}: give the VERSION to {what}, and nothing else")
        if given.fetch is None:
            delete_stored(service, version, as_json=as_json)
        else:
            fetch_stored(service, version, Path(given.fetch).expanduser(), as_json=as_json)
    elif given.store is not None:
        if version is not None or given.diff is not None:
            raise BadInputError("--store: it stores a folder, so give no VERSION and no --diff")
        folder = Path(given.store).expanduser()
        store_one(service, folder, make_default=given.make_default, as_json=as_json)
    elif version is None:
        if given.diff is not None or given.make_default:
            raise BadInputError("--diff and --make-default: say of which profile: VERSION")
        list_stored(service, as_json=as_json)
    elif given.diff is not None:
        show_difference(service, version, given.diff, as_json=as_json)
    elif given.make_default:
        set_default(service, version, as_json=as_json)
    else:
        show_one(service, version, as_json=as_json)


def store_one(service: Service, folder: Path, *, make_default: bool, as_json: bool) -> None:
    """Store the profile in a folder, and show its version."""
    stored = upload(service, folder, make_default=make_default)
    if as_json:
        console.write_json(json.dumps(stored, indent=2))
        return
    line = f"{stored['device_type']}: stored as {stored['version']}"
    console.stdout_console().print(line, highlight=False)


def fetch_stored(service: Service, version: str, folder: Path, *, as_json: bool) -> None:
    """Write a stored profile to a new folder, as automap profile or calibrate left it.

    Raises:
        SpecError: the folder is there already.
    """
    check_output(folder, option="--fetch")
    stored = service.ask("GET", f"profiles/{version}").json()
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / FINGERPRINT).write_text(json.dumps(stored["fingerprint"], indent=1) + "\n")
    lines = (json.dumps(each) + "\n" for each in stored["measurements"])
    (partial / MEASUREMENTS).write_text("".join(lines))
    if stored["corrections"] is not None:
        (partial / CORRECTIONS).write_text(json.dumps(stored["corrections"], indent=1) + "\n")
    write_missing_tables(partial)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)
    if as_json:
        console.write_json(json.dumps({"version": version, "folder": str(folder)}))
        return
    line = f"{stored['device_type']}: {version} written to {folder}"
    console.stdout_console().print(line, highlight=False, soft_wrap=True, markup=False)


def show_one(service: Service, version: str, *, as_json: bool) -> None:
    """One profile; without --json its measurements are left out."""
    stored = service.ask("GET", f"profiles/{version}").json()
    if not as_json:
        del stored["measurements"]
    console.write_json(json.dumps(stored, indent=2))


def list_stored(service: Service, *, as_json: bool) -> None:
    """Every stored profile, newest first."""
    page = service.ask("GET", "profiles?limit=200").json()
    found: list[dict[str, Any]] = page["items"]
    while page["next_cursor"] is not None:
        page = service.ask("GET", f"profiles?limit=200&cursor={page['next_cursor']}").json()
        found += page["items"]
    if as_json:
        console.write_json(json.dumps(found, indent=2))
        return
    table = plain_table()
    for header in ("version", "device type", "stored", "shapes", "torch", "measured on"):
        table.add_column(header)
    for each in found:
        identity = each["fingerprint"]["identity"]
        table.add_row(
            each["version"] + (" *" if each["is_default"] else ""),
            each["device_type"],
            each["created_at"][:16].replace("T", " "),
            str(sum(each["shapes"].values())),
            str(identity.get("torch", "")),
            Text(_measured_on(identity)),
        )
    out = console.stdout_console()
    out.print(table)
    out.print(Text("* pools of its device type that name no profile are priced with it", "dim"))


def _measured_on(identity: dict[str, Any]) -> str:
    if identity.get(BASED_ON) == SHIPPED:
        return "shipped tables"
    return str(identity.get("device_name", ""))


def delete_stored(service: Service, version: str, *, as_json: bool) -> None:
    """Forget a version."""
    service.delete(f"profiles/{version}")
    if as_json:
        console.write_json(json.dumps({"deleted": version}))
        return
    console.stdout_console().print(f"{version} is deleted", highlight=False)


def set_default(service: Service, version: str, *, as_json: bool) -> None:
    """Make a version the default of its device type."""
    stored = service.ask("PUT", f"profiles/{version}/default").json()
    if as_json:
        console.write_json(json.dumps(stored, indent=2))
        return
    console.stdout_console().print(
        f"{stored['version']} is the default of {stored['device_type']}", highlight=False
    )


def show_difference(service: Service, first: str, second: str, *, as_json: bool) -> None:
    """The second profile against the first."""
    found = service.ask("GET", f"profiles/{first}/diff/{second}").json()
    if as_json:
        console.write_json(json.dumps(found, indent=2))
        return
    out = console.stdout_console()
    for each in found["identity"]:
        out.print(Text(f"{each['name']}: {each['first']} → {each['second']}"))
    table = plain_table()
    table.add_column("table")
    for header in ("both", "only 1st", "only 2nd", "p10", "median", "p90"):
        table.add_column(header, justify="right")
    for each in found["tables"]:
        ratios = (each["p10_ratio"], each["median_ratio"], each["p90_ratio"])
        counts = (each["both"], each["only_first"], each["only_second"])
        table.add_row(each["table"], *map(str, counts), *map(_ratio, ratios))
    out.print(table)
    for each in found["furthest"]:
        key = ", ".join(f"{name} {value}" for name, value in each["key"].items())
        out.print(Text(f"{_ratio(each['ratio'])}  {each['table']}: {key}", style="dim"))


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"
