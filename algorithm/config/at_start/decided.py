"""Keys that a run decides itself, such as ``compile: auto``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config


def decided(
    loaded: LoadedConfig, block: str, decide: Callable[[Config], Mapping[str, object]]
) -> LoadedConfig:
    """Return the configuration with keys of a block as decided for all and for each behaviour."""

    def changed(config: Config) -> Config:
        own = getattr(config, block).model_copy(update=dict(decide(config)))
        return config.model_copy(update={block: own})

    behaviours = {name: changed(config) for name, config in loaded.behaviours.items()}
    names = loaded.decided | {f"{block}.{key}" for key in decide(loaded.config)}
    return replace(loaded, config=changed(loaded.config), behaviours=behaviours, decided=names)
