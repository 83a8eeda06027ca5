"""Random number generators that go on where others stood."""

from __future__ import annotations

import torch
from torch import Tensor


def go_on(generator: torch.Generator, state: Tensor) -> bool:
    """Let ``generator`` go on from ``state``, what ``get_state`` of another one gave.

    False, with nothing changed, if that one belonged to another kind of device: each kind has an algorithm of
    its own, and a state of another size.
    """
    if state.shape != generator.get_state().shape:
        return False
    generator.set_state(state)
    return True
