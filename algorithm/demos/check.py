"""Recorded episodes, checked against an agent's observations and actions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from algorithm.core.data import Array, DemoEpisode, Float
from algorithm.core.spec import Z_LIMIT, AgentSpec
from algorithm.demos.episode import FaultyRecordingError, RecordedEpisode, layout, shown
from algorithm.env.config import without_team

_TOLERANCE = 1e-5  # of rounding, in continuous actions at their bounds


def fitted(episode: RecordedEpisode, spec: AgentSpec, behaviour: str = "") -> DemoEpisode:
    """Return the episode as an agent of this spec learns from it. behaviour: of the agent, for messages.

    Raises FaultyRecordingError, which names episode and array, if these do not fit the spec.
    """
    try:
        if episode.spec is not None and layout(episode.spec) != layout(spec):
            raise FaultyRecordingError(
                f"its spaces are {layout(episode.spec)}, and those of the agent {layout(spec)}"
            )
        episode = _by_position(episode, spec)
        _check_names(episode, spec)
        arrays = _checked(_arrays(episode), spec)
    except FaultyRecordingError as error:
        where = f"episode {episode.number}{f', {error.where}' if error.where else ''}"
        other = behaviour and without_team(behaviour) != without_team(episode.behaviour)
        named = f"; it is recorded as the behaviour {episode.behaviour!r}, not {behaviour!r}" if other else ""
        raise FaultyRecordingError(f"{error.why}{named}", where, error.fix) from error
    z, behaviour_logp = _recorded_policy(episode, spec)
    return DemoEpisode(
        obs={name: arrays[f"obs/{name}"] for name in spec.obs.names},
        action_mask=arrays["action_mask"],
        action=arrays["action"].clip(-1.0, 1.0),  # one-hots lie within, too
        reward=arrays["reward"],
        terminated=bool(arrays["terminated"][-1]),
        z=z,
        behaviour_logp=behaviour_logp,
    )


def _recorded_policy(episode: RecordedEpisode, spec: AgentSpec) -> tuple[Float | None, Float | None]:
    """Return z [L, A_c] and log-probabilities [L, H] of the recorded policy, or None for both.

    None if they do not fit the spec: other algorithms squash and record in other ways, which a file does not
    name. Their arrays have another shape, or their z does not belong to the action.
    """
    z, logp, length, action = episode.z, episode.behaviour_logp, len(episode.reward), spec.action
    if z is None or logp is None or z.dtype != np.float32 or logp.dtype != np.float32:
        return None, None
    if z.shape != (length, action.continuous) or logp.shape != (length, action.record_size):
        return None, None
    latent, recorded = z.astype(np.float32), logp.astype(np.float32)
    u = episode.action[:, action.discrete :].astype(np.float32)
    if action.squash == "tanh" and not (np.abs(latent) <= Z_LIMIT).all():
        return None, None
    fits = np.isfinite(recorded).all() and (np.abs(action.squashed(latent) - u) <= _TOLERANCE).all()
    above_one = (recorded[:, : len(action.branches) > 0] > _TOLERANCE).any()  # a probability
    return (latent, recorded) if fits and not above_one else (None, None)


def _arrays(episode: RecordedEpisode) -> dict[str, Array]:
    """Return all checked arrays of an episode by name."""
    return {
        **{f"obs/{name}": value for name, value in episode.obs.items()},
        "action_mask": episode.action_mask,
        "action": episode.action,
        "reward": episode.reward,
        "terminated": episode.terminated,
        "truncated": episode.truncated,
    }


def _by_position(episode: RecordedEpisode, spec: AgentSpec) -> RecordedEpisode:
    """Return the episode with the agent's names for sensors without a name, which files call ``sensor_2``."""
    if len(episode.obs) != len(spec.obs.names):
        return episode
    names = {
        theirs: ours
        for theirs, ours in zip(episode.obs, spec.obs.names, strict=True)
        if re.fullmatch(r"sensor_\d+", theirs) and ours not in episode.obs
    }
    return replace(episode, obs={names.get(name, name): value for name, value in episode.obs.items()})


def _check_names(episode: RecordedEpisode, spec: AgentSpec) -> None:
    """Raise FaultyRecordingError for other observations than the spec's."""
    if set(episode.obs) != set(spec.obs.names):
        expected, got = (", ".join(sorted(each)) or "none" for each in (spec.obs.names, episode.obs))
        raise FaultyRecordingError(f"expected the observations {expected}, got {got}")


def _checked(arrays: Mapping[str, Array], spec: AgentSpec) -> dict[str, Any]:
    """Return the arrays in the types of the spec. Raises FaultyRecordingError for one that does not fit."""
    length = len(arrays["reward"]) if arrays["reward"].ndim else 0
    if not length:
        raise FaultyRecordingError(
            f"expected at least one step, got {shown(arrays['reward'])}", "reward", "leave this episode out"
        )
    action = spec.action
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        f"obs/{name}": (dtype, (length + 1, *shape)) for name, shape, dtype in spec.obs.items()
    }
    expected["action_mask"] = np.bool_, (length + 1, action.discrete)
    expected["action"] = np.float32, (length, action.size)
    expected["reward"] = np.float32, (length,)
    expected["terminated"] = expected["truncated"] = np.bool_, (length,)
    if arrays["action_mask"].shape == (length + 1, 0):  # nothing was forbidden
        arrays = {**arrays, "action_mask": action.all_allowed(length + 1)}
    read: dict[str, Any] = {
        name: _converted(np.dtype(dtype), shape, arrays[name], name)
        for name, (dtype, shape) in expected.items()
    }
    _check_choices(read["action"], read["action_mask"][:-1], spec)
    for name, counts in zip(spec.obs.names, spec.obs.categories, strict=True):
        if not counts:
            continue
        value = read[f"obs/{name}"].reshape(length + 1, -1)
        if (value < 0).any() or (value >= np.array(counts)).any():
            raise FaultyRecordingError(
                f"expected choices among {list(counts)}, from 0 on",
                f"obs/{name}",
                "subtract the start of the space",
            )
    for name in ("terminated", "truncated"):
        if read[name][:-1].any():
            step = int(read[name].argmax()) + 1
            raise FaultyRecordingError(
                "it is true before the last step",
                name,
                f"split it into two episodes, the first with {step} steps",
            )
    return read


def _converted(dtype: np.dtype[Any], shape: tuple[int, ...], value: Array, name: str) -> Array:
    """Convert an array to a dtype. Raises FaultyRecordingError for another shape, or numbers that do not fit.

    Rounding is allowed for floats; NaN, infinity and changed integers are not. name: of the array
    """
    if value.shape != shape or value.dtype.kind not in "fiub":
        raise FaultyRecordingError(f"expected {dtype} {list(shape)}, got {shown(value)}", name)
    with np.errstate(all="ignore"):
        read: Array = value.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(read).all():
        row = int(np.argwhere(~np.isfinite(read))[0][0])
        raise FaultyRecordingError(
            "it holds numbers that are not finite", name, f"end the episode before row {row}, or leave it out"
        )
    if dtype.kind != "f" and not np.array_equal(read, value):
        raise FaultyRecordingError(
            f"expected {dtype}, got {shown(value)} with other numbers", name, f"write it as {dtype}"
        )
    return read


def _check_choices(action: Array, mask: Array, spec: AgentSpec) -> None:
    """Raise FaultyRecordingError for choices that are no one-hots or forbidden, and numbers beyond ±1."""
    chosen = action[:, : spec.action.discrete]
    for branch in spec.action.branch_slices:
        choice = chosen[:, branch]
        if not (np.isin(choice, (0, 1)).all() and (choice.sum(1) == 1).all()):
            raise FaultyRecordingError(
                f"expected one choice among {choice.shape[1]} in each step",
                "action",
                "write choices as one-hots",
            )
    if (chosen.astype(np.bool_) & ~mask.astype(np.bool_)).any():
        raise FaultyRecordingError(
            "an action was chosen that action_mask forbids", "action", "allow it, or leave action_mask out"
        )
    _check_numbers(action[:, spec.action.discrete :])


def _check_numbers(continuous: Array) -> None:
    """Raise FaultyRecordingError for continuous actions beyond ±1."""
    if (np.abs(continuous) > 1.0 + _TOLERANCE).any():
        raise FaultyRecordingError(
            f"expected continuous actions in [-1, 1], got {continuous.min():g} to {continuous.max():g}",
            "action",
            "scale them from the bounds of the space: -1 is its low, 1 its high",
        )
