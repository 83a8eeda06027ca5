"""What an export may hold that nobody has trusted, and the refusal of all else.

The rule: it brings no code, and every key that can hold text has its default there, or a name that is on a
list: of what is built in and what an installed package has registered. Numbers pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium.wrappers

from algorithm.app.sharing.archive import CODE
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config, fields, value_at
from algorithm.core.errors import UsageError
from algorithm.core.fields import Naming, facts_of, holds_text
from algorithm.core.plugins import EXTENSIONS, NETWORKS, Group, installed
from algorithm.env.kinds import ENVS, KINDS

LEFT_OUT = "left out"
"""What an export has in place of the paths of demonstrations."""

_OWN = re.compile(r"algorithm\.env(\.\w+)*(?<!\.py):[\w-]+")
"""Environments and wrappers of this program itself; a file of such a name is none."""

_REGISTERED = re.compile(r"[\w-]+|[\w-]+/[\w-]+|([\w-]+/)?[\w.-]+-v\d+")
"""Names that a simulator looks up among its own: Gymnasium's ids, domain/task of DM Control."""

_ARGUMENT = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(
    r"\d+x\d+|rgb_array|human|ansi|left|right|speed"
    r"|simple|nature|resnet|layer|batch|batch_first|plain|residual|parameter|state"
    r"|relu|tanh|elu|gelu|silu|selu|mish|leaky_relu"
)
"""Texts that arguments may have: sizes and words of environments, choices of our networks, activations."""


def unlisted(config: Config, behaviours: Iterable[Config] = ()) -> list[str]:
    """Return ``key: text`` of all that an export may only hold where it is trusted.

    behaviours: configurations of those that have their own
    """
    return list(dict.fromkeys(text for one in (config, *behaviours) for text in _unlisted(one)))


def _unlisted(config: Config) -> Iterator[str]:
    for path, key in fields(type(config)):
        value = value_at(config, path)
        if value != key.default and holds_text(key.annotation):
            names = facts_of(key).names
            for text in _LISTS[names](value) if names else [value]:
                yield f"{'.'.join(path)}: {text!r}"


def _kind(value: str) -> Iterator[object]:
    own = KINDS.get(value)
    if own.player if own else not _is_of(ENVS, value):  # a player is a program
        yield value


def _environment(value: str) -> Iterator[object]:
    if not (_REGISTERED.fullmatch(value) or _OWN.fullmatch(value)):
        yield value


def _wrappers(value: Sequence[Mapping[str, Any]]) -> Iterator[object]:
    return _entries(value, lambda name: name in gymnasium.wrappers.__all__ or bool(_OWN.fullmatch(name)))


def _extensions(value: Sequence[Mapping[str, Any]]) -> Iterator[object]:
    return _entries(value, lambda name: _is_of(EXTENSIONS, name))


def _networks(value: str) -> Iterator[object]:
    if not _is_of(NETWORKS, value):
        yield value


def _demos(value: object) -> Iterator[object]:
    if value != LEFT_OUT:
        yield value


def _entries(value: Sequence[Mapping[str, Any]], is_listed: Callable[[str], bool]) -> Iterator[object]:
    for entry in value:
        for name, arguments in entry.items():
            if not is_listed(name):
                yield name
            yield from _arguments(arguments)


def _arguments(value: object) -> Iterator[object]:
    """Yield what is neither a number nor a listed word, however deep."""
    if isinstance(value, Mapping):
        yield from (name for name in value if not _ARGUMENT.fullmatch(str(name)))
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _arguments(item)
    elif isinstance(value, str):
        if not _WORD.fullmatch(value):
            yield value
    elif value is not None and not isinstance(value, int | float):
        yield value


_LISTS: Mapping[Naming, Callable[[Any], Iterator[object]]] = {
    "kind": _kind,
    "environment": _environment,
    "wrappers": _wrappers,
    "extensions": _extensions,
    "networks": _networks,
    "arguments": _arguments,
    "demos": _demos,
}


def _is_of(group: Group, name: str) -> bool:
    """Return whether it is built in, or registered by an installed package."""
    return name in group.own or name in installed(group)


def refuse_code(source: str, loaded: LoadedConfig, files: Iterable[str]) -> None:
    """Raise UsageError if an export brings code or holds what is not listed.

    loaded: its configuration; files: its members
    """
    brought = sorted(name for name in files if name.endswith(CODE))
    named = unlisted(loaded.config, loaded.behaviours.values())
    if not brought and not named:
        return
    why = [f"{name} in it is code, which would run" for name in brought]
    why += [f"its config.yaml may name code, a path or a program: {name}" for name in named]
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
