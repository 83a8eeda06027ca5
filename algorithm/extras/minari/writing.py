"""Writing of episodes as data sets of Minari, in the spaces of the environment."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from algorithm.core.errors import UsageError
from algorithm.demos.episode import RecordedEpisode
from algorithm.demos.spaces import in_space
from algorithm.env.adapter import Adapter
from algorithm.env.masks import MASK
from algorithm.env.spaces import Space, leaves
from algorithm.extras.minari.reading import POLICY, library_for
from algorithm.keys.demonstrations import MINARI


class MinariWriter:
    """Writer of a data set, in the spaces of an environment; z and behaviour_logp are infos of ``policy``.

    The data set grows with each episode. :meth:`discard` removes it; a process that is killed leaves the
    episodes that it has written.

    env:         in its wrappers, never stepped here
    algorithm:   name of the algorithm that trained the policy
    description: of the data set
    Raises UsageError without Minari, for a taken or invalid id, and for spaces that Minari cannot store.
    """

    def __init__(self, name: str, env: gym.Env[Any, Any], *, algorithm: str, description: str) -> None:
        self.target = f"{MINARI}{name}"
        self._name, self._env = name, env
        self._metadata = {"algorithm_name": algorithm, "description": description}
        self._library = library_for(name)
        self._adapter = Adapter(env.observation_space, env.action_space, self.target)
        self._dataset: Any = None
        refuse_taken_dataset(name)
        self._refuse_keys()
        self._options = self._lossless()
        self._mask_space = self._observed_mask()

    def begin(self) -> None:
        """Create the data set, without episodes. Raises FileExistsError."""
        from minari.storage import get_dataset_path

        if get_dataset_path(self._name).exists():
            raise FileExistsError("a data set with this id exists")
        env = self._env if _is_serializable(self._env) else None
        spaces = {name: getattr(self._env, name) for name in ("observation_space", "action_space")}
        with _minari():
            self._dataset = self._library.create_dataset_from_buffers(
                self._name, [], env=env, **spaces, **self._metadata, **self._options
            )

    def write(self, episode: RecordedEpisode) -> None:
        """Append an episode."""
        from minari.data_collector import EpisodeBuffer

        assert self._dataset is not None, "begin comes first"
        buffer = EpisodeBuffer(
            observations=self._observations(episode),
            actions=self._adapter.actions.to_env(episode.action.astype(np.float32)),
            rewards=episode.reward.astype(np.float64),
            terminations=episode.terminated,
            truncations=episode.truncated,
            infos=self._infos(episode),
        )
        with _minari():
            self._dataset.update_dataset_from_buffer([buffer])

    def finish(self) -> None:
        """Keep the data set; it is complete."""
        self._dataset = None

    def discard(self) -> None:
        """Remove the data set."""
        dataset, self._dataset = self._dataset, None
        if dataset is not None:
            shutil.rmtree(dataset.storage.data_path.parent, ignore_errors=True)

    def _observations(self, episode: RecordedEpisode) -> Any:  # noqa: ANN401 - a space may hold anything
        """Return observations in the environment's space, with the mask if the space has one."""
        stored = in_space(self._adapter.obs_space, episode.obs)
        if self._mask_space is not None:
            shape = (len(episode.action_mask), *(self._mask_space.shape or ()))
            stored[MASK] = episode.action_mask.reshape(shape).astype(self._mask_space.dtype)
        return stored

    def _infos(self, episode: RecordedEpisode) -> dict[str, Any]:
        """Return infos: u, z and log-probabilities, and the mask if observations have none."""
        u = episode.action[:, self._adapter.spec.action.discrete :]
        columns = {"u": u, "z": episode.z, "behaviour_logp": episode.behaviour_logp}
        # An info belongs to an observation, and describes the action before it: at the reset there is none.
        kept = {name: np.pad(v, ((1, 0), (0, 0))) for name, v in columns.items() if v is not None and v.size}
        masked = self._mask_space is None and episode.action_mask.size
        return {POLICY: kept, **({MASK: episode.action_mask} if masked else {})}

    def _refuse_keys(self) -> None:
        """Raise UsageError for keys with a slash, which HDF5 takes for paths."""
        spaces = self._env.observation_space, self._env.action_space
        keys = [key for space in spaces for leaf in leaves(space, "", self.target) for key in leaf.path]
        if wrong := [key for key in keys if "/" in str(key)]:
            raise self._unable(f"the key {wrong[0]!r} of its Dict holds a /", "record to a FILE.npz")

    def _lossless(self) -> dict[str, bool]:
        """Return the option against JPEG, new in Minari 0.5.4. Raises UsageError if images need it."""
        option = "jpeg_encoding"
        if option in inspect.signature(self._library.create_dataset_from_buffers).parameters:
            return {option: False}
        obs = self._adapter.spec.obs
        images = [name for name, shape, kind in obs.items() if kind == "uint8" and len(shape) in (2, 3)]
        if images:
            raise self._unable(
                f"Minari {self._library.__version__} would write {', '.join(images)} as JPEG, not as it is",
                "install minari 0.5.4, for Python 3.11 or newer, or record to a FILE.npz",
            )
        return {}

    def _observed_mask(self) -> Space | None:
        """Return the space of the action mask among the observations; None without one. Raises UsageError."""
        space = self._env.observation_space
        if self._adapter.obs_space is space:
            return None
        assert isinstance(space, gym.spaces.Dict)
        mask = space.spaces[MASK]
        if mask.shape is None or int(np.prod(mask.shape)) != self._adapter.spec.action.discrete:
            raise self._unable(
                f"its {MASK} is {mask}, not one number for each choice", "record to a FILE.npz"
            )
        return mask

    def _unable(self, why: str, fix: str) -> UsageError:
        """Return the error of episodes that Minari cannot store."""
        return UsageError(
            "the episodes cannot be kept as a data set of Minari", where=self.target, why=why, fix=fix
        )


def refuse_taken_dataset(name: str) -> None:
    """Raise UsageError if there is a data set of that id."""
    library_for(name)
    from minari.storage import get_dataset_path

    if get_dataset_path(name).exists():
        raise UsageError(
            "a data set with this id exists and is not overwritten",
            where=f"{MINARI}{name}",
            why=f"it is in {get_dataset_path(name)}",
            fix="choose another name or version",
        )


def _is_serializable(env: gym.Env[Any, Any]) -> bool:
    """Return whether Gymnasium can store the spec of the environment as JSON."""
    if env.spec is None:
        return False
    try:
        EnvSpec.from_json(env.spec.to_json())
    except Exception:  # arguments or wrappers that are no plain values
        return False
    return True


@contextlib.contextmanager
def _minari() -> Iterator[None]:
    """Silence Minari's warnings on authors and links; raise HDF5's errors in writing as OSError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (RuntimeError, ValueError) as error:
            raise OSError(str(error)) from error
