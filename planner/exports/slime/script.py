"""The shell script of a slime launch: its arguments in groups, Ray, and the run that it submits."""

from collections.abc import Iterable, Iterator, Mapping

from automap.planner.exports import script
from automap.planner.exports.arguments import ABSENT, words
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.slime.configured import (
    CONFIGURED,
    NEED,
    needed_fields,
    read_fields,
)
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Framework

SYNC, ASYNC = "train.py", "train_async.py"
"""Programs: iterations in turn, and rollouts one iteration ahead."""
GROUPS = (
    "CLUSTER_ARGS",
    "MODEL_ARGS",
    "CKPT_ARGS",
    "ROLLOUT_ARGS",
    "PERF_ARGS",
    "GRPO_ARGS",
    "OPTIMIZER_ARGS",
    "SGLANG_ARGS",
)
LEARNING = "OPTIMIZER_ARGS"
"""Where arguments are that no plan decides, and a launch which is converted has."""
MISC = "MISC_ARGS"
MISC_WORDS = (
    "--attention-dropout 0.0",
    "--hidden-dropout 0.0",
    "--accumulate-allreduce-grads-in-fp32",
    "--attention-softmax-in-fp32",
)
"""What slime's users say in every launch: Megatron-LM itself drops a tenth of what attention and
layers put out. Source: the defaults of its arguments."""
LOGGER_WORDS = (
    "--use-tensorboard",
    "--tb-project-name automap",
    "--tb-experiment-name plan",
)
FLASH = "--attention-backend flash"
"""Kernels that the price assumes; they know no latent attention."""
NO_FUSION = "--no-rope-fusion"
"""Positions of latent attention in a kernel of their own, which slime's launches leave off."""
VERSION = (
    """${SLIME_VERSION:-$(git -C "$SLIME_FOLDER" describe --tags 2>/dev/null || echo unknown)}"""
)


def script_of(subject: Subject, launch: Launch) -> str:
    """The script; every name that people gave is a comment of one line, or quoted."""
    framework = subject.framework
    number = framework.version
    parts = [
        *script.head(subject, launch, iterations="--num-rollout"),
        *script.placeholders(launch),
        script.need_version(launch, VERSION, number, f"v{number}"),
        *script.environment(subject, launch),
        'export PYTHONPATH="$MEGATRON_FOLDER:${PYTHONPATH:-}"',
        'cd "$SLIME_FOLDER"',
        *_of_config(subject),
        "\n# Each argument follows the decision of the plan that it comes from.",
        *_groups(launch.settings, subject),
        *_misc(subject),
        *script.start_of_ray(launch),
        *_submit(subject),
    ]
    return "\n".join(parts) + "\n"


def program_of(subject: Subject) -> str:
    """The program that runs a plan."""
    return ASYNC if subject.job.spec.search.staleness else SYNC


def _submit(subject: Subject) -> Iterator[str]:
    yield "ray job submit --address=http://127.0.0.1:8265 -- \\"
    yield f"  python3 {program_of(subject)} \\"
    words = [f'  "${{{group}[@]}}"' for group in (*GROUPS, MISC)]
    yield " \\\n".join(words)


def group_of_keys(framework: Framework) -> Mapping[str, str]:
    """Argument → the group that it is written in."""
    return {key: each.group for each in framework.settings for key in each.keys.values()}


def _of_config(subject: Subject) -> Iterator[str]:
    """Read what the sizes of the model leave open, and leave where no argument says it."""
    shape = subject.job.models["actor"].architecture
    yield "\n# A field of the model's own configuration."
    yield CONFIGURED
    yield from (
        " ".join([f"{field}=$(configured {field}", default]).rstrip() + ")"
        for field, default in read_fields(shape).values()
    )
    yield "\n# What is fixed by arguments, or by Megatron-LM itself."
    yield NEED
    yield from (" ".join(["need", *each]) for each in needed_fields(shape))


def _groups(settings: Iterable[LaunchSetting], subject: Subject) -> Iterator[str]:
    framework, shape = subject.framework, subject.job.models["actor"].architecture
    of_key, written = group_of_keys(framework), list(settings)
    for group in GROUPS:
        yield f"{group}=("
        there = [
            e for e in written if of_key.get(e.key, LEARNING) == group and e.value not in ABSENT
        ]
        yield from script.explained(there, lambda each: words(each, framework))
        if group == "MODEL_ARGS":
            yield "  # config.json of the model"
            for key, (field, _) in read_fields(shape).items():
                yield f'  {key} "${field}"'
        yield ")\n"


def _misc(subject: Subject) -> Iterator[str]:
    """What no plan decides, and no run is to leave out."""
    latent = subject.job.models["actor"].architecture.latent_attention
    yield f"{MISC}=("
    yield "  # no dropout, and sums in 32 bits"
    yield from (f"  {each}" for each in (*MISC_WORDS, NO_FUSION if latent else FLASH))
    yield "  # automap calibrate reads what TensorBoard is given"
    yield from (f"  {each}" for each in LOGGER_WORDS)
    yield ")\n"
