"""Typed configuration: ``load_config`` gives a `LoadedConfig` or raises a `ConfigError` with every fault.

Importing this package imports neither torch nor any simulator. Its names are imported when they are first
used: a command line is read without pydantic, which takes half a second.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_PLACES = {
    "errors": ("ConfigError", "Problem"),
    "loader": ("LoadedConfig", "dump_config", "load_config", "load_config_file"),
    "locate": ("EnvFolder", "find_env"),
    "schema": ("Config",),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is
    for module, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
