"""Comparison of what a trainer has stored with what players have in their ledgers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.spec import ActionSpec
from algorithm.extras.unity.testing.selfcheck import KEYS
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.storage import NEXT, TERMINATED, TRUNCATED

Key = tuple[int, ...]
"""Player, agent, episode, decision."""


def read_ledgers(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of each process, in the order of their starts. A last line may be cut off."""
    for file in sorted(folder.glob("*.jsonl")):
        lines = file.read_text("utf-8").split("\n")
        yield [json.loads(line) for line in lines[:-1]]


def transitions(folder: Path, behaviour: str) -> dict[Key, dict[str, Any]]:
    """Return the transitions of all players by key; ``behaviour`` is the name without a team."""
    found: dict[Key, dict[str, Any]] = {}
    for lines in read_ledgers(folder):
        for line in lines:
            if line["kind"] == "transition" and line["behaviour"].partition("?")[0] == behaviour:
                key = key_of(line["obs"][0])
                assert key not in found, f"two transitions of {key}"
                found[key] = line
    return found


def key_of(echo: Any) -> Key:
    """Return the key that an observation begins with."""
    return tuple(int(number) for number in np.asarray(echo)[: len(KEYS)])


@dataclass
class Comparison:
    """Differences between a replay and the ledgers.

    wrong:    stored transitions that differ, with the field
    missing:  transitions of the ledgers, of players that the replay knows, that are not stored
    players:  numbers of the players that the replay knows
    """

    stored: int = 0
    players: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    missing: list[Key] = field(default_factory=list)
    truncated_here: int = 0  # episodes that the trainer has cut off


def compare(replay: ReplayBuffer, folder: Path, behaviour: str, *, remembering: bool = False) -> Comparison:
    """Compare every transition of a replay.

    remembering: the networks are those of :data:`REMEMBERING`, whose carries are compared, too
    """
    ledger = transitions(folder, behaviour)
    action = replay._storage.spec.action
    result = Comparison()
    seen: set[Key] = set()
    for stored in stored_transitions(replay):
        result.stored += 1
        key = key_of(stored["obs"])
        line = ledger.get(key)
        if line is None:
            result.wrong.append(f"{key}: is in no ledger")
            continue
        if key in seen:
            result.wrong.append(f"{key}: is stored twice")
        seen.add(key)
        expected = _expected(action, line)
        # The trainer may cut an episode off, but only where nothing of it follows.
        if stored["truncated"] and line["end"] is None and (*key[:3], key[3] + 1) not in ledger:
            result.truncated_here += 1
            expected["truncated"] = True
        if remembering:
            expected["carry"] = _carry(action, ledger, key)
        result.wrong += [
            f"{key}: {name} is {stored[name]}, the ledger has {value}"
            for name, value in expected.items()
            if not np.allclose(stored[name], value, rtol=1e-5, atol=1e-5 if name == "reward" else 0)
        ]
    result.players = {key[0] for key in seen}
    result.missing = [key for key in ledger if key[0] in result.players and key not in seen]
    return result


def _expected(action: ActionSpec, line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "obs": line["obs"][0],
        "after": line["after"][0],
        "action": _flat(action, line),
        "mask": ~np.array(line["mask"], np.bool_) if line["mask"] else np.ones(action.discrete, np.bool_),
        "reward": line["reward"] + line["group_reward"],
        "terminated": line["end"] == "terminated",
        "truncated": line["end"] == "interrupted",
        "step": line["decision"],
    }


def _flat(action: ActionSpec, line: Mapping[str, Any]) -> NDArray[np.float64]:
    onehot = np.zeros(action.discrete)
    for where, chosen in zip(action.branch_slices, line["discrete"], strict=True):
        onehot[where.start + chosen] = 1
    return np.concatenate([onehot, line["continuous"]])


def _carry(action: ActionSpec, ledger: Mapping[Key, Mapping[str, Any]], key: Key) -> NDArray[np.float64]:
    """Return the carry before a decision: who this is, and the action before the decision before."""
    *episode, decision = key
    if decision == 0:
        return np.zeros(len(KEYS) + action.size)
    before = ledger.get((*episode, decision - 2))
    return np.concatenate([key, np.zeros(action.size) if before is None else _flat(action, before)])


REMEMBERING = """\
import torch
from algorithm.nn import Rep


class ModelRep(Rep):
    def __init__(self, spec):
        super().__init__(spec)
        self.carry_shape = self.stored_carry_shape = (4 + spec.action.size,)

    def forward(self, obs, prev_action, carry, valid):
        echo = obs["echo"]
        one_more = torch.tensor([0.0, 0.0, 0.0, 1.0])
        after = torch.cat([echo[..., :4] + one_more, prev_action], dim=-1)
        rows = [carry]
        for at in range(valid.shape[1]):
            rows.append(torch.where(valid[:, at, None], after[:, at], rows[-1]))
        return echo[..., 4:], torch.stack(rows[1:], dim=1)
"""
"""An ``nn.py`` whose memory is the last observation's origin, and the action before it."""


def stored_transitions(replay: ReplayBuffer) -> Iterator[dict[str, Any]]:
    """Yield each transition of a replay with one observation."""
    storage, (sensor,) = replay._storage, replay._storage.spec.obs.names
    slots = np.flatnonzero(storage.links[: len(replay), NEXT])
    ids = np.sort(storage.ids_in(slots))
    for chunk in np.array_split(ids, max(1, len(ids) // 4096)):
        if not len(chunk):
            continue
        batch = replay.windows(chunk)
        at = replay._windows._burn_in
        flags = storage.links[chunk % replay.capacity, NEXT]
        carries = replay.carries(chunk)
        columns = {
            "obs": np.asarray(batch.obs[sensor])[:, at],
            "after": np.asarray(batch.obs[sensor])[:, at + 1],
            "action": np.asarray(batch.action)[:, at],
            "mask": np.asarray(batch.action_mask)[:, at],
            "reward": np.asarray(batch.reward)[:, at],
            "step": np.asarray(batch.step)[:, at],
            "terminated": flags & TERMINATED > 0,
            "truncated": flags & TRUNCATED > 0,
            "carry": carries.reshape(len(chunk), -1),
        }
        for row in range(len(chunk)):
            yield {name: column[row] for name, column in columns.items()}
