"""Reading of Minari's data sets (0.5) on this machine. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from algorithm.core.errors import EnvError, UsageError, described
from algorithm.core.extras import needs
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.episode import FaultyRecordingError, Notify, RecordedEpisode, Wanted
from algorithm.env.adapter import Adapter
from algorithm.env.executed import flat_actions
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.spaces import Space
from algorithm.keys.demonstrations import MINARI


def read_minari(name: str, wanted: Wanted | None, notify: Notify) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a data set, as a :data:`algorithm.demos.episode.Reader` does those of a file.

    Observations, masks (also of infos) and actions become those of an agent in the data set's own spaces.
    Raises UsageError without Minari, and for a data set that is not on this machine.
    """
    dataset = _load(name)
    if wanted is not None:
        wanted.names_in([DEFAULT_BEHAVIOUR], notify)
    try:
        adapter = Adapter(dataset.observation_space, dataset.action_space, f"{MINARI}{name}")
    except EnvError as error:
        raise FaultyRecordingError(f"{error.what}: {error.where}") from error
    episodes = iter(dataset.iterate_episodes())
    for number in itertools.count():
        with _faulty_if_it_fails(f"episode {number}"):
            stored = next(episodes, None)
        if stored is None:
            return
        try:
            yield _episode(number, stored, adapter, dataset.action_space)
        except SpaceMismatchError as error:
            raise FaultyRecordingError(str(error), f"episode {number}") from error


def _load(name: str) -> Any:  # noqa: ANN401 - a minari.MinariDataset
    """Return a data set. Raises UsageError if there is none, FaultyRecordingError if it is damaged."""
    with needs("offline", "a data set of Minari", where=f"{MINARI}{name}"):
        import minari
    try:
        return minari.load_dataset(name, download=False)
    except FileNotFoundError as error:
        raise UsageError(
            "this machine has no such Minari data set",
            where=f"{MINARI}{name}",
            why=str(error).partition(". Use download")[0],
            fix=f"minari download {name}, if it is public; MINARI_DATASETS_PATH names the folder of all",
        ) from error
    except Exception as error:  # as above
        raise FaultyRecordingError(f"it is not a Minari data set: {described(error)}") from error


@contextlib.contextmanager
def _faulty_if_it_fails(where: str) -> Iterator[None]:
    """Turn any error, as libraries raise it for a damaged file, into FaultyRecordingError."""
    try:
        yield
    except FaultyRecordingError:
        raise
    except Exception as error:
        raise FaultyRecordingError(f"it cannot be read: {described(error)}", where) from error


def _episode(number: int, stored: Any, adapter: Adapter, actions: Space) -> RecordedEpisode:  # noqa: ANN401
    """Return an episode of a data set in our form. Raises SpaceMismatchError."""
    reward, terminated, truncated = (
        np.asarray(each) for each in (stored.rewards, stored.terminations, stored.truncations)
    )
    if reward.ndim != 1 or reward.dtype.kind not in "fiu":
        raise SpaceMismatchError(
            f"expected one reward for each step, got {reward.dtype} {list(reward.shape)}"
        )
    length, infos = len(reward), stored.infos or {}
    over = np.zeros(length + 1, np.bool_)
    over[-1] = bool(terminated[-1:].any())
    mask = (
        adapter.masks.read_batch(stored.observations, infos, over) if adapter.spec.action.branches else None
    )
    return RecordedEpisode(
        number=number,
        behaviour=DEFAULT_BEHAVIOUR,
        agent=0,
        obs=adapter.observations.read_batch(stored.observations, length + 1),
        action_mask=adapter.spec.action.all_allowed(length + 1) if mask is None else mask,
        action=flat_actions(actions, stored.actions, length),
        reward=reward.astype(np.float32),
        terminated=terminated.astype(np.bool_),
        truncated=truncated.astype(np.bool_),
        spec=adapter.spec,
    )
