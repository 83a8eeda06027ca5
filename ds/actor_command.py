"""The command that starts an actor which fits a learner."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.locate import CONFIG_FILE
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config, NetConfig
from algorithm.config.sections import DEFAULT_SECTION
from algorithm.core.program import program
from algorithm.runs.names import MODELS, directory_flags
from ds.compatibility import settings

_EVERYWHERE = ("0.0.0.0", "::")


def actor_command(loaded: LoadedConfig, argument: str, port: int, models: Path = MODELS) -> str:
    """Return the command, with all that ``-c``, ``-o``, flags and a resumed run have changed.

    argument: the task, as it was named on the command line; port: where the learner listens;
    models: folder of all runs
    """
    section = _section(loaded)
    flags = [*section, *_where(loaded.config.net_config, port)]
    given = list(loaded.overrides)
    given += _changed(loaded, argument, section[1] if section else None, given)
    flags += [word for text in given for word in ("-o", text)]
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
    if net.learner_host:
        yield from ("--learner_host", "HOST" if net.learner_host in _EVERYWHERE else net.learner_host)
    if port != NetConfig().learner_port:
        yield from ("--learner_port", str(port))
    if net.insecure:
        yield "--insecure"


def _changed(loaded: LoadedConfig, argument: str, section: str | None, given: Sequence[str]) -> list[str]:
    """Return overrides for agreed values that an actor of the task would otherwise have differently."""
    try:
        theirs = _load(argument, section, given)
    except ConfigError:  # the task has been changed since, and an actor's own start says what is wrong
        return []
    ours, others = settings(loaded.config), settings(theirs)
    return [f"{key}={json.dumps(ours[key])}" for key in ours if ours[key] != others[key]]


def _load(argument: str, section: str | None, given: Sequence[str]) -> Config:
    return load_config(argument, section, given, seed=0, defaults=DISTRIBUTED_DEFAULTS).config
