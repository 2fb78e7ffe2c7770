"""The subcommands of `automap`: what each takes is in `options`, what it does in the other modules.

Those bring planner and service in, so each is imported where it is called: help and mistakes on the
command line are answered without them.
"""

from automap.service.cli.options import access, plans, runs


def examples(given: plans.ExamplesArguments) -> None:
    """List job specs to begin with, or copy one to here with everything it needs."""
    from automap.service.cli.examples import run_examples

    run_examples(given)


def plan(given: plans.PlanArguments) -> None:
    """Find the best placement for a job and show it.

    With --strategy nothing is searched: the plan is a published system's, to compare with. With
    --server, --json prints the stored record: its id, the spec and the plan.
    """
    from automap.service.cli.plan.command import run_plan

    run_plan(given)


def compare(given: plans.CompareArguments) -> None:
    """Plan a job, then show what well-known placement strategies would cost beside the plan."""
    from automap.service.cli.plan.compare import run_compare

    run_compare(given)


def pareto(given: plans.ParetoArguments) -> None:
    """Find all plans that no other beats in both time and price, over the numbers of nodes.

    Each is proven the fastest on its nodes. A tolerance of 0.02 saves most searches of a large
    cluster: then no plan beats those shown by more than 2 %.
    """
    from automap.service.cli.study.several_plans import run_pareto

    run_pareto(given)


def what_if(given: plans.WhatIfArguments) -> None:
    """Plan a job on several clusters: other numbers of nodes, other GPUs.

    A pool with another GPU keeps its name and nodes; all else is then the catalogue's.
    """
    from automap.service.cli.study.several_plans import run_what_if

    run_what_if(given)


def estimate(given: plans.EstimateArguments) -> None:
    """Price a placement of your own with the planner's cost model."""
    from automap.service.cli.plan.command import run_estimate

    run_estimate(given)


def explain(given: plans.ExplainArguments) -> None:
    """Say why this plan and no other: solved alternatives, and how wrong estimates may be."""
    from automap.service.cli.study.explain import run_explain

    run_explain(given)


def replan(given: plans.ReplanArguments) -> None:
    """Keep a running plan, or move: with measured seconds, or on a changed cluster."""
    from automap.service.cli.study.replan import run_replan

    run_replan(given)


def validate(given: plans.ValidateArguments) -> None:
    """Predict published measurements with the cost model and show how wrong it is.

    Rows with a mistake are named and left out; then the exit code is 2.
    """
    from automap.service.cli.study.validate import run_validate

    run_validate(given)


def profile(given: runs.ProfileArguments) -> None:
    """Measure this machine's operators and collectives, for plans with --profile FOLDER.

    A profile that was interrupted goes on where it was when started again with its --output.
    With --on-cluster a job of the service measures every kind of node, and stores the profiles.
    """
    if given.on_cluster:
        from automap.service.cli.run.measure import run_measurement

        run_measurement(given)
    else:
        from automap.service.cli.profile.command import run_profile

        run_profile(given)


def profiles(given: runs.ProfilesArguments) -> None:
    """List the profiles that a service has stored; store, fetch, compare, delete one."""
    from automap.service.cli.profile.stored import run_profiles

    run_profiles(given)


def calibrate(given: runs.CalibrateArguments) -> None:
    """Learn from runs: correct a measured profile or shipped tables, and lengths of responses.

    The profile that is given stays as it is; earlier evidence in it still counts.
    """
    from automap.service.cli.calibrate.command import run_calibrate

    run_calibrate(given)


def simulate(given: plans.SimulateArguments) -> None:
    """Run a plan's iterations as discrete events, with lengths drawn anew in each.

    Shows the median and the 95th percentile of an iteration, and which GPUs are idle.
    """
    from automap.service.cli.study.simulate import run_simulate

    run_simulate(given)


def export(given: plans.ExportArguments) -> None:
    """Write a plan as the launch of another framework, each setting with its decision.

    A plan that the framework cannot be told is refused with every reason.
    """
    from automap.service.cli.study.export import run_export

    run_export(given)


def import_(given: plans.ImportArguments) -> None:
    """Read the launch of another framework as a job and a placement, and price it.

    Files are read as text: nothing in them is run, and no file is opened that is not named.
    """
    from automap.service.cli.study.import_launch import run_import

    run_import(given)


def convert(given: plans.ConvertArguments) -> None:
    """Write the launch of one framework as that of another, and what is lost on the way.

    It is an import and an export in one: the plan that the launch says, in the other's words.
    """
    from automap.service.cli.study.convert import run_convert

    run_convert(given)


def advise(given: plans.AdviseArguments) -> None:
    """Say which lines of a launch to change: at most three changes, those that are worth most.

    First what does not fit, fails or has no effect. Files are read as text, as by automap import.
    """
    from automap.service.cli.study.advise import run_advise

    run_advise(given)


def run(given: runs.RunArguments) -> None:
    """Run a plan here, without the service, and show what its calls take beside the prediction.

    Ctrl-C cancels it. With --json the run's report is printed.
    """
    from automap.service.cli.run.command import run_here

    run_here(given)


def submit(given: runs.SubmitArguments) -> None:
    """Have a running service run a plan, after planning it if need be."""
    from automap.service.cli.run.jobs import run_submit

    run_submit(given)


def plans_(given: runs.PlansArguments) -> None:
    """List the plans of a running service, or show, cancel or delete one."""
    from automap.service.cli.run.plans import run_plans

    run_plans(given)


def jobs(given: runs.JobsArguments) -> None:
    """List the jobs of a running service, or show, follow or cancel one."""
    from automap.service.cli.run.jobs import run_jobs

    run_jobs(given)


def history(given: runs.HistoryArguments) -> None:
    """Show what plans of a running service predicted beside what their runs measured."""
    from automap.service.cli.run.history import run_history

    run_history(given)


def serve(given: runs.ServeArguments) -> None:
    """Migrate the database and run the HTTP service; AUTOMAP_… variables set what is left out."""
    from automap.service.cli.serving import run_server

    run_server(given)


def worker(given: runs.WorkerArguments) -> None:
    """Run the queued jobs of a service on Ray; AUTOMAP_… variables set what is left out."""
    from automap.service.cli.serving import run_worker

    run_worker(given)


def keys(given: access.KeysArguments) -> None:
    """Make, list and revoke keys to a service: in its database, or on a running one.

    A key is shown once, when it is made.
    """
    from automap.service.cli.access.command import run_keys

    run_keys(given)


def audit(given: access.AuditArguments) -> None:
    """Show who did what on a service: what could change something, and what was refused."""
    from automap.service.cli.access.command import run_audit

    run_audit(given)


def diff(given: runs.DiffArguments) -> None:
    """Put two plans beside each other: seconds, bytes, price, placement, and their jobs."""
    from automap.service.cli.study.diff import run_diff

    run_diff(given)


def label(given: runs.LabelArguments) -> None:
    """Rename a plan or job on a service, label it, note something of it."""
    from automap.service.cli.run.label import run_label

    run_label(given)


def costs(given: runs.CostsArguments) -> None:
    """Say what a plan will cost, by type of GPU; or sum up what runs of a service have cost.

    With PLAN: an iteration, the run and a million tokens. Without: GPU hours and price of runs by
    day, owner, model, plan or label.
    """
    if given.plan is not None:
        from automap.service.cli.study.costs import run_plan_costs

        run_plan_costs(given, given.plan)
    else:
        from automap.service.cli.run.costs import run_costs

        run_costs(given)


def budgets(given: runs.BudgetsArguments) -> None:
    """Set, list and remove what an owner or a label may use in a month before jobs are warned."""
    from automap.service.cli.run.budgets import run_budgets

    run_budgets(given)


def models(given: plans.ListingArguments) -> None:
    """List the model architectures that a spec can name, or those with NAME in theirs."""
    from automap.service.cli.listings import list_models

    list_models(given)


def gpus(given: plans.ListingArguments) -> None:
    """List the GPU types that a pool can have, or those with NAME in theirs."""
    from automap.service.cli.listings import list_gpus

    list_gpus(given)


def targets(given: plans.TargetsArguments) -> None:
    """List what can run a plan, and what each cannot be told; with SPEC, what each costs the job.

    Beside each target's best plan is what the plan would take without its limits, and without each
    of them alone. Every plan has the spec's time limit.
    """
    if given.spec is None:
        from automap.service.cli.listings import list_targets
        from automap.service.cli.terminal.failures import BadInputError

        if given.target or given.brief:
            raise BadInputError("--target and --brief are of a job: automap targets SPEC")
        list_targets(as_json=given.show.json)
        return
    from automap.service.cli.study.targets import run_targets

    run_targets(given)


def levers(given: plans.LeversArguments) -> None:
    """Say what would make a job faster: each change by itself, solved, what gains most first.

    Asynchrony, 8-bit rollouts and products, other engines, what the constraints forbid, adapters,
    half and twice the nodes, faster GPUs: with seconds, price and what else each changes. Every
    plan has the spec's time limit.
    """
    from automap.service.cli.study.levers import run_levers

    run_levers(given)


def schema(given: plans.SchemaArguments) -> None:
    """Print the JSON Schema of a document, for editors and other programs."""
    from automap.service.cli.listings import print_schema

    print_schema(given)


def upgrade(given: runs.UpgradeArguments) -> None:
    """Bring the database to the newest revision, as a server does when it starts."""
    from automap.service.cli.database import run_upgrade

    run_upgrade(given)


def downgrade(given: runs.DowngradeArguments) -> None:
    """Take the database back to an older revision, after saying what would be lost."""
    from automap.service.cli.database import run_downgrade

    run_downgrade(given)


def backup(given: runs.BackupArguments) -> None:
    """Write all rows as of this moment to one file, while the service runs."""
    from automap.service.cli.database import run_backup

    run_backup(given)


def restore(given: runs.RestoreArguments) -> None:
    """Fill a database from a backup, of an older version or of the other kind of database too.

    Stop the service before: what it holds is not replaced. Either all of the backup is there in the
    end, or nothing has changed.
    """
    from automap.service.cli.database import run_restore

    run_restore(given)


def check(given: runs.CheckArguments) -> None:
    """Say whether the database is sound: file, revision, references, documents, leases.

    Exits 1 if there is a fault.
    """
    from automap.service.cli.database import run_check

    run_check(given)


COMMANDS = (
    examples,
    plan,
    compare,
    pareto,
    what_if,
    estimate,
    explain,
    replan,
    validate,
    profile,
    profiles,
    calibrate,
    simulate,
    export,
    import_,
    convert,
    advise,
    run,
    submit,
    plans_,
    jobs,
    history,
    diff,
    label,
    costs,
    budgets,
    serve,
    worker,
    keys,
    audit,
    models,
    gpus,
    targets,
    levers,
    schema,
)
"""In the order of `automap --help`."""
DATABASE_COMMANDS = (upgrade, downgrade, backup, restore, check)
"""In the order of `automap db --help`."""
