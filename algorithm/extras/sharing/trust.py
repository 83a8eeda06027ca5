"""Contents of an export that needs no trust, and the refusal of all else.

The rule: it brings no code, and every key that can hold text has its default there, or a name that is on a
list: of what is built in and what an installed package has registered. Numbers pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

import gymnasium.wrappers

from algorithm.agents.registry import ALGORITHMS
from algorithm.app.cli.flag_types import HUB
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config, fields, value_at
from algorithm.core.errors import UsageError
from algorithm.core.fields import Naming, facts_of
from algorithm.core.plugins import EXTENSIONS, NETWORKS, SAMPLERS, Group, installed
from algorithm.env.kinds import ENVS, OBJECT, kind_of
from algorithm.extras.sharing.archive import CODE

_NAME = ("base_config", "env_name")

LEFT_OUT = "left out"
"""Text in the place of the paths of demonstrations."""

_OWN = re.compile(r"algorithm\.env(\.\w+)*(?<!\.py):[\w-]+")
"""Environments and wrappers of this program itself; a file of such a name is none."""

_REGISTERED = re.compile(r"[\w-]+|[\w-]+/[\w-]+|([\w-]+/)?[\w.-]+-v\d+")
"""Names that a simulator looks up among its own: Gymnasium's ids, domain/task of DM Control."""

_ARGUMENT = re.compile(r"[A-Za-z_]\w*")
_INFO = re.compile(r"[A-Za-z_][\w-]*(/[\w-]+)*")
_LABEL = re.compile(r"\w[\w -]*")
"""Names of parameters, lessons and behaviours, and the words of ML-Agents."""

_WORD = re.compile(
    r"\d+x\d+|rgb_array|human|ansi|left|right|speed"
    r"|simple|nature|resnet|layer|batch|batch_first|plain|residual|inverted|parameter|state"
    r"|relu|tanh|elu|gelu|silu|selu|mish|leaky_relu"
)
"""Texts that arguments may have: sizes and words of environments, choices of our networks, activations."""


def unlisted(loaded: LoadedConfig) -> list[str]:
    """Return ``key: text`` of all that an export may only hold where it is trusted."""
    configs = (loaded.config, *loaded.behaviours.values())
    return list(dict.fromkeys(text for config in configs for text in unlisted_keys(config)))


def unlisted_keys(config: Config) -> Iterator[str]:
    """Yield the same of one configuration."""
    for path, key in fields(type(config)):
        value, names = value_at(config, path), facts_of(key).names
        if path == _NAME and config.base_config.kind is OBJECT:  # that name makes nothing
            continue
        if value == key.default or not holds_text(key.annotation):
            continue
        if names is None:
            found: Iterable[object] = [value]
        elif names in _NESTED:
            found = _NESTED[names](value)
        else:  # an entry of its own stands for a list of one
            found = _names([value] if isinstance(value, Mapping) else value, _LISTED[names])
        for text in found:
            yield f"{'.'.join(path)}: {text!r}"


def holds_text(annotation: object) -> bool:
    """Return whether a value of this type may hold text that nobody has listed, at any depth.

    Any type that is not known to hold none counts as one that does.
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal or annotation in (bool, int, float, NoneType, ...):
        return False
    if origin is Annotated:
        return holds_text(inner[0])
    return not inner or any(map(holds_text, inner))


def _names(value: object, is_listed: Callable[[str], bool]) -> Iterator[object]:
    """Yield the names that are not listed: a text, or entries of a name and its arguments."""
    if isinstance(value, list | tuple):
        for entry in value:
            for name, arguments in entry.items() if isinstance(entry, Mapping) else [(entry, None)]:
                yield from _names(name, is_listed)
                yield from _arguments(arguments)
    elif not isinstance(value, str) or not is_listed(value):
        yield value


def _arguments(value: object) -> Iterator[object]:
    """Yield what is neither a number nor a listed word, however deep."""
    if isinstance(value, Mapping):
        yield from (name for name in value if not _ARGUMENT.fullmatch(str(name)))
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _arguments(item)
    elif value is not None and not isinstance(value, int | float) and not _WORD.fullmatch(str(value)):
        yield value


def _parameters(value: object) -> Iterator[object]:
    """Yield what is neither a number nor a plain name; and what ``set`` says, which may call a method."""
    if isinstance(value, Mapping):
        yield from (name for name in value if not _LABEL.fullmatch(str(name)))
        for key, inner in value.items():
            yield from [inner] if key == "set" else _parameters(inner)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _parameters(item)
    elif not isinstance(value, int | float) and not _LABEL.fullmatch(str(value)):
        yield value


_NESTED: Mapping[Naming, Callable[[object], Iterator[object]]] = {
    "arguments": _arguments,
    "parameters": _parameters,
}


def _is_of(group: Group, name: str) -> bool:
    """Return whether it is built in, or registered by an installed package."""
    return name in group.own or name in installed(group)


_LISTED: Mapping[Naming, Callable[[str], bool]] = {
    "kind": lambda name: _is_of(ENVS, name) and not kind_of(name).player,  # a player is a program
    "environment": lambda name: bool(_REGISTERED.fullmatch(name) or _OWN.fullmatch(name)),
    "wrappers": lambda name: name in gymnasium.wrappers.__all__ or bool(_OWN.fullmatch(name)),
    "algorithm": lambda name: _is_of(ALGORITHMS, name),
    "extensions": lambda name: _is_of(EXTENSIONS, name),
    "sampler": lambda name: _is_of(SAMPLERS, name),
    "networks": lambda name: _is_of(NETWORKS, name),
    "infos": lambda name: bool(_INFO.fullmatch(name)),
    "demos": lambda name: name == LEFT_OUT,
}


def refuse_code(source: str, loaded: LoadedConfig, files: Iterable[str]) -> None:
    """Raise UsageError if an export brings code or holds what is not listed.

    loaded: its configuration; files: its members
    """
    brought = sorted(name for name in files if name.endswith(CODE))
    why = [f"{name} in it is code, which would run" for name in brought]
    why += [f"its config.yaml may name code, a path or a program: {name}" for name in unlisted(loaded)]
    if not why:
        return
    look = f"python -m zipfile -e {source} FOLDER"
    if source.startswith(HUB):
        look = f"its page on the hub shows {', '.join([*brought, 'config.yaml'])}"
    raise UsageError(
        "the export would run code, and you have not said that you trust it",
        where=source,
        why="\n".join(why),
        fix=f"look at it first: {look}\nthen trust it: --trust on the command line, trust=True in Python",
    )
