"""Rows of the table of keys: a key of ML-Agents, our keys, and the function that converts the value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from algorithm.config.tree import Node, to_value
from algorithm.core.fields import to_number, to_whole

NOTHING = object()
"""Value of a key that is not written."""


class OfWholeRun(NamedTuple):
    """Rule by which a key of the whole run gets its value from those of all behaviours.

    reduce: (values of all behaviours) -> value of the run
    words:  name of the result, for the comment
    """

    reduce: Callable[[Sequence[Any]], Any]
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainerKey:
    """A key of ML-Agents and its translation.

    theirs:  dotted below a behaviour, or from the top of the file; empty for a habit of the trainers
    ours:    dotted keys that it sets; without any, the key has no counterpart and becomes a comment
    default: of ML-Agents, used where the file does not have the key; None: nothing is written then
    to:      (value, all settings) -> our value; text of a number becomes one. Raises ValueError.
    run:     for our keys of the whole run: the value from those of all behaviours; None: a key of a behaviour
    remark:  why the value differs, or for a key without counterpart what to do instead
    means:   what the same value means here
    """

    theirs: str
    ours: tuple[str, ...] = ()
    default: Any = None
    to: Callable[[Any, TrainerSettings], Any] = lambda value, settings: (
        to_whole(value) if isinstance(value, str) else value
    )
    run: OfWholeRun | None = None
    remark: str = ""
    means: str = ""


def row(theirs: str, *ours: str, **facts: Any) -> TrainerKey:  # noqa: ANN401 - as TrainerKey has them
    """Return the row of a key that sets our keys ``ours``; facts: other fields of the row."""
    return TrainerKey(theirs=theirs, ours=ours, **facts)


def absent(theirs: str, remark: str) -> TrainerKey:
    """Return the row of a key without a counterpart here."""
    return TrainerKey(theirs=theirs, remark=remark)


def always(ours: str, value: object, remark: str = "as in ML-Agents") -> TrainerKey:
    """Return a row for a habit of ML-Agents' trainers that they have no key for: it sets our key."""
    return TrainerKey(theirs="", ours=(ours,), default=value, remark=remark)


class TrainerSettings:
    """Settings of one behaviour in ML-Agents' file, with its defaults for keys that are not in the file."""

    def __init__(self, node: Node, keys: Sequence[TrainerKey]) -> None:
        self.node = node
        self._defaults = {key.theirs: key.default for key in keys if key.default is not None}

    def find(self, dotted: str) -> Node | None:
        """Return the node of a key that the file has, and that is not null."""
        node = self.node.find(tuple(dotted.split(".")))
        return None if node is None or node.value is None else node

    def __getitem__(self, dotted: str) -> Any:  # noqa: ANN401 - whatever was written
        """Return the value of a key; its default, which may be None, if the file does not have it."""
        node = self.find(dotted)
        return self._defaults.get(dotted) if node is None else to_value(node)

    def number(self, dotted: str) -> float:
        """Return the value of a key as a number above 0. Raises ValueError."""
        return positive(self[dotted], dotted)


def positive(value: object, what: str = "it") -> float:
    """Return a value, also text, as a number above 0. Raises ValueError, whose text begins with ``what``."""
    number = to_number(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ValueError(f"{what} must be a number above 0")
    return number


FIRST = OfWholeRun(lambda values: values[0])
"""Reduction for a key that a file has once: all behaviours have the same value."""

SUM = OfWholeRun(sum, "the sum of all behaviours")
LEAST, MOST = OfWholeRun(min, "the smallest"), OfWholeRun(max, "the largest")


def one_of(table: Mapping[str, Any]) -> Callable[[Any, TrainerSettings], Any]:
    """Return a function (value, settings) that translates ``str(value)`` by a table.

    It raises ValueError for a value that the table lacks, with a list of those that it has.
    """

    def to(value: object, settings: TrainerSettings) -> object:
        if str(value) not in table:
            raise ValueError(f"it must be one of {', '.join(table)}")
        return table[str(value)]

    return to


def whole(value: object, settings: TrainerSettings) -> object:
    """Return a value as a number above 0, an int if it is whole. Raises ValueError."""
    return to_whole(positive(value))


def windows(value: object, settings: TrainerSettings) -> int:
    """Return the windows of a batch: experiences without a memory, sequences with one."""
    remembers = settings.find("network_settings.memory") is not None
    length = settings.number("network_settings.memory.sequence_length") if remembers else 1
    return max(1, int(positive(value) // length))


def rounded(value: float) -> Any:  # noqa: ANN401 - a whole number as an int
    """Return a number with six significant digits."""
    return to_whole(float(f"{value:.6g}"))
