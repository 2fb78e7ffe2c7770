"""What must hold of a vLLM engine inside our processes; a transformers forward is the judge."""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from automap.executor.batch import Batch, Ragged, concatenate
from automap.executor.reshard.parts import Part, Target
from automap.executor.settings import RolloutSettings
from automap.planner.targets import AUTOMAP
from tests.executor.engines.plain_training import as_in_folders
from tests.executor.ranks import Case

if TYPE_CHECKING:
    from automap.executor.rollout.vllm_engine import VllmEngine

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}
TOLERANCE = 3e-5
"""Of log-probabilities in fp32; seen: 2e-6 with AVX-512, 1.2e-5 with AVX2."""
SETTINGS = RolloutSettings(temperature=0.7, top_p=0.9, top_k=20, max_running_sequences=16)
ANYTHING = RolloutSettings(temperature=1.3, max_running_sequences=64)
PROMPTS = [[5, 6, 7, 8], [9, 10], [3], [20, 21, 22, 23, 24, 25]]


def tiny_config(*, num_key_value_heads: int = 2, vocab_size: int = 256) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=num_key_value_heads,
        head_dim=32,
        vocab_size=vocab_size,
        max_position_embeddings=512,
        initializer_range=0.1,  # far from uniform
        tie_word_embeddings=False,
        dtype="float32",
    )


def tiny_model(config: PreTrainedConfig, *, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
        return model.to(torch.float32)


def mixture_config() -> Qwen3MoeConfig:
    return Qwen3MoeConfig(
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_experts=4,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=256,
        max_position_embeddings=512,
        initializer_range=0.1,
        tie_word_embeddings=False,
        dtype="float32",
    )


@contextmanager
def engine_of(
    config: PreTrainedConfig | Path,
    ranks: Sequence[int],
    rollout: RolloutSettings,
    *,
    precision: Literal["fp32", "fp8"] = "fp32",
    **options: Any,
) -> "Iterator[VllmEngine]":
    from automap.executor.rollout.vllm_engine import (  # seconds: not in the process of pytest
        VllmEngine,
    )

    engine = VllmEngine(
        config,
        ranks=ranks,
        precision=precision,
        rollout=rollout,
        max_model_len=64,
        kv_cache_bytes=8 << 20,
        seed=3,
        **options,
    )
    yield engine
    engine.shutdown()


def prompts_of(tokens: list[list[int]] = PROMPTS, *, first_id: int = 100) -> Batch:
    columns = [torch.tensor(each) for each in tokens]
    return Batch(
        {
            "prompt_tokens": Ragged.of(columns),
            "prompt_id": torch.arange(first_id, first_id + len(tokens)),
        }
    )


def generate(engine: "VllmEngine", prompts: Batch, **options: object) -> Batch:
    chosen: dict[str, object] = {
        "responses_per_prompt": 2,
        "max_response_tokens": 12,
        "end_tokens": [],
        "iteration": 0,
    }
    return engine.generate(prompts, **(chosen | options))


def rows_of(batch: Batch) -> list[list[int]]:
    return [row.tolist() for row in batch.ragged("response_tokens").rows()]


def worst_error(model: PreTrainedModel, batch: Batch, temperature: float) -> float:
    """Of the reported log-probabilities, against log_softmax(logits ÷ temperature)."""
    worst = 0.0
    columns = ("prompt_tokens", "response_tokens", "response_log_probs")
    for prompt, response, found in zip(*(batch.ragged(n).rows() for n in columns), strict=True):
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        wanted = (logits / temperature).log_softmax(-1).gather(1, response[:, None])[:, 0]
        worst = max(worst, (wanted - found).abs().max().item())
    return worst


def check_log_probs(engine: "VllmEngine", model: PreTrainedModel, temperature: float) -> None:
    for greedy in (True, False):
        batch = generate(engine, prompts_of(), greedy=greedy)
        assert worst_error(model, batch, temperature) < TOLERANCE
        if greedy:
            with torch.no_grad():
                first = model(torch.tensor([PROMPTS[0]])).logits[0, -1].argmax()
            assert rows_of(batch)[0][0] == first
            assert rows_of(batch)[0] == rows_of(batch)[1]
        else:
            assert rows_of(batch)[0] != rows_of(batch)[1]


def generates_alone(folder: Path) -> None:
    """Two replicas of one rank: weights in and anew, rows, ends, seeds, errors."""
    config = tiny_config()
    before, after = tiny_model(config, seed=1), tiny_model(config, seed=2)
    own = folder / "model"
    before.save_pretrained(own)  # rank 0 does
    dist.barrier()
    with unchanged(), engine_of(own, [dist.get_rank()], SETTINGS) as engine:
        with pytest.raises(RuntimeError, match="needs weights"):
            generate(engine, prompts_of())
        engine.load_folder(own)
        check_log_probs(engine, before, 0.7)
        check_rows(engine)
        check_errors(engine, after)
        engine.load_weights(after.state_dict().items())
        check_log_probs(engine, after, 0.7)
        check_ends(engine)
        check_splits(engine)
        sizes = engine.weight_bytes()
        assert sizes.tensors + sizes.prepacked == sum(p.nbytes for p in after.parameters())
        engine.sleep()
        engine.wake("weights")
        engine.wake("cache")
        if not torch.cuda.is_available():
            check_log_probs(engine, after, 0.7)
    assert not [name for name in os.listdir("/dev/shm") if "cpushm" in name]


@contextmanager
def unchanged() -> Iterator[None]:
    """The random states are those of before, and torch's threads can still be set."""
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    yield
    now = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert states == now
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def check_rows(engine: "VllmEngine") -> None:
    """Rows follow their prompts, with what else the prompts carry."""
    prompts = prompts_of().with_columns(answer=torch.tensor([7, 8, 9, 10]))
    batch = generate(engine, prompts, responses_per_prompt=3)
    assert batch.tensor("prompt_id").tolist() == [100] * 3 + [101] * 3 + [102] * 3 + [103] * 3
    assert batch.tensor("group").tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert batch.tensor("answer").tolist() == [7] * 3 + [8] * 3 + [9] * 3 + [10] * 3
    assert [row.tolist() for row in batch.ragged("prompt_tokens").rows()][3:6] == [PROMPTS[1]] * 3
    assert not batch.tensor("finished").any()
    assert set(batch.ragged("response_tokens").lengths.tolist()) == {12}
    # A prompt that an iteration draws twice has other responses the second time.
    twice = prompts_of([PROMPTS[0]] * 2).with_columns(prompt_id=torch.tensor([100, 100]))
    again = twice.with_columns(prompt_epoch=torch.tensor([0, 1]))
    same, other = (rows_of(generate(engine, each)) for each in (twice, again))
    assert same[:2] == same[2:] == other[:2]
    assert other[2:] != other[:2]
    grouped = generate(engine, prompts.with_columns(group=torch.tensor([5, 6, 7, 8])))
    assert grouped.tensor("group").tolist() == [5, 5, 6, 6, 7, 7, 8, 8]


def check_ends(engine: "VllmEngine") -> None:
    """An end token ends a response and is its last; the row says so."""
    plain = rows_of(generate(engine, prompts_of(), greedy=True))[0]
    end = plain[4]
    batch = generate(engine, prompts_of(), greedy=True, end_tokens=[255, end])
    first = plain[: plain.index(end) + 1]
    assert rows_of(batch)[0] == first
    assert bool(batch.tensor("finished")[0])
    rows = zip(rows_of(batch), batch.tensor("finished").tolist(), strict=True)
    assert all((row[-1] in (255, end)) == finished for row, finished in rows)


def check_splits(engine: "VllmEngine") -> None:
    """Responses depend on seed, iteration, prompt and number, not on what runs beside them."""
    together = generate(engine, prompts_of())
    apart = [generate(engine, prompts_of().take([index])) for index in (2, 0, 3, 1)]
    assert [rows_of(apart[at]) for at in (1, 3, 0, 2)] == [
        rows_of(together)[2 * index : 2 * index + 2] for index in range(4)
    ]
    assert rows_of(generate(engine, prompts_of(), iteration=1)) != rows_of(together)
    same = prompts_of([[5, 6], [5, 6]])
    first, second, third, fourth = rows_of(generate(engine, same))
    assert len({tuple(row) for row in (first, second, third, fourth)}) == 4
    nothing = generate(engine, prompts_of().take([]))
    assert nothing.num_rows == 0
    assert concatenate([nothing, together]).num_rows == 8


def check_errors(engine: "VllmEngine", model: PreTrainedModel) -> None:
    with pytest.raises(ValueError, match=r"prompt 103 has 6 tokens.* 60 .*max_model_len 64"):
        generate(engine, prompts_of(), max_response_tokens=60)
    with (
        pytest.raises(RuntimeError, match="already has a vLLM engine"),
        engine_of(tiny_config(), [dist.get_rank()], SETTINGS),
    ):
        pass
    with (
        pytest.raises(ValueError, match="starts a replica of ranks"),
        engine_of(tiny_config(), [1 - dist.get_rank()], SETTINGS),
    ):
        pass
    partly = {name: each for name, each in model.state_dict().items() if "down_proj" not in name}
    with pytest.raises(ValueError, match=r"no weights came for .*layers\.1\.mlp\.down_proj"):
        engine.load_weights(partly.items())
    with pytest.raises(RuntimeError, match="needs weights"):
        generate(engine, prompts_of())


def samples_fairly(folder: Path) -> None:
    """Frequencies of 2000 first tokens are those of the model, at another temperature."""
    config = tiny_config()
    model = tiny_model(config, seed=4)
    with engine_of(config, [dist.get_rank()], ANYTHING) as engine:
        engine.load_weights(model.state_dict().items())
        options = {"responses_per_prompt": 2000, "max_response_tokens": 1}
        batch = generate(engine, prompts_of([PROMPTS[dist.get_rank()]]), **options)
        assert worst_error(model, batch.slice(0, 20), 1.3) < TOLERANCE
    counts = torch.bincount(batch.ragged("response_tokens").values, minlength=256)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPTS[dist.get_rank()]])).logits[0, -1]
    expected = (logits / 1.3).softmax(-1) * 2000
    # Pearson's statistic of tokens in 32 bins of nearly equal probability: mean 31, deviation 8.
    order = expected.argsort(descending=True)
    bins = torch.arange(256) % 32
    found, wanted = torch.zeros(32), torch.zeros(32)
    found.index_add_(0, bins, counts[order].float())
    wanted.index_add_(0, bins, expected[order])
    assert ((found - wanted) ** 2 / wanted).sum() < 80


def cuts_the_tail(folder: Path) -> None:
    """Top-k leaves the k likeliest; the log-probabilities stay those of the whole distribution."""
    config, top = tiny_config(), RolloutSettings(temperature=2.0, top_k=3, top_p=0.999)
    model = tiny_model(config, seed=4)
    with engine_of(config, [dist.get_rank()], top) as engine:
        engine.load_weights(model.state_dict().items())
        options = {"responses_per_prompt": 100, "max_response_tokens": 1}
        batch = generate(engine, prompts_of([PROMPTS[0]]), **options)
        assert worst_error(model, batch.slice(0, 20), 2.0) < TOLERANCE
    with torch.no_grad():
        likeliest = model(torch.tensor([PROMPTS[0]])).logits[0, -1].topk(3).indices
    found = set(batch.ragged("response_tokens").values.tolist())
    assert found == set(likeliest.tolist())


def generates_together(
    folder: Path, *, ranks: list[int], num_key_value_heads: int, vocab_size: int
) -> None:
    """A tensor group, in any order; it reads its slices and nothing else of what it is given."""
    config = tiny_config(num_key_value_heads=num_key_value_heads, vocab_size=vocab_size)
    target = Target(ranks.index(dist.get_rank()), len(ranks), num_key_value_heads)
    with engine_of(config, ranks, SETTINGS) as engine:
        for seed in (1, 2):
            model = tiny_model(config, seed=seed)
            engine.load_weights(only_slices(model.state_dict(), target))
            check_log_probs(engine, model, 0.7)
        whole = sum(each.nbytes for each in model.parameters())
        sizes = engine.weight_bytes()
        assert sizes.tensors + sizes.prepacked < whole * 0.7
    assert not [name for name in os.listdir("/dev/shm") if "cpushm" in name]


def only_slices(weights: Mapping[str, Tensor], target: Target) -> Iterator[tuple[str, Tensor]]:
    for name, values in weights.items():
        shape = tuple(values.shape)
        part = target.part(Part(name, shape, (0,) * len(shape), shape, values.dtype))
        if part is None:
            continue
        tensor = torch.full_like(values, torch.nan)
        tensor[part.index] = values[part.index]
        yield name, tensor


def spreads_experts(folder: Path) -> None:
    """A tensor group whose ranks have half of the experts each generates what it did with halves of
    each, with its first weights and with others; of foreign experts it is given nothing.
    """
    config = mixture_config()
    rank = dist.get_rank()
    found: list[list[Batch]] = []
    for size, experts in ((1, None), (2, (2 * rank, 2 * rank + 2))):
        target = Target(rank, 2, 2, experts=experts)
        found.append([])
        with engine_of(config, [0, 1], SETTINGS, expert_parallel_size=size) as engine:
            for seed in (1, 2):
                model = tiny_model(config, seed=seed)
                weights = as_in_folders(model.state_dict())
                engine.load_weights(only_slices(weights, target))
                check_log_probs(engine, model, 0.7)
                found[-1].append(generate(engine, prompts_of(), greedy=True))
            sizes = engine.weight_bytes()
            experts_bytes = sum(each.nbytes for name, each in weights.items() if ".experts" in name)
            assert sizes.tensors >= experts_bytes // 2
            assert sizes.tensors + sizes.prepacked < 0.6 * sum(w.nbytes for w in weights.values())
            lacking = f"model.layers.1.mlp.experts.{2 * rank}.up_proj.weight"
            partly = {name: each for name, each in weights.items() if name != lacking}
            with pytest.raises(ValueError, match=f"no weights came for {lacking}"):
                engine.load_weights(only_slices(partly, target))
    for split, spread in zip(*found, strict=True):
        assert rows_of(split) == rows_of(spread)
        log_probs = [each.ragged("response_log_probs").values for each in (split, spread)]
        assert (log_probs[0] - log_probs[1]).abs().max() < TOLERANCE
    assert rows_of(found[1][0]) != rows_of(found[1][1])
    with (
        pytest.raises(ValueError, match=r"must be 1 or tensor_parallel_size 1, got 2"),
        engine_of(config, [rank], SETTINGS, expert_parallel_size=2),
    ):
        pass


def shares_the_embedding(folder: Path) -> None:
    """New weights reach an output layer that is the embedding, whatever names they come under."""
    config = tiny_config()
    config.tie_word_embeddings = True
    with engine_of(config, [dist.get_rank()], RolloutSettings(temperature=0.8)) as engine:
        for seed in (1, 2):
            model = tiny_model(config, seed=seed)
            named = {id(tensor): (name, tensor) for name, tensor in model.named_parameters()}
            engine.load_weights(iter(named.values()))
            check_log_probs(engine, model, 0.8)


def refuses_what_only_a_gpu_runs(folder: Path) -> None:
    """The table of the target says what vLLM says, and the engine refuses by the table."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    known = AUTOMAP.rollout.head_dims_on_cores
    assert known == frozenset(CPUAttentionBackend.get_supported_head_sizes())
    ranks = [dist.get_rank()]
    with (
        pytest.raises(ValueError, match=r"precision fp8: .* on GPUs alone"),
        engine_of(tiny_config(), ranks, RolloutSettings(), precision="fp8"),
    ):
        pass
    config = tiny_config()
    config.head_dim = 16
    with (
        pytest.raises(ValueError, match=r"head_dim 16: .* is for 32, 64"),
        engine_of(config, ranks, RolloutSettings()),
    ):
        pass


def generates_in_stages(folder: Path) -> None:
    """Two pipeline stages of a layer each."""
    config = tiny_config()
    model = tiny_model(config, seed=1)
    with engine_of(config, [0, 1], SETTINGS, tensor_parallel_size=1) as engine:
        engine.load_weights(model.state_dict().items())
        check_log_probs(engine, model, 0.7)


def generates_at_intervals(folder: Path) -> None:
    """Tensor groups {0, 2} and {1, 3}, beside groups {0, 1} and {2, 3} that go on working.

    One replica has three prompts and the other none: nobody waits.
    """
    training = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][dist.get_rank() // 2]
    config = tiny_config()
    model = tiny_model(config, seed=1)
    replica = dist.get_rank() % 2
    with engine_of(config, [replica, replica + 2], SETTINGS) as engine:
        engine.load_weights(model.state_dict().items())
        for rows in ([0, 1, 2], []), ([], [3, 1]), ([2], [0]):
            batch = generate(engine, prompts_of().take(rows[replica]))
            assert batch.num_rows == 2 * len(rows[replica])
            assert worst_error(model, batch, 0.7) < TOLERANCE
            tokens: list[list[list[int]]] = [[]] * 4
            dist.all_gather_object(tokens, rows_of(batch))
            assert tokens[replica] == tokens[replica + 2] == rows_of(batch)
            total = torch.ones(1)
            dist.all_reduce(total, group=training)
            assert total.item() == 2


ON_TWO: dict[str, Case] = {
    "alone": generates_alone,
    "fair": samples_fairly,
    "tail": cuts_the_tail,
    "together": partial(generates_together, ranks=[0, 1], num_key_value_heads=2, vocab_size=256),
    "stages": generates_in_stages,
    "tied": shares_the_embedding,
    "gpus": refuses_what_only_a_gpu_runs,
}
MORE_ON_TWO: dict[str, Case] = {
    "experts": spreads_experts,
    "together_backwards": partial(
        generates_together, ranks=[1, 0], num_key_value_heads=1, vocab_size=200
    ),
}
ON_FOUR: dict[str, Case] = {"intervals": generates_at_intervals}
