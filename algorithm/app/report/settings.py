"""Differences between configurations: of a run and the defaults, or of several runs."""

from __future__ import annotations

from collections.abc import Sequence

from algorithm.config.by_spaces import MEANING, REASON
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import BEHAVIOUR_KEYS, Config, fields, value_at
from algorithm.config.sections import PresetLayer
from algorithm.config.tree import KeyPath
from algorithm.config.yaml_io import inline
from algorithm.core.fields import facts_of
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import Rows

_REQUIRED = frozenset(".".join(path) for path, field in fields() if facts_of(field).required)


def differences(configs: Sequence[LoadedConfig | None]) -> dict[str, tuple[str, ...]]:
    """Return key → values as YAML, for keys that differ between configurations or from the defaults.

    A key has a value for each configuration, ``?`` if that is None, and last its default, ``none`` if it must
    be set. The name and the seed of a run are left out.
    """
    changed = [config.differences() for config in configs if config is not None]
    keys = dict.fromkeys(key for values in changed for key in values if key != "base_config.name")
    return {
        key: (
            *("?" if config is None else inline(_value(config, key)) for config in configs),
            "none" if key in _REQUIRED else inline(value_at(Config(), _path(key))),
        )
        for key in keys
    }


def _value(loaded: LoadedConfig, key: str) -> object:
    """Return the value of a key, which may be that of a behaviour in ``ma_config``."""
    common = _common_key(key)
    behaviour = key.removesuffix(common).removeprefix("ma_config.").removesuffix(".")
    return value_at(loaded.for_behaviour(behaviour), _path(common))


def config_rows(loaded: LoadedConfig) -> Rows:
    """Return rows for the start screen: the sources of settings, and all keys unlike their defaults."""
    rows = [("file", loaded.source)]
    rows += [("inherited", f"{name}, which ships with the framework") for name in loaded.shipped]
    if loaded.left_out:
        rows.append(("left out", f"{', '.join(loaded.left_out)} (not for {loaded.config.algorithm})"))
    rows += [("section" if layer.behaviours else "preset", _layer_text(layer)) for layer in _layers(loaded)]
    rows += [
        (path, f"{inline(value)}{_origin(loaded, path)}") for path, value in loaded.differences().items()
    ]
    rows += [("override", text) for text in loaded.overrides]
    return rows + [("drawn", f"{path} = {value}") for path, value in loaded.drawn.items()]


def _layers(loaded: LoadedConfig) -> list[PresetLayer]:
    """Return the shipped sections below the configurations."""
    return [*([loaded.preset] if loaded.preset else ()), *loaded.laid]


def _origin(loaded: LoadedConfig, path: str) -> str:
    """Return the sections that set a key, in brackets; empty if the task sets it."""
    common = _common_key(path)
    names = [layer.name for layer in _layers(loaded) if not layer.why_not and _sets(layer, common, path)]
    names += ["memory"] * (path in loaded.for_memory)
    return f" ({', '.join(names)})" if names else ""


def _sets(layer: PresetLayer, common: str, path: str) -> bool:
    """Return whether a section sets the key at ``path``, whose common key is ``common``."""
    whose = path.removesuffix(common)
    mine = not (whose and layer.behaviours) or whose in {f"ma_config.{name}." for name in layer.behaviours}
    return mine and any(f"{key}.".startswith(f"{common}.") for key in layer.taken)


def _layer_text(layer: PresetLayer) -> str:
    """Return a sentence on the effect of a shipped section."""
    whose = "" if layer.behaviours in ((), (DEFAULT_BEHAVIOUR,)) else f"{', '.join(layer.behaviours)}: "
    if layer.why_not:
        return f"{whose}{layer.name} does not apply, the defaults stay: {layer.why_not}"
    why = f", since {MEANING[layer.name]}. {REASON[layer.name]}" if layer.behaviours else ""
    return f"{whose}{layer.name}{why}" + f". The task itself sets {', '.join(layer.overridden)}" * bool(
        layer.overridden
    )


def _path(key: str) -> KeyPath:
    """Return the path of a key, without the behaviour that it may belong to."""
    return tuple(_common_key(key).split("."))


def _common_key(key: str) -> str:
    """Return the key without a prefix ``ma_config.<behaviour>.``."""
    if not key.startswith("ma_config."):
        return key
    first = next(first for first in BEHAVIOUR_KEYS if f".{first}." in f"{key}.")
    return key[f"{key}.".rindex(f".{first}.") + 1 :]
