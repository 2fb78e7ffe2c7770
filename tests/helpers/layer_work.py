"""Measured layers, and the host's work and the kernels beside them."""

from automap.planner.profiles import Row
from tests.helpers.measured_profiles import host_work
from tests.helpers.profile_folders import memory_bound

SIZES = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
KERNELS = memory_bound({2**power: {"add": 1e-10 * 2**power} for power in (10, 24)})
HOST = host_work({("megatron-core", part): 1e-3 for part in ("layer_forward", "layer_training")})


def layers(
    seconds: dict[tuple[str, str, int], float], framework: str = "megatron-core"
) -> list[Row]:
    return [
        (
            "layers",
            {
                "framework": framework,
                "recompute": recompute,
                "part": part,
                "precision": "fp32",
                "num_sequences": sequences,
                "sequence_length": 64,
                **SIZES,
            },
            each,
        )
        for (recompute, part, sequences), each in seconds.items()
    ]


ONES = {
    (recompute, part, count): 1.0
    for recompute in ("none", "full")
    for part in ("forward", "training")
    for count in (8, 64)
    if recompute == "none" or part == "training"
}
