"""Data sets of Minari (0.5) on this machine. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from algorithm.core.data import Array, Float
from algorithm.core.errors import EnvError, UsageError, described
from algorithm.core.extras import needs
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.episode import FaultyRecordingError, Notify, RecordedEpisode, Wanted
from algorithm.demos.spaces import flat_actions
from algorithm.env.gym import Adapter
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.spaces import Space
from algorithm.keys.demonstrations import MINARI

POLICY = "policy"
"""Key of an info: what the policy says of the action before it, its u, z and behaviour_logp."""


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
        with _damage(f"episode {number}"):
            found = next(episodes, None)
        if found is None:
            return
        try:
            yield _episode(number, found, adapter, dataset.action_space)
        except SpaceMismatchError as error:
            raise FaultyRecordingError(str(error), f"episode {number}") from error


def library_for(name: str) -> Any:  # noqa: ANN401 - it need not be installed
    """Return the package; name: of the data set that needs it. Raises UsageError without it."""
    with needs("offline", "a data set of Minari", where=f"{MINARI}{name}"):
        import minari
    return minari


def _load(name: str) -> Any:  # noqa: ANN401 - a minari.MinariDataset
    library = library_for(name)
    try:
        return library.load_dataset(name, download=False)
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
def _damage(where: str) -> Iterator[None]:
    """Raise whatever libraries make of a damaged file as FaultyRecordingError."""
    try:
        yield
    except FaultyRecordingError:
        raise
    except Exception as error:
        raise FaultyRecordingError(f"it cannot be read: {described(error)}", where) from error


def _episode(number: int, found: Any, adapter: Adapter, actions: Space) -> RecordedEpisode:  # noqa: ANN401
    reward, terminated, truncated = (
        np.asarray(each) for each in (found.rewards, found.terminations, found.truncations)
    )
    if reward.ndim != 1 or reward.dtype.kind not in "fiu":
        raise SpaceMismatchError(
            f"expected one reward for each step, got {reward.dtype} {list(reward.shape)}"
        )
    length, infos = len(reward), found.infos or {}
    over = np.zeros(length + 1, np.bool_)
    over[-1] = bool(terminated[-1:].any())
    mask = adapter.masks.read_batch(found.observations, infos, over) if adapter.spec.action.branches else None
    own = _of_policy(infos, length)
    return RecordedEpisode(
        number=number,
        behaviour=DEFAULT_BEHAVIOUR,
        agent=0,
        obs=adapter.observations.read_batch(found.observations, length + 1),
        action_mask=adapter.spec.action.all_allowed(length + 1) if mask is None else mask,
        action=_action(found, adapter, actions, own.pop("u", None)),
        reward=reward.astype(np.float32),
        terminated=terminated.astype(np.bool_),
        truncated=truncated.astype(np.bool_),
        **own,
        spec=adapter.spec,
    )


def _action(found: Any, adapter: Adapter, space: Space, u: Array | None) -> Float:  # noqa: ANN401
    """Return the flat actions, [L, A]. u: that the actions were made of, which have rounded it."""
    done = flat_actions(space, found.actions, len(found.rewards))
    exact, discrete = done.copy(), adapter.spec.action.discrete
    if u is None or u.shape != done[:, discrete:].shape:
        return done
    exact[:, discrete:] = u
    same = np.array_equal(flat_actions(space, adapter.actions.to_env(exact), len(done)), done)
    return exact if same else done


def _of_policy(infos: Mapping[str, Any], length: int) -> dict[str, Array]:
    """Return u, z and behaviour_logp of a data set that was recorded here."""
    own = infos.get(POLICY)
    found = own if isinstance(own, Mapping) else {}
    return {
        name: found[name][1:]
        for name in ("u", "z", "behaviour_logp")
        if getattr(found.get(name), "shape", ())[:1] == (length + 1,)
    }
