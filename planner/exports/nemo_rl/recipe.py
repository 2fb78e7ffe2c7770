"""The recipe of a NeMo-RL launch: its settings as the YAML that users write, over a named base."""

from automap.planner.exports.documents import nested
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.script import comment
from automap.planner.exports.subject import Subject

BASE = "grpo_math_1B.yaml"
"""NeMo-RL's own configuration, of examples/configs, that a recipe inherits from."""
RECIPE = "recipe.yaml"


def asked(setting: LaunchSetting) -> str:
    """The value of a placeholder: a variable of the environment, as a number where it is one."""
    variable = f"${{oc.env:{setting.value}}}"
    return f"${{oc.decode:{variable}}}" if setting.value == "KL_COEFFICIENT" else variable


def recipe_of(subject: Subject, launch: Launch) -> str:
    """The YAML; each setting follows the decision of the plan that it comes from."""
    target, name = launch.target, subject.plan.name
    lines = [
        *comment(f"{name}: a plan of Automap for {target}."),
        *comment(
            f"It lies in examples/configs, beside the configuration that it inherits from, and "
            f"is started by launch.sh, or by `uv run {subject.framework.entry} --config "
            f"examples/configs/{RECIPE}` with the variables of the environment that it names. "
            "What it leaves out (data, environment, learning rates, logger) is the base's."
        ),
        f"defaults: {BASE}",
        *nested(launch.settings, asked),
    ]
    return "\n".join(lines) + "\n"
