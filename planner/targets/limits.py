"""The limits of a target in words, each with the target that lacks only it: what does one cost?"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from automap.planner.targets.capabilities import (
    DIMENSIONS,
    RolloutCapabilities,
    TrainingCapabilities,
)
from automap.planner.targets.target import Target

_OF_JOBS: dict[str, Callable[[Target], str]] = {
    "process_roles": lambda target: (
        f"{' and '.join(sorted(target.process_roles))} in one process: one range, one engine, and "
        "sizes in common"
    ),
    "alike_roles": lambda _: "one engine and its sizes for all models, wherever they are",
    "forms": lambda target: (
        "models that share GPUs in one of these ways: " + "; ".join(f.name for f in target.forms)
    ),
    "ranges": lambda target: (
        "ranges that are equal or disjoint" + (" or nested" if target.ranges == "nested" else "")
    ),
    "shadows_apart": lambda _: "rollouts on the GPUs that train, or on GPUs of their own",
    "one_engine": lambda _: "one engine and cache for all generations of a model",
    "rollouts_apart": lambda _: "rollouts on GPUs of their own",
    "stale_rollouts_apart": lambda _: "stale rollouts on GPUs of their own",
    "tensor_in_node": lambda _: "tensor groups inside a node",
    "whole_nodes": lambda _: "ranges of whole nodes where the cluster has several",
    "even_batches": lambda _: "data ranks and micro-batches that divide the sequences",
    "shared_settings": lambda _: (
        "one micro-batch and recomputation for all that trains, one micro-batch for all that scores"
    ),
    "padded_only": lambda _: "sequences that are padded",
    "one_micro_batch": lambda _: "one micro-batch for all that trains and scores",
    "one_server": lambda _: "rollouts on GPUs of their own in one node",
    "settings_of_role": lambda _: "one micro-batch for all calls of a model",
    "whole_prompts": lambda _: "data ranks that divide the prompts",
    "turns": lambda target: (
        "one after another, wherever they are: "
        + ", ".join(f"{kind} of {role}" for role, kind in target.turns)
    ),
    "offloads_to_generate": lambda _: "what trains on the host while its GPUs generate",
    "offloads_to_train": lambda _: "of several models that train all but one on the host",
    "served_roles": lambda target: f"{' and '.join(sorted(target.served_roles))} served apart",
}
_OF_TRAINING: dict[str, Callable[[TrainingCapabilities], str]] = {
    "process_dimensions": lambda _: "the same parallel sizes for all models of one process",
    "dimensions": lambda engine: (
        "no " + " or ".join(_words(set(DIMENSIONS) - engine.dimensions)) + " parallelism"
    ),
    "shardings": lambda engine: f"models that train sharded as {_either(engine.shardings)}",
    "scoring_shardings": lambda engine: (
        f"models that only score sharded as {_either(engine.scoring_shardings)}"
    ),
    "dense_dimensions": lambda engine: (
        f"no {' or '.join(_words(set(engine.dense_dimensions)))} parallelism of mixtures of experts"
    ),
    "equal_stages": lambda _: "pipeline stages that are equally long",
    "scoring_offloads": lambda engine: (
        f"offload of models that only score: {_either(engine.scoring_offloads)}"
    ),
    "one_sharding": lambda _: "one sharding and one offload for all models that train",
    "usual_stages": lambda _: "usual numbers of pipeline stages",
    "uniform_middle": lambda _: "pipeline stages of which only the first and the last differ",
    "offloads": lambda engine: f"offload of models that train: {_either(engine.offloads)}",
    "recomputes": lambda engine: f"recompute {_either(engine.recomputes)}",
}
_OF_ROLLOUT: dict[str, Callable[[RolloutCapabilities], str]] = {
    "pipelines": lambda _: "no pipeline stages",
    "max_sequences": lambda rollout: (
        f"at most {rollout.max_sequences} sequences of an engine at once"
    ),
    "own_weights": lambda _: "all weights of an engine beside those that train on its GPUs",
    "whole_syncs": lambda _: "whole weights from one rank to engines on GPUs of their own",
    "experts": lambda rollout: (
        "experts split over the tensor ranks"
        + (" alone" if rollout.experts == "split" else "")
        + (" or whole over replicas" if rollout.experts == "replicas" else "")
    ),
}


def limits(target: Target) -> Iterator[tuple[str, Target]]:
    """(a limit in words, the target without it) of every limit on how models are placed.

    The target `any`, whose tables only tell one software from another, has none.
    """
    if target.name == "any":
        return
    for field, words in _OF_JOBS.items():
        without = _without(target, field)
        if without is not None:
            yield words(target), without
    # The first engine that allows a layout runs it: what one does beyond its limits comes last,
    # or it would take layouts from the others.
    for number, engine in enumerate(target.training):
        for field, told in _OF_TRAINING.items():
            free = _without(engine, field)
            if free is not None:
                engines = [*target.training, free]
                if field == "process_dimensions":
                    engines[number] = engines.pop()
                yield f"{engine.name}: {told(engine)}", replace(target, training=tuple(engines))
    for field, said in _OF_ROLLOUT.items():
        rollout = _without(target.rollout, field)
        if rollout is not None:
            yield f"rollout: {said(target.rollout)}", replace(target, rollout=rollout)


def limits_in_words(target: Target) -> list[str]:
    """What of placements a target cannot do."""
    return [words for words, _ in limits(target)]


def _without(table: Any, field: str) -> Any:
    """The table with a field's default, which refuses nothing; None where it has that already."""
    (default,) = (each.default for each in fields(table) if each.name == field)
    return None if getattr(table, field) == default else replace(table, **{field: default})


def _words(names: set[Any]) -> list[str]:
    return [name.replace("_", " ") for name in sorted(names)]


def _either(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
