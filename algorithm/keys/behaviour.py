"""A behaviour's configuration, as agents see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from algorithm.keys.demonstrations import DemoConfig
from algorithm.keys.run import RunConfig
from algorithm.keys.signals import BehavioralCloning, NnConfig, RewardSignals
from algorithm.replay.config import ReplayConfig


class BaseKeys(Protocol):
    """Length and size of a run."""

    @property
    def max_step(self) -> int:
        """Steps of all agents; −1 for no end."""

    @property
    def n_envs(self) -> int:
        """Environments side by side."""

    @property
    def reward_scale(self) -> float:
        """Factor on the environment's rewards."""

    @property
    def update_sac_bak_per_step(self) -> int:
        """Updates between two versions of the weights for actors."""


class BehaviourConfig(Protocol):
    """A behaviour's configuration, as far as a family reads it; a family has a block of its own besides."""

    @property
    def algorithm(self) -> str:
        """Name of the family."""

    @property
    def algorithm_args(self) -> Mapping[str, Any]:
        """Keys of its own, as :meth:`~algorithm.agents.base.Family.keys_of` checks them."""

    @property
    def base_config(self) -> BaseKeys:
        """Length and size of the run."""

    @property
    def run(self) -> RunConfig:
        """Keys that every algorithm has."""

    @property
    def nn_config(self) -> NnConfig:
        """Arguments of the networks."""

    @property
    def demonstrations(self) -> DemoConfig:
        """Episodes to learn from."""

    @property
    def reward_signals(self) -> RewardSignals:
        """Reward signals."""

    @property
    def behavioral_cloning(self) -> BehavioralCloning:
        """Cloning of demonstrated actions."""

    @property
    def replay_config(self) -> ReplayConfig:
        """The replay buffer."""


def idle(config: BehaviourConfig) -> list[str]:
    """Return a line for each key, whatever the family, that is set and has no effect."""
    shown, run = config.demonstrations, config.run
    used = config.reward_signals.gail.strength or config.behavioral_cloning.strength or shown.learned_from
    falls = run.learning_rate_schedule != "constant"
    table = (
        (
            falls and config.base_config.max_step < 0,
            "sac_config.learning_rate_schedule has no effect: base_config.max_step sets no end",
        ),
        *(
            (
                getattr(run, key) > 0 and not falls,
                f"sac_config.{key} has no effect: learning_rate_schedule is constant",
            )
            for key in ("learning_rate_hold", "learning_rate_end")
        ),
        (
            shown.offline and config.base_config.n_envs > 1,
            "base_config.n_envs has no effect: no environment is stepped (demonstrations.offline)",
        ),
        (
            shown.path is not None and not used,
            "demonstrations.path has no effect: the strengths of GAIL and behavioral_cloning are 0, and "
            "share, pretrain and offline are off",
        ),
    )
    return [text for holds, text in table if holds]
