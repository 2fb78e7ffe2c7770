"""The program of a SkyRL launch with stale rollouts: its package has the trainer, and no entry."""

PROGRAM = "main_fully_async.py"
"""Its name, which is that of SkyRL's own example."""
TEXT = '''"""Train with rollouts that are ahead: SkyRL's asynchronous trainer in its experiment."""

import sys

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray


class Experiment(BasePPOExp):
    def get_trainer(self, *args, **kwargs):
        return FullyAsyncRayPPOTrainer(*args, **kwargs)


@ray.remote(num_cpus=1)
def train(cfg):
    Experiment(cfg).run()


if __name__ == "__main__":
    cfg = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(train.remote(cfg))
'''
