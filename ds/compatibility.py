"""Compatibility of learner and actor: what must be the same on both sides, and the command of such an actor.

A key whose value must be the same is declared with ``shared`` of :func:`algorithm.core.fields.option`. With
different values the learner would misread an actor's steps.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.locate import CONFIG_FILE
from algorithm.config.schema import (
    BEHAVIOUR_KEYS,
    DISTRIBUTED_DEFAULTS,
    PLAIN,
    Config,
    NetConfig,
    fields,
    value_at,
)
from algorithm.config.sections import DEFAULT_SECTION
from algorithm.core.errors import UserError
from algorithm.core.fields import facts_of
from algorithm.core.program import program
from algorithm.core.spec import AgentSpec
from algorithm.run.context import fitted
from algorithm.store.names import MODELS, directory_flags


def settings(config: Config) -> dict[str, Any]:
    """Return dotted path -> JSON value of the keys that must be the same on both sides."""
    shared = [path for path, field in fields() if facts_of(field).shared]
    return {".".join(path): _plain(value_at(config, path)) for path in shared}


def agreed(
    config: LoadedConfig, specs: Mapping[str, AgentSpec], nn_files: Mapping[str, Path | None]
) -> dict[str, Any]:
    """Return dotted path -> JSON value of all that must be the same on both sides.

    specs:    what the environment's behaviours see and do
    nn_files: the task's networks of each behaviour, of which the content counts; None for the defaults
    Raises OSError for a file that cannot be read.
    """
    values = settings(config.config)
    for name, behaviour in config.behaviours.items():
        theirs = {key: v for key, v in settings(behaviour).items() if key.partition(".")[0] in BEHAVIOUR_KEYS}
        values |= {f"ma_config.{name}.{key}": value for key, value in theirs.items()}
    for name, spec in specs.items():
        action = spec.action
        values |= {f"obs_spec.{name}.{key}": _plain(value) for key, value in asdict(spec.obs).items()}
        values[f"action_spec.{name}.branches"] = list(action.branches)
        values[f"action_spec.{name}.continuous"] = action.continuous
    for name, file in nn_files.items():
        content = None if file is None else file.read_bytes()
        values[f"nn_file.{name}"] = None if content is None else hashlib.sha256(content).hexdigest()
    return values


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each value that differs. theirs: the actor's; ours: the learner's."""
    keys = sorted(theirs.keys() | ours.keys())
    return tuple(
        f"{key}: the learner has {_described(ours, key)}, the actor {_described(theirs, key)}"
        for key in keys
        if _json(ours, key) != _json(theirs, key)
    )


def _json(side: Mapping[str, Any], key: str) -> str:
    """Return the value of a key as JSON, or a text for a key that a side does not have."""
    return json.dumps(side[key], sort_keys=True) if key in side else "nothing of that name"


def _described(side: Mapping[str, Any], key: str) -> str:
    """Return the value of a key for a message: as JSON, but in words for a file of networks."""
    if key.startswith("nn_file.") and key in side:
        digest = side[key]
        return "the default networks" if digest is None else f"a file with SHA-256 {str(digest)[:12]}…"
    return _json(side, key)


def _plain(value: object) -> Any:  # noqa: ANN401 - a JSON value
    """Return the value after a round trip through JSON, in which a date, for example, becomes text.

    A number without a fraction becomes an int: a default of 0 is 0.0 in a run's own configuration.
    """
    return json.loads(json.dumps(value, default=str), parse_float=_number)


def _number(text: str) -> float:
    """Return a number of JSON, as an int if it has no fraction."""
    value = float(text)
    return int(value) if value.is_integer() else value


_EVERYWHERE = ("0.0.0.0", "::")


def actor_command(
    loaded: LoadedConfig, specs: Mapping[str, AgentSpec], argument: str, port: int, models: Path = MODELS
) -> str:
    """Return the command of an actor for this learner, with all settings that differ from the task's.

    specs: of the environment's behaviours; argument: the task, as it was named on the command line;
    port: where the learner listens; models: folder of all runs
    """
    section = _section(loaded)
    flags = [*section, *_where(loaded.config.net_config, port)]
    overrides = list(loaded.overrides)
    overrides += _changed(loaded, specs, argument, section[1] if section else None, overrides)
    flags += [word for text in overrides for word in ("-o", text)]
    words = [*program("main_ds.py"), argument, "actor", *directory_flags(models)]
    return shlex.join([*words, *flags])


def _section(loaded: LoadedConfig) -> list[str]:
    """Return ``-c`` and its value; nothing for the task's default and for a resumed run."""
    file = loaded.file
    if not loaded.section:
        return []
    if file is None or file == loaded.env_dir / CONFIG_FILE:
        return [] if loaded.section == DEFAULT_SECTION else ["-c", loaded.section]
    name = file.relative_to(loaded.env_dir) if file.is_relative_to(loaded.env_dir) else file
    return ["-c", f"{name}:{loaded.section}"]


def _where(net: NetConfig, port: int) -> Iterator[str]:
    """Yield the flags for the learner's address and for ``--insecure``, as far as they are needed."""
    if net.learner_host:
        yield from ("--learner_host", "HOST" if net.learner_host in _EVERYWHERE else net.learner_host)
    if port != NetConfig().learner_port:
        yield from ("--learner_port", str(port))
    if net.insecure:
        yield "--insecure"


def _changed(
    loaded: LoadedConfig,
    specs: Mapping[str, AgentSpec],
    argument: str,
    section: str | None,
    overrides: Sequence[str],
) -> list[str]:
    """Return the fewest overrides with which an actor of the task gets the values that must be the same.

    For a run by shipped sections of another version these are all values, without a section below them.
    Empty if the task cannot be loaded any more.
    """
    ours, laid = settings(loaded.config), {path for layer in loaded.laid for path in layer.taken}
    unlaid = {key: value for key, value in ours.items() if not any(path.startswith(key) for path in laid)}
    words: list[str] = []
    try:
        for wanted, more in (({}, []), (unlaid, []), (ours, [f"base_config.preset={PLAIN}"])):
            others = settings(_load(argument, section, [*overrides, *more]).config)
            changed = (key for key, value in wanted.items() if value != others[key])
            words = [*more, *(f"{key}={json.dumps(ours[key])}" for key in changed)]
            if settings(fitted(_load(argument, section, [*overrides, *words]), specs).config) == ours:
                break
    except (ConfigError, UserError):  # the task has been changed since, which an actor's own start reports
        return []
    return words


def _load(argument: str, section: str | None, overrides: Sequence[str]) -> LoadedConfig:
    """Load the configuration that an actor with these arguments would have."""
    return load_config(argument, section, overrides, seed=0, defaults=DISTRIBUTED_DEFAULTS)
