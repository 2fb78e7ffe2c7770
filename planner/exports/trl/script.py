"""The shell script of a TRL launch: accelerate on the nodes that train, a vLLM server elsewhere."""

import shlex
from collections.abc import Iterator

from automap.planner.exports import script
from automap.planner.exports.launch import Launch
from automap.planner.exports.subject import Subject
from automap.planner.exports.trl.files import ACCELERATE_FILE, SERVER, TRAINER_FILE
from automap.planner.plan.types import CopyPlan

PROGRAMS = {"grpo": "trl.scripts.grpo", "rloo": "trl.scripts.rloo"}
"""Algorithm → TRL's own script."""
PORT = 29500


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line, or quoted."""
    framework = subject.framework
    parts = [
        *script.head(subject, launch, iterations="max_steps"),
        *script.placeholders(launch),
        script.need_installed(launch, framework),
        *_files(),
        *(_server(subject, launch) if subject.apart else ()),
        *_trainer(subject, launch),
    ]
    return "\n".join(parts) + "\n"


def _files() -> Iterator[str]:
    yield 'FOLDER="${FOLDER:-$(dirname "${BASH_SOURCE[0]}")}"'
    yield f"for name in {ACCELERATE_FILE} {TRAINER_FILE}; do"
    yield '  if [ ! -f "$FOLDER/$name" ]; then'
    yield '    echo "not started: put $name into $FOLDER" >&2'
    yield "    exit 2"
    yield "  fi"
    yield "done"


def _server(subject: Subject, launch: Launch) -> Iterator[str]:
    """The server in the background, or, where there are several nodes, alone on the last."""
    words = ['vllm serve "$ACTOR_MODEL"']
    for each in launch.settings:
        if each.key.startswith(SERVER):
            words.append(f"--{each.key.removeprefix(SERVER)} {shlex.quote(each.value)}")
    served = " \\\n  ".join(words)
    yield "\n# Weights are sent to it by routes that vLLM has in this mode alone."
    yield "export VLLM_SERVER_DEV_MODE=1"
    if launch.num_nodes == 1:
        yield f"{_visible(subject, subject.rollout)} {served} &"
        yield "trap 'kill %1' EXIT"
        return
    yield "# It runs until it is ended, as the trainer does not end it."
    yield f'if [ "$NODE_RANK" = {launch.num_nodes - 1} ]; then'
    yield f"  exec {served}"
    yield "fi"


def _trainer(subject: Subject, launch: Launch) -> Iterator[str]:
    program = PROGRAMS[subject.job.spec.algorithm or ""]
    words = [f'accelerate launch --config_file "$FOLDER/{ACCELERATE_FILE}"']
    if launch.num_nodes > 1:
        words.append('--machine_rank "$NODE_RANK"')
        words.append(f'--main_process_ip "$HEAD_ADDRESS" --main_process_port {PORT}')
    words.append(f'-m {program} --config "$FOLDER/{TRAINER_FILE}"')
    settings = subject.framework.settings
    lists = {key for each in settings if each.type == "texts" for key in each.keys.values()}
    words += [
        # Several functions are several words.
        f"{each.key} ${each.value}" if each.key in lists else f'{each.key} "${each.value}"'
        for each in launch.settings
        if each.placeholder
    ]
    copies = subject.plan.copies
    whole = launch.num_nodes > 1 or subject.pool(copies[0]).gpus_per_node == subject.actor.num_gpus
    command = " \\\n  ".join(words)
    yield "\n" + (command if whole else f"{_visible(subject, subject.actor)} {command}")


def _visible(subject: Subject, copy: CopyPlan) -> str:
    each = subject.pool(copy).gpus_per_node
    gpus = range(copy.first_gpu % each, copy.first_gpu % each + copy.num_gpus)
    return f"CUDA_VISIBLE_DEVICES={','.join(map(str, gpus))}"
