"""The shell script of a launch: what those of all frameworks have in common."""

import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator

from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Framework

FILL_IN = "FILL_IN"
"""What a placeholder is until it is given."""


def head(subject: Subject, launch: Launch, *, iterations: str) -> Iterator[str]:
    """What it is, how it is run, and what the prediction assumes; `iterations`: their setting."""
    plan, name = subject.plan, subject.framework.name
    seconds = f"{plan.iteration_seconds:.1f} s per iteration"
    if plan.iteration_seconds_interval is not None:
        interval = plan.iteration_seconds_interval
        seconds += f" ({interval.low:.1f} to {interval.high:.1f} s)"
    yield "#!/usr/bin/env bash"
    yield from comment(f"{plan.name}: a plan of Automap for {launch.target}, {seconds}.")
    yield from comment(f"{launch.target} is released with {subject.framework.beside}.")
    yield "#"
    yield from comment(_usage(launch))
    if plan.spec.workload.iterations == 1:
        told = "It trains 1 iteration, as the spec does not say how many"
        yield from comment(f"{told}: set {iterations}.")
    yield "#"
    yield f"# What the prediction assumes, and {name} may do otherwise:"
    for each in launch.assumptions:
        yield from comment(each, first="# - ", further="#   ")
    yield from comment(f"How far off it is (LOG is {subject.framework.log}):")
    yield f"#   automap calibrate LOG --format {name} --plan PLAN.json --output FOLDER"
    yield "set -euo pipefail"


def _usage(launch: Launch) -> str:
    if launch.num_nodes == 1:
        return "Run it on the node."
    last = launch.num_nodes - 1
    return (
        f"Run it on each of {launch.num_nodes} nodes, with NODE_RANK=0 to {last} and HEAD_ADDRESS "
        "the address of node 0; under Slurm in one srun with a task per node, which knows the rank."
    )


def placeholders(launch: Launch) -> Iterator[str]:
    """What is given from outside, and that nothing starts without it."""
    yield "\n# Given from outside, or here; without them nothing starts."
    for each in launch.placeholders:
        yield from comment(each.what)
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


def need_installed(launch: Launch, framework: Framework) -> str:
    """Leave where another version of a framework's package is installed than the launch is for."""
    printed = f'import importlib.metadata as m; print(m.version("{framework.name}"))'
    return need_version(launch, f"$(python3 -c {shlex.quote(printed)})", framework.version)


def need_version(launch: Launch, found: str, *versions: str) -> str:
    """Leave where the version that a command prints is another one: keys change between them."""
    known = " | ".join(versions)
    return textwrap.dedent(
        f"""
        # Keys change between versions.
        version={found}
        case "$version" in
          {known}) ;;
          *)
            echo "not started: this is for {launch.target}, and $version is installed" >&2
            exit 2
            ;;
        esac
        """
    )


def environment(subject: Subject, launch: Launch) -> Iterator[str]:
    """Variables of all processes, and the GPUs of a node of which only a part is used."""
    for name, value in launch.environment.items():
        yield f"export {name}={shlex.quote(value)}"
    first = subject.plan.copies[0]
    used, each = subject.gpus_of_node(), subject.pool(first).gpus_per_node
    if len(used) < each:
        yield f"# The plan uses {len(used)} of {each} GPUs."
        yield f"export CUDA_VISIBLE_DEVICES={','.join(map(str, used))}"


def start_of_ray(launch: Launch) -> Iterator[str]:
    """Start Ray on this node; node 0 goes on once all GPUs are there."""
    gpus = launch.gpus_per_node
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


def comment(text: str, *, first: str = "# ", further: str = "# ") -> list[str]:
    """A text as comments: whatever is in it, every line begins as one."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return textwrap.wrap(
        line, 100, initial_indent=first, subsequent_indent=further, break_on_hyphens=False
    ) or [first.rstrip()]


def explained(
    settings: Iterable[LaunchSetting], words: Callable[[LaunchSetting], str]
) -> Iterator[str]:
    """Settings as elements of an array of the shell, each after the decision that it comes from.

    Args:
        settings: In the order of the launch.
        words: What the shell reads of one.
    """
    because = ""
    for each in settings:
        if each.because != because:
            yield from comment(each.because, first="  # ", further="  #   ")
            because = each.because
        yield f"  {words(each)}"


def submit(program: str) -> str:
    """The command that has Ray run a program with the array `settings`."""
    told = "ray job submit --address=http://127.0.0.1:8265 --"
    return f'{told} \\\n  python3 {program} "${{settings[@]}}"'
