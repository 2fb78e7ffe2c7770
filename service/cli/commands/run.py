"""The subcommands that run plans, here or on a service."""

from typing import Annotated

import typer

from automap.service.cli.terminal.options import (
    DatabaseOption,
    JsonOption,
    KeyOption,
    QuietOption,
    ServerOption,
)


def run(
    plan_or_spec: Annotated[
        str, typer.Argument(metavar="PLAN|SPEC", help="A plan, or a job spec to plan first.")
    ],
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings", "-s", metavar="FILE", help="Run settings; else NAME.run.yaml beside it."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where the run writes; resumes it."),
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster; else one of its own on this machine.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="So many, not the settings' or the spec's.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a plan here, without the service, and show what its calls take beside the prediction.

    Ctrl-C cancels it. With --json the run's report is printed.
    """
    from automap.service.cli.run.command import RunOptions, run_here

    run_here(
        plan_or_spec,
        RunOptions(
            settings=settings,
            output=output,
            ray_address=ray_address,
            iterations=iterations,
            as_json=json,
            quiet=quiet,
        ),
    )


def submit(
    plan_or_spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|PLAN",
            help="A job spec; or a plan stored on the service: its id, or its record in a file.",
        ),
    ],
    server: ServerOption,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings", "-s", metavar="FILE", help="Run settings; else NAME.run.yaml beside it."
        ),
    ] = None,
    api_key: KeyOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay and show what happens.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Have a running service run a plan, after planning it if need be."""
    from automap.service.cli.run.jobs import submit_job

    submit_job(
        plan_or_spec,
        settings_source=settings,
        server=server,
        api_key=api_key,
        follow=follow,
        as_json=json,
    )


def jobs(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this job; else list the latest.")
    ] = None,
    *,
    server: ServerOption,
    api_key: KeyOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay and show what happens.")
    ] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show the end of its output.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it.")] = False,
    json: JsonOption = False,
) -> None:
    """List the jobs of a running service, or show, follow or cancel one."""
    from automap.service.cli.run.jobs import JobAction, list_jobs, one_job

    if job_id is None:
        list_jobs(server=server, api_key=api_key, as_json=json)
        return
    action: JobAction = "cancel" if cancel else "logs" if logs else "follow" if follow else "show"
    one_job(job_id, action, server=server, api_key=api_key, as_json=json)


def history(
    plan_id: Annotated[
        str | None,
        typer.Argument(metavar="[PLAN]", help="Id of a stored plan; else runs of all plans."),
    ] = None,
    *,
    server: ServerOption,
    api_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Show what plans of a running service predicted beside what their runs measured."""
    from automap.service.cli.run.history import show_history

    show_history(plan_id, server=server, api_key=api_key, as_json=json)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    database_url: DatabaseOption = None,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Start a worker too, if Ray is installed.")
    ] = False,
) -> None:
    """Migrate the database and run the HTTP service; AUTOMAP_… variables set what is left out."""
    from automap.service.cli.serving import run_server

    run_server(host=host, port=port, database_url=database_url, with_worker=with_worker)


def worker(
    database_url: DatabaseOption = None,
    ray_address: Annotated[
        str | None,
        typer.Option(help="Where to submit runs, http://HOST:8265; else a local Ray on demand."),
    ] = None,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the queued jobs of a service on Ray; AUTOMAP_… variables set what is left out."""
    from automap.service.cli.serving import run_worker

    run_worker(
        database_url=database_url, ray_address=ray_address, until_stdin_closes=until_stdin_closes
    )
