"""Assumptions that a plan makes beyond its spec, in words: `Plan.assumptions` and `.warnings`."""

from collections.abc import Iterator, Sequence

from automap.planner.catalogue.hardware import Pool
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS
from automap.planner.cost import constants
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.operators.roofline import Peaks
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.job.resolution import length_warnings
from automap.planner.job.targets import refusal
from automap.planner.plan.types import CopyPlacement
from automap.planner.profiles.folder import disturbances, fingerprint, is_of_shipped_tables
from automap.planner.targets.automap import AUTOMAP
from automap.planner.targets.tables import FRAMEWORKS

SLOW_FUNCTION_SECONDS = 120.0
"""What a batch may take in one process without a warning: a part of most iterations."""
SLOW_NETWORK_BYTES_PER_SECOND = 1.25e8
"""Bandwidth per GPU below which a network is remarked on: one gigabit Ethernet port for each GPU.
Clusters that train have at least ten times as much."""


def assumptions(job: Job) -> list[str]:
    """One line per approximation or doubtful value, each beginning with its place in the spec."""
    return [
        *warnings(job),
        *length_warnings(job),
        *_functions_without_seconds(job),
        *_derived_tables(job),
        *_scaled_collectives(job),
        *_corrected_prices(job),
        *_executors_work(job),
        *_frameworks_driver(job),
        *(
            f"models.{role}: {model.architecture.approximation}"
            for role, model in job.models.items()
            if model.architecture.approximation
        ),
    ]


def _functions_without_seconds(job: Job) -> Iterator[str]:
    """Name the functions that are priced as if they took no time."""
    for role, model in job.spec.models.items():
        if model.function and model.seconds_per_response == 0:
            yield (
                f"models.{role}: its function is priced with seconds_per_response 0, so that a "
                "call takes 1 µs however many responses it scores; give what one takes"
            )


def _one_after_the_other(job: Job) -> Iterator[str]:
    """Name the functions and services whose one process takes long for a batch."""
    for call in job.dataflow.calls:
        if call.fixed_seconds is None:
            continue
        model = job.spec.models[call.role]
        served = model if model.remote is None else model.remote
        seconds = call.num_sequences * served.seconds_per_response
        # Of a service whose rate takes longer, more processes would get no more.
        alone = model.open_requests == 1 and seconds >= call.fixed_seconds - 1e-6
        if alone and seconds > SLOW_FUNCTION_SECONDS:
            yield (
                f"models.{call.role}: one process takes {seconds:,.3g} s to score "
                f"{call.num_sequences:,} responses one after the other; give a concurrency, which "
                "is as many processes"
            )


def warnings(job: Job) -> list[str]:
    """Assumptions that ask for something to be done before the plan is used."""
    return [
        *_another_target(job),
        *_one_after_the_other(job),
        *_missing_precisions(job),
        *_disturbed_profiles(job),
        *_slow_collectives(job),
        *_outdated_corrections(job),
        *_slow_networks(job),
    ]


def unused_pools(job: Job, copies: Sequence[CopyPlacement], *, tolerance: float) -> Iterator[str]:
    """Name the pools of which the fastest plan uses nothing: users look for why."""
    if job.spec.search.objective != "throughput":
        return
    used = {copy.pool for copy in copies}
    by = f"more than {100 * tolerance:.3g} % faster" if tolerance else "faster"
    for number, pool in enumerate(job.pools):
        if pool.name not in used:
            yield (
                f"cluster.pools.{number}: nothing is placed on the {pool.usable_gpus} GPUs of "
                f"{pool.name}: a copy of a model lies in one pool, and no plan that was found is "
                f"{by} with one there"
            )


def _derived_tables(job: Job) -> Iterator[str]:
    pricing = Pricing(job)
    for pool in job.pools:
        profile = pricing.profile(pool)
        if profile.derived:
            yield (
                f"pools.{pool.name}: {pool.gpu.name} has no operator tables of its own; times "
                f"derive from {profile.table_gpu or 'the roofline alone'}"
            )


def _scaled_collectives(job: Job) -> Iterator[str]:
    """Name the pools whose links are not those on which their collectives were measured."""
    pricing = Pricing(job)
    for pool in job.pools:
        profile = pricing.profile(pool)
        there, here = profile.table_link_bytes_per_second, pool.intra_node_bytes_per_second
        if profile.tables is not None and there != here:
            yield (
                f"pools.{pool.name}: collectives inside a node are those measured on "
                f"{profile.table_gpu} over {there / 1e9:g} GB/s, scaled to links of "
                f"{here / 1e9:g} GB/s (intra_node_bytes_per_second)"
            )


def _slow_collectives(job: Job) -> Iterator[str]:
    """Name the groups whose measured collectives contradict those of smaller groups."""
    pricing = Pricing(job)
    for pool in job.pools:
        profile = pricing.profile(pool)
        measured = profile.tables.slow_groups() if profile.tables else []
        slow = [each for each in measured if each.num_gpus <= pool.nvlink_domain_gpus]
        # Cores share their memory, so that more of them have less of it each.
        if not slow or pool.gpu.is_core:
            continue
        worst = min(slow, key=lambda group: group.bytes_per_second)
        told = (
            f"{worst.collective} among {worst.num_gpus} GPUs reached "
            f"{worst.bytes_per_second / 1e9:.2g} GB/s where fewer reached "
            f"{worst.smaller_bytes_per_second / 1e9:.2g}"
        )
        if profile.measured_here:
            yield (
                f"pools.{pool.name}: in its profile {told}, which links alone do not explain; it "
                "is priced as measured: look for what disturbed it, and measure it again"
            )
        else:
            groups = " and ".join(str(each) for each in sorted({each.num_gpus for each in slow}))
            yield (
                f"pools.{pool.name}: on the machine that measured the collectives of "
                f"{profile.table_gpu}, {told}; those of {groups} GPUs are left out and priced at "
                "the bandwidth of fewer, which GPUs without peer-to-peer may not reach: measure "
                "yours with automap profile"
            )


def _disturbed_profiles(job: Job) -> Iterator[str]:
    for pool in job.pools:
        for disturbance in disturbances(pool.profile) if pool.profile else []:
            yield f"pools.{pool.name}: while its profile was measured, {disturbance}"


def _corrected_prices(job: Job) -> Iterator[str]:
    """Name the factors on prices that runs have taught, and how much evidence they have."""
    pricing = Pricing(job)
    for pool in job.pools:
        corrections = pricing.profile(pool).corrections
        if corrections:
            runs = len(
                {each.run for each in corrections.evidence}
                | {each.run for each in corrections.between}
            )
            between = corrections.between_calls_seconds
            added = f" and {1e3 * between:.1f} ms between calls" if between else ""
            yield (
                f"pools.{pool.name}: its calls take what the profile says times factors{added} "
                f"that {runs} run{'' if runs == 1 else 's'} taught (provenance.corrections)"
            )


def _executors_work(job: Job) -> Iterator[str]:
    """What a run adds to calls on cores, which take milliseconds, where no run has taught it."""
    pricing = Pricing(job)
    each, between = constants.CORE_CALL_SECONDS, constants.CORE_BETWEEN_CALLS_SECONDS
    for pool in job.pools:
        if pool.gpu.is_core and not pricing.profile(pool).corrections.between:
            yield (
                f"pools.{pool.name}: {1e3 * each:g} ms in each call of a model or optimizer step "
                f"and {1e3 * between:g} ms to the next are what Automap's executor took on two "
                "cores; automap calibrate learns yours"
            )


def _frameworks_driver(job: Job) -> Iterator[str]:
    """Say what the prices have of the target's driver, as its iterations were measured."""
    pricing = Pricing(job)
    handed, around = pricing.iteration_driver_seconds()
    if handed + around:
        fixed = f" and {around:.3g} s around its calls" if around else ""
        yield (
            f"search.target: {handed:.3g} s in which the driver of {pricing.system.name} hands "
            f"padded batches to the calls of an iteration{fixed} count, as iterations of its "
            "releases were measured; what it takes here may be a multiple or a part"
        )
    rate = pricing.system.host_copy_bytes_per_second
    if rate is not None:
        yield (
            f"search.target: {pricing.system.name} is taken to move at most {rate / 1e9:g} GB/s "
            "per GPU to the host and back, through pageable memory"
        )


def _outdated_corrections(job: Job) -> Iterator[str]:
    for pool in job.pools:
        if pool.profile is not None and is_of_shipped_tables(pool.profile):
            then = fingerprint(pool.profile)["identity"].get("tables_version")
            now = load_profile(pool.gpu).version
            if then != now:
                yield (
                    f"pools.{pool.name}: its factors were learnt of version {then} of the shipped "
                    f"tables, which are {now} here; calibrate again with --profile shipped"
                )


def _missing_precisions(job: Job) -> Iterator[str]:
    """Name precisions that the spec asks for and a GPU cannot compute in."""
    workload = job.spec.workload
    wanted = {workload.precision, workload.rollout_precision or workload.precision}
    for pool in job.pools:
        if "bf16" in wanted and not pool.gpu.has_bf16:
            yield (
                f"pools.{pool.name}: {pool.gpu.name} does not compute in bf16; it is priced at its "
                "fp16 rate, and the job will have to run with workload.precision: fp16"
            )
        if "fp8" in wanted and pool.gpu.fp8_flops_per_second is None:
            yield (
                f"pools.{pool.name}: {pool.gpu.name} does not compute in fp8; rollout weights are "
                "stored in fp8 and priced at the bf16 rate"
            )
        yield from _four_bits(pool, workload.rollout_precision or "")


def _four_bits(pool: Pool, precision: str) -> Iterator[str]:
    """Name what 4-bit weights multiply in, and that nothing was measured of them."""
    if precision in BLOCK_FORMATS:
        arithmetic = Peaks.of(pool.gpu).arithmetic(precision)
        how = "unpacked to 16 bits" if arithmetic == "bf16" else f"multiplied in {arithmetic}"
        yield (
            f"pools.{pool.name}: rollout weights in {precision} are {how} on {pool.gpu.name}, and "
            "priced by peak rates and bytes at the efficiency of bf16: no table has them"
        )


def _another_target(job: Job) -> Iterator[str]:
    """Say what a job is planned for that names no target and that automap cannot run."""
    refused = refusal(AUTOMAP, job.spec, job.dataflow, job.models)
    if job.spec.search.target is not None or job.spec.search.strategy or refused is None:
        return
    why = f"as automap cannot run this job ({refused[0]}: {refused[1]})"
    if job.target not in FRAMEWORKS:
        yield f"search.target: any, {why}; no software is known to run all of what was searched"
        return
    yield (
        f"search.target: {job.target.name}, the first framework that can, {why}; "
        "automap compare SPEC --targets all has the others"
    )


def _slow_networks(job: Job) -> Iterator[str]:
    for pool in job.pools:
        given = pool.inter_node_bytes_per_second
        if pool.num_nodes > 1 and given < SLOW_NETWORK_BYTES_PER_SECOND:
            yield (
                f"pools.{pool.name}: inter_node_bytes_per_second is {given:g}, slower than "
                "gigabit Ethernet; the unit is bytes per second and GPU (25 GB/s are 25e9)"
            )
