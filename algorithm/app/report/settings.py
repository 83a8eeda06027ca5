"""Differences between configurations: of a run and the defaults, or of several runs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

from algorithm.agents.registry import misplaced
from algorithm.config.by_spaces import MEANING, REASON
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import BEHAVIOUR_KEYS, Config, fields
from algorithm.config.sections import PresetLayer
from algorithm.config.yaml_io import inline
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.fields import facts_of
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import Rows

_OF_ONE_RUN = frozenset({"base_config.name", f"{COMMON_BLOCK}.seed"})
_REQUIRED = frozenset(".".join(path) for path, field in fields() if facts_of(field).required)
_MISSING = object()


def differences(configs: Sequence[LoadedConfig | None]) -> dict[str, tuple[str, ...]]:
    """Return key → values as YAML, for keys that differ between configurations or from the defaults.

    A key has a value for each configuration, ``?`` if that is None, and last its default, ``none`` if it must
    be set. The name and the seed of a run are left out.
    """
    flat = [None if config is None else _flat(config) for config in configs]
    default = _flat_config(Config())
    keys = dict.fromkeys(key for values in [*flat, default] if values for key in values)
    differing = {}
    for key in keys:
        common = default.get(_common_key(key), _MISSING)
        values = [
            _MISSING if config_values is None else config_values.get(key, config_values.get(_common_key(key)))
            for config_values in flat
        ]
        if (
            key not in _OF_ONE_RUN
            and _counts(key, configs)
            and any(value is not _MISSING and value != common for value in values)
        ):
            texts = ["?" if value is _MISSING else inline(value) for value in values]
            texts.append("none" if key in _REQUIRED else "?" if common is _MISSING else inline(common))
            differing[key] = tuple(texts)
    return differing


def _counts(key: str, configs: Sequence[LoadedConfig | None]) -> bool:
    """Return whether the key belongs to the algorithm of one of the configurations."""
    block, _, name = _common_key(key).partition(".")
    algorithms = [
        config.algorithm
        for algorithm in configs
        if algorithm
        for config in (algorithm.config, *algorithm.behaviours.values())
    ]
    return (
        not name
        or not algorithms
        or any(misplaced(algorithm, block, name) is None for algorithm in algorithms)
    )


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


def _flat(loaded: LoadedConfig) -> dict[str, object]:
    """Return dotted path → value of all keys, with those of ``ma_config`` that differ from common ones."""
    values = _flat_config(loaded.config)
    for name, config in loaded.behaviours.items():
        flat = _flat_config(config)
        for key, value in flat.items():
            if key.split(".")[0] in BEHAVIOUR_KEYS and value != values[key]:
                values[f"ma_config.{name}.{key}"] = value
    return values


def _flat_config(config: Config) -> dict[str, object]:
    """Return dotted path → value of all keys of a configuration."""
    plain = config.model_dump(mode="json")
    return {".".join(path): reduce(operator.getitem, path, plain) for path, _ in fields()}


def _common_key(key: str) -> str:
    """Return the key without a prefix ``ma_config.<behaviour>.``."""
    if not key.startswith("ma_config."):
        return key
    first = next(first for first in BEHAVIOUR_KEYS if f".{first}." in f"{key}.")
    return key[f"{key}.".rindex(f".{first}.") + 1 :]
