"""What must hold of the FSDP engine, by the number of processes that it takes."""

from functools import partial

from tests.executor.engines.fsdp_context_cases import (
    ranks_compute_slices_and_heads,
    reshards_bit_for_bit,
    slices_are_equal_and_cover_a_row,
    slices_of_any_length_give_the_same,
    weights_are_sharded_over_data_and_context,
    wrong_sizes_are_refused,
)
from tests.executor.engines.fsdp_lora_cases import (
    lora_keeps_little_and_saves_merged_weights,
    lora_trains_a_critic_with_its_head,
    lora_trains_like_peft,
)
from tests.executor.engines.fsdp_training_cases import (
    a_rank_without_rows_takes_part,
    bf16_computes_with_fp32_masters,
    not_finite_ends_alike_and_changes_nothing,
    random_weights_depend_on_the_seed_alone,
    recomputes_what_it_says,
    scores_like_transformers,
    sharding_decides_how_often_weights_are_gathered,
    trains_like_one_process,
    values_and_scores_like_transformers,
    wrong_use_is_refused,
)
from tests.executor.engines.fsdp_weight_cases import (
    a_critic_starts_from_a_language_model,
    a_failed_save_leaves_the_old_folder,
    a_state_of_another_model_is_refused,
    continues_from_another_layout,
    folders_go_both_ways,
    large_folders_have_several_files,
    loading_says_what_is_wrong,
    offload_frees_storages_and_reload_brings_them_back,
    pieces_cover_every_tensor_once,
    resumes_bit_for_bit_and_on_another_layout,
)
from tests.executor.ranks import Case


def _named(*functions: Case) -> dict[str, Case]:
    return {function.__name__: function for function in functions}


def _trains(layout: str, family: str, sharding: str, recompute: str, **more: object) -> Case:
    return partial(trains_like_one_process, layout, family, sharding, recompute, **more)


ON_TWO: dict[str, Case] = {
    **{
        f"scores_like_transformers_{layout}_{family}": partial(
            scores_like_transformers, layout, family
        )
        for layout in ("data2", "tensor2")
        for family in ("llama", "qwen2", "qwen3")
    },
    "scores_like_transformers_data2_sliding": partial(scores_like_transformers, "data2", "sliding"),
    "scores_like_transformers_data2_scaled": partial(scores_like_transformers, "data2", "scaled"),
    "values_and_scores_data2": partial(values_and_scores_like_transformers, "data2"),
    "values_and_scores_tensor2": partial(values_and_scores_like_transformers, "tensor2"),
    **_named(a_rank_without_rows_takes_part, random_weights_depend_on_the_seed_alone),
    "trains_data2_full": _trains("data2", "llama", "full", "none"),
    "trains_data2_full_row_by_row": _trains("data2", "llama", "full", "full", micro_batch_tokens=1),
    "trains_data2_gradient": _trains("data2", "llama", "gradient", "selective"),
    "trains_data2_critic": _trains("data2", "llama", "full", "none", head="scalar"),
    "trains_tensor2": _trains("tensor2", "llama", "full", "full"),
    "trains_tensor2_qwen3": _trains("tensor2", "qwen3", "full", "none"),
    "trains_tensor2_critic": _trains("tensor2", "qwen3", "full", "none", head="scalar"),
    **_named(
        recomputes_what_it_says,
        sharding_decides_how_often_weights_are_gathered,
        bf16_computes_with_fp32_masters,
        not_finite_ends_alike_and_changes_nothing,
        wrong_use_is_refused,
    ),
    "pieces_data2": partial(pieces_cover_every_tensor_once, "data2", 255),
    "pieces_tensor2": partial(pieces_cover_every_tensor_once, "tensor2", 256),
    "folders_data2_llama": partial(folders_go_both_ways, "data2", "llama"),
    "folders_tensor2_qwen2": partial(folders_go_both_ways, "tensor2", "qwen2"),
    **_named(
        large_folders_have_several_files,
        a_critic_starts_from_a_language_model,
        loading_says_what_is_wrong,
        a_failed_save_leaves_the_old_folder,
        resumes_bit_for_bit_and_on_another_layout,
        a_state_of_another_model_is_refused,
        offload_frees_storages_and_reload_brings_them_back,
    ),
    "lora_data2": partial(lora_trains_like_peft, "data2", "full"),
    **_named(lora_keeps_little_and_saves_merged_weights, lora_trains_a_critic_with_its_head),
}

ON_TWO |= {
    **{
        f"scores_like_transformers_context2_{family}": partial(
            scores_like_transformers, "context2", family
        )
        for family in ("llama", "qwen2", "qwen3", "sliding", "scaled")
    },
    "values_and_scores_context2": partial(values_and_scores_like_transformers, "context2"),
    "trains_context2": _trains("context2", "llama", "full", "none"),
    "trains_context2_row_by_row": _trains(
        "context2", "qwen2", "full", "full", micro_batch_tokens=1
    ),
    "slices_context2": partial(slices_of_any_length_give_the_same, "context2"),
    **_named(
        slices_are_equal_and_cover_a_row, ranks_compute_slices_and_heads, wrong_sizes_are_refused
    ),
    "shards_context2": partial(weights_are_sharded_over_data_and_context, "context2"),
    "reshards_context2": partial(reshards_bit_for_bit, "context2"),
    "pieces_context2": partial(pieces_cover_every_tensor_once, "context2", 255),
    "folders_context2": partial(folders_go_both_ways, "context2", "qwen2"),
    "resumes_on_context2": partial(continues_from_another_layout, "context2"),
}

MORE_ON_TWO: dict[str, Case] = {
    "lora_tensor2": partial(lora_trains_like_peft, "tensor2", "gradient"),
    "trains_tensor2_qwen2": _trains("tensor2", "qwen2", "gradient", "selective"),
    "lora_context2": partial(lora_trains_like_peft, "context2", "full"),
    "trains_context2_gradient": _trains("context2", "qwen3", "gradient", "selective"),
    "trains_context2_critic": _trains("context2", "llama", "full", "full", head="scalar"),
    "trains_data2_gradient_qwen2": _trains("data2", "qwen2", "gradient", "full"),
}
ON_FOUR: dict[str, Case] = {
    "scores_data2_tensor2": partial(scores_like_transformers, "data2_tensor2", "qwen3"),
    "trains_data2_tensor2_full": _trains("data2_tensor2", "llama", "full", "full"),
    "trains_data2_tensor2_gradient": _trains("data2_tensor2", "qwen2", "gradient", "none"),
    "trains_data2_tensor2_qwen3": _trains("data2_tensor2", "qwen3", "full", "selective"),
    "trains_data4": _trains("data4", "llama", "full", "none"),
    "pieces_data4": partial(pieces_cover_every_tensor_once, "data4", 253),
    "pieces_data2_tensor2": partial(pieces_cover_every_tensor_once, "data2_tensor2", 256),
    "folders_data2_tensor2": partial(folders_go_both_ways, "data2_tensor2", "qwen2"),
    "lora_data2_tensor2": partial(lora_trains_like_peft, "data2_tensor2", "full"),
    "scores_context4_qwen3": partial(scores_like_transformers, "context4", "qwen3"),
    "trains_context4": _trains("context4", "llama", "full", "selective"),
    "trains_context2_data2": _trains("context2_data2", "llama", "full", "none"),
    "trains_context2_data2_gradient": _trains("context2_data2", "qwen2", "gradient", "full"),
    "trains_context2_data2_critic": _trains(
        "context2_data2", "qwen3", "full", "selective", head="scalar"
    ),
    "trains_context2_tensor2": _trains("context2_tensor2", "llama", "full", "full"),
    "trains_context2_tensor2_qwen3": _trains("context2_tensor2", "qwen3", "gradient", "none"),
    "slices_context4": partial(slices_of_any_length_give_the_same, "context4"),
    "slices_context2_data2": partial(slices_of_any_length_give_the_same, "context2_data2"),
    "slices_context2_tensor2": partial(slices_of_any_length_give_the_same, "context2_tensor2"),
    "shards_context2_data2": partial(weights_are_sharded_over_data_and_context, "context2_data2"),
    "reshards_context2_data2": partial(reshards_bit_for_bit, "context2_data2"),
    "reshards_context2_tensor2": partial(reshards_bit_for_bit, "context2_tensor2"),
    "pieces_context2_data2": partial(pieces_cover_every_tensor_once, "context2_data2", 253),
    "lora_context2_tensor2": partial(lora_trains_like_peft, "context2_tensor2", "full"),
    "resumes_on_context2_data2": partial(continues_from_another_layout, "context2_data2"),
    "resumes_on_data4": partial(continues_from_another_layout, "data4"),
    "resumes_on_data2_tensor2": partial(continues_from_another_layout, "data2_tensor2"),
}
"""Those that resume read what a case of ON_TWO wrote."""
