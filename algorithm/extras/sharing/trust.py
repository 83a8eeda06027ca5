"""Refusal of exports that could run code, unless the user trusts them.

The rule: an export needs no trust if it has no code, and every text in its configuration is the default of
its key, a known name, or a plain word. Numbers pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import gymnasium.wrappers

from algorithm.agents.registry import FAMILIES
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.env.kinds import KINDS, OBJECT, PETTINGZOO, kind_of
from algorithm.extras.sharing.archive import CODE

_NAME = "base_config.env_name"

LEFT_OUT = "left out"
"""Text in the place of the paths of demonstrations."""

_OWN = re.compile(r"algorithm\.env(\.\w+)*(?<!\.py):[\w-]+")
"""Environments and wrappers of this package, but not files (``….py``) of such a name."""

_REGISTERED = re.compile(r"[\w-]+|[\w-]+/[\w-]+|([\w-]+/)?[\w.-]+-v\d+")
"""Names that a simulator looks up in its registry: Gymnasium's ids, domain/task of DM Control."""

_GAME = re.compile(r"(pettingzoo|mpe2)(\.\w+)+")
"""Modules of PettingZoo, which are imported."""

_PATH = re.compile(r"[A-Za-z_][\w-]*(/[\w-]+)*")
"""Names of observations, and of keys of an environment's info."""

_PLAIN = re.compile(r"(?!set$)\w[\w -]*")
"""Words that cannot name a module, file or address; not ``set``, which may name a method to be called."""

_ARGUMENT = re.compile(
    r"\d+x\d+|rgb_array|human|ansi|left|right|speed"
    r"|simple|nature|resnet|layer|batch|batch_first|plain|residual|inverted|parameter|state"
    r"|relu|tanh|elu|gelu|silu|selu|mish|leaky_relu"
)
"""Texts allowed as arguments: sizes and words of environments, choices of our networks, activations."""

IsListed = Callable[[str], object]

_PLACES = (
    *("wandb_config.project", "wandb_config.entity", "wandb_config.group", "base_config.init_from"),
    *("net_config.learner_host", "net_config.secrets"),
)
"""Keys by which a training reads files or sends data; an export leaves them out."""


def _is_wrapper(name: str) -> bool:
    return name in gymnasium.wrappers.__all__ or bool(_OWN.fullmatch(name))


_LISTED: Mapping[str, IsListed] = {
    "algorithm": FAMILIES.__contains__,
    "base_config.env_type": lambda name: name in KINDS and not kind_of(name).player,  # a program
    _NAME: lambda name: _REGISTERED.fullmatch(name) or _OWN.fullmatch(name),
    "base_config.wrappers": _is_wrapper,
    "base_config.info_keys": _PATH.fullmatch,
    "base_config.callbacks": lambda name: False,
    **dict.fromkeys(_PLACES, lambda name: False),
    "demonstrations.path": lambda name: name == LEFT_OUT,
    "eval_config.wrappers": _is_wrapper,
    "replay_config.sampler": lambda name: False,
    f"{COMMON_BLOCK}.nn": lambda name: name == "nn",
    f"{COMMON_BLOCK}.extensions": lambda name: False,
    f"{COMMON_BLOCK}.critic_observations": _PATH.fullmatch,
}
"""Key -> check of its texts; for entries with arguments, of their names. Other keys: plain words only."""

_WITH_ARGUMENTS = re.compile(
    rf"(algorithm_args|base_config\.env_args|reset_config|nn_config\.\w+"
    rf"|(base_config|eval_config)\.wrappers|replay_config\.sampler|{COMMON_BLOCK}\.extensions)\..+"
)
"""Paths of keys below which texts are arguments."""


def unlisted(loaded: LoadedConfig) -> list[str]:
    """Return ``key: text`` of each text in the configuration that needs trust."""
    configs = (loaded.config, *loaded.behaviours.values())
    return list(dict.fromkeys(text for config in configs for text in unlisted_keys(config)))


def unlisted_keys(config: Config) -> Iterator[str]:
    """Yield ``key: text`` of each text in one behaviour's configuration that needs trust."""
    passes = {*_texts(type(config)().model_dump())}
    for path, text, is_key in _texts(config.model_dump()):
        is_listed = _LISTED.get(path, _PLAIN.fullmatch)
        if _WITH_ARGUMENTS.fullmatch(path) and not is_key:
            is_listed = _ARGUMENT.fullmatch
        if path == _NAME and config.base_config.kind is PETTINGZOO:
            is_listed = _GAME.fullmatch
        if path == _NAME and config.base_config.kind is OBJECT:  # the name of an object is never imported
            continue
        if (path, text, is_key) not in passes and not is_listed(text):
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
