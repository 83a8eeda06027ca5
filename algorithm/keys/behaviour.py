"""A behaviour's configuration, as far as agents read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithm.core.fields import Block

if TYPE_CHECKING:
    from algorithm.keys.base import BaseConfig
    from algorithm.keys.demonstrations import DemoConfig
    from algorithm.keys.run import RunConfig
    from algorithm.keys.signals import BehavioralCloning, NnConfig, RewardSignals
    from algorithm.replay.config import ReplayConfig


class BehaviourConfig(Block):
    """Blocks of a behaviour's configuration that every algorithm reads; each has its own block besides."""

    if TYPE_CHECKING:  # `algorithm.config.schema.Config` declares the keys, in the order of the listing
        algorithm: str
        algorithm_args: dict[str, Any]
        base_config: BaseConfig
        nn_config: NnConfig
        replay_config: ReplayConfig
        reward_signals: RewardSignals
        demonstrations: DemoConfig
        behavioral_cloning: BehavioralCloning

        @property
        def run(self) -> RunConfig:
            """The shared keys, which every algorithm has."""


def idle(config: BehaviourConfig) -> list[str]:
    """Return a line for each key that is set and has no effect, whatever the algorithm."""
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
