"""What verl cannot be told is refused, with every reason."""

import pytest

from automap.planner import NotExportableError
from automap.planner.exports.exporting import export
from automap.planner.exports.refusals import refusals
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks import framework
from automap.planner.job.resolution import resolve
from tests.helpers.broken_exports import (
    accepted_by_verl,
    assert_every_limit_refuses,
    limits_of,
    others,
    relaid,
)
from tests.helpers.framework_plans import Wanted, plan_of

VERL = framework("verl@0.9.1")


@pytest.mark.slow
def test_every_limit_refuses_the_plan_that_breaks_it() -> None:
    assert_every_limit_refuses(VERL, accepted_by_verl() | others())


def test_what_verl_lets_through_is_described_so() -> None:
    assert set(accepted_by_verl()) == {limit.name for limit in VERL.limits if limit.unchecked}


def test_all_reasons_are_given_with_what_to_do_instead() -> None:
    plan = plan_of(Wanted(algorithm="ppo", engine="fsdp"))
    for role in ("actor", "critic"):
        plan = relaid(plan, role, sharding="optimizer")
    assert limits_of(plan, VERL) == {"fsdp_sharding"}
    found = refusals(subject_of(resolve(plan.spec), plan, VERL))
    assert [reason.summary.partition(":")[0] for reason in found] == ["actor", "critic"]
    assert all(reason.remedy for reason in found)


def test_an_export_raises_the_reasons() -> None:
    plan = plan_of(Wanted(algorithm="ppo"))
    apart = plan_of(Wanted(algorithm="ppo", apart=True, workload=(("epochs", 2),)))
    assert export(plan, "verl@0.9.1").target == "verl@0.9.1"
    with pytest.raises(NotExportableError, match="several epochs") as caught:
        export(apart, "verl@0.9.1")
    assert len(caught.value.reasons) == 1
