"""Extensions of the families, by configuration. A new extension is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from algorithm.extensions.base import Extension
from algorithm.extensions.curiosity import make_curiosity
from algorithm.extensions.gail import make_extrinsic, make_gail
from algorithm.extensions.options import Build
from algorithm.extensions.prediction import make_prediction
from algorithm.extensions.rnd import make_novelty
from algorithm.extensions.siamese import make_siamese

REGISTRY: Sequence[Callable[[Build], Extension | None]] = (
    make_curiosity,
    make_novelty,
    make_prediction,
    make_siamese,
    make_extrinsic,
    make_gail,
)
"""Makers; each returns None where the configuration has its extension off."""


def make_extensions(build: Build) -> tuple[Extension, ...]:
    """Return the configured extensions. Raises ModelError for networks that return a wrong shape."""
    made = (make(build) for make in REGISTRY)
    return tuple(extension for extension in made if extension is not None)
