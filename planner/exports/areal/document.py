"""The configuration of an AReaL launch: its settings as the YAML that its users write."""

from automap.planner.exports.documents import nested, yaml_value
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.lines import Value
from automap.planner.exports.script import comment
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Setting

CONFIG = "areal.yaml"
NUMBERS = ("KL_COEFFICIENT", "LEARNING_RATE", "CRITIC_LEARNING_RATE", "PASSES")
"""Placeholders that are numbers."""
WORKERS = "[{{task_type: worker, port_count: 2, gpu: 1{placed}, cmd: {command}}}]"
"""Processes of an engine, one on each GPU of a model, or one for each engine that generates."""
COMMAND = "python3 -m areal.infra.rpc.rpc_server"


def written(value: Value, setting: Setting) -> str:
    """A value as the configuration has it.

    Raises:
        ValueError: it is of another type than the setting.
    """
    if setting.type == "workers":
        placed = f", ray_placement_strategy: {value}" if value is not None else ""
        return WORKERS.format(placed=placed, command=COMMAND)
    return yaml_value(value, setting)


def asked(setting: LaunchSetting) -> str:
    """The value of a placeholder: a variable of the environment, as a number where it is one."""
    variable = f"${{oc.env:{setting.value}}}"
    return f"${{oc.decode:{variable}}}" if setting.value in NUMBERS else variable


def document_of(subject: Subject, launch: Launch) -> str:
    """The YAML; each setting follows the decision of the plan that it comes from."""
    told = (
        f"Started by launch.sh, or by `python3 PROGRAM --config {CONFIG}` with the variables of "
        "the environment that it names, where PROGRAM makes an areal.PPOTrainer of it. What it "
        "leaves out is as AReaL has it."
    )
    lines = [
        *comment(f"{subject.plan.name}: a plan of Automap for {launch.target}."),
        *comment(told),
        *nested(launch.settings, asked),
    ]
    return "\n".join(lines) + "\n"
