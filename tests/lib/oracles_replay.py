"""The replay in its plainest form, lists and loops, and data whose origin can be read off it."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from algorithm.core import ActionSpec, AgentSpec, ObsSpec, Segment, SequenceBatch, StepBatch
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.layout import ArrayChunks
from algorithm.replay.saving import ReplayState

VECTOR = AgentSpec(ObsSpec(("obs",), ((4,),), ("float32",)), ActionSpec((), 2))
MIXED = AgentSpec(
    ObsSpec(
        ("vector", "camera", "map", "count"),
        ((4,), (2, 3, 1), (2, 2), ()),
        ("float32", "uint8", "float32", "int32"),
    ),
    ActionSpec((3, 2), 2),
)
DISCRETE = AgentSpec(ObsSpec(("camera",), ((2, 2, 1),), ("uint8",)), ActionSpec((3,), 0))
_KINDS = ("uint8", "int8", "int16", "int32", "int64", "bool", "float32")
KINDS = AgentSpec(  # each dtype as a single number and as a matrix
    ObsSpec(
        (*_KINDS, *(f"{kind} matrix" for kind in _KINDS)),
        ((),) * len(_KINDS) + ((2, 3),) * len(_KINDS),
        _KINDS * 2,
    ),
    ActionSpec((), 1),
)
STACKED = AgentSpec(  # depths and dtypes mixed, and neighbours that are no stacks
    ObsSpec(
        ("camera", "vector", "sonar", "near", "choice", "wide"),
        ((3, 2, 2), (4,), (2, 2), (3, 1), (), (5, 2)),
        ("uint8", "float32", "float32", "uint8", "uint8", "uint8"),
        stacks=(3, 1, 2, 3, 1, 5),
    ),
    ActionSpec((2,), 1),
)


def make_segment(
    spec: AgentSpec,
    *,
    stream: int,
    episode: int,
    start: int,
    length: int,
    terminated: bool = False,
    truncated: bool = False,
    carry_shape: tuple[int, ...] = (0,),
) -> Segment:
    """A segment in which every number follows from (stream, episode, step), so that it can be recognised."""
    rows = [np.random.default_rng((stream, episode, start + i)) for i in range(length + 1)]
    obs: dict[str, np.ndarray] = {}
    for (name, shape, dtype), stack in zip(spec.obs.items(), spec.obs.stacks, strict=True):
        if stack > 1:
            value = stacked_frames(stream, episode, start, length + 1, shape)
        elif dtype == "float32":
            value = np.stack([rng.normal(size=shape) for rng in rows])
            if shape == (4,):
                value[:, :3] = [[stream, episode, start + i] for i in range(length + 1)]
        elif dtype == "bool":
            value = np.stack([rng.integers(2, size=shape) for rng in rows])
        else:
            value = np.stack([rng.integers(1, 200, size=shape) for rng in rows])
        obs[name] = value.astype(dtype)
    mask = np.stack([rng.random(spec.action.discrete) < 0.7 for rng in rows])
    carry = np.stack([rng.normal(size=carry_shape) for rng in rows]).astype(np.float32)
    parts = [spec.action.random(rng, spec.action.all_allowed(1)) for rng in rows[:-1]]
    action, z, logp = (np.concatenate(part) for part in zip(*parts, strict=True))
    ends = np.arange(length) == length - 1
    return Segment(
        stream=stream,
        start_step=start,
        obs=obs,
        action_mask=mask,
        carry=carry,
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=np.array([rng.normal() for rng in rows[:-1]], np.float32),
        terminated=ends & terminated,
        truncated=ends & truncated,
    )


def stacked_frames(stream: int, episode: int, start: int, n: int, shape: tuple[int, ...]) -> np.ndarray:
    """Observations [n, S, …] of an episode's steps start … as a wrapper that stacks frames hands them out."""
    out: list[np.ndarray] = []
    frames: deque[np.ndarray] = deque(maxlen=shape[0])
    for step in range(start + n):
        number = 83 * stream + 29 * episode + 7 * step + 3 * np.arange(prod(shape[1:]))
        frames.append((number % 251 + 1).reshape(shape[1:]))
        while len(frames) < shape[0]:  # at the reset: its frame fills the stack
            frames.append(frames[0])
        if step >= start:
            out.append(np.stack(frames))
    return np.stack(out)


@dataclass
class Row:
    """One observation and, once there was one, what the agent did then."""

    obs: dict[str, np.ndarray]
    mask: np.ndarray
    carry: np.ndarray
    step: int
    acted: dict[str, np.ndarray] | None = None
    terminated: bool = False
    truncated: bool = False


@dataclass
class NaiveReplay:
    """Keeps every row ever written; episodes are lists of row ids."""

    spec: AgentSpec
    capacity: int
    burn_in: int = 0
    learn: int = 1
    n_step: int = 1
    rows: list[Row] = field(default_factory=list)
    episodes: list[list[int]] = field(default_factory=list)
    open: dict[int, list[int]] = field(default_factory=dict)

    def alive(self, row: int) -> bool:
        return row >= len(self.rows) - self.capacity

    def add(self, segment: Segment) -> None:
        for t in range(segment.length):
            episode = self.open.get(segment.stream)
            if episode is not None:
                survives = episode[-1] > len(self.rows) - self.capacity
                if self.rows[episode[-1]].step != segment.start_step + t or not survives:
                    self.close(segment.stream)
                    episode = None
            if episode is None:
                episode = self.open[segment.stream] = []
                self.episodes.append(episode)
                self._observe(segment, t, episode)
            row = self.rows[episode[-1]]
            row.acted = {
                "action": segment.action[t],
                "z": segment.z[t],
                "behaviour_logp": segment.behaviour_logp[t],
                "reward": segment.reward[t],
            }
            row.terminated, row.truncated = bool(segment.terminated[t]), bool(segment.truncated[t])
            self._observe(segment, t + 1, episode)
        if segment.terminated[-1] or segment.truncated[-1]:
            del self.open[segment.stream]

    def _observe(self, segment: Segment, t: int, episode: list[int]) -> None:
        episode.append(len(self.rows))
        obs = {name: value[t] for name, value in segment.obs.items()}
        self.rows.append(Row(obs, segment.action_mask[t], segment.carry[t], segment.start_step + t))

    def close(self, stream: int) -> None:
        episode = self.open.pop(stream, None)
        if episode is not None and len(episode) > 1:
            self.rows[episode[-2]].truncated = True

    def transitions(self) -> list[int]:
        return [i for i, row in enumerate(self.rows) if row.acted is not None and self.alive(i)]

    def window(self, anchor: int, place: int = 0) -> dict[str, np.ndarray]:
        """The window whose learned position ``place`` is the anchor, field by field as in SequenceBatch."""
        width = self.burn_in + self.learn + self.n_step - 1
        action = self.spec.action
        zeros = {
            "prev_action": ((width + 1, action.size), np.float32),
            "action_mask": ((width + 1, action.discrete), bool),
            "step": (width + 1, np.int64),
            "obs_valid": (width + 1, bool),
            "ids": (width + 1, np.int64),
            "action": ((width, action.size), np.float32),
            "z": ((width, action.continuous), np.float32),
            "behaviour_logp": ((width, action.num_heads), np.float32),
            "reward": (width, np.float32),
            "terminated": (width, bool),
            "valid": (width, bool),
        }
        out: dict[str, np.ndarray] = dict(self.spec.obs.zeros(width + 1))
        out |= {name: np.zeros(shape, dtype) for name, (shape, dtype) in zeros.items()}
        out["ids"] -= 1
        out["anchor"] = np.int64(self.burn_in + place)
        episode = next(e for e in self.episodes if anchor in e)
        first = episode.index(anchor) - place - self.burn_in
        for token in range(width, -1, -1):
            at = first + token
            if not (0 <= at < len(episode) and self.alive(episode[at])):
                continue
            row = self.rows[episode[at]]
            out["ids"][token], out["step"][token], out["obs_valid"][token] = episode[at], row.step, True
            out["action_mask"][token] = row.mask
            out["carry"] = row.carry
            for name, stack in zip(self.spec.obs.names, self.spec.obs.stacks, strict=True):
                out[name][token] = row.obs[name] if stack == 1 else self._stack(episode, at, name, stack)
            if at > 0 and self.alive(episode[at - 1]):
                before = self.rows[episode[at - 1]].acted
                assert before is not None
                out["prev_action"][token] = before["action"]
            if token < width and row.acted is not None:
                out["valid"][token], out["terminated"][token] = True, row.terminated
                for name, value in row.acted.items():
                    out[name][token] = value
        return out

    def _stack(self, episode: list[int], at: int, name: str, stack: int) -> np.ndarray:
        """What the environment handed out, if its frames are still there; else the oldest repeated."""
        begin = next(i for i, row in enumerate(episode) if self.alive(row))
        if at - begin >= stack - 1 or self.rows[episode[begin]].step == 0:
            return self.rows[episode[at]].obs[name]
        frames = [self.rows[episode[max(at - back, begin)]].obs[name][-1] for back in range(stack)]
        return np.stack(frames[::-1])


def assert_batch_equals(
    batch: SequenceBatch, replay: NaiveReplay, anchors: list[int], places: list[int] | None = None
) -> None:
    """Every window of the batch is the oracle's, bit for bit; each anchor comes first, or at its place."""
    fields = {name: value.numpy() for name, value in vars(batch).items() if name not in ("obs", "weight")}
    fields.update({name: value.numpy() for name, value in batch.obs.items()})
    for i, anchor in enumerate(anchors):
        expected = replay.window(anchor, places[i] if places is not None else 0)
        assert fields.keys() == expected.keys()
        for name, value in expected.items():
            got = fields[name][i]
            assert got.shape == value.shape and got.dtype == value.dtype, name
            if not np.array_equal(got, value):  # the other is slow, and says more
                np.testing.assert_array_equal(got, value, err_msg=f"{name} of anchor {anchor}")


def stored(replay: ReplayBuffer) -> np.ndarray:
    """The records of all living rows, by id."""
    return np.concatenate([np.empty(0, replay.record_type), *(chunk.copy() for chunk in replay.state().rows)])


def whole(chunks: ArrayChunks) -> np.ndarray:
    """An array out of its chunks, which are used up."""
    empty = np.empty((0, *chunks.shape[1:]), chunks.dtype)
    array = np.concatenate([empty, *(chunk.copy() for chunk in chunks.chunks)])
    assert array.shape == chunks.shape and array.dtype == chunks.dtype
    return array


def taken(replay: ReplayBuffer) -> ReplayState:
    """A state that stays as it is when the replay goes on, as if it had been written and read."""
    state = replay.state()
    arrays = {name: ArrayChunks.of(whole(chunks)) for name, chunks in state.arrays.items()}
    return ReplayState(json.loads(json.dumps(state.meta, allow_nan=False)), arrays, [stored(replay)])


def digest(replay: ReplayBuffer) -> str:
    """SHA-256 of all that a replay does from here on depends on: rows, heads, sampler, random numbers."""
    state = replay.state()
    meta = {**state.meta, "streams": sorted(state.meta["streams"])}
    found = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    found.update(stored(replay).tobytes())
    for name in sorted(state.arrays.keys() - {"carry"}):  # carries stand in the rows
        found.update(name.encode() + whole(state.arrays[name]).tobytes())
    return found.hexdigest()


def step_batch(segments: Sequence[Segment]) -> StepBatch:
    """Segments of one transition each as one or several steps of their streams."""

    def each(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name) for one in segments])

    def halves(name: str) -> tuple[np.ndarray, np.ndarray]:
        both = np.stack([getattr(one, name) for one in segments])
        return both[:, 0], both[:, 1]

    obs = {name: np.stack([one.obs[name] for one in segments]) for name in segments[0].obs}
    (mask, next_mask), (carry, next_carry) = halves("action_mask"), halves("carry")
    batch = StepBatch(
        streams=np.array([one.stream for one in segments]),
        start_steps=np.array([one.start_step for one in segments]),
        obs={name: value[:, 0] for name, value in obs.items()},
        next_obs={name: value[:, 1] for name, value in obs.items()},
        action_mask=mask,
        next_action_mask=next_mask,
        carry=carry,
        next_carry=next_carry,
        **{name: each(name) for name in ("action", "z", "behaviour_logp", "reward")},
        **{name: each(name) for name in ("terminated", "truncated")},
    )
    first = np.full(len(segments), True) if batch.follows is None else batch.follows < 0
    obs = {name: value[first] for name, value in batch.obs.items()}
    return replace(batch, obs=obs, action_mask=batch.action_mask[first], carry=batch.carry[first])
