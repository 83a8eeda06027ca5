"""A second environment like one that is there, for evaluations."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from gymnasium.utils.env_checker import data_equivalence

from algorithm.core.errors import UsageError, described
from algorithm.env.pool.process_exit import exits_as_errors

_TRIED = 3  # steps by which a copy is compared with its original


def second(env: Any, make: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - an environment or a vector of them
    """Return another environment like this one, which shares nothing with it.

    That is a deep copy or, where there can be none, what Gymnasium makes of ``env.spec``.
    Raises UsageError where neither can be had.
    """
    try:
        with exits_as_errors():
            copy = deepcopy(env)
            if not _shared(env, copy):
                return copy
        why = "a deep copy shares its simulator: steps of one move the other"
    except Exception as error:
        why = f"a deep copy cannot be made: {described(error)}"
    if env.spec is not None:
        try:
            with exits_as_errors():
                return make(env.spec)
        except Exception as error:
            why += f"; and from its spec: {described(error)}"
    raise UsageError(
        "evaluations need a second environment, and there is one",
        where=f"{env!r:.80}",
        why=why,
        fix="hand in its class or a function that makes it, or a second one: eval_env=…",
    )


def _shared(env: Any, copy: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether steps of the copy move the original, as far as its seed decides what it does."""
    space = deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(_TRIED)]

    def played(disturbed: bool) -> list[object]:
        seen = [env.reset(seed=0)[0]]
        if disturbed:
            copy.reset(seed=1)
            copy.step(actions[0])
        seen += [env.step(action)[:4] for action in actions]
        return deepcopy(seen)

    try:
        alone, again, beside = map(played, (False, False, True))
    except Exception:  # a training says what is wrong with it
        return False
    return data_equivalence(alone, again) and not data_equivalence(alone, beside)
