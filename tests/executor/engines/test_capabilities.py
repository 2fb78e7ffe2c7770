"""What the table of the executor allows, its engines accept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automap.executor.engines.fsdp.parallel import check_context_parallel, check_tensor_parallel
from automap.executor.engines.megatron.architecture import Architecture
from automap.executor.engines.megatron.configuration import _check
from automap.executor.engines.random_model import config_of
from automap.executor.layout import GenerationLayout, RankLayout
from automap.planner.catalogue import architecture
from automap.planner.job import resolve
from automap.planner.search.candidates import enumeration
from tests.helpers.specs import job_spec

MODELS = ("llama-2-7b", "qwen2.5-7b", "qwen2.5-0.5b", "qwen3-8b", "llama-3.1-70b")


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_engine_accepts_every_candidate(name: str, data: st.DataObject) -> None:
    models = {role: {"architecture": name} for role in ("actor", "reference", "reward")}
    pools = [{"name": "p", "gpu": "h100-80gb-sxm", "num_nodes": 10}]
    longest = min(16_384, architecture(name, field="name").max_position_embeddings - 1024)
    spec = job_spec(
        "grpo",
        models=models,
        workload__response_length={"mean": longest // 2, "max": longest},
        cluster__pools=pools,
        search__target="automap",
    )
    job = resolve(spec)
    config = config_of(job.models["actor"].architecture)
    role = data.draw(st.sampled_from(["actor", "reference"]))
    layouts = enumeration.home_layouts(job, role, job.pools[0])
    row = data.draw(st.integers(0, len(layouts) - 1))
    sizes = {
        field: int(getattr(layouts, field)[row])
        for field in (
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "context_parallel_size",
            "data_parallel_size",
            "expert_parallel_size",
        )
    }
    layout = RankLayout(**sizes)
    engines = job.engines_of(role)
    engine = engines.engines[int(engines.of_layouts(layouts)[row])]
    if engine.name == "fsdp":
        check_tensor_parallel(config, layout.tensor_parallel_size)
        check_context_parallel(config, layout)
    else:
        chunks = int(layouts.virtual_pipeline_parallel_size[row])
        _check(Architecture.of(config), layout, chunks)
    if role == "actor":
        call = next(each for each in job.dataflow.calls if each.kind == "generate")
        rollouts = enumeration.engines(job, call, job.pools[0], layout.world_size)
        number = data.draw(st.integers(0, len(rollouts.tensor_parallel_size) - 1))
        GenerationLayout.of(
            layout,
            tensor_parallel_size=int(rollouts.tensor_parallel_size[number]),
            pipeline_parallel_size=int(rollouts.pipeline_parallel_size[number]),
        )


def test_the_ranks_of_every_rollout_of_a_mixture_can_be_regrouped() -> None:
    models = {role: {"architecture": "qwen3-30b-a3b"} for role in ("actor", "reward")}
    job = resolve(job_spec("grpo", models=models, workload__kl="none", search__target="automap"))
    call = next(each for each in job.dataflow.calls if each.kind == "generate")
    for count in (1, 2, 4, 8):
        rollouts = enumeration.engines(job, call, job.pools[0], count)
        for sizes in zip(*rollouts.columns().values(), strict=True):
            given = dict(zip(rollouts.columns(), map(int, sizes), strict=True))
            data = given.pop("data_parallel_size")
            layout = GenerationLayout.of(RankLayout(data_parallel_size=count), **given)
            assert layout.num_replicas == data
            assert layout.expert_parallel_size == given["expert_parallel_size"]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gemma-2-2b", "layer_kinds"),
        ("kimi-k2", "latent_attention"),
        ("gpt-oss-20b", "router_bias"),
    ],
)
def test_random_weights_are_of_plain_decoders(name: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        config_of(architecture(name))
