"""Refusal of exports that could run code, unless the user trusts them.

The rule: an export needs no trust if it has no code, its environment is a registered one of Gymnasium or DM
Control without wrappers and other texts as arguments, and every other text in its configuration is the
default of its key or a plain word. Numbers pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.env.kinds import OBJECT
from algorithm.extras.sharing.archive import CODE

LEFT_OUT = "left out"
"""Text in the place of the paths of demonstrations."""

_ALLOWED: Mapping[str, re.Pattern[str]] = {
    "base_config.env_type": re.compile("GYM|DM_CONTROL"),
    "base_config.env_name": re.compile(r"[\w-]+|[\w-]+/[\w-]+|([\w-]+/)?[\w.-]+-v\d+"),
    "demonstrations.path": re.compile(LEFT_OUT),
    f"{COMMON_BLOCK}.nn": re.compile("nn"),
}
"""Key -> texts that need no trust; for an environment, names that a simulator looks up in its registry."""

_PLAIN = re.compile(r"(?!set$)\w[\w -]*")
"""Words that cannot name a module, file or address; not ``set``, which may name a method to be called."""

_NAMES = re.compile(
    rf"(base_config|eval_config)\.wrappers|base_config\.(callbacks|init_from)|{COMMON_BLOCK}\.extensions"
    r"|replay_config\.sampler|wandb_config\.(project|entity|group)|net_config\.(learner_host|secrets)"
)
"""Keys that name code, files or addresses: every text needs trust."""

_WITH_ARGUMENTS = re.compile(rf"(algorithm_args|base_config\.env_args|reset_config|{_NAMES.pattern})(\..+)?")
"""Keys whose values, besides numbers, need trust."""


def unlisted(loaded: LoadedConfig) -> list[str]:
    """Return ``key: text`` of each text in the configuration that needs trust."""
    configs = (loaded.config, *loaded.behaviours.values())
    return list(dict.fromkeys(text for config in configs for text in unlisted_keys(config)))


def unlisted_keys(config: Config) -> Iterator[str]:
    """Yield ``key: text`` of each text in one behaviour's configuration that needs trust."""
    defaults = {*_texts(type(config)().model_dump())}
    for path, text, is_key in _texts(config.model_dump()):
        if path == "base_config.env_name" and config.base_config.kind is OBJECT:
            continue  # it is handed in, and never imported
        never = (_NAMES if is_key else _WITH_ARGUMENTS).fullmatch(path)
        if (path, text, is_key) not in defaults and (never or not _ALLOWED.get(path, _PLAIN).fullmatch(text)):
            yield f"{path}: {text!r}"


def _texts(value: object, path: str = "") -> Iterator[tuple[str, str, bool]]:
    """Yield (path, text, whether it is a key) of each text in a value, also in its mappings and lists."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield path, str(key), True
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
    elif value is not None and not isinstance(value, int | float):
        yield path, str(value), False


def refuse_code(source: str, loaded: LoadedConfig, files: Iterable[str]) -> None:
    """Raise UsageError if an export has code, or texts in its configuration that need trust.

    loaded: its configuration
    files:  names of its members
    """
    brought = sorted(name for name in files if name.endswith(CODE))
    why = [f"{name} in it is code, which would run" for name in brought]
    why += [f"its config.yaml may name code, a path or a program: {name}" for name in unlisted(loaded)]
    if not why:
        return
    raise UsageError(
        "the export would run code, and you have not said that you trust it",
        where=source,
        why="\n".join(why),
        fix=f"look at it first: python -m zipfile -e {source} FOLDER\n"
        "then trust it: --trust on the command line, trust=True in Python",
    )
