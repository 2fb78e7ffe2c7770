"""Pass launches through verl's own code, on CPU and without weights.

    .venv-exports/bin/python tests/exports/accept_verl.py < cases.jsonl > verdicts.jsonl

A case is {"id", "overrides"}. Its verdict has either `error`, what verl says against it, or what
verl would run with: pools, and the engines of each role as its workers would be given them.
"""

import contextlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cases import answer_cases
from faster_configs import speed_up

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
speed_up()

with contextlib.redirect_stdout(sys.stderr):
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import DictConfig, open_dict
    from verl.trainer.main_ppo_v0 import BaseTaskRunner
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import PPOTrainer, get_trainer_cls
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.utils.megatron.optimizer import init_megatron_optim_config

CONFIG = Path(verl.__file__).parent / "trainer" / "config"
RENAMED = {
    "log_prob_micro_batch_size": "ppo_micro_batch_size",
    "log_prob_micro_batch_size_per_gpu": "ppo_micro_batch_size_per_gpu",
    "log_prob_use_dynamic_bsz": "use_dynamic_bsz",
    "log_prob_max_token_len_per_gpu": "ppo_max_token_len_per_gpu",
}
"""Key of the reference → what its worker makes of it before it reads it as an actor's."""
OPTIMIZER = (
    "optimizer_cpu_offload",
    "optimizer_offload_fraction",
    "overlap_cpu_optimizer_d2h_h2d",
    "use_precision_aware_optimizer",
)
"""What Megatron-core is told of where an optimizer updates."""


def main() -> None:
    with initialize_config_dir(config_dir=str(CONFIG), version_base=None):
        answer_cases(verdict_on)


def verdict_on(case: dict[str, Any]) -> dict[str, Any]:
    try:
        config = compose("ppo_trainer", overrides=case["overrides"])
        reference, critic = need_reference_policy(config), need_critic(config)
        validate_config(config, use_reference_policy=reference, use_critic=critic)
        found: dict[str, Any] = {"name": config.trainer.experiment_name, **_pools(config)}
        found |= {"actor": _actor(config), "rollout": _rollout(config)}
        if reference:
            found["reference"] = _reference(config)
        if critic:
            found["critic"] = _critic(config)
        if config.reward.reward_model.enable:
            found["reward"] = _engine(omega_conf_to_dataclass(config.reward.reward_model.rollout))
        omega_conf_to_dataclass(config.algorithm)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return found


def _pools(config: DictConfig) -> dict[str, Any]:
    """Pools, and which role is on which, as the trainer would make them."""
    if not config.trainer.use_v1:
        runner = BaseTaskRunner()
        return {"pools": runner.init_resource_pool_mgr(config).resource_pool_spec, "mapping": {}}
    trainer_class = get_trainer_cls(config.trainer.v1.trainer_mode)
    trainer = trainer_class.__new__(trainer_class)
    trainer.config = config
    trainer._enable_hybrid_replicas = config.actor_rollout_ref.hybrid_engine
    # What a trainer checks of its own mode comes before the base class starts anything.
    with patch.object(PPOTrainer, "__init__", lambda self, config: None):
        trainer_class.__init__(trainer, config)
    trainer._init_resource_pool_mgr()
    manager = trainer.resource_pool_manager
    mapping = {str(role): pool for role, pool in manager.mapping.items()}
    return {"pools": manager.resource_pool_spec, "mapping": mapping}


def _actor(config: DictConfig) -> dict[str, Any]:
    """The engine of the actor, as ActorRolloutRefWorker.init_model completes it."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz
    read = omega_conf_to_dataclass(actor)
    engine = _engine(read.engine)
    engine |= {
        "use_dynamic_bsz": actor.use_dynamic_bsz,
        "micro_batch_size_per_gpu": actor.ppo_micro_batch_size_per_gpu,
        "infer_micro_batch_size_per_gpu": rollout.log_prob_micro_batch_size_per_gpu,
        "max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
        "infer_max_token_len_per_gpu": rollout.log_prob_max_token_len_per_gpu,
    }
    engine |= _optimizer(read)
    return engine | {"mini_batch": read.ppo_mini_batch_size, "epochs": read.ppo_epochs}


def _reference(config: DictConfig) -> dict[str, Any]:
    reference = config.actor_rollout_ref.ref.copy()
    with open_dict(reference):
        reference.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
        for key, name in RENAMED.items():
            reference[name] = reference.pop(key, None)
    read = omega_conf_to_dataclass(reference)
    return _engine(read.engine) | {
        "use_dynamic_bsz": read.use_dynamic_bsz,
        "infer_micro_batch_size_per_gpu": read.ppo_micro_batch_size_per_gpu,
        "infer_max_token_len_per_gpu": read.ppo_max_token_len_per_gpu,
    }


def _critic(config: DictConfig) -> dict[str, Any]:
    """The engine of the critic, as the trainer completes it."""
    read = omega_conf_to_dataclass(config.critic)
    read.engine.infer_max_token_len_per_gpu = read.ppo_infer_max_token_len_per_gpu
    read.engine.max_token_len_per_gpu = read.ppo_infer_max_token_len_per_gpu
    engine = _engine(read.engine) | _optimizer(read)
    return engine | {"mini_batch": read.ppo_mini_batch_size, "epochs": read.ppo_epochs}


def _optimizer(read: Any) -> dict[str, Any]:
    """The optimizer of Megatron-core, as the engine of a model makes and checks it."""
    if read.engine.strategy != "megatron":
        return {}
    # It asks for the version of Transformer Engine, which needs a GPU.
    with patch("megatron.core.optimizer.optimizer_config.is_te_min_version", lambda _: True):
        made = init_megatron_optim_config(
            read.optim,
            use_distributed_optimizer=read.engine.use_distributed_optimizer,
            fp16=read.engine.dtype == "float16",
            bf16=read.engine.dtype == "bfloat16",
        )
    return {name: getattr(made, name) for name in OPTIMIZER}


def _engine(engine: Any) -> dict[str, Any]:
    return {name: getattr(engine, name) for name in engine.__dataclass_fields__}


def _rollout(config: DictConfig) -> dict[str, Any]:
    read = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    return _engine(read) | {"vllm": dict(read.engine_kwargs["vllm"])}


if __name__ == "__main__":
    main()
