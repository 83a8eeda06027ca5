"""Training and acting from Python.

>>> import asac
>>> run = asac.train("CartPole-v1", max_step=10_000)
>>> action, state = asac.load(run).act(observation)

The names are imported when they are first used: torch takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.core.lazy import lazy

if TYPE_CHECKING:
    from algorithm.app.agent import LearningAgent as Agent
    from algorithm.app.api import check, from_mlagents, load, make_env, train
    from algorithm.app.policy import TrainedPolicy as Policy
    from algorithm.app.run import Run
    from algorithm.config.errors import ConfigError
    from algorithm.core.errors import EnvError, ModelError, NumericalError, StorageError, UsageError
    from algorithm.env.outputs import SpaceMismatchError
    from algorithm.run.callbacks import Callback, CallbackError, Training

    __version__: str

_PLACES = {
    "train": "algorithm.app.api:train",
    "Agent": "algorithm.app.agent:LearningAgent",
    "Run": "algorithm.app.run:Run",
    "load": "algorithm.app.api:load",
    "Policy": "algorithm.app.policy:TrainedPolicy",
    "make_env": "algorithm.app.api:make_env",
    "check": "algorithm.app.api:check",
    "from_mlagents": "algorithm.app.api:from_mlagents",
    "Callback": "algorithm.run.callbacks:Callback",
    "CallbackError": "algorithm.run.callbacks:CallbackError",
    "Training": "algorithm.run.callbacks:Training",
    "ConfigError": "algorithm.config.errors:ConfigError",
    "EnvError": "algorithm.core.errors:EnvError",
    "ModelError": "algorithm.core.errors:ModelError",
    "NumericalError": "algorithm.core.errors:NumericalError",
    "SpaceMismatchError": "algorithm.env.outputs:SpaceMismatchError",
    "StorageError": "algorithm.core.errors:StorageError",
    "UsageError": "algorithm.core.errors:UsageError",
    "__version__": "algorithm.core.program:VERSION",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _PLACES)

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
