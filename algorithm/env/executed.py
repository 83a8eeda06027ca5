"""Actions of a space as flat ones, and those that were executed in place of the policy's.

Where a person or a safety layer overrides an action, the environment reports in the info of the step what it
has really done, as gym-hil, lerobot and HIL-SERL (arXiv 2410.21845) do. That is what is stored and learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from algorithm.core.steps import Array, Bool, Float
from algorithm.env.actions import branches
from algorithm.env.base import Executed
from algorithm.env.config import InterventionKeys
from algorithm.env.outputs import Batched, SpaceMismatchError, as_bool, info_of, observation_of
from algorithm.env.spaces import Leaf, Space, leaves
from algorithm.env.wrappers import wrappers_around

_ROUNDING = 1e-5
"""Distance from ±1 that an executed action may have by rounding."""


_NAMES = "base_config.interventions names these infos"


def reported_action(info: Mapping[str, Any], keys: InterventionKeys) -> tuple[str | None, bool | None]:
    """Return the key of the executed action in an info, and whether a person acted; None: not reported.

    Without a flag, a person acted where a person's action is there.
    """
    flag = info.get(keys.flag)
    of_person = next((name for name in keys.actions if info.get(name) is not None), None)
    by_person = as_bool(flag, f"info[{keys.flag!r}]") if flag is not None else True if of_person else None
    if info.get(keys.executed) is not None:
        return keys.executed, by_person
    return of_person if by_person else None, by_person


_KEYS = "intervention_keys"


def share_keys(env: gym.Env[Any, Any], keys: InterventionKeys) -> None:
    """Set ``intervention_keys`` in the environment and its wrappers, where their class has such keys.

    They then report an executed action under the keys by which it is read.
    """
    for layer in (*wrappers_around(env), env.unwrapped):
        if isinstance(getattr(type(layer), _KEYS, None), InterventionKeys):
            setattr(layer, _KEYS, keys)


class ExecutedActions:
    """Reader of the actions that an environment has really executed.

    space: of the actions
    keys:  names of the infos
    """

    def __init__(self, space: Space, keys: InterventionKeys) -> None:
        self._space, self._keys = space, keys
        self._names = {keys.flag, keys.executed, *keys.actions}

    def read(
        self,
        info: Mapping[str, Any],
        sent: Any,  # noqa: ANN401 - a space may hold anything
    ) -> tuple[Float | None, bool | None]:
        """Return the flat action [A] executed in place of the action ``sent``, and whether a person acted.

        No action where the one that was sent was executed; no answer where nothing is reported of a person. A
        person's action counts as another one also where it is the same: the policy has not drawn it.
        Raises SpaceMismatchError for an action outside of the space, and for a flag without an action.
        """
        keys = self._keys
        key, by_person = reported_action(info, keys)
        if key is None:
            if by_person:
                raise SpaceMismatchError(
                    f"info[{keys.flag!r}] is true, and the action that was executed is missing: it has to be "
                    f"one of {', '.join((keys.executed, *keys.actions))}"
                )
            return None, by_person
        action = self._flat(info[key], f"info[{key!r}]")
        if by_person or not self._same(action, sent):
            return action, by_person
        return None, by_person

    def read_batch(
        self,
        sources: Sequence[tuple[Batched, Bool]],
        sent: Batched,
        requested: Float,
    ) -> tuple[Executed | None, Bool | None]:
        """Return the actions that N environments executed in place of those ``sent``, as :meth:`read`.

        sources: infos as vector classes have them, with the environments [N] that they are read of
        requested: [N, A] the flat actions
        """
        reporting = [(infos, rows) for infos, rows in sources if not self._names.isdisjoint(infos)]
        if not reporting:
            return None, None
        executed = requested.copy()
        replaced, by_person = np.zeros((2, len(requested)), np.bool_)
        reported = False
        for infos, rows in reporting:
            named = {name: infos[name] for name in infos if name.removeprefix("_") in self._names}
            for i in np.flatnonzero(rows).tolist():
                action, acted = self.read(info_of(named, i), observation_of(sent, i))
                reported, by_person[i] = reported or acted is not None, bool(acted)
                if action is not None:
                    executed[i], replaced[i] = action, True
        replacement = Executed(executed, replaced, by_person) if replaced.any() else None
        return replacement, by_person if reported else None

    def _same(self, action: Float, sent: Any) -> bool:  # noqa: ANN401 - a space may hold anything
        """Return whether a flat action is the one that was sent, but for rounding."""
        return np.allclose(action, self._flat(sent, "the action"), rtol=0.0, atol=_ROUNDING)

    def _flat(self, action: Any, what: str) -> Float:  # noqa: ANN401 - a space may hold anything
        """Return an action of the space as a flat one [A]; ``what`` names it in errors."""
        try:
            flat = flat_actions(self._space, action)[0]
        except SpaceMismatchError as error:
            raise SpaceMismatchError(f"{what} is no action of {self._space}: {error}; {_NAMES}") from error
        if not np.abs(flat).max() <= 1.0 + _ROUNDING:  # also NaN
            raise SpaceMismatchError(f"{what} is {action!r:.80}, outside of {self._space}; {_NAMES}")
        clipped: Float = flat.clip(-1.0, 1.0)
        return clipped


def flat_actions(space: Space, actions: Any, *lead: int) -> Float:  # noqa: ANN401 - a space may hold anything
    """Convert n actions of a space, stored leaf by leaf [n, ...], to flat ones [n, A].

    lead: n; without it ``actions`` is a single action, and the result [1, A]
    A number beyond the bounds of a Box stays beyond ±1. Raises SpaceMismatchError for a wrong structure,
    shape or type, and for a value that is no choice; EnvError for an unsupported space.
    """
    one_hots: list[Array] = []
    numbers: list[Array] = []
    for leaf in leaves(space, "action", "the environment"):
        value = _values(leaf, actions, lead)
        if isinstance(leaf.space, gym.spaces.Box):
            numbers.append(_scaled(leaf.space, value))
        else:
            one_hots += _one_hots(leaf, value)
    return np.concatenate([*one_hots, *numbers], axis=1, dtype=np.float32, casting="unsafe")


def _values(leaf: Leaf, actions: Any, lead: tuple[int, ...]) -> NDArray[Any]:  # noqa: ANN401 - as above
    """Return the numbers of a leaf, [n, size]."""
    name, value = _shown(leaf), actions
    try:
        for key in leaf.path:
            value = value[key]
        array = np.asarray(value)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SpaceMismatchError(f"{name} is missing, or is not an array: {error}") from error
    expected = (*lead, *(leaf.space.shape or ()))
    if array.shape != expected or array.dtype.kind not in "fiub":
        raise SpaceMismatchError(f"{name} is {array.dtype} {list(array.shape)}, not numbers {list(expected)}")
    return array.reshape(*(lead or (1,)), -1)


def _scaled(box: gym.spaces.Box, value: NDArray[Any]) -> NDArray[np.float64]:
    """Map values of a Box to u, ±1 at its bounds, without clipping; 0 where the bounds are equal.

    Raises SpaceMismatchError if a bound is not finite.
    """
    low, high = (
        end.ravel() if end.dtype.kind == "f" else end.ravel().astype(np.float64)
        for end in (box.low, box.high)
    )
    centre, half = ((high / 2 + sign * (low / 2)).astype(np.float64) for sign in (1, -1))
    if not (np.isfinite(half).all() and np.isfinite(centre).all()):
        raise SpaceMismatchError(f"the action {box} has no finite bounds")
    shifted = value.astype(np.float64) - centre
    return np.divide(shifted, half, out=np.zeros_like(shifted), where=half > 0)


def _one_hots(leaf: Leaf, value: NDArray[Any]) -> Iterator[Float]:
    """Yield the one-hots of each branch, [n, choices]."""
    for column, (count, start) in zip(value.T, zip(*branches(leaf.space), strict=True), strict=True):
        known = np.arange(start, start + count)
        hot = column[:, None] == known
        if not hot.any(1).all():
            wrong = column[~hot.any(1)][0]
            raise SpaceMismatchError(f"{_shown(leaf)} holds {wrong}, its space has {start} to {known[-1]}")
        yield hot.astype(np.float32)


def _shown(leaf: Leaf) -> str:
    """Return the name of an action, for messages."""
    return f"action {leaf.name!r}" if leaf.name else "the action"
