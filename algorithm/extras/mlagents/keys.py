"""Rows of the table: a key of ML-Agents, ours, and how a value becomes the other one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from algorithm.config.tree import Node, to_value
from algorithm.core.fields import to_number, to_whole

NOTHING = object()
"""Value of a key that is not written."""


class OfRun(NamedTuple):
    """How a value of the whole run follows from those of all behaviours, and what it is called then."""

    of: Callable[[Sequence[Any]], Any]
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainerKey:
    """A key of ML-Agents and what becomes of it.

    theirs:  dotted below a behaviour, or from the top of the file; empty for what trainers do without a key
    ours:    dotted keys that it sets; without any it is told: its place gets a comment
    default: theirs, which counts where a file is silent; None: nothing is written then
    to:      from a value and all others to ours; text that spells a number is one. Raises ValueError with
             what it must be.
    run:     ours belongs to the whole run: from the values of all behaviours to its own; None: to a behaviour
    says:    why the value is another one, or what to do where the key is told
    means:   what the same value means here
    """

    theirs: str
    ours: tuple[str, ...] = ()
    default: Any = None
    to: Callable[[Any, Given], Any] = lambda value, given: (
        to_whole(value) if isinstance(value, str) else value
    )
    run: OfRun | None = None
    says: str = ""
    means: str = ""


def row(theirs: str, *ours: str, **facts: Any) -> TrainerKey:  # noqa: ANN401 - as TrainerKey has them
    """Return a key that sets some of ours."""
    return TrainerKey(theirs=theirs, ours=ours, **facts)


def told(theirs: str, says: str) -> TrainerKey:
    """Return a key that has no equal here."""
    return TrainerKey(theirs=theirs, says=says)


def always(ours: str, value: object, says: str = "as in ML-Agents") -> TrainerKey:
    """Return what the trainers of ML-Agents do without a key."""
    return TrainerKey(theirs="", ours=(ours,), default=value, says=says)


class KeyValueError(ValueError):
    """A wrong value of a key, which need not be the one that is translated."""

    def __init__(self, theirs: str, must: str) -> None:
        super().__init__(must)
        self.theirs = theirs


class Given:
    """The keys of one behaviour, with the defaults of ML-Agents below them."""

    def __init__(self, node: Node, keys: Sequence[TrainerKey]) -> None:
        self.node = node
        self._defaults = {key.theirs: key.default for key in keys if key.default is not None}

    def find(self, dotted: str) -> Node | None:
        """Return the node of a key that the file has, and that is not null."""
        node = self.node.find(tuple(dotted.split(".")))
        return None if node is None or node.value is None else node

    def __getitem__(self, dotted: str) -> Any:  # noqa: ANN401 - whatever was written
        """Return the value of a key, else its default."""
        node = self.find(dotted)
        return self._defaults.get(dotted) if node is None else to_value(node)

    def number(self, dotted: str) -> float:
        """Return the value of a key as a number above 0. Raises KeyValueError."""
        try:
            return positive(self[dotted])
        except ValueError as error:
            raise KeyValueError(dotted, str(error)) from error


def positive(value: object) -> float:
    """Return a number above 0, also from text. Raises ValueError."""
    number = to_number(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ValueError("a number above 0")
    return number


FIRST = OfRun(lambda values: values[0])
"""Reduction of a key that a file has once: its first value."""

SUM = OfRun(sum, "the sum of all behaviours")
LEAST, MOST = OfRun(min, "the smallest"), OfRun(max, "the largest")


def one_of(table: Mapping[str, Any]) -> Callable[[Any, Given], Any]:
    """Return the translation of a word. It raises ValueError with the known ones."""

    def to(value: object, given: Given) -> object:
        if str(value) not in table:
            raise ValueError(f"one of {', '.join(table)}")
        return table[str(value)]

    return to


def whole(value: object, given: Given) -> object:
    """Return a number above 0, a whole one as such. Raises ValueError."""
    return to_whole(positive(value))


def rounded(value: float) -> Any:  # noqa: ANN401 - a whole number as an int
    """Return the result of a division or a logarithm with six digits."""
    return to_whole(float(f"{value:.6g}"))
