"""Keys of reward signals and behavioural cloning: the second part of the table."""

from __future__ import annotations

from functools import partial
from typing import Any

from algorithm.extras.mlagents.keys import (
    NOTHING,
    TrainerKey,
    TrainerSettings,
    absent,
    row,
    whole,
    windows,
)

_R, _B = "reward_signals", "behavioral_cloning"
_OWN_NETWORK = "the network has its default size"

number = partial(row, to=whole)


def _no_extrinsic(value: object, settings: TrainerSettings) -> object:
    """Return 0, the strength of the extrinsic signal, if the file has other signals only."""
    return 0 if settings.find(_R) and not settings.find(f"{_R}.extrinsic") else NOTHING


def _demos(value: object, settings: TrainerSettings) -> Any:  # noqa: ANN401 - a path, or two
    """Return the paths of the recordings for GAIL and cloning; a single one as text."""
    written = [
        settings[f"{block}.demo_path"] for block in (f"{_R}.gail", _B) if settings.find(f"{block}.demo_path")
    ]
    paths = list(dict.fromkeys(map(str, written)))
    return paths if len(paths) > 1 else paths[0]


def _unused(signal: str, *used: str) -> list[TrainerKey]:
    """Return rows for the keys of a reward signal's ``network_settings`` that have no counterpart here.

    used: keys without a row, as they have a counterpart
    """
    names = ("normalize", "hidden_units", "num_layers", "vis_encode_type", "memory", "goal_conditioning_type")
    why = "has no network" if signal == "extrinsic" else _OWN_NETWORK
    return [
        absent(f"{_R}.{signal}.network_settings.{name}", why)
        for name in (*names, "deterministic", "max_num_agents")
        if name not in used
    ]


SIGNALS: tuple[TrainerKey, ...] = (
    row("", "reward_signals.extrinsic.strength", to=_no_extrinsic, remark="there is no extrinsic signal"),
    row(f"{_R}.extrinsic.strength", "reward_signals.extrinsic.strength", default=1.0),
    row(f"{_R}.extrinsic.gamma", "sac_config.gamma", default=0.99),
    *_unused("extrinsic"),
    row(
        f"{_R}.curiosity",
        "sac_config.curiosity",
        to=lambda value, settings: "FORWARD",
        remark="the error of a forward model",
    ),
    row(
        f"{_R}.curiosity.strength",
        "sac_config.curiosity_strength",
        default=1.0,
        means="the error is divided by its standard deviation",
    ),
    row(f"{_R}.curiosity.gamma", "reward_signals.curiosity.gamma", default=0.99),
    row(
        f"{_R}.curiosity",
        "reward_signals.curiosity.ends",
        to=lambda value, settings: False,
        remark="as in ML-Agents",
    ),
    absent(f"{_R}.curiosity.learning_rate", "uses the agent's learning rate"),
    absent(f"{_R}.curiosity.encoding_size", _OWN_NETWORK),
    *_unused("curiosity"),
    row(f"{_R}.rnd.strength", "reward_signals.rnd.strength", default=1.0),
    row(f"{_R}.rnd.gamma", "reward_signals.rnd.gamma", default=0.99),
    row(f"{_R}.rnd", "reward_signals.rnd.ends", to=lambda value, settings: False, remark="as in ML-Agents"),
    row(f"{_R}.rnd.learning_rate", "reward_signals.rnd.learning_rate", default=1e-4),
    absent(f"{_R}.rnd.encoding_size", _OWN_NETWORK),
    *_unused("rnd"),
    row(f"{_R}.gail.strength", "reward_signals.gail.strength", default=1.0),
    row(f"{_R}.gail.gamma", "reward_signals.gail.gamma", default=0.99),
    row(f"{_R}.gail.demo_path", "demonstrations.path", to=_demos),
    row(f"{_R}.gail.learning_rate", "reward_signals.gail.learning_rate", default=3e-4),
    row(f"{_R}.gail.use_actions", "reward_signals.gail.use_actions", default=False),
    absent(f"{_R}.gail.use_vail", "the discriminator has no bottleneck"),
    number(f"{_R}.gail.encoding_size", "reward_signals.gail.dense_n"),
    number(f"{_R}.gail.network_settings.hidden_units", "reward_signals.gail.dense_n"),
    row(f"{_R}.gail.network_settings.num_layers", "reward_signals.gail.dense_depth"),
    absent(f"{_R}.gail.samples_per_update", "as many as in the agent's batch"),
    *_unused("gail", "hidden_units", "num_layers"),
    row(f"{_B}.demo_path", "demonstrations.path", to=_demos),
    row(f"{_B}.strength", "behavioral_cloning.strength", default=1.0),
    row(f"{_B}.steps", "behavioral_cloning.steps"),
    row(
        f"{_B}.batch_size",
        "behavioral_cloning.batch_size",
        to=windows,
        remark="batch_size / sequence_length",
    ),
    absent(f"{_B}.num_epoch", "behavioral_cloning.updates sets steps per update of the agent"),
    absent(f"{_B}.samples_per_update", "behavioral_cloning.updates sets steps per update of the agent"),
)
"""Keys of reward signals and cloning; the defaults of a block count where a file has the block."""
