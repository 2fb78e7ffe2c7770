"""Training in 8 bits as a setting of a job: what it changes in prices, and who refuses it."""

import numpy as np
import pytest
from pydantic import ValidationError

from automap.planner.cost import intervals, memory
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.stacks import STACKS
from automap.planner.cost.training.forward_call import price_forward
from automap.planner.cost.training.train_call import price_train
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.layout import SHARDINGS
from automap.planner.planning import make_plan
from automap.planner.spec import EIGHT_BIT_STACKS
from tests.helpers import cost_model
from tests.helpers.cost_model import ints, layouts, workload
from tests.helpers.small_jobs import pool, small_job

LAYOUT = layouts(2, 1, data=4, sharding=SHARDINGS.index("optimizer"))


def train(*, trainable: bool = True, **changes: object) -> CallEstimates:
    h100 = cost_model.pool("h100-80gb-sxm", num_nodes=1)
    return price_train(
        cost_model.model("llama-3.1-8b", trainable=trainable),
        cost_model.call("train"),
        workload(**changes),
        h100,
        load_profile(h100.gpu),
        LAYOUT,
        micro_batch_size=ints(2),
        recompute=ints(1),
    )


def score(*, trainable: bool = True, **changes: object) -> CallEstimates:
    h100 = cost_model.pool("h100-80gb-sxm", num_nodes=1)
    return price_forward(
        cost_model.model("llama-3.1-8b", trainable=trainable),
        cost_model.call("forward"),
        workload(**changes),
        h100,
        load_profile(h100.gpu),
        LAYOUT,
        micro_batch_size=ints(2),
    )


def test_products_become_faster_and_their_operands_stand_beside_the_weights() -> None:
    whole, low = train(), train(training_precision="fp8")
    assert low.seconds.compute[0] < 0.9 * whole.seconds.compute[0]
    assert low.seconds.optimizer[0] == whole.seconds.optimizer[0]
    parameters = stage_parameters(cost_model.model("llama-3.1-8b"), LAYOUT)
    copies = 2 * int(parameters.dense[0] - parameters.tables[0])
    assert low.transient.weights[0] - whole.transient.weights[0] == copies


def test_a_stack_that_casts_weights_for_each_product_keeps_no_copies() -> None:
    changes = {"training_stack": "fsdp"}
    whole, low = train(**changes), train(**changes, training_precision="fp8")
    assert low.transient.total[0] == whole.transient.total[0]
    assert low.seconds.total[0] < whole.seconds.total[0]


def test_the_usual_precision_may_be_named() -> None:
    assert train(training_precision="bf16").seconds.total[0] == train().seconds.total[0]


def test_scoring_by_a_trained_model_is_in_8_bits_and_by_a_frozen_one_is_not() -> None:
    low = score(training_precision="fp8")
    assert low.seconds.compute[0] < 0.9 * score().seconds.compute[0]
    frozen = score(trainable=False, training_precision="fp8")
    assert frozen.seconds.total[0] == score(trainable=False).seconds.total[0]
    assert frozen.transient.total[0] == score(trainable=False).transient.total[0]


def test_what_a_copy_holds_between_calls_does_not_change() -> None:
    actor = cost_model.model("llama-3.1-8b")
    whole, _ = memory.home_resident_bytes(actor, workload(), LAYOUT)
    low, _ = memory.home_resident_bytes(actor, workload(training_precision="fp8"), LAYOUT)
    assert np.array_equal(whole.total, low.total)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"training_precision": "fp16"}, "contradicts precision=bf16"),
        ({"training_precision": "bf16", "precision": "fp16"}, "contradicts precision=fp16"),
        ({"training_precision": "fp8", "precision": "fp32"}, r"precision=fp32 \(use one of"),
        *(
            ({"training_precision": "fp8", "training_stack": name}, f"training_stack={name}")
            for name in STACKS
            if name not in EIGHT_BIT_STACKS
        ),
        ({"training_precision": "int8"}, "'bf16', 'fp16', 'fp32' or 'fp8'"),
    ],
)
def test_a_precision_that_cannot_be_had_is_refused(changes: dict[str, str], part: str) -> None:
    with pytest.raises(ValidationError, match=part):
        workload(**changes)


def test_a_gpu_without_8_bits_is_refused_by_name() -> None:
    with pytest.raises(SpecError) as caught:
        resolve(small_job(workload__training_precision="fp8"))
    assert caught.value.field == "workload.training_precision"
    assert "a100-80gb-sxm of pool a100 does not compute in fp8" in caught.value.message


def test_a_plan_is_priced_with_it_and_says_that_it_cannot_run() -> None:
    """Planning checks the plan, its intervals of 8 bits included."""
    pools = [pool(gpu="h100-80gb-sxm")]
    plan = make_plan(small_job(cluster__pools=pools, workload__training_precision="fp8"))
    assert plan.search.target == "any"
    assert any("workload.training_precision: it is fp8" in line for line in plan.assumptions)
    (train,) = (call for call in plan.calls if call.kind == "train")
    assert train.seconds_interval is not None
    width = train.seconds_interval.high / (train.end_seconds - train.start_seconds)
    spreads = plan.provenance.spreads
    assert width == pytest.approx(np.exp(spreads["training, dense, 8-bit"]), rel=0.02)


def test_intervals_are_those_of_8_bits() -> None:
    dense = cost_model.model("llama-3.1-8b").architecture
    experts = cost_model.model("qwen3-30b-a3b").architecture
    assert intervals.call_kind("train", dense, "fp8") == "training, dense, 8-bit"
    assert intervals.call_kind("train", experts, "fp8") == "training, experts, 8-bit"
    assert intervals.call_kind("generate", dense, "fp8") == "generation, dense"
    assert intervals.call_kind("forward", dense, "bf16") == "training, dense, 16-bit"
