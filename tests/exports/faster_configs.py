"""OmegaConf and Hydra made faster where a process reads hundreds of configurations.

What they make of one stays as it is: YAML is parsed in C, and a file or an interpolation is
read once. Called before anything of a framework is imported.
"""

import functools

import yaml


def speed_up() -> None:
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[assignment,misc]
    import omegaconf
    from hydra._internal.config_repository import ConfigRepository

    omegaconf.base.parse = functools.cache(omegaconf.base.parse)
    load = ConfigRepository.load_config
    known = {}

    def load_config(self, config_path):
        folders = tuple(source.path for source in self.get_sources())
        if (folders, config_path) not in known:
            known[folders, config_path] = load(self, config_path)
        return known[folders, config_path]

    ConfigRepository.load_config = load_config
