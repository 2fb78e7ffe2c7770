"""Size keys of the config.json files of models that people train now.

Values: the public configuration files. Each is with the parameters of the text tower and its output
head: without vision towers, multi-token prediction modules, or biases that only balance routing.
"""

from typing import Any

Config = dict[str, Any]


def _config(model_type: str, keys: str, *values: object, **more: Any) -> Config:
    return {"model_type": model_type, **dict(zip(keys.split(), values, strict=True)), **more}


_DENSE = (
    "num_hidden_layers hidden_size intermediate_size num_attention_heads num_key_value_heads "
    "head_dim vocab_size tie_word_embeddings max_position_embeddings"
)


def _dense(model_type: str, *values: object, **more: Any) -> Config:
    return _config(model_type, _DENSE, *values, **more)


def _vision(model_type: str, text: Config, **outside: Any) -> Config:
    return {
        "model_type": model_type,
        "text_config": text,
        "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16},
        **outside,
    }


_PHI_4 = _dense("phi3", 40, 5120, 17920, 40, 10, 128, 100352, False, 16384, sliding_window=None)
_PHI_4_MINI = _dense(
    "phi3", 32, 3072, 8192, 24, 8, 128, 200064, True, 131072, sliding_window=262144
)
_GLM_4_9B = _dense("glm4", 40, 4096, 13696, 32, 2, 128, 151552, False, 32768, attention_bias=True)
_MISTRAL = {"sliding_window": None}
_GEMMA_2 = {"sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh"}
_GEMMA_3 = {"sliding_window": 1024, "sliding_window_pattern": 6}
_OLMO_3 = {
    "sliding_window": 4096,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}


def _olmo_3(*values: Any) -> Config:
    return _dense("olmo3", *values) | {
        "sliding_window": 4096,
        "layer_types": _OLMO_3["layer_types"] * (values[0] // 4),
    }


_QWEN3_NEXT = {
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
}


def _qwen3_5(*values: object, value_heads: int) -> Config:
    return _dense("qwen3_5_text", *values, linear_num_value_heads=value_heads, **_QWEN3_NEXT)


_MOE = "num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size"


def _qwen3_5_moe(layers: int, hidden: int, heads: int, value_heads: int, *experts: int) -> Config:
    sizes = dict(zip(_MOE.split(), experts, strict=True))
    values = layers, hidden, heads, 2, 256, 248320, False, 262144
    keys = _DENSE.replace("intermediate_size ", "")
    return _config(
        "qwen3_5_moe_text",
        keys,
        *values,
        linear_num_value_heads=value_heads,
        **_QWEN3_NEXT,
        **sizes,
    )


def _nemotron(pattern: str, *values: object, **more: Any) -> Config:
    keys = (
        "hidden_size num_attention_heads num_key_value_heads mamba_num_heads ssm_state_size "
        "intermediate_size"
    )
    return _config(
        "nemotron_h",
        keys,
        *values,
        hybrid_override_pattern=pattern,
        num_hidden_layers=len(pattern),
        head_dim=128,
        mamba_head_dim=64,
        n_groups=8,
        conv_kernel=4,
        vocab_size=131072,
        tie_word_embeddings=False,
        max_position_embeddings=8192,
        **more,
    )


def _alternating(layers: int, other: str, attention: list[int]) -> str:
    """Mamba layers and others in turns, with attention layers put in between."""
    found, turn = "", 0
    for layer in range(layers):
        if layer in attention:
            found += "*"
        else:
            found += "M" if turn % 2 == 0 else other
            turn += 1
    return found


_GPT_OSS = {
    "sliding_window": 128,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "quantization_config": {"quant_method": "mxfp4"},
}


def _gpt_oss(layers: int, experts: int) -> Config:
    sizes = layers, 2880, 2880, 64, 8, 64, 201088, False, 131072
    return _dense("gpt_oss", *sizes, num_local_experts=experts, **_GPT_OSS) | {
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2)
    }


def _glm_4_moe(*sizes: Any, experts: tuple[int, int, int, int], qk_norm: bool) -> Config:
    keys = "n_routed_experts num_experts_per_tok moe_intermediate_size first_k_dense_replace"
    return (
        _dense("glm4_moe", *sizes)
        | dict(zip(keys.split(), experts, strict=True))
        | {
            "n_shared_experts": 1,
            "attention_bias": True,
            "use_qk_norm": qk_norm,
            "num_nextn_predict_layers": 1,
        }
    )


_LATENT = (
    "num_hidden_layers hidden_size intermediate_size num_attention_heads q_lora_rank "
    "qk_nope_head_dim v_head_dim n_routed_experts num_experts_per_tok moe_intermediate_size "
    "n_shared_experts vocab_size first_k_dense_replace"
)


def _latent(model_type: str, *values: Any, **more: Any) -> Config:
    return _config(model_type, _LATENT, *values) | {
        "num_key_value_heads": values[3],
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "tie_word_embeddings": False,
        "max_position_embeddings": 163840,
        **more,
    }


_INDEXER = {"index_head_dim": 128, "index_topk": 2048}
_LLAMA_4 = _dense("llama4_text", 48, 5120, 8192, 40, 8, 128, 202048, False, 1048576) | {
    "intermediate_size_mlp": 16384,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 8192,
    "no_rope_layers": [1, 1, 1, 0] * 12,
}
_GEMMA_4 = {
    "sliding_window": 1024,
    "global_head_dim": 512,
    "num_global_key_value_heads": 4,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
}


def _gemma_4(*sizes: Any, **more: Any) -> Config:
    layers = ["sliding_attention"] * 5 + ["full_attention"]
    text = _dense("gemma4_text", *sizes, **(_GEMMA_4 | more))
    return _vision("gemma4", text | {"layer_types": layers * (sizes[0] // 6)})


def _qwen3_moe(*sizes: Any, experts: tuple[int, int, int]) -> Config:
    keys = "num_experts num_experts_per_tok moe_intermediate_size"
    return (
        _dense("qwen3_moe", *sizes)
        | dict(zip(keys.split(), experts, strict=True))
        | {
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    )


_NANO = _alternating(52, "E", [5, 12, 19, 26, 33, 42])
_SUPER = _alternating(88, "E", [7, 16, 25, 36, 47, 58, 69, 78])
_NEMOTRON_H_56B = _alternating(118, "-", list(range(7, 117, 11)))

CURRENT: dict[str, tuple[int, Config]] = {
    "phi-4": (14_659_507_200, _PHI_4),
    "phi-4-mini": (3_836_021_760, _PHI_4_MINI),
    "olmo-2-7b": (
        7_298_617_344,
        _dense("olmo2", 32, 4096, 11008, 32, 32, 128, 100352, False, 4096),
    ),
    "olmo-2-13b": (
        13_716_198_400,
        _dense("olmo2", 40, 5120, 13824, 40, 40, 128, 100352, False, 4096),
    ),
    "olmo-2-32b": (
        32_234_279_936,
        _dense("olmo2", 64, 5120, 27648, 40, 8, 128, 100352, False, 4096),
    ),
    "mistral-nemo-12b": (
        12_247_782_400,
        _dense("mistral", 40, 5120, 14336, 32, 8, 128, 131072, False, 131072, **_MISTRAL),
    ),
    "mistral-small-24b": (
        23_572_403_200,
        _dense("mistral", 40, 5120, 32768, 32, 8, 128, 131072, False, 32768, **_MISTRAL),
    ),
    "glm-4-9b": (9_400_279_040, _GLM_4_9B),
    "gemma-2-2b": (
        2_614_341_888,
        _dense("gemma2", 26, 2304, 9216, 8, 4, 256, 256000, True, 8192, **_GEMMA_2),
    ),
    "gemma-2-9b": (
        9_241_705_984,
        _dense("gemma2", 42, 3584, 14336, 16, 8, 256, 256000, True, 8192, **_GEMMA_2),
    ),
    "gemma-2-27b": (
        27_227_128_320,
        _dense("gemma2", 46, 4608, 36864, 32, 16, 128, 256000, True, 8192, **_GEMMA_2),
    ),
    "gemma-3-1b": (
        999_885_952,
        _dense("gemma3_text", 26, 1152, 6912, 4, 1, 256, 262144, True, 32768)
        | {"sliding_window": 512, "sliding_window_pattern": 6},
    ),
    "gemma-3-4b": (
        3_880_263_168,
        # The published file says no more than this; the rest are defaults of its class.
        _vision(
            "gemma3",
            {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        ),
    ),
    "gemma-3-12b": (
        11_766_034_176,
        _vision(
            "gemma3",
            _dense("gemma3_text", 48, 3840, 15360, 16, 8, 256, 262208, True, 131072, **_GEMMA_3),
        ),
    ),
    "gemma-3-27b": (
        27_009_346_304,
        _vision(
            "gemma3",
            _dense("gemma3_text", 62, 5376, 21504, 32, 16, 128, 262208, True, 131072, **_GEMMA_3),
        ),
    ),
    "gemma-4-31b": (
        30_697_345_280,
        _gemma_4(60, 5376, 21504, 32, 16, 256, 262144, True, 262144),
    ),
    "olmo-3-7b": (
        7_298_011_136,
        _olmo_3(32, 4096, 11008, 32, 32, 128, 100278, False, 65536),
    ),
    "olmo-3-32b": (
        32_233_522_176,
        _olmo_3(64, 5120, 27648, 40, 8, 128, 100278, False, 65536),
    ),
    "qwen3.5-0.8b": (
        752_393_024,
        _vision(
            "qwen3_5",
            _qwen3_5(24, 1024, 3584, 8, 2, 256, 248320, True, 262144, value_heads=16),
        ),
    ),
    "qwen3.5-4b": (
        4_205_751_296,
        _vision(
            "qwen3_5",
            _qwen3_5(32, 2560, 9216, 16, 4, 256, 248320, True, 262144, value_heads=32),
        ),
    ),
    "qwen3.5-9b": (
        8_953_803_264,
        _vision(
            "qwen3_5",
            _qwen3_5(32, 4096, 12288, 16, 4, 256, 248320, False, 262144, value_heads=32),
        ),
    ),
    "qwen3.5-27b": (
        26_895_998_464,
        _vision(
            "qwen3_5",
            _qwen3_5(64, 5120, 17408, 24, 4, 256, 248320, False, 262144, value_heads=48),
        ),
    ),
    "nemotron-h-8b": (
        8_100_852_736,
        _nemotron(_alternating(52, "-", [7, 18, 29, 40]), 4096, 32, 8, 128, 128, 21504),
    ),
    "nemotron-h-56b": (
        56_324_350_464,
        _nemotron(_NEMOTRON_H_56B, 8192, 64, 8, 256, 256, 32768),
    ),
    "gpt-oss-20b": (20_914_757_184, _gpt_oss(24, 32)),
    "gpt-oss-120b": (116_829_156_672, _gpt_oss(36, 128)),
    "mixtral-8x22b": (
        140_620_634_112,
        _dense("mixtral", 56, 6144, 16384, 48, 8, 128, 32000, False, 65536)
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "qwen3-coder-480b-a35b": (
        480_154_875_392,
        _qwen3_moe(62, 6144, 8192, 96, 8, 128, 151936, False, 262144, experts=(160, 8, 2560)),
    ),
    "glm-4.5": (
        352_797_814_784,
        _glm_4_moe(
            92,
            5120,
            12288,
            96,
            8,
            128,
            151552,
            False,
            131072,
            experts=(160, 8, 1536, 3),
            qk_norm=True,
        ),
    ),
    "glm-4.5-air": (
        106_852_245_504,
        _glm_4_moe(
            46,
            4096,
            10944,
            96,
            8,
            128,
            151552,
            False,
            131072,
            experts=(128, 8, 1408, 1),
            qk_norm=False,
        ),
    ),
    "minimax-m2": (
        228_689_748_992,
        _dense("minimax_m2", 62, 3072, 1536, 48, 8, 128, 200064, False, 196608)
        | {
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "use_qk_norm": True,
            "use_mtp": True,
            "num_mtp_modules": 3,
        },
    ),
    "llama-4-scout": (
        107_769_861_120,
        _vision("llama4", _LLAMA_4 | {"num_local_experts": 16, "interleave_moe_layer_step": 1}),
    ),
    "llama-4-maverick": (
        400_711_848_960,
        _vision("llama4", _LLAMA_4 | {"num_local_experts": 128, "interleave_moe_layer_step": 2}),
    ),
    "gemma-4-26b-a4b": (
        25_233_141_760,
        _gemma_4(
            30,
            2816,
            2112,
            16,
            8,
            256,
            262144,
            True,
            262144,
            num_global_key_value_heads=2,
            enable_moe_block=True,
            num_experts=128,
            top_k_experts=8,
            moe_intermediate_size=704,
        ),
    ),
    "qwen3-next-80b-a3b": (
        79_674_391_296,
        _dense("qwen3_next", 48, 2048, 5120, 16, 2, 256, 151936, False, 262144)
        | dict(zip(_MOE.split(), (512, 10, 512, 512), strict=True))
        | {"linear_num_value_heads": 32, "decoder_sparse_step": 1, "mlp_only_layers": []}
        | _QWEN3_NEXT,
    ),
    "qwen3.5-35b-a3b": (
        34_660_610_688,
        _vision("qwen3_5_moe", _qwen3_5_moe(40, 2048, 16, 32, 256, 8, 512, 512)),
    ),
    "qwen3.5-122b-a10b": (
        122_111_526_912,
        _vision("qwen3_5_moe", _qwen3_5_moe(48, 3072, 32, 64, 256, 8, 1024, 1024)),
    ),
    "qwen3.5-397b-a17b": (
        396_346_350_336,
        _vision("qwen3_5_moe", _qwen3_5_moe(60, 4096, 32, 64, 512, 10, 1024, 1024)),
    ),
    "nemotron-3-nano-30b-a3b": (
        31_577_937_344,
        _nemotron(
            _NANO,
            2688,
            32,
            2,
            64,
            128,
            1856,
            n_routed_experts=128,
            num_experts_per_tok=6,
            moe_intermediate_size=1856,
            n_shared_experts=1,
            moe_shared_expert_intermediate_size=3712,
        ),
    ),
    "nemotron-3-super-120b-a12b": (
        120_668_687_360,
        _nemotron(
            _SUPER,
            4096,
            32,
            2,
            128,
            128,
            2688,
            n_routed_experts=512,
            num_experts_per_tok=22,
            moe_intermediate_size=2688,
            n_shared_experts=1,
            moe_shared_expert_intermediate_size=5376,
            moe_latent_size=1024,
        ),
    ),
    "deepseek-v2-lite": (
        15_706_484_224,
        _latent(
            "deepseek_v2",
            27,
            2048,
            10944,
            16,
            None,
            128,
            128,
            64,
            6,
            1408,
            2,
            102400,
            1,
            n_group=1,
            topk_group=1,
            topk_method="greedy",
        ),
    ),
    "deepseek-v2": (
        235_741_434_880,
        _latent(
            "deepseek_v2",
            60,
            5120,
            12288,
            128,
            1536,
            128,
            128,
            160,
            6,
            1536,
            2,
            102400,
            1,
            n_group=8,
            topk_group=3,
        ),
    ),
    "deepseek-v3.2": (
        671_877_929_216,
        _latent(
            "deepseek_v32",
            61,
            7168,
            18432,
            128,
            1536,
            128,
            128,
            256,
            8,
            2048,
            1,
            129280,
            3,
            index_n_heads=64,
            num_nextn_predict_layers=1,
            **_INDEXER,
        ),
    ),
    "deepseek-v3": (
        671_026_404_352,
        _latent(
            "deepseek_v3",
            61,
            7168,
            18432,
            128,
            1536,
            128,
            128,
            256,
            8,
            2048,
            1,
            129280,
            3,
            num_nextn_predict_layers=1,
            n_group=8,
            topk_group=4,
        ),
    ),
    "kimi-k2": (
        1_026_408_209_408,
        _latent(
            "kimi_k2",
            61,
            7168,
            18432,
            64,
            1536,
            128,
            128,
            384,
            8,
            2048,
            1,
            163840,
            1,
            n_group=1,
            topk_group=1,
            max_position_embeddings=131072,
        ),
    ),
    "moonlight-16b-a3b": (
        15_960_108_544,
        _latent(
            "deepseek_v3",
            27,
            2048,
            11264,
            16,
            None,
            128,
            128,
            64,
            6,
            1408,
            2,
            163840,
            1,
            n_group=1,
            topk_group=1,
        ),
    ),
    "glm-4.7-flash": (
        29_943_390_976,
        _latent(
            "glm4_moe_lite",
            47,
            2048,
            10240,
            20,
            768,
            192,
            256,
            64,
            4,
            1536,
            1,
            154880,
            1,
            n_group=1,
            topk_group=1,
        ),
    ),
    "glm-5": (
        743_911_199_232,
        _latent(
            "glm_moe_dsa",
            78,
            6144,
            12288,
            64,
            2048,
            192,
            256,
            256,
            8,
            2048,
            1,
            154880,
            3,
            index_n_heads=32,
            num_nextn_predict_layers=1,
            n_group=1,
            topk_group=1,
            **_INDEXER,
        ),
    ),
    "glm-5.2": (
        743_377_000_704,
        _latent(
            "glm_moe_dsa",
            78,
            6144,
            12288,
            64,
            2048,
            192,
            256,
            256,
            8,
            2048,
            1,
            154880,
            3,
            index_n_heads=32,
            num_nextn_predict_layers=1,
            n_group=1,
            topk_group=1,
            **_INDEXER,
            index_topk_freq=4,
            index_skip_topk_offset=3,
        ),
    ),
}
"""Name in the catalogue → (parameters of the text tower with its head, configuration)."""

TEXT_TOWERS: dict[str, tuple[str, int]] = {
    "qwen2.5-vl-3b": ("qwen2.5-3b", 3_085_938_688),
    "qwen2.5-vl-7b": ("qwen2.5-7b", 7_615_616_512),
    "qwen2.5-vl-32b": ("qwen2.5-32b", 32_763_876_352),
    "qwen2.5-vl-72b": ("qwen2.5-72b", 72_706_203_648),
    "qwen3-vl-2b": ("qwen3-1.7b", 1_720_574_976),
    "qwen3-vl-4b": ("qwen3-4b", 4_022_468_096),
    "qwen3-vl-8b": ("qwen3-8b", 8_190_735_360),
    "qwen3-vl-32b": ("qwen3-32b", 32_762_123_264),
    "qwen3-vl-30b-a3b": ("qwen3-30b-a3b", 30_532_122_624),
    "qwen3-vl-235b-a22b": ("qwen3-235b-a22b", 235_093_634_560),
}
"""Vision-language model → (model whose sizes its text tower has, parameters)."""
