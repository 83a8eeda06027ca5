"""Differences between configurations: of a run, its task's files and the defaults, or of several runs."""

from __future__ import annotations

import contextlib
import io
import operator
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

from algorithm.agents.registry import misplaced
from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions
from algorithm.config.by_spaces import MEANING, REASON, for_spaces
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.schema import BEHAVIOUR_KEYS, Config, fields
from algorithm.config.sections import PresetLayer
from algorithm.config.yaml_io import inline
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.fields import facts_of
from algorithm.core.reading import read_text
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.wording import Rows

_OF_ONE_RUN = frozenset({"base_config.name", f"{COMMON_BLOCK}.seed"})
_REQUIRED = frozenset(".".join(path) for path, field in fields() if facts_of(field).required)
_MISSING = object()


def differences(configs: Sequence[LoadedConfig | None]) -> dict[str, tuple[str, ...]]:
    """Return key → its values as YAML, of keys that differ between configurations or from the defaults.

    The name and the seed of a run are left out. The last value of each is the default, or none. A
    configuration that is None has no values: ``?``.
    """
    flat = [None if config is None else _flat(config) for config in configs]
    default = _flat_config(Config())
    keys = dict.fromkeys(key for values in [*flat, default] if values for key in values)
    found = {}
    for key in keys:
        common = default.get(_common_key(key), _MISSING)
        values = [_MISSING if one is None else one.get(key, one.get(_common_key(key))) for one in flat]
        if (
            key not in _OF_ONE_RUN
            and _counts(key, configs)
            and any(value is not _MISSING and value != common for value in values)
        ):
            texts = ["?" if value is _MISSING else inline(value) for value in values]
            texts.append("none" if key in _REQUIRED else "?" if common is _MISSING else inline(common))
            found[key] = tuple(texts)
    return found


def _counts(key: str, configs: Sequence[LoadedConfig | None]) -> bool:
    """Return whether the key says something with the algorithm of one of the configurations."""
    block, _, name = _common_key(key).partition(".")
    algorithms = [
        config.algorithm for one in configs if one for config in (one.config, *one.behaviours.values())
    ]
    return not name or not algorithms or any(misplaced(one, block, name) is None for one in algorithms)


def options_of(arguments: object) -> TrainOptions | None:
    """Return the command line of a manifest; None if this version cannot parse it."""
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        return None
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # errors of a foreign command line
            return parse_args(arguments[1:])
    except (SystemExit, ConfigError):
        return None


def preset_of(
    options: TrainOptions | None, seed: int | None, specs: Mapping[str, AgentSpec]
) -> LoadedConfig | None:
    """Return the present configuration of the task, without the command line; None if it cannot be read.

    specs: of the run's behaviours
    """
    if options is None:
        return None
    try:
        loaded = load_config(options.env, options.config, seed=seed)
        return for_spaces(loaded, specs, lambda one: _defined_in(loaded.env_dir / f"{one.run.nn}.py"))
    except (ConfigError, UsageError):
        return None


def _defined_in(file: Path) -> list[str]:
    """Return the classes that a file's lines define, none of a missing one: a report executes no file."""
    try:
        return re.findall(r"^\s*class (\w+)", read_text(file, follow=True), re.MULTILINE)
    except (OSError, ValueError):
        return []


def config_rows(loaded: LoadedConfig) -> Rows:
    """Return the rows of a start screen: where the settings come from, and all that are not defaults."""
    rows = [("file", loaded.source)]
    rows += [("inherited", f"{name}, which ships with the framework") for name in loaded.shipped]
    if loaded.left_out:
        rows.append(("left out", f"{', '.join(loaded.left_out)} (not for {loaded.config.algorithm})"))
    rows += [("section" if one.behaviours else "preset", _laid(one)) for one in _layers(loaded)]
    rows += [
        (path, f"{inline(value)}{_origin(loaded, path)}") for path, value in loaded.differences().items()
    ]
    rows += [("override", text) for text in loaded.overrides]
    return rows + [("drawn", f"{path} = {value}") for path, value in loaded.drawn.items()]


def _layers(loaded: LoadedConfig) -> list[PresetLayer]:
    return [*([loaded.preset] if loaded.preset else ()), *loaded.laid]


def _origin(loaded: LoadedConfig, path: str) -> str:
    """Return the section that has set a key, in brackets; empty for a key of the task itself."""
    common = _common_key(path)
    names = [one.name for one in _layers(loaded) if not one.why_not and _sets(one, common, path)]
    names += ["memory"] * (path in loaded.for_memory)
    return f" ({', '.join(names)})" if names else ""


def _sets(one: PresetLayer, common: str, path: str) -> bool:
    whose = path.removesuffix(common)
    mine = not (whose and one.behaviours) or whose in {f"ma_config.{name}." for name in one.behaviours}
    return mine and any(f"{key}.".startswith(f"{common}.") for key in one.taken)


def _laid(one: PresetLayer) -> str:
    """Return what became of a section, for a person."""
    whose = "" if one.behaviours in ((), (DEFAULT_BEHAVIOUR,)) else f"{', '.join(one.behaviours)}: "
    if one.why_not:
        return f"{whose}{one.name} does not apply, the defaults stay: {one.why_not}"
    why = f", since {MEANING[one.name]}. {REASON[one.name]}" if one.behaviours else ""
    return f"{whose}{one.name}{why}" + f". The task itself sets {', '.join(one.overridden)}" * bool(
        one.overridden
    )


def _flat(loaded: LoadedConfig) -> dict[str, object]:
    """Return dotted path → value of all keys; of ``ma_config`` where they differ from the common ones."""
    values = _flat_config(loaded.config)
    for name, config in loaded.behaviours.items():
        own = _flat_config(config)
        for key, value in own.items():
            if key.split(".")[0] in BEHAVIOUR_KEYS and value != values[key]:
                values[f"ma_config.{name}.{key}"] = value
    return values


def _flat_config(config: Config) -> dict[str, object]:
    plain = config.model_dump(mode="json")
    return {".".join(path): reduce(operator.getitem, path, plain) for path, _ in fields()}


def _common_key(key: str) -> str:
    """Return the common key behind one of ``ma_config.<behaviour>``, or the key itself."""
    if not key.startswith("ma_config."):
        return key
    first = next(first for first in BEHAVIOUR_KEYS if f".{first}." in f"{key}.")
    return key[f"{key}.".rindex(f".{first}.") + 1 :]
