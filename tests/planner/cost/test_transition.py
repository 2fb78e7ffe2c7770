"""Reshard, weight sync and offload against HybridFlow's table and the two layouts."""

import math

import numpy as np
import pytest

from automap.planner.cost import constants, memory, transition
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.pricing import Pricing
from automap.planner.job.resolution import resolve
from automap.planner.layout import IntArray, Layouts
from automap.planner.spec import WorkloadSpec
from tests.helpers.cost_model import ints, layouts, model, pool, workload
from tests.helpers.small_jobs import small_job

FULL = 3


def reshard(
    rows: Layouts,
    *,
    tensor: IntArray,
    pipeline: IntArray | None = None,
    expert: IntArray | None = None,
    name: str = "llama-2-70b",
    spec: WorkloadSpec | None = None,
    own_weights: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hardware = pool()
    ones = np.ones_like(tensor)
    return transition.reshard(
        model(name),
        spec or workload(),
        hardware,
        load_profile(hardware.gpu),
        rows,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=ones if pipeline is None else pipeline,
        expert_parallel_size=ones if expert is None else expert,
        own_weights=own_weights,
    )


def total_bytes(name: str = "llama-2-70b") -> int:
    return sum(transition.model_bytes(model(name), "bf16"))


def test_received_bytes_are_hybridflows_table_2() -> None:
    """arXiv:2409.19256, Table 2: (d_g − 1)/(t·p)·M with t=8, p=1, d=2 and t_g = 1, 2, 4, 8."""
    _, received, transient = reshard(layouts(tensor=[8] * 4, data=2), tensor=ints(1, 2, 4, 8))
    shares = received / total_bytes()
    np.testing.assert_allclose(shares, [0.875, 0.375, 0.125, 0.0], atol=1e-9)
    np.testing.assert_array_equal(received, transient)  # redundant memory: 0


def test_received_bytes_across_pipeline_stages() -> None:
    """Table 2 again with t=8, p=8, d=2, t_g=8, p_g=1: d_g = 8, 7/64 = 0.109 M."""
    _, received, _ = reshard(layouts(tensor=8, pipeline=8, data=2), tensor=ints(8))
    assert received[0] / total_bytes() == pytest.approx(7 / 64, rel=1e-9)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_volume_is_shard_minus_overlap_for_every_nested_pair(tensor: int, pipeline: int) -> None:
    new_tensor = ints(*[size for size in (1, 2, 4, 8) if tensor % size == 0])
    for new_pipeline in (size for size in (1, 2, 4) if pipeline % size == 0):
        new = np.full_like(new_tensor, new_pipeline)
        over, inside, kept = transition.reshard_volume(
            split=np.full_like(new_tensor, tensor),
            stages=np.full_like(new_tensor, pipeline),
            new_split=new_tensor,
            new_stages=new,
        )
        micro_data = tensor * pipeline / (new_tensor * new)
        np.testing.assert_allclose(over + inside, (micro_data - 1) / (tensor * pipeline))
        np.testing.assert_allclose(over + inside + kept, 1 / (new_tensor * new))


def test_a_larger_generation_split_needs_nothing_new() -> None:
    seconds, received, transient = reshard(layouts(tensor=2, data=8), tensor=ints(4))
    assert (received[0], transient[0]) == (0, 0)
    assert seconds[0] == transition.refit_seconds(model("llama-2-70b"))  # it is told of each tensor


def test_full_sharding_streams_all_but_its_own_part_through_a_bucket() -> None:
    rows = layouts(data=[8, 16], sharding=FULL)
    seconds, received, transient = reshard(rows, tensor=ints(1, 1), name="llama-2-7b")
    size = total_bytes("llama-2-7b")
    np.testing.assert_allclose(received / size, [7 / 8, 15 / 16], rtol=1e-9)
    # The engine's copy is whole, and a bucket stands beside it.
    np.testing.assert_allclose(transient, size + constants.SYNC_BUCKET_BYTES, rtol=1e-9)
    assert seconds[1] > seconds[0] > 0


def test_offloaded_weights_reload_and_are_transient_as_a_whole() -> None:
    rows = layouts(tensor=8, data=2, offload=[0, 2])
    seconds, received, transient = reshard(rows, tensor=ints(4, 4))
    weights = memory.weight_bytes(model("llama-2-70b"), rows, precision="bf16")
    assert received[0] == received[1]
    assert seconds[1] - seconds[0] == pytest.approx(
        transition.reload_seconds(weights[1:], pool())[0]
    )
    bucket = min(int(received[1]), constants.SYNC_BUCKET_BYTES)
    assert transient[1] == pytest.approx(total_bytes() / 4 + bucket, rel=1e-9)


def test_an_fp8_rollout_holds_a_whole_quantised_shard() -> None:
    spec = workload(rollout_precision="fp8")
    _, received, transient = reshard(layouts(tensor=8), tensor=ints(8), spec=spec)
    assert received[0] == 0
    assert transient[0] == pytest.approx(total_bytes() / 8 / 2, rel=1e-9)


@pytest.mark.parametrize("own_weights", [False, True])
def test_an_engine_with_weights_of_its_own_holds_all_of_them(own_weights: bool) -> None:
    """The engine of Qwen3-235B-A22B on tp 4 and ep 8 has 61 GB, 15 of which its home has too."""
    rows = layouts(tensor=4, pipeline=4, data=16, expert=8)
    seconds, received, transient = reshard(
        rows, tensor=ints(4), expert=ints(8), name="qwen3-235b-a22b", own_weights=own_weights
    )
    dense, experts = transition.model_bytes(model("qwen3-235b-a22b"), "bf16")
    engine = dense / 4 + experts / 8
    assert received[0] == pytest.approx(engine * 3 / 4, rel=1e-9)
    own = engine + constants.SYNC_BUCKET_BYTES
    assert transient[0] == pytest.approx(own if own_weights else received[0], rel=1e-9)
    assert seconds[0] > 0
    # A home on the host, or fully sharded, serves no engine as it is.
    for away in (layouts(tensor=8, offload=2), layouts(data=8, sharding=FULL)):
        found = [reshard(away, tensor=ints(4), own_weights=each)[2][0] for each in (False, True)]
        assert found[0] == found[1]


def test_experts_move_by_their_own_groups() -> None:
    """t=1, e=8 → t_g=8, e_g=8: experts are 8-way on both sides and stay; the rest is held whole."""
    rows = layouts(tensor=1, data=8, expert=8)
    _, received, _ = reshard(rows, tensor=ints(8), expert=ints(8), name="mixtral-8x7b")
    assert received[0] == 0
    dense, experts = transition.model_bytes(model("mixtral-8x7b"), "bf16")
    _, received, _ = reshard(rows, tensor=ints(1), expert=ints(1), name="mixtral-8x7b")
    assert received[0] == pytest.approx(experts * 7 / 8, rel=1e-9)
    assert dense < experts


def test_smaller_generation_splits_take_longer_but_seconds() -> None:
    """HybridFlow section 8.4: 70B from t=8, p=8 to t_g=8 costs seconds, not a minute."""
    rows = layouts(tensor=[8, 8, 8], pipeline=8, data=2)
    seconds, _, _ = reshard(rows, tensor=ints(8, 4, 2))
    assert np.all(np.diff(seconds) > 0)
    assert 0.1 < seconds[0] < 10


def test_reload_takes_the_link_at_its_efficiency() -> None:
    hardware = pool()
    num_bytes = ints(int(hardware.host_link_bytes_per_second))
    assert transition.reload_seconds(num_bytes, hardware)[0] == pytest.approx(
        1 / constants.HOST_LINK_EFFICIENCY
    )


def sync(
    rows: Layouts,
    *,
    lora_rank: int | None = None,
    multi_node: bool = True,
    whole: bool = False,
) -> np.ndarray:
    hardware = pool()
    arguments = (
        model("llama-2-70b", lora_rank=lora_rank),
        workload(),
        hardware,
        load_profile(hardware.gpu),
        rows,
        multi_node,
    )
    return np.stack(
        [
            transition.sync_send_seconds(*arguments, whole=whole),
            transition.sync_receive_seconds(*arguments, whole=whole),
        ]
    )


def test_a_framework_sends_all_weights_over_one_link() -> None:
    rows = layouts(tensor=[8, 8, 4], data=[1, 4, 2])
    least = total_bytes() / pool().inter_node_bytes_per_second
    whole = sync(rows, whole=True)
    assert (whole >= least).all()
    assert (whole >= sync(rows)).all()
    # However many ranks train, and however an engine is split.
    assert len(set(whole.ravel().tolist())) == 1
    for target in ("verl@0.9.1", "areal@1.0.4", "any"):
        search = {"target": target}
        spec = small_job(models__reward={"function": True}, search=search, num_nodes=2)
        row, priced = layouts(tensor=[2], data=[2]), Pricing(resolve(spec))
        sent = priced.send_seconds("actor", priced.job.pools[0], row)[0]
        weights = sum(transition.model_bytes(priced.job.models["actor"], "bf16"))
        alone = weights / priced.job.pools[0].inter_node_bytes_per_second
        assert (sent - transition.refit_seconds(priced.job.models["actor"]) >= alone) == (
            target != "any"
        )


def test_sync_is_egress_of_a_sender_and_ingress_of_a_receiver() -> None:
    rows = layouts(tensor=[8, 8, 4], data=[1, 4, 2])
    send, receive = sync(rows)
    assert send[1] < send[0]  # four times the senders
    assert receive[0] == receive[1] < receive[2]  # the shard counts, not the replicas
    link = pool().inter_node_bytes_per_second
    assert receive[2] > total_bytes() / 4 / link
    assert receive[2] < 2 * total_bytes() / 4 / link + 1


def test_sync_inside_one_node_and_of_adapters_is_faster() -> None:
    rows = layouts(tensor=8)
    assert np.all(sync(rows, multi_node=False) < sync(rows))
    assert np.all(sync(rows, lora_rank=16) < 0.25 * sync(rows))  # small, but two for each matrix


def test_an_offloaded_home_reloads_before_it_sends() -> None:
    send, _ = sync(layouts(tensor=8, offload=[0, 2]))
    assert send[1] > send[0]
    assert transition.sync_bucket_bytes() == constants.SYNC_BUCKET_BYTES


def test_a_receiver_gets_its_part_of_dense_weights_and_experts() -> None:
    moe, rows = model("mixtral-8x7b"), layouts(tensor=[1, 2, 2, 1], expert=[8, 1, 8, 1], pipeline=2)
    dense, experts = transition.sync_bytes(moe, workload())
    assert experts > 0.9 * (dense + experts)
    split = [
        dense / 1 + experts / 8,
        (dense + experts) / 2,
        dense / 2 + experts / 8,
        dense + experts,
    ]
    expected = [math.ceil(part / 2) for part in split]
    assert transition.received_bytes(moe, workload(), rows).tolist() == expected


@pytest.mark.parametrize(
    ("name", "tensors"),
    # Entries of model.safetensors.index.json: 9 in a layer of Llama; in one of Qwen3's mixtures
    # 3 of each of 128 experts, router, 4 projections, 2 norms, without the two of queries and keys.
    [("llama-2-7b", 32 * 9 + 3), ("llama-2-70b", 80 * 9 + 3), ("qwen3-30b-a3b", 48 * 391 + 3)],
)
def test_tensors_are_those_of_the_checkpoint(name: str, tensors: int) -> None:
    assert transition.refit_tensors(model(name).architecture)[0] == tensors


def test_a_mixture_takes_an_engine_longer_than_a_dense_model_of_its_size() -> None:
    dense, mixture = (transition.refit_seconds(model(m)) for m in ("qwen3-32b", "qwen3-30b-a3b"))
    assert mixture > 10 * dense
    assert dense == pytest.approx((64 * 9 + 3) * constants.TENSOR_REFIT_SECONDS)
