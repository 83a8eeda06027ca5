"""Typed configuration: ``load_config`` gives a `LoadedConfig` or raises a `ConfigError` with every fault.

Importing this package imports neither torch nor any simulator. Its names are imported when they are first
used: a command line is read without pydantic, which takes half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.core.lazy import lazy, of_modules

if TYPE_CHECKING:
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

__getattr__, __dir__ = lazy(
    __name__,
    of_modules(
        {
            "algorithm.config.errors": "ConfigError Problem",
            "algorithm.config.loader": "LoadedConfig dump_config load_config load_config_file",
            "algorithm.config.locate": "EnvFolder find_env",
            "algorithm.config.schema": "Config",
        }
    ),
)
