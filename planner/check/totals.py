"""Rules on totals: what a plan says of itself follows from schedule, spec and nodes."""

from collections.abc import Iterator

from automap.planner.check.subject import Subject, agrees, tolerance_seconds


def wrong_totals(subject: Subject) -> Iterator[str]:
    """Every total of the plan that does not follow."""
    yield from _plan_is_of_the_spec(subject)
    yield from _bound_is_below(subject)
    yield from _objective_is_met(subject)
    yield from _tokens_are_right(subject)
    yield from _prices_are_right(subject)
    yield from _run_is_right(subject)


def _plan_is_of_the_spec(subject: Subject) -> Iterator[str]:
    plan, spec = subject.plan, subject.job.spec
    if plan.spec != spec:
        yield "the plan carries another spec than its job"
    stated = {
        "name": (plan.name, spec.name),
        "algorithm": (plan.algorithm, spec.algorithm),
        "staleness": (plan.staleness, spec.search.staleness),
        "iteration_barrier": (plan.iteration_barrier, not spec.search.cyclic),
        "search.objective": (plan.search.objective, spec.search.objective),
    }
    for name, (found, expected) in stated.items():
        if found != expected:
            yield f"{name} is {found}, but the spec has {expected}"


def _bound_is_below(subject: Subject) -> Iterator[str]:
    """A proven bound cannot exceed what was found, and meets it where the plan is optimal."""
    plan, search = subject.plan, subject.plan.search
    seconds, bound = plan.iteration_seconds, plan.lower_bound_seconds
    if not bound <= seconds + tolerance_seconds(seconds):
        yield f"lower_bound_seconds {bound:.6f} exceeds iteration_seconds {seconds:.6f}"
    if bound < 0:
        yield f"lower_bound_seconds is {bound:.6f}, below 0"
    value, least = search.objective_value, search.lower_bound
    if not least <= value + tolerance_seconds(value):
        yield f"the bound {least:.6f} of the objective exceeds its value {value:.6f}"
    gap = (value - least) / value if value else 0.0
    if not agrees(plan.relative_gap, max(gap, 0.0)):
        yield f"relative_gap is {plan.relative_gap:.3g}, but value and bound give {gap:.3g}"
    if search.status == "optimal" and not agrees(value, least):
        yield f"the plan is called optimal, but its value {value:.6f} is not its bound {least:.6f}"
    yield from _tolerance_is_kept(subject)


def _tolerance_is_kept(subject: Subject) -> Iterator[str]:
    """A simple plan misses its bound by no more than the job's tolerance."""
    search, allowed = subject.plan.search, subject.job.simplicity_tolerance
    if search.within_tolerance is None:
        return
    if search.within_tolerance != allowed:
        yield f"search.within_tolerance is {search.within_tolerance:g}, but {allowed:g} is allowed"
    value, most = search.objective_value, (1 + allowed) * search.lower_bound
    if not value <= most + tolerance_seconds(value):
        yield f"the plan's value {value:.6f} exceeds {most:.6f}, the most within the tolerance"
    if search.status != "feasible":
        yield f"the plan misses the optimum within the tolerance, but its status is {search.status}"


def _objective_is_met(subject: Subject) -> Iterator[str]:
    plan, search = subject.plan, subject.job.spec.search
    values = {
        "throughput": plan.iteration_seconds,
        "price": plan.price_per_iteration,
        "run_price": plan.run_price,
        "fewest_gpus": float(plan.gpus_used),
    }
    value = values[search.objective]
    if not agrees(plan.search.objective_value, value):
        yield f"the objective's value is {plan.search.objective_value:.6f}, but it is {value:.6f}"
    # A caller's own placement is priced even where it misses the target.
    target = None if plan.search.status == "given" else search.target_iteration_seconds
    if target is not None and plan.iteration_seconds > target + tolerance_seconds(target):
        yield f"iteration_seconds {plan.iteration_seconds:.6f} misses the target {target:.6f}"


def _tokens_are_right(subject: Subject) -> Iterator[str]:
    """Tokens of prompts and responses of one iteration (HybridFlow's throughput)."""
    plan, workload = subject.plan, subject.job.spec.workload
    each = workload.prompt_length.mean_tokens + workload.response_length.mean_tokens
    tokens = workload.num_sequences * each
    if not agrees(plan.tokens_per_iteration, tokens):
        yield f"tokens_per_iteration is {plan.tokens_per_iteration}, but it is {tokens}"
    rate = plan.tokens_per_iteration / plan.iteration_seconds
    if not agrees(plan.tokens_per_second, rate):
        yield f"tokens_per_second is {plan.tokens_per_second:.6f}, but it is {rate:.6f}"


def _price_per_second(subject: Subject) -> float:
    """All GPUs of the nodes touched, paid by the second."""
    return (
        sum(
            len(nodes) * subject.pools[name].gpus_per_node * subject.pools[name].price_per_gpu_hour
            for name, nodes in subject.nodes_touched.items()
        )
        / 3600.0
    )


def _prices_are_right(subject: Subject) -> Iterator[str]:
    plan = subject.plan
    gpus = sum(
        len(nodes) * subject.pools[name].gpus_per_node
        for name, nodes in subject.nodes_touched.items()
    )
    if plan.gpus_used != gpus:
        yield f"gpus_used is {plan.gpus_used}, but the nodes touched have {gpus}"
    price = plan.iteration_seconds * _price_per_second(subject)
    if not agrees(plan.price_per_iteration, price):
        yield f"price_per_iteration is {plan.price_per_iteration:.6f}, but it is {price:.6f}"
    per_million = price / plan.tokens_per_iteration * 1e6
    if not agrees(plan.price_per_million_tokens, per_million):
        yield (
            f"price_per_million_tokens is {plan.price_per_million_tokens:.6f}, but it is "
            f"{per_million:.6f}"
        )


def _run_is_right(subject: Subject) -> Iterator[str]:
    """Start-up, all iterations, and a checkpoint after every so many of them."""
    plan, workload = subject.plan, subject.job.spec.workload
    every = workload.checkpoint_every_iterations
    checkpoints = 0 if every is None else workload.iterations // every
    seconds = (
        workload.startup_seconds
        + workload.iterations * plan.iteration_seconds
        + checkpoints * workload.checkpoint_seconds
    )
    if not agrees(plan.run_seconds, seconds):
        yield f"run_seconds is {plan.run_seconds:.6f}, but it is {seconds:.6f}"
    price = seconds * _price_per_second(subject)
    if not agrees(plan.run_price, price):
        yield f"run_price is {plan.run_price:.6f}, but it is {price:.6f}"
