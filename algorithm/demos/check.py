"""Recorded episodes, checked against what an agent sees and does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from algorithm.core.data import Array, DemoEpisode, Float
from algorithm.core.spec import AgentSpec
from algorithm.demos.episode import FaultyRecordingError, Float32Episode, RecordedEpisode, layout, shown

_TOLERANCE = 1e-5  # of rounding, in continuous actions at their bounds


def fitted(episode: RecordedEpisode, spec: AgentSpec) -> DemoEpisode:
    """Return the episode as an agent of this spec learns from it.

    Raises FaultyRecordingError, with number and array, if it is of another agent.
    """
    try:
        if episode.spec is not None and layout(episode.spec) != layout(spec):
            raise FaultyRecordingError(
                f"its spaces are {layout(episode.spec)}, and those of the agent {layout(spec)}"
            )
        _check_names(episode, spec)
        found = _arrays(episode)
        if isinstance(episode, Float32Episode):
            found |= _restored(found, spec)
        _check(found, spec)
    except FaultyRecordingError as error:
        where = f"episode {episode.number}{f', {error.where}' if error.where else ''}"
        raise FaultyRecordingError(error.why, where) from error
    z, behaviour_logp = _recorded_policy(episode, spec)
    return DemoEpisode(
        obs={name: found[f"obs/{name}"] for name in spec.obs.names},
        action_mask=found["action_mask"].astype(np.bool_),
        action=found["action"].astype(np.float32).clip(-1.0, 1.0),  # one-hots lie within, too
        reward=found["reward"].astype(np.float32),
        terminated=bool(found["terminated"][-1]),
        z=z,
        behaviour_logp=behaviour_logp,
    )


def _recorded_policy(episode: RecordedEpisode, spec: AgentSpec) -> tuple[Float | None, Float | None]:
    """Return z [L, A_c] and log-probabilities [L, H], each None unless both are those of such an agent.

    Other families squash and record in other ways, and nothing in a file says which: their arrays are unlike
    these in shape, or z is not that of the action.
    """
    z, logp, length, action = episode.z, episode.behaviour_logp, len(episode.reward), spec.action
    if z is None or logp is None or z.dtype != np.float32 or logp.dtype != np.float32:
        return None, None
    if z.shape != (length, action.continuous) or logp.shape != (length, action.record_size):
        return None, None
    own_z, own_logp = z.astype(np.float32), logp.astype(np.float32)
    u = episode.action[:, action.discrete :].astype(np.float32)
    if not np.isfinite(own_logp).all() or not (np.abs(action.squashed(own_z) - u) <= _TOLERANCE).all():
        return None, None
    if (own_logp[:, : len(action.branches) > 0] > _TOLERANCE).any():
        return None, None  # no probability is above 1
    return own_z, own_logp


def _arrays(episode: RecordedEpisode) -> dict[str, Array]:
    return {
        **{f"obs/{name}": value for name, value in episode.obs.items()},
        "action_mask": episode.action_mask,
        "action": episode.action,
        "reward": episode.reward,
        "terminated": episode.terminated,
        "truncated": episode.truncated,
    }


def _restored(found: Mapping[str, Array], spec: AgentSpec) -> dict[str, Array]:
    """Return the observations of whole numbers that came as float32, where nothing is lost, in their type."""
    restored = {}
    for name, _, dtype in spec.obs.items():
        value = found[f"obs/{name}"]
        if value.dtype == np.float32 and np.dtype(dtype).kind in "biu":
            with np.errstate(invalid="ignore"):
                whole = value.astype(dtype)
            if np.array_equal(whole, value):
                restored[f"obs/{name}"] = whole
    return restored


def _check_names(episode: RecordedEpisode, spec: AgentSpec) -> None:
    if set(episode.obs) != set(spec.obs.names):
        expected, got = (", ".join(sorted(each)) or "none" for each in (spec.obs.names, episode.obs))
        raise FaultyRecordingError(f"expected the observations {expected}, got {got}")


def _check(found: Mapping[str, Array], spec: AgentSpec) -> None:
    """Raise FaultyRecordingError for an array that is not what the spec says."""
    length = len(found["reward"]) if found["reward"].ndim else 0
    if not length:
        raise FaultyRecordingError(f"expected at least one step, got {shown(found['reward'])}", "reward")
    expected = {
        f"obs/{name}": (np.dtype(dtype), (length + 1, *shape)) for name, shape, dtype in spec.obs.items()
    }
    action = spec.action
    expected["action_mask"] = np.dtype(np.bool_), (length + 1, action.discrete)
    expected["action"] = np.dtype(np.float32), (length, action.size)
    expected["reward"] = np.dtype(np.float32), (length,)
    expected["terminated"] = expected["truncated"] = np.dtype(np.bool_), (length,)
    for name, (dtype, shape) in expected.items():
        value = found[name]
        if value.dtype != dtype or value.shape != shape:
            raise FaultyRecordingError(f"expected {dtype} {list(shape)}, got {shown(value)}", name)
        if dtype.kind == "f" and not np.isfinite(value).all():
            raise FaultyRecordingError("it holds numbers that are not finite", name)
    _check_choices(found["action"], found["action_mask"][:-1], spec)
    for name, counts in zip(spec.obs.names, spec.obs.categories, strict=True):
        if not counts:
            continue
        value = found[f"obs/{name}"].reshape(length + 1, -1)
        if (value < 0).any() or (value >= np.array(counts)).any():  # type: ignore[operator]  # whole numbers
            raise FaultyRecordingError(f"expected choices among {list(counts)}, from 0 on", f"obs/{name}")
    for name in ("terminated", "truncated"):
        if found[name][:-1].any():
            raise FaultyRecordingError("it is true before the last step", name)


def _check_choices(action: Array, mask: Array, spec: AgentSpec) -> None:
    chosen, continuous = np.split(action, [spec.action.discrete], axis=1)
    for branch in spec.action.branch_slices:
        one = chosen[:, branch]
        if not (np.isin(one, (0, 1)).all() and (one.sum(1) == 1).all()):
            raise FaultyRecordingError(f"expected one choice among {one.shape[1]} in each step", "action")
    if (chosen.astype(np.bool_) & ~mask.astype(np.bool_)).any():
        raise FaultyRecordingError("a choice was taken that action_mask forbids", "action")
    if (np.abs(continuous) > 1.0 + _TOLERANCE).any():
        raise FaultyRecordingError("expected continuous actions in [-1, 1]", "action")
