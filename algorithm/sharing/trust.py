"""Code that an export would run on this machine, and the refusal of it.

The rule: an export that nobody has trusted brings no code and names none. Names without a colon only choose
among what is installed and registered; no text that reaches a simulator may be a path or a module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.errors import UsageError
from algorithm.sharing.archive import CODE

_OWN = re.compile(r"algorithm\.env(\.\w+)*(?<!\.py):[\w-]+")
"""Environments and wrappers of this program itself, which need no trust; a file of such a name is none."""

_PATHS = (":", "/", "\\")


def code_named(config: Config, behaviours: Iterable[Config] = ()) -> list[str]:
    """Return ``key: value`` of all that would import a module, read a path or start a program.

    behaviours: configurations of those that have their own
    """
    return list(dict.fromkeys(_code_named(config, behaviours)))


def _code_named(config: Config, behaviours: Iterable[Config]) -> Iterator[str]:
    base, evaluation = config.base_config, config.eval_config
    if base.env_type == "UNITY":
        yield "base_config.env_type: UNITY, which starts a program"
    yield from _imported("base_config.env_name", [base.env_name])
    yield from _imported("base_config.unity_args.side_channels", base.unity_args.side_channels)
    wrappers = {"base_config.wrappers": base.wrappers, "eval_config.wrappers": evaluation.wrappers or ()}
    for key, entries in {**wrappers, "base_config.callbacks": base.callbacks}.items():
        for entry in entries:
            yield from _imported(key, entry)
            yield from _paths(key, list(entry.values()))
    for one in (config, *behaviours):
        yield from _imported("sac_config.nn", filter(None, [one.sac_config.nn]))
        for entry in one.sac_config.extensions:
            yield from _imported("sac_config.extensions", entry)
            yield from _paths("sac_config.extensions", list(entry.values()))
    yield from _paths("base_config.env_args", base.env_args)
    yield from _paths("reset_config", config.reset_config)


def _imported(key: str, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if ":" in name and not _OWN.fullmatch(name):
            yield f"{key}: {name!r}"


def _paths(key: str, value: object) -> Iterator[str]:
    """Yield every text in ``value``, however deep, that may be a path or a module."""
    if isinstance(value, str):
        if any(mark in value for mark in _PATHS):
            yield f"{key}: {value!r}"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _paths(key, name)
            yield from _paths(key, item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _paths(key, item)


def refuse_code(source: str, loaded: LoadedConfig, files: Iterable[str]) -> None:
    """Raise UsageError if an export brings code or names any.

    loaded: its configuration; files: its members
    """
    brought = sorted(name for name in files if name.endswith(CODE))
    named = code_named(loaded.config, loaded.behaviours.values())
    if not brought and not named:
        return
    why = [f"{name} in it is code, which would run" for name in brought]
    why += [f"its config.yaml names code of this machine, or a path: {name}" for name in named]
    raise UsageError(
        "the export would run code, and nothing says that you trust it",
        where=source,
        why="\n".join(why),
        fix=_advice(source, brought),
    )


def _advice(source: str, brought: Sequence[str]) -> str:
    look = f"python -m zipfile -e {source} FOLDER"
    if source.startswith("hf://"):
        look = f"its page on the hub shows {', '.join([*brought, 'config.yaml'])}"
    return f"look at it first: {look}\nthen trust it: --trust on the command line, trust=True in Python"
