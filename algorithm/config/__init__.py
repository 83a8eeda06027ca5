"""Typed configuration: ``load_config`` gives a `LoadedConfig` or raises a `ConfigError` with every fault.

Importing this package imports neither torch nor any simulator.
"""

from algorithm.config.errors import ConfigError, Problem
from algorithm.config.loader import LoadedConfig, dump_config, load_config, load_config_file
from algorithm.config.locate import EnvFolder, find_env
from algorithm.config.schema import Config

__all__ = [
    "Config",
    "ConfigError",
    "EnvFolder",
    "LoadedConfig",
    "Problem",
    "dump_config",
    "find_env",
    "load_config",
    "load_config_file",
]
