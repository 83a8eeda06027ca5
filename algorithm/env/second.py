"""A second environment like an existing one, for evaluations."""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from copyreg import dispatch_table
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import gymnasium as gym
from gymnasium.utils.env_checker import data_equivalence

from algorithm.core.errors import UsageError, described
from algorithm.env.pool.process_exit import exits_as_errors

_T = TypeVar("_T")

_TRIED = 3  # steps by which another environment is compared with the original
_IN_MEMORY = (io.BytesIO, io.StringIO)
_SHARED = (str, bytes, int, float, complex, type, FunctionType, BuiltinFunctionType, property, weakref.ref)
"""Types of which a deep copy holds the original's own objects."""


def another_env(env: Any, make: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - an environment or a vector of them
    """Return another environment like this one, which shares nothing with it and plays the same episodes.

    ``make`` of Gymnasium gets it from ``env.spec``. If that differs or is missing, it is a deep copy.
    Raises UsageError if neither is possible; the environment stays usable.
    """
    ways: dict[str, Callable[[], Any]] = {"a deep copy": partial(deep_copy, env)}
    single = isinstance(env, gym.Env)
    # The spec of a vector environment says nothing of the wrappers around it.
    if env.spec is not None and (single or env is env.unwrapped):
        ways = {"another of its spec": partial(make, env.spec), **ways}
    why = []
    for way, make_other in ways.items():
        try:
            with exits_as_errors():
                other = make_other()
        except Exception as error:
            why.append(f"{way} cannot be made: {described(error)}")
            continue
        fault = _conflict(env, other)
        if not fault:
            return other
        why.append(f"{way} {fault}")
    raise UsageError(
        "evaluations need a second environment, and there is only one",
        where=f"{env!r:.80}",
        why="; ".join(why),
        fix=f"{'pass its class or a function that makes it, or' if single else 'pass'} a second one: "
        "eval_env=…",
    )


def deep_copy(env: _T) -> _T:
    """Return a deep copy. Raises whatever copying raises, and TypeError if a copy could harm the original.

    An object with a finalizer may hold a handle of the operating system: a copied connection has the number
    of the same pipe, and closes it when it is removed.
    """
    passed: dict[int, object] = {}  # they are kept, for no two to have the same id
    waiting: list[object] = [env]
    while waiting:
        part = waiting.pop()
        if id(part) in passed or isinstance(part, _SHARED):
            continue
        passed[id(part)], kind = part, type(part)
        if hasattr(kind, "__del__") and not isinstance(part, _IN_MEMORY):
            name = f"{kind.__module__}.{kind.__qualname__}"
            raise TypeError(f"a {name} within has something open, which its copy would close")
        waiting += _parts(part)
    return deepcopy(env)


def _parts(whole: Any) -> Iterator[object]:  # noqa: ANN401 - any part of an environment
    """Yield the objects that a deep copy of an object would copy. Raises TypeError if it cannot be copied."""
    kind = type(whole)
    if kind is dict:
        yield from (*whole, *whole.values())
    elif kind in (list, tuple, set, frozenset):
        yield from whole
    elif not hasattr(kind, "__deepcopy__"):
        reduce = dispatch_table.get(kind)
        reduced = reduce(whole) if reduce else whole.__reduce_ex__(4)
        if isinstance(reduced, tuple):  # else the name of a global
            yield from reduced[1:3]  # arguments and state
            for items in reduced[3:5]:
                yield from items or ()


def _conflict(env: Any, other: Any) -> str:  # noqa: ANN401 - as above
    """Return, as a verb phrase, why another environment cannot be used beside this one; play three steps.

    It may fail, share the simulator, so that its steps move this one, or play other episodes. Empty if it
    does none of these, and if that cannot be judged: a step of ``env`` raises, or it does not repeat itself
    after a reset with the same seed. Both are left in the middle of an episode.
    """
    space = deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(_TRIED)]
    try:
        first, repeated = _played(env, actions), _played(env, actions)
    except Exception:  # a training reports the fault
        return ""
    if not data_equivalence(first, repeated):
        return ""
    try:
        interleaved, elsewhere = _played(env, actions, beside=other), _played(other, actions)
    except Exception as error:
        return f"fails beside it: {described(error)}"
    if not data_equivalence(first, interleaved):
        return "shares its simulator: steps of one move the other"
    return "" if data_equivalence(first, elsewhere) else "plays other episodes"


def _played(env: Any, actions: Sequence[Any], beside: Any = None) -> list[object]:  # noqa: ANN401 - as above
    """Return the results of actions after a reset with seed 0. beside: takes a step in between."""
    seen = [env.reset(seed=0)[0]]
    if beside is not None:
        beside.reset(seed=1)
        beside.step(actions[0])
    seen += [env.step(action)[:4] for action in actions]
    return deepcopy(seen)
