"""How the flat action maps to an environment's own, in one line for a person."""

from __future__ import annotations

import gymnasium as gym

from algorithm.env.spaces import Leaf

_LISTED = 6
"""Branches of different sizes that are listed one by one; more are told by the smallest and largest."""


def describe_branches(leaf: Leaf, counts: list[int], starts: list[int], first: int) -> str:
    """A discrete leaf whose branches begin with number ``first``.

    ``1 branch of 3 choices``; below a name ``keys: branches 1-4 of 2 choices``.
    """
    several = len(counts) != 1
    if leaf.name:
        text = f"{leaf.name}: branch{'es' * several} {_span(first, len(counts))}"
    else:
        text = f"{len(counts)} branch{'es' * several}"
    text += f" of {_counts(counts)} choice{'s' * (counts != [1])}"
    if any(starts):
        values = [f"{start} to {start + n - 1}" for start, n in zip(starts, counts, strict=True)]
        text += f" ({values[0]})" if len(set(values)) == 1 else " (not from 0)"
    return text


def describe_box(leaf: Leaf, first: int) -> str:
    """A Box whose part of u begins with number ``first``.

    ``6 continuous: u in [-1, 1] to [-2, 2]``; below a name ``force: continuous 0-1, [-2, 2]``.
    """
    space = leaf.space
    assert isinstance(space, gym.spaces.Box)
    size = space.low.size
    same = size > 0 and (space.low == space.low.flat[0]).all() and (space.high == space.high.flat[0]).all()
    low, high = (f"{float(end.flat[0]):g}" if same else "" for end in (space.low, space.high))
    bounds = f"[{low}, {high}]" if same else "the bounds of the Box"
    whole = ", rounded" if space.dtype.kind != "f" else ""
    if leaf.name:
        return f"{leaf.name}: continuous {_span(first, size)}, {bounds}{whole}"
    return f"{size} continuous: u in [-1, 1] to {bounds}{whole}"


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _counts(counts: list[int]) -> str:
    if len(set(counts)) == 1:
        return str(counts[0])
    if len(counts) > _LISTED:
        return f"{min(counts)} to {max(counts)}"
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"
