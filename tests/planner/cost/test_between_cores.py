"""What cores do not hide: collectives, messages between stages, what ranks agree on."""

from pathlib import Path

import numpy as np
import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.cost.communication import point_to_point_seconds
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    agreement_seconds,
    collective,
)
from automap.planner.cost.memory import OPTIMIZER_SHARDED
from automap.planner.cost.operators.interpolation import ANALYTICAL, MEASURED
from automap.planner.cost.operators.profile import Profile, load_profile
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.stacks import STACKS
from automap.planner.cost.training.optimizer_step import data_parallel_seconds, exposed, whole_step
from automap.planner.layout import Layouts
from automap.planner.planning import make_plan
from automap.planner.profiles import Row
from automap.planner.spec import TrainingStack
from tests.helpers.cost_model import ints, layouts, model, pool, workload
from tests.helpers.measured_profiles import host_work, tiny_spec
from tests.helpers.profile_folders import memory_bound, profile_folder

CPU = gpu_type("cpu")
KERNELS = memory_bound({2**power: {"add": 1e-10 * 2**power} for power in (10, 24)})
HOST = host_work({(name, "layer_forward"): 1e-3 for name in ("megatron-core", "fsdp")})


def collectives(name: str, seconds_at: dict[int, float]) -> list[Row]:
    return [
        ("collectives", {"collective": name, "num_gpus": 2, "size_bytes": size}, seconds)
        for size, seconds in seconds_at.items()
    ]


LATENCIES = [
    row
    for name in ("all_reduce", "all_gather", "reduce_scatter")
    for row in collectives(name, {1024: 0.002, 2**24: 0.03})
]


def setting_of(profile: Profile, stack: TrainingStack = "megatron-core") -> KernelContext:
    from automap.planner.cost.batches import sequence_lengths

    lengths = sequence_lengths(workload())
    return KernelContext(
        model("tiny-llama"), pool("cpu"), profile, "fp32", lengths, stack=STACKS[stack]
    )


@pytest.fixture
def measured(tmp_path: Path) -> Profile:
    return Profile(CPU, folder=profile_folder(tmp_path, [*KERNELS, *HOST, *LATENCIES]))


def test_nothing_hides_where_host_and_kernels_add_up(measured: Profile) -> None:
    seconds, behind = np.array([1.0]), np.array([10.0])
    assert exposed(setting_of(measured), seconds, behind) == 1.0
    assert exposed(setting_of(load_profile(CPU)), seconds, behind) == pytest.approx(0.3)


def test_collectives_take_what_was_measured_whatever_streams_of_gpus_do(measured: Profile) -> None:
    for stack in ("megatron-core", "fsdp"):
        setting = setting_of(measured, stack)  # type: ignore[arg-type]
        found = collective(setting, "all_reduce", ints(1024), group_size=ints(2), stride=1)
        assert found.seconds == pytest.approx(0.002)
        assert STACKS[stack].collective_slowdown != 1.0  # type: ignore[index]


def reduction(profile: Profile, stack: TrainingStack, micro_batches: int) -> float:
    setting = setting_of(profile, stack)
    where: Layouts = layouts(data=2, sharding=OPTIMIZER_SHARDED)
    found = data_parallel_seconds(
        setting,
        whole_step(setting, workload(), where, stage_parameters(setting.model, where)),
        where.sharding,
        ints(micro_batches),
        forward=np.array([10.0]),
        backward=np.array([10.0]),
    )
    return float(found.seconds[0])


def test_fsdp_moves_layers_one_by_one_and_gradients_every_time(measured: Profile) -> None:
    whole = reduction(measured, "megatron-core", 1)
    assert reduction(measured, "megatron-core", 4) == pytest.approx(whole)
    num_layers = model("tiny-llama").architecture.num_layers
    one, four = (reduction(measured, "fsdp", count) for count in (1, 4))
    # Each layer and the rest: at least a latency for its gather and one for its reduction.
    assert one > 2 * (num_layers + 1) * 0.002
    assert four - one > 3 * (num_layers + 1) * 0.002


def test_ranks_agree_at_the_latency_that_was_measured(measured: Profile) -> None:
    found = agreement_seconds(setting_of(measured), ints(1, 2), times=3)
    assert found == pytest.approx([0.0, 0.006])
    assert not agreement_seconds(setting_of(load_profile(CPU)), ints(1, 2), times=3).any()


def test_messages_inside_a_node_take_what_was_measured(tmp_path: Path) -> None:
    rows = [*KERNELS, *collectives("send_recv", {1024: 0.001, 2**20: 0.004})]
    profile, cores = Profile(CPU, folder=profile_folder(tmp_path, rows)), pool("cpu")
    crosses = np.array([False, False, True])
    found = point_to_point_seconds(cores, profile, [1024, 2**20, 2**20], crosses_node=crosses)
    formula = point_to_point_seconds(cores, load_profile(CPU), 2**20, crosses_node=True)
    assert found.seconds == pytest.approx([0.001, 0.004, float(formula.seconds)])
    assert found.source[2] == ANALYTICAL
    same = pool("cpu").intra_node_bytes_per_second == profile.table_link_bytes_per_second
    assert (found.source[:2] == MEASURED).all() == same


def test_plans_on_two_cores_cost_more_when_messages_do(tmp_path: Path) -> None:
    slow = [*KERNELS, *HOST, *LATENCIES]
    fast = [*KERNELS, *HOST, *[(table, key, seconds / 100) for table, key, seconds in LATENCIES]]
    plans = [
        make_plan(tiny_spec(profile_folder(tmp_path / name, rows)))
        for name, rows in (("slow", slow), ("fast", fast))
    ]
    assert plans[0].iteration_seconds > plans[1].iteration_seconds
