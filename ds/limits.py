"""The size limit of messages: that of the largest one, computed from the agents' specs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from algorithm.core.spec import AgentSpec
from ds.wire import ALIGNMENT, aligned

SMALLEST_LIMIT = 2**20
"""Lower bound of the limit, so that the other messages pass as well."""

_ENVELOPE = 2**14
"""Bytes of a message besides its transitions, ends of episodes that were given up included."""

_INT = 9
_PART = 64
"""Bytes for the structure of a chunk besides what describes its arrays: ints and headers, with room."""

Shape = tuple[int, ...]


def message_limit(
    specs: Mapping[str, AgentSpec],
    carries: Mapping[str, Shape],
    max_episode_length: int,
    *,
    agents: int = 1,
) -> int:
    """Return the bytes of the largest message that a learner reads; see :func:`largest_trajectory`."""
    return max(SMALLEST_LIMIT, largest_trajectory(specs, carries, max_episode_length, agents=agents))


def largest_trajectory(
    specs: Mapping[str, AgentSpec],
    carries: Mapping[str, Shape],
    max_episode_length: int,
    *,
    agents: int = 1,
) -> int:
    """Return the bytes of the largest trajectory message of these behaviours.

    A message is the segment of one agent, or one transition of each in synchronous mode.

    specs:   observations and actions of each behaviour.
    carries: shape of each one's stored carry, ``(0,)`` without memory.
    max_episode_length: transitions of the longest segment.
    agents:  the most agents whose transitions may share a message.
    """
    longest = max(_chunk(name, spec, carries[name], max_episode_length) for name, spec in specs.items())
    step = max(_chunk(name, spec, carries[name], 1) for name, spec in specs.items())
    name = max(_text(name) for name in specs)
    episode, gone = name + 3 * _INT + 2, name + _INT + 2
    return _ENVELOPE + max(longest, agents * step) + agents * (episode + gone)


def _chunk(name: str, spec: AgentSpec, carry: Shape, length: int) -> int:
    """Return the bytes of a chunk of ``length`` transitions, structure and arrays."""
    action, steps = spec.action, length + 1
    arrays: list[tuple[Shape, int]] = [
        ((steps, *shape), np.dtype(dtype).itemsize) for _, shape, dtype in spec.obs.items()
    ]
    arrays += [
        ((steps, action.discrete), 1),
        ((steps, *carry), 4),
        ((length, action.size), 4),
        ((length, action.continuous), 4),
        ((length, action.num_heads), 4),
        ((length,), 4),  # reward
        ((length,), 1),  # terminated
        ((length,), 1),  # truncated
        ((length,), 4),  # priority
    ]
    names = _text(name) + sum(_text(one) for one in spec.obs.names)
    return _PART + names + sum(_array(shape, size) for shape, size in arrays)


def _array(shape: Shape, itemsize: int) -> int:
    """Return the bytes of description, padding and numbers."""
    return ALIGNMENT + 4 * len(shape) + aligned(prod(shape) * itemsize)


def _text(text: str) -> int:
    return 5 + len(text.encode())
