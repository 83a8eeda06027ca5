"""The table of built-in extensions, and their construction by configuration.

A new extension is a file and a line here, or a user's own, ``module:make``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from algorithm.core.errors import UsageError
from algorithm.core.plugins import EXTENSIONS, PLUGIN_METRICS, Plugin, find
from algorithm.extensions.base import Build, Extension
from algorithm.extensions.curiosity import make_curiosity, make_novelty
from algorithm.extensions.gail import make_extrinsic, make_gail
from algorithm.extensions.prediction import make_prediction
from algorithm.extensions.siamese import make_siamese

REGISTRY: Sequence[Callable[[Build], Extension | None]] = (
    make_curiosity,
    make_novelty,
    make_prediction,
    make_siamese,
    make_extrinsic,
    make_gail,
)
"""Constructors; each returns None if its extension is off in the configuration."""

_PARTS = (
    *("normaliser", "rep", "policy", "q", "critic", "alpha", "joint", "own"),
    *("all", "cloning", "encoder", "value", "value_encoder"),
)
"""Names of networks and optimisers that agents use already, which no extension may have, in lower case."""


def make_extensions(build: Build) -> tuple[Extension, ...]:
    """Return the configured extensions: built-in ones, then the user's.

    Raises ModelError for networks that return a wrong shape, and for parameters that no optimiser would
    train; UsageError for one that cannot be used, and for two extensions of one name.
    """
    ours = [extension for extension in (make(build) for make in REGISTRY) if extension is not None]
    for extension in ours:
        extension.rounds = build.signals.updates
    theirs = [
        _of_plugin(name, kwargs or {}, build)
        for entry in build.options.extensions
        for name, kwargs in entry.items()
    ]
    made = (*ours, *theirs)
    names = [*_PARTS, *(type(extension).__name__.lower() for extension in made)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two parts of the agent are called {twice[0]}",
            where=EXTENSIONS.key,
            why="optimisers and weights of extensions are distinguished by the names of their classes",
            fix="list an extension once, or rename its class",
        )
    return made


def _of_plugin(name: str, kwargs: Mapping[str, Any], build: Build) -> Extension:
    """Make a user's extension from its keyword arguments; its metrics get a prefix of their own."""
    plugin = find(EXTENSIONS, name)
    assert plugin is not None, "names of built-in ones are not valid here"
    made = plugin.make(Extension, build, **kwargs)
    _check_trained(made, plugin)
    made.prefix = f"{PLUGIN_METRICS}{type(made).__name__.lower()}/"  # so that no name is one of ours
    return made


def _check_trained(made: Extension, plugin: Plugin) -> None:
    """Raise UsageError for a parameter of a user's extension that is neither in ``joint`` nor ``own``."""
    trained = {id(p) for modules in (made.joint, made.own) for p in modules.parameters()}
    left = [name for name, p in made.named_parameters() if p.requires_grad and id(p) not in trained]
    if left:
        raise plugin.error(
            "has parameters that nothing trains",
            ", ".join(left),
            "append their modules to self.own or self.joint, or call requires_grad_(False)",
        )
