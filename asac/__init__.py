"""Training and acting from Python.

>>> import asac
>>> run = asac.train("CartPole-v1", max_step=10_000)
>>> action, state = asac.load(run).act(observation)

The names are imported when they are first used: torch takes seconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithm.app.agent import HeldAgent as Agent
    from algorithm.app.api import check, load, make_env, train
    from algorithm.app.policy import TrainedPolicy as Policy
    from algorithm.app.run import Run
    from algorithm.app.translation import from_mlagents
    from algorithm.config.errors import ConfigError
    from algorithm.core.errors import EnvError, ModelError, NumericalError, StorageError, UsageError
    from algorithm.env.outputs import SpaceMismatchError
    from algorithm.train.callbacks import Callback, CallbackError, Training

    __version__: str

_PLACES = {
    "train": "app.api:train",
    "Agent": "app.agent:HeldAgent",
    "Run": "app.run:Run",
    "load": "app.api:load",
    "Policy": "app.policy:TrainedPolicy",
    "make_env": "app.api:make_env",
    "check": "app.api:check",
    "from_mlagents": "app.translation:from_mlagents",
    "Callback": "train.callbacks:Callback",
    "CallbackError": "train.callbacks:CallbackError",
    "Training": "train.callbacks:Training",
    "ConfigError": "config.errors:ConfigError",
    "EnvError": "core.errors:EnvError",
    "ModelError": "core.errors:ModelError",
    "NumericalError": "core.errors:NumericalError",
    "SpaceMismatchError": "env.outputs:SpaceMismatchError",
    "StorageError": "core.errors:StorageError",
    "UsageError": "core.errors:UsageError",
    "__version__": "core.program:VERSION",
}

__all__ = [
    "Agent",
    "Callback",
    "CallbackError",
    "ConfigError",
    "EnvError",
    "ModelError",
    "NumericalError",
    "Policy",
    "Run",
    "SpaceMismatchError",
    "StorageError",
    "Training",
    "UsageError",
    "__version__",
    "check",
    "from_mlagents",
    "load",
    "make_env",
    "train",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"algorithm.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
