"""Cuts windows around anchors: K burn-in, T learned, n steps, W = K + T + n − 1 transitions, W + 1 tokens."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from algorithm.data import Array, Bool, Float, Int, SequenceBatch
from algorithm.replay.storage import FLAG_BITS, NEXT, PREV, STEP, TERMINATED, Storage

Scalar = TypeVar("Scalar", bound=np.generic)


class WindowReader:
    """Reads the window of each anchor by following links, so that it never leaves the anchor's episode."""

    def __init__(self, storage: Storage, *, burn_in: int, learn: int, n_step: int) -> None:
        """Raises ValueError unless burn_in ≥ 0, learn ≥ 1 and n_step ≥ 1."""
        if burn_in < 0 or learn < 1 or n_step < 1:
            raise ValueError(
                f"replay windows need burn_in ≥ 0, learn ≥ 1, n_step ≥ 1; got {burn_in}, {learn}, {n_step}"
            )
        self._storage = storage
        self._anchor = burn_in
        self._window = burn_in + learn + n_step - 1
        self._offsets = np.arange(-burn_in, learn + n_step)  # steps from the anchor to each token

    def read(self, anchors: Int, weight: Float) -> SequenceBatch:
        """The windows of ``anchors`` [B], slots of transitions. The tensors share no memory with the storage.

        ``action`` is a view of ``prev_action``, one token later.
        """
        storage = self._storage
        discrete = storage.discrete
        ids, exists, terminated, step = self._follow(anchors)
        slots = ids % storage.capacity
        missing = None if exists.all() else ~exists
        # The row before the window comes along for its action.
        real, byte = _gather(storage.real, slots, missing), _gather(storage.byte, slots, missing)
        actions = self._actions(real, byte)
        if missing is not None:
            ids[missing] = -1
        token_exists = exists[:, 1:]
        return SequenceBatch(
            obs=self._observations(slots[:, 1:], missing, real[:, 1:]),
            prev_action=torch.from_numpy(actions),
            action_mask=torch.from_numpy(byte[:, 1:, :discrete].view(np.bool_)),
            step=torch.from_numpy((step + self._offsets) * token_exists),
            obs_valid=torch.from_numpy(token_exists),
            ids=torch.from_numpy(ids[:, 1:]),
            action=torch.from_numpy(actions[:, 1:]),
            z=torch.from_numpy(real[:, 1:-1, storage.z]),
            behaviour_logp=torch.from_numpy(real[:, 1:-1, storage.logp]),
            reward=torch.from_numpy(real[:, 1:-1, storage.reward]),
            terminated=torch.from_numpy(terminated),
            valid=torch.from_numpy(exists[:, 1:-1] & exists[:, 2:]),
            carry=torch.from_numpy(self._carries(slots[:, 1])),
            weight=torch.from_numpy(weight),
        )

    def _follow(self, anchors: Int) -> tuple[Int, Bool, Bool, NDArray[np.int32]]:
        """Walk both ways from the anchors.

        Returns ids [B, W+2] and exists [B, W+2] of the token before the window and its W+1 tokens (where a
        token does not exist, the id is that of its nearest neighbour which does), terminated [B, W], and the
        anchors' step [B, 1].
        """
        storage, batch, width = self._storage, len(anchors), self._window
        oldest = storage.next_id - storage.capacity
        ids = np.empty((batch, width + 2), np.int64)
        exists = np.ones((batch, width + 2), np.bool_)
        terminated = np.zeros((batch, width), np.bool_)
        anchor_links = storage.links.take(anchors, axis=0)
        start = storage.ids_in(anchors)
        ids[:, self._anchor + 1] = start
        links, here = anchor_links, start
        for token in range(self._anchor, -1, -1):
            previous = here - links[:, PREV]
            # Ids only grow along a chain: what stands before an overwritten row is overwritten too.
            alive = (previous < here) & (previous >= oldest)
            here = np.where(alive, previous, here)
            ids[:, token], exists[:, token] = here, alive
            if token:
                links = storage.links.take(here % storage.capacity, axis=0)
        links, here = anchor_links, start
        for position in range(self._anchor, width):
            forward = links[:, NEXT]
            distance = forward >> FLAG_BITS
            terminated[:, position] = forward & TERMINATED
            here = here + distance
            ids[:, position + 2], exists[:, position + 2] = here, distance
            if position + 1 < width:
                links = storage.links.take(here % storage.capacity, axis=0)
        return ids, exists, terminated, anchor_links[:, STEP:]

    def _actions(self, real: Float, byte: NDArray[np.uint8]) -> Float:
        """The action before each token, [B, W+1, A], from rows [B, W+2, …]; u is restored from z."""
        storage = self._storage
        discrete = storage.discrete
        actions = np.empty((len(real), self._window + 1, storage.spec.action.size), np.float32)
        np.tanh(real[:, :-1, storage.z], out=actions[:, :, discrete:])
        if discrete:
            actions[:, :, :discrete] = byte[:, :-1, discrete:]
        return actions

    def _observations(self, tokens: Int, missing: Bool | None, real: Float) -> dict[str, torch.Tensor]:
        storage = self._storage
        gathered: dict[str, Array] = {"float32": real}
        for kind, array in storage.others.items():
            gathered[kind] = _gather(array, tokens, None if missing is None else missing[:, 1:])
        return {
            name: torch.from_numpy(gathered[kind][:, :, where].reshape(*tokens.shape, *shape))
            for name, kind, where, shape in storage.obs_fields
        }

    def _carries(self, first: Int) -> Float:
        """The carry of each window's first token that exists, [B, *C].

        first: slots [B] of the first tokens; where they are missing, that of the first that exists.
        """
        carry: Float = self._storage.carry.take(first, axis=0)
        return carry.reshape(len(first), *self._storage.carry_shape)


def _gather(array: NDArray[Scalar], slots: Int, missing: Bool | None) -> NDArray[Scalar]:
    """Rows of ``array`` at ``slots`` [B, tokens] as a fresh array, zero where ``missing``."""
    rows = array.take(slots, axis=0)
    if missing is not None:
        rows[missing] = 0
    return rows
