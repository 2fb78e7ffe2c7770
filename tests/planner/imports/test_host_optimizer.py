"""An optimizer that updates on the host: read from launches of four frameworks, and carried."""

from collections.abc import Mapping

import pytest

from automap.planner import Plan, export, import_launch
from automap.planner.errors import NotExportableError
from automap.planner.frameworks import framework
from automap.planner.imports import Answers, Imported, LaunchFile
from automap.planner.imports.launch import LineChange, Rewritten
from automap.planner.imports.writing import rewritten
from automap.planner.studies import carried, inside_another
from automap.planner.targets import TARGETS
from tests.helpers import nemo_rl_plans, skyrl_plans, slime_plans
from tests.helpers.framework_plans import SAMPLE, Wanted, plan_of

NAME = "optimizer on the host"
PLANS = {
    "verl@0.9.1": (plan_of, SAMPLE[NAME]),
    "slime@0.3.1": (plan_of, slime_plans.SAMPLE[NAME]),
    "nemo-rl@0.7.0": (plan_of, nemo_rl_plans.SAMPLE[NAME]),
    "skyrl@0.3.0": (skyrl_plans.plan_of, skyrl_plans.SAMPLE[NAME]),
}
"""Framework → a plan for it."""
OFFLOAD, FRACTION = "optimizer_cpu_offload", "optimizer_offload_fraction"
AWARE = "use_precision_aware_optimizer"
ON_THE_GPUS = "priced as on the GPUs"


def written(target: str, changes: Mapping[str, str | None]) -> tuple[LaunchFile, Plan]:
    """The launch of a plan with other values of some options; None leaves one out."""
    make, wanted = PLANS[target]
    plan = make(wanted)  # type: ignore[operator]
    launch = export(plan, target)
    if target.startswith("nemo-rl"):
        file = nemo_rl_plans.recipe_file(launch)
        options = file.document["policy"]["megatron_cfg"]["optimizer"]  # type: ignore[index]
        for name, value in changes.items():
            options.pop(name)
            options |= {} if value is None else {name: value}
        return file, plan
    lines = launch.script.splitlines()
    for name, value in changes.items():
        lines = [_changed(line, name, value) for line in lines]
    return LaunchFile("launch.sh", "\n".join(lines)), plan


def _changed(line: str, name: str, value: str | None) -> str:
    flag = f"--{name.replace('_', '-')}"
    if line.strip().startswith("#"):
        return line
    if flag in line.split():
        return "" if value in (None, "false") else f"  {flag} {value}"
    before, equals, _ = line.partition(f".{name}=")
    return line if not equals else "" if value is None else f"{before}{equals}{value}"


def read(target: str, **changes: str | None) -> Imported:
    file, plan = written(target, changes)
    return imported(file, plan, target)


def imported(file: LaunchFile, plan: Plan, target: str) -> Imported:
    workload, actor = plan.spec.workload, plan.spec.models["actor"].architecture
    assert actor is not None
    answers = Answers(
        gpu="h100",
        values={"NODE_RANK": "0", "HEAD_ADDRESS": "a"},
        prompt_length=workload.prompt_length,
        response_length=workload.response_length,
        models=dict.fromkeys(("actor", "critic"), actor),
        spare_models=True,
    )
    return import_launch([file], target, answers)


def odd(found: Imported) -> list[tuple[str, str]]:
    """Kind and text of what is told of the optimizer."""
    return [
        (each.kind, each.text)
        for each in found.remarks
        if "optimizer" in each.text.replace("-", "_") and each.kind != "assumed"
    ]


@pytest.mark.parametrize("target", PLANS)
def test_what_an_export_says_is_read_back(target: str) -> None:
    found = read(target)
    assert found.spec.workload.optimizer_cpu_offload
    assert odd(found) == []


@pytest.mark.parametrize("target", PLANS)
def test_without_the_share_it_is_as_the_framework_has_it(target: str) -> None:
    found = read(target, optimizer_offload_fraction=None)
    whole = target.startswith("slime")
    assert found.spec.workload.optimizer_cpu_offload is whole
    kinds = {"without effect"} if not whole else set()
    assert {kind for kind, text in odd(found) if OFFLOAD in text} == kinds


@pytest.mark.parametrize("target", PLANS)
def test_a_part_of_it_is_priced_as_none_and_said(target: str) -> None:
    found = read(target, optimizer_offload_fraction="0.5")
    assert not found.spec.workload.optimizer_cpu_offload
    told = [text for kind, text in odd(found) if kind == "saves memory" and ON_THE_GPUS in text]
    assert told
    assert all("a share of 0.5 of the optimizer on the host" in text for text in told)
    # No plan has it, so a conversion loses it.
    keys = {each.key.replace("-", "_") for each in found.settings if not each.decides}
    assert any(key.endswith(OFFLOAD) for key in keys)


@pytest.mark.parametrize("target", PLANS)
def test_masters_that_stay_on_the_gpus_are_not_counted_and_said(target: str) -> None:
    found = read(target, use_precision_aware_optimizer="false")
    assert found.spec.workload.optimizer_cpu_offload
    told = [text for kind, text in odd(found) if kind == "not priced"]
    assert told
    assert all("4 bytes" in text for text in told)


def test_where_it_is_off_the_others_count_for_nothing() -> None:
    found = read("skyrl@0.3.0", optimizer_cpu_offload="false")
    assert not found.spec.workload.optimizer_cpu_offload
    assert [kind for kind, _ in odd(found)] == ["saves memory"]
    assert all(AWARE in text for _, text in odd(found))


def test_verls_own_key_of_masters_is_read_too() -> None:
    file, plan = written("verl@0.9.1", {AWARE: None})
    lines = file.text.splitlines()
    places = [n for n, line in enumerate(lines) if "override_optimizer_config.overlap" in line]
    for place in reversed(places):
        key = lines[place].strip().lstrip("+").partition(".override")[0]
        lines.insert(place, f"  {key}.{AWARE}=True")
    assert len(places) == 2
    found = imported(LaunchFile("launch.sh", "\n".join(lines)), plan, "verl@0.9.1")
    assert found.spec.workload.optimizer_cpu_offload
    assert odd(found) == []


def in_one_word(**entries: str) -> tuple[LaunchFile, Plan]:
    """verl's launch whose settings of Megatron's optimizer are two dictionaries, one a model."""
    file, plan = written("verl@0.9.1", {})
    text, section = file.text, "optim.override_optimizer_config"
    told = ", ".join(f"{name}: {value}" for name, value in entries.items())
    for model in ("actor_rollout_ref.actor", "critic"):
        lines = [each for each in text.splitlines() if f"+{model}.{section}." in each]
        assert len(lines) == 4
        for line in lines[1:]:
            text = text.replace(f"{line}\n", "")
        text = text.replace(lines[0], f"  '+{model}.{section}={{{told}}}' \\")
    return LaunchFile("launch.sh", text), plan


WHOLE = {OFFLOAD: "True", FRACTION: "1.0", "overlap_cpu_optimizer_d2h_h2d": "True", AWARE: "True"}


def test_a_dictionary_is_read_as_its_keys() -> None:
    found = imported(*in_one_word(**WHOLE), "verl@0.9.1")
    apart = read("verl@0.9.1")
    assert found.spec == apart.spec
    assert odd(found) == []
    assert {e.key: (e.value, e.decides) for e in found.settings} == {
        e.key: (e.value, e.decides) for e in apart.settings
    }


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({FRACTION: "0.5"}, "saves memory", "a share of 0.5 of the optimizer on the host"),
        ({AWARE: "False"}, "not priced", "4 bytes"),
        ({"main_grads_dtype": "bf16"}, "saves memory", "override_optimizer_config.main_grads"),
    ],
)
def test_what_a_dictionary_says_is_told_like_its_keys(
    changes: dict[str, str], kind: str, words: str
) -> None:
    told = odd(imported(*in_one_word(**(WHOLE | changes)), "verl@0.9.1"))
    assert [each for each, text in told if words in text] == [kind, kind]


def test_a_key_of_a_dictionary_that_changes_is_given_at_the_end() -> None:
    file, plan = in_one_word(**WHOLE)
    found = imported(file, plan, "verl@0.9.1")
    key = next(each.key for each in found.settings if each.key.endswith(f"config.{OFFLOAD}"))
    change = LineChange(key=key, before="True", after="False", file="launch.sh", line=1)
    changed = rewritten([file], found, [change], [], framework("verl@0.9.1"))
    assert isinstance(changed, Rewritten)
    assert f"{key}=False" in changed.text
    now = imported(LaunchFile("launch.sh", changed.text), plan, "verl@0.9.1")
    assert {e.key: e.value for e in now.settings} == {
        e.key: "False" if e.key == key else e.value for e in found.settings
    }


@pytest.mark.parametrize(
    ("before", "after", "on_host"),
    [
        ("{optimizer_cpu_offload: False}", "{optimizer_cpu_offload: True}", True),
        ("{optimizer_cpu_offload: True}", "{overlap_cpu_optimizer_d2h_h2d: False}", True),
        ("{optimizer_cpu_offload: True}", "null", False),
        ("{optimizer_cpu_offload: True}", "{}", True),
    ],
)
def test_dictionaries_are_merged_as_hydra_does(before: str, after: str, on_host: bool) -> None:
    file, plan = in_one_word(**{FRACTION: "1.0", AWARE: "True"})
    text, key = file.text, "optim.override_optimizer_config="
    for model in ("actor_rollout_ref.actor", "critic"):
        word = f"  '+{model}.{key}"
        assert text.count(word) == 1
        more = "".join(f"{word}{each}' \\\n" for each in (before, after))
        end = text.index("\n", text.index(word)) + 1
        text = text[:end] + more + text[end:]
    found = imported(LaunchFile("launch.sh", text), plan, "verl@0.9.1")
    told = [text for kind, text in odd(found) if OFFLOAD in text and kind != "contradiction"]
    assert found.spec.workload.optimizer_cpu_offload is on_host
    assert told == []


def verl_in_fp16(*changes: tuple[str, str], offload: bool = True) -> Imported:
    """verl's launch in fp16 without Megatron's key of masters, with lines changed or added."""
    file, plan = written("verl@0.9.1", {AWARE: None} | ({} if offload else {OFFLOAD: "False"}))
    text = file.text.replace("megatron.dtype=bfloat16", "megatron.dtype=float16")
    assert text.count("megatron.dtype=float16") >= 2
    for key in ("actor_rollout_ref.actor.optim", "critic.optim"):
        for name, value in changes:
            line = f"  +{key}.override_optimizer_config.overlap_cpu"
            assert line in text
            text = text.replace(line, f"  {key}.{name}={value} \\\n{line}")
    return imported(LaunchFile("launch.sh", text), plan, "verl@0.9.1")


MEGATRONS = f"override_optimizer_config.{AWARE}"


@pytest.mark.parametrize("offload", [True, False])
def test_verl_has_no_masters_on_the_gpus_in_fp16(offload: bool) -> None:
    """It turns the precision-aware optimizer on by itself, and reads its own key of it not."""
    found = verl_in_fp16(offload=offload)
    assert found.spec.workload.precision == "fp16"
    assert found.spec.workload.optimizer_cpu_offload is offload
    assert odd(found) == []
    for value in ("True", "False"):
        told = odd(verl_in_fp16((AWARE, value), offload=offload))
        assert [kind for kind, _ in told] == ["without effect", "without effect"]
        assert all("in float16 verl has" in text for _, text in told)


def test_what_megatron_is_told_of_masters_counts_in_fp16_too() -> None:
    told = odd(verl_in_fp16((MEGATRONS, "False")))
    assert [kind for kind, _ in told] == ["not priced", "not priced"]
    assert all("4 bytes" in text for _, text in told)
    assert odd(verl_in_fp16((MEGATRONS, "True"))) == []
    assert odd(verl_in_fp16((MEGATRONS, "True"), offload=False)) == []


def test_one_that_is_not_adam_is_priced_on_the_gpus() -> None:
    file, plan = written("slime@0.3.1", {})
    text = file.text.replace("--optimizer adam", "--optimizer sgd")
    assert text != file.text
    found = imported(LaunchFile("launch.sh", text), plan, "slime@0.3.1")
    assert not found.spec.workload.optimizer_cpu_offload
    assert any("the optimizer sgd on the host" in text for _, text in odd(found))


def test_a_critic_that_differs_is_priced_as_the_actor() -> None:
    file, plan = written("verl@0.9.1", {})
    critic = f"critic.optim.override_optimizer_config.{OFFLOAD}="
    assert file.text.count(f"{critic}True") == 1
    text = file.text.replace(f"{critic}True", f"{critic}False")
    found = imported(LaunchFile("launch.sh", text), plan, "verl@0.9.1")
    assert found.spec.workload.optimizer_cpu_offload
    assert ("not priced", f"{critic[:-1]}: priced as the actor's") in odd(found)


def test_one_replica_has_the_distributed_optimizer_too() -> None:
    wanted = Wanted(num_nodes=1, pipeline=2, sharding="none", workload=((OFFLOAD, True),))
    launch = export(plan_of(wanted), "verl@0.9.1")
    [sharded] = [e.value for e in launch.settings if e.key.endswith("use_distributed_optimizer")]
    assert sharded == "True"
    with pytest.raises(NotExportableError, match="and sharding none"):
        export(plan_of(wanted.but(num_nodes=2)), "verl@0.9.1")


@pytest.mark.parametrize("target", ["trl@1.16.0", "openrlhf@0.11.2", "areal@1.0.4"])
def test_it_is_lost_where_the_other_framework_lacks_it(target: str) -> None:
    found = read("slime@0.3.1")
    other = inside_another(found.spec, target)
    assert not other.workload.optimizer_cpu_offload
    make, wanted = PLANS["slime@0.3.1"]
    with pytest.raises(NotExportableError, match="optimizer_cpu_offload is true"):
        export(make(wanted), target)  # type: ignore[operator]
    launch = export(plan_of(Wanted()), "verl@0.9.1").model_copy(
        update={"target": target, "settings": []}
    )
    lost = {each.key for each in carried(found, launch).lost}
    assert "--optimizer-cpu-offload" in lost


@pytest.mark.parametrize("target", PLANS)
def test_it_goes_along_where_the_other_framework_has_it(target: str) -> None:
    found = read("slime@0.3.1")
    table = next(each for each in TARGETS.values() if each.name == target)
    assert inside_another(found.spec, table.name).workload.optimizer_cpu_offload
    make, wanted = PLANS[target]
    launch = export(make(wanted), target)  # type: ignore[operator]
    assert not [each.key for each in carried(found, launch).lost if "optimizer" in each.key]
