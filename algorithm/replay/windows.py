"""Windows around anchors: K burn-in, T learned, n steps, W = K + T + n − 1 transitions, W + 1 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from algorithm.core.data import Array, Bool, Float, Int, Scalar, SequenceBatch, sent
from algorithm.core.errors import UsageError
from algorithm.core.wording import format_bytes
from algorithm.replay.storage import FLAG_BITS, NEXT, PREV, STEP, TERMINATED, Storage


class WindowReader:
    """Reader of windows around anchors. It follows the links between rows, so it stays in the episode."""

    def __init__(
        self, storage: Storage, *, burn_in: int, learn: int, n_step: int, device: torch.device | None = None
    ) -> None:
        """Set the sizes of windows: burn_in ≥ 0, learn ≥ 1 and n_step ≥ 1.

        device: where a :class:`DeviceCopy` keeps observations; None: there is no copy
        """
        self._storage = storage
        self._burn_in, self._learn = burn_in, learn
        self._ahead = learn + n_step - 1  # tokens after the first learned one
        self._window = burn_in + self._ahead
        # Tokens read before the window: one for its action, and the older frames of its first token.
        self._lead = max(field.stack - 1 for field in storage.layout.fields) or 1
        self._stacks = {field.matrix: field.stack for field in storage.layout.fields}
        self._copy = None if device is None else DeviceCopy(storage, list(self._stacks), device)

    def read(self, anchors: Int, weight: Float, place: Int | None = None) -> SequenceBatch:
        """Return the windows of ``anchors`` [B], slots of transitions; no memory is shared with the storage.

        place: [B] index of each anchor among the learned positions, 0 … T−1; None for the first

        ``action`` is a view of ``prev_action``, one token later. The frames of a stack are views of one
        another: read them, never write to them.

        A stack is rebuilt from the rows before, as far back as the replay has them; for older frames the
        oldest one is repeated. For the first observations of an episode that is exact. It is approximate
        where rows have been overwritten, and for the first rows of a chain that begins in the middle of an
        episode, whose earlier frames never were in the replay.
        """
        storage, lead = self._storage, self._lead
        layout, discrete = storage.layout, storage.discrete
        place = np.zeros(len(anchors), np.int64) if place is None else place
        ids, exists, terminated = self._follow(anchors, place)
        slots = ids % storage.capacity
        # The row before the window is read for its action.
        near, there = slots[:, lead - 1 :], exists[:, lead - 1 :]
        missing = None if there.all() else ~there
        acted, byte = _gather(storage.acted, near, missing), _gather(storage.byte, near, missing)
        actions = self._actions(acted, byte)
        tokens, token_exists = ids[:, lead:], there[:, 1:]
        if missing is not None:
            tokens[missing[:, 1:]] = -1
        first = storage.links.take(anchors, axis=0)[:, STEP] - self._burn_in - place  # step in the episode
        # That of the first token that exists: where the first ones are missing their slots are its own.
        carry = storage.carry.take(near[:, 1], axis=0)
        return SequenceBatch(
            obs=self._observations(slots, token_exists),
            prev_action=torch.from_numpy(actions),
            action_mask=torch.from_numpy(byte[:, 1:, :discrete].view(np.bool_)),
            step=torch.from_numpy((first[:, None] + np.arange(self._window + 1)) * token_exists),
            obs_valid=torch.from_numpy(token_exists),
            ids=torch.from_numpy(tokens),
            action=torch.from_numpy(actions[:, 1:]),
            z=torch.from_numpy(acted[:, 1:-1, layout.z]),
            behaviour_logp=torch.from_numpy(acted[:, 1:-1, layout.logp]),
            reward=torch.from_numpy(acted[:, 1:-1, layout.reward]),
            terminated=torch.from_numpy(terminated),
            valid=torch.from_numpy(token_exists[:, :-1] & token_exists[:, 1:]),
            carry=torch.from_numpy(carry.reshape(len(carry), *storage.carry_shape)),
            anchor=torch.from_numpy(self._burn_in + place),
            weight=torch.from_numpy(weight),
        )

    def _follow(self, anchors: Int, place: Int) -> tuple[Int, Bool, Bool]:
        """Walk both ways from the anchors, as far as the window that reaches furthest.

        Returns ids and exists [B, lead + W+1] of the ``lead`` tokens before the window and its own (where a
        token does not exist, the id is that of its nearest neighbour which does), and terminated [B, W].
        """
        storage, batch, lead = self._storage, len(anchors), self._lead
        back = lead + self._burn_in + int(place.max(initial=0))
        ahead = self._ahead - int(place.min(initial=self._learn - 1))
        oldest = storage.next_id - storage.capacity
        ids = np.empty((batch, back + ahead + 1), np.int64)
        exists = np.ones((batch, back + ahead + 1), np.bool_)
        terminated = np.zeros((batch, back + ahead), np.bool_)
        anchor_links = storage.links.take(anchors, axis=0)
        start = storage.ids_in(anchors)
        ids[:, back] = start
        links, here = anchor_links, start
        for token in range(back - 1, -1, -1):
            previous = here - links[:, PREV]
            # Ids only grow along a chain: a row before an overwritten one is overwritten too.
            alive = (previous < here) & (previous >= oldest)
            here = np.where(alive, previous, here)
            ids[:, token], exists[:, token] = here, alive
            if token:
                links = storage.links.take(here % storage.capacity, axis=0)
        links, here = anchor_links, start
        for position in range(back, back + ahead):
            forward = links[:, NEXT]
            distance = forward >> FLAG_BITS
            terminated[:, position] = forward & TERMINATED
            here = here + distance
            ids[:, position + 1], exists[:, position + 1] = here, distance
            if position + 1 < back + ahead:
                links = storage.links.take(here % storage.capacity, axis=0)
        tokens = lead + self._window + 1
        if ids.shape[1] == tokens:  # every anchor has the same place
            return ids, exists, terminated[:, lead:]
        first = (back - lead - self._burn_in - place)[:, None]
        columns = first + np.arange(tokens)
        return (
            np.take_along_axis(ids, columns, 1),
            np.take_along_axis(exists, columns, 1),
            np.take_along_axis(terminated, columns[:, lead:-1], 1),
        )

    def _actions(self, acted: Float, byte: NDArray[np.uint8]) -> Float:
        """Return the action before each token, [B, W+1, A], from rows [B, W+2, …]; u is restored from z."""
        storage = self._storage
        discrete = storage.discrete
        actions = np.empty((len(acted), self._window + 1, storage.spec.action.size), np.float32)
        storage.spec.action.squashed(acted[:, :-1, storage.layout.z], out=actions[:, :, discrete:])
        if discrete:
            actions[:, :, :discrete] = byte[:, :-1, discrete:]
        return actions

    def _observations(self, slots: Int, exists: Bool) -> dict[str, torch.Tensor]:
        """Return every observation by name; slots: [B, lead + W+1]; exists: [B, W+1]."""
        missing = None if exists.all() else ~exists
        rows: dict[str, torch.Tensor] = {}
        for matrix, stack in self._stacks.items():
            before = slots[:, self._lead - stack + 1 :]
            zeroed = missing if stack == 1 else None
            if self._copy is not None:
                rows[matrix] = self._copy.gather(matrix, before, zeroed)
            else:
                rows[matrix] = torch.from_numpy(_gather(self._storage.arrays[matrix], before, zeroed))
        obs: dict[str, torch.Tensor] = {}
        for name, matrix, columns, shape, stack in self._storage.layout.fields:
            values = rows[matrix][:, :, columns]
            tensor = values.reshape(*values.shape[:2], *shape)
            obs[name] = tensor if stack == 1 else _stacked(tensor, stack, missing)
        return obs

    def loaded(self) -> None:
        """Copy all rows to the device again before the next read, after the storage has been loaded."""
        if self._copy is not None:
            self._copy.forget()


class DeviceCopy:
    """Observations of all rows on a device, each copied there once, before it is first read.

    matrices: names of matrices of the storage, whose rows do not change once they are written
    Raises UsageError if the device has too little memory.
    """

    def __init__(self, storage: Storage, matrices: Sequence[str], device: torch.device) -> None:
        self._storage, self._device = storage, device
        self._copied = 0  # ids below are on the device
        self._lock = Lock()  # several threads may read
        try:
            self._rows = {
                name: torch.zeros_like(torch.from_numpy(storage.arrays[name]), device=device)
                for name in matrices
            }
        except torch.OutOfMemoryError as error:
            needed = format_bytes(sum(storage.arrays[name].nbytes for name in matrices))
            raise UsageError(
                f"the observations of {storage.capacity:,} rows need {needed} of {device}, which has less",
                where="replay_config.on_device",
                why="it keeps all observations of the replay there as well",
                fix="lower replay_config.capacity, or set replay_config.on_device to false",
            ) from error

    def gather(self, matrix: str, slots: Int, missing: Bool | None) -> torch.Tensor:
        """Return rows at ``slots`` [B, tokens] on the device, zero where ``missing``."""
        with self._lock:
            self._update()
        rows: torch.Tensor = (
            self._rows[matrix].index_select(0, self._sent(slots.reshape(-1))).unflatten(0, slots.shape)
        )
        if missing is not None:
            rows[self._sent(missing)] = 0
        return rows

    def forget(self) -> None:
        """Copy all rows again before the next read."""
        self._copied = 0

    def _update(self) -> None:
        storage = self._storage
        first = max(self._copied, storage.oldest)
        if first < storage.next_id:
            slots = storage.locate(first, storage.next_id - first)
            for name, rows in self._rows.items():
                rows[slots if isinstance(slots, slice) else self._sent(slots)] = self._sent(
                    storage.arrays[name][slots]
                )
            self._copied = storage.next_id

    def _sent(self, array: Array) -> torch.Tensor:
        return sent(torch.from_numpy(array), self._device)


def _gather(array: NDArray[Scalar], slots: Int, missing: Bool | None) -> NDArray[Scalar]:
    """Return rows of ``array`` at ``slots`` [B, tokens] as a fresh array, zero where ``missing``."""
    rows = array.take(slots, axis=0)
    if missing is not None:
        rows[missing] = 0
    return rows


def _stacked(frames: torch.Tensor, stack: int, missing: Bool | None) -> torch.Tensor:
    """Return stacks [B, W+1, S, …] of ``frames`` [B, S−1 + W+1, …], zero where ``missing`` [B, W+1].

    The result is a view, in which a frame is part of up to S stacks. If a token is missing, it is a copy:
    the token's zeros must not appear in the stacks of its neighbours.
    """
    stacked = frames.unfold(1, stack, 1).movedim(-1, 2)
    if missing is not None:
        stacked = stacked.contiguous()
        stacked[torch.from_numpy(missing).to(stacked.device)] = 0
    return stacked
