"""The shell script of a launch: it starts Ray on the plan's nodes and submits the run."""

import shlex
import textwrap
from collections.abc import Iterable, Iterator

from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.subject import Subject

FILL_IN = "FILL_IN"
"""What a placeholder is until it is given."""
ONE_ITERATION = (
    "It trains 1 iteration, as the spec does not say how many: set trainer.total_training_steps."
)
QUOTED = r"""quoted() {
  local text=${1//\'/\\\'}
  printf "'%s'" "${text//'${'/'\\${'}"
}"""
"""The function of a script that quotes a value as `hydra_quoted` does."""


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line, or quoted."""
    parts = [
        *_head(subject, launch),
        *_placeholders(launch),
        *_environment(subject, launch),
        *_settings(launch.settings),
        *_start(subject, launch),
    ]
    return "\n".join(parts) + "\n"


def _head(subject: Subject, launch: Launch) -> Iterator[str]:
    plan = subject.plan
    seconds = f"{plan.iteration_seconds:.1f} s per iteration"
    if plan.iteration_seconds_interval is not None:
        interval = plan.iteration_seconds_interval
        seconds += f" ({interval.low:.1f} to {interval.high:.1f} s)"
    yield "#!/usr/bin/env bash"
    yield from _comment(f"{plan.name}: a plan of Automap for {launch.target}, {seconds}.")
    yield from _comment(f"{launch.target} is released with {subject.framework.beside}.")
    yield "#"
    yield from _comment(_usage(launch))
    if plan.spec.workload.iterations == 1:
        yield from _comment(ONE_ITERATION)
    yield "#"
    yield "# What the prediction assumes, and verl may do otherwise:"
    for each in launch.assumptions:
        yield from _comment(each, first="# - ", further="#   ")
    yield "# How far off it is, from the file that verl's logger writes:"
    yield "#   automap calibrate LOG.jsonl --format verl --plan PLAN.json"
    yield "set -euo pipefail"


def _usage(launch: Launch) -> str:
    if launch.num_nodes == 1:
        return "Run it on the node."
    last = launch.num_nodes - 1
    return (
        f"Run it on each of {launch.num_nodes} nodes, with NODE_RANK=0 to {last} and HEAD_ADDRESS "
        "the address of node 0; under Slurm in one srun with a task per node, which knows the rank."
    )


def _placeholders(launch: Launch) -> Iterator[str]:
    yield "\n# Given from outside, or here; without them nothing starts."
    for each in launch.placeholders:
        yield from _comment(each.what)
        yield f"{each.variable}=${{{each.variable}:-{FILL_IN}}}"
    names = [each.variable for each in launch.placeholders]
    if launch.num_nodes > 1:
        yield "# Address of node 0, and the number of this node"
        yield f"HEAD_ADDRESS=${{HEAD_ADDRESS:-{FILL_IN}}}"
        yield f"NODE_RANK=${{NODE_RANK:-${{SLURM_NODEID:-{FILL_IN}}}}}"
        names += ["HEAD_ADDRESS", "NODE_RANK"]
    yield textwrap.dedent(
        f"""
        missing=""
        for name in {" ".join(names)}; do
          if [ "${{!name}}" = {FILL_IN} ]; then missing="$missing $name"; fi
        done
        if [ -n "$missing" ]; then
          echo "not started, to be filled in:$missing" >&2
          exit 2
        fi"""
    )


def _environment(subject: Subject, launch: Launch) -> Iterator[str]:
    framework = subject.framework
    found = f"import importlib.metadata as m; print(m.version({framework.name!r}))"
    yield textwrap.dedent(
        f"""
        # Keys change between versions.
        version=$(python3 -c {shlex.quote(found)})
        if [ "$version" != {framework.version} ]; then
          echo "not started: this is for {launch.target}, and $version is installed" >&2
          exit 2
        fi
        """
    )
    for name, value in launch.environment.items():
        yield f"export {name}={shlex.quote(value)}"
    first = subject.plan.copies[0]
    used, each = subject.gpus_of_node(), subject.pool(first).gpus_per_node
    if len(used) < each:
        yield f"# The plan uses {len(used)} of {each} GPUs."
        yield f"export CUDA_VISIBLE_DEVICES={','.join(map(str, used))}"


def _settings(settings: Iterable[LaunchSetting]) -> Iterator[str]:
    yield "\n# A value for Hydra, in which quotes end nothing and nothing is looked up."
    yield f"{QUOTED}\n"
    yield "# Each setting follows the decision of the plan that it comes from."
    yield "settings=("
    because = ""
    for each in settings:
        if each.because != because:
            yield from _comment(each.because, first="  # ", further="  #   ")
            because = each.because
        if each.placeholder:
            yield f'  "{each.key}=$(quoted "${each.value}")"'
        else:
            yield f"  {shlex.quote(f'{each.key}={each.value}')}"
    yield ")"


def _start(subject: Subject, launch: Launch) -> Iterator[str]:
    gpus, entry = launch.gpus_per_node, subject.framework.entry
    if launch.num_nodes == 1:
        yield f"\nray start --head --num-gpus={gpus}\ntrap 'ray stop' EXIT"
    else:
        total = launch.num_nodes * gpus
        yield textwrap.dedent(
            f"""
            if [ "$NODE_RANK" != 0 ]; then
              until ray health-check --address "$HEAD_ADDRESS:6379"; do sleep 5; done
              exec ray start --address="$HEAD_ADDRESS:6379" --num-gpus={gpus} --block
            fi
            ray start --head --node-ip-address="$HEAD_ADDRESS" --port=6379 --num-gpus={gpus}
            trap 'ray stop' EXIT
            joined='import ray; ray.init("auto", log_to_driver=False)
            print(int(ray.cluster_resources().get("GPU", 0)))'
            until [ "$(python3 -c "$joined" 2>/dev/null | tail -n 1)" -ge {total} ] 2>/dev/null; do
              sleep 5
            done"""
        )
    yield (
        "ray job submit --address=http://127.0.0.1:8265 -- \\\n"
        f'  python3 -m {entry} "${{settings[@]}}"'
    )


def _comment(text: str, *, first: str = "# ", further: str = "# ") -> list[str]:
    """A text as comments: whatever is in it, every line begins as one."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return textwrap.wrap(
        line, 100, initial_indent=first, subsequent_indent=further, break_on_hyphens=False
    ) or [first.rstrip()]
