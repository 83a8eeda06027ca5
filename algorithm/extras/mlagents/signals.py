"""Reward signals and behavioural cloning: the second part of the table."""

from __future__ import annotations

from functools import partial
from typing import Any

from algorithm.extras.mlagents.keys import NOTHING, Given, TrainerKey, positive, row, told, whole

_R, _B = "reward_signals", "behavioral_cloning"
_OWN_NETWORK = "the network has its default size"

number = partial(row, to=whole)


def _no_extrinsic(value: object, given: Given) -> object:
    """Return 0 where there are signals and not that of the environment."""
    return 0 if given.find(_R) and not given.find(f"{_R}.extrinsic") else NOTHING


def _demos(value: object, given: Given) -> Any:  # noqa: ANN401 - a path, or two
    """Return the recordings of all that learn from some."""
    found = [given[f"{block}.demo_path"] for block in (f"{_R}.gail", _B) if given.find(f"{block}.demo_path")]
    paths = list(dict.fromkeys(map(str, found)))
    return paths if len(paths) > 1 else paths[0]


def _per_window(value: object, given: Given) -> int:
    remembers = given.find("network_settings.memory") is not None
    length = given.number("network_settings.memory.sequence_length") if remembers else 1
    return max(1, int(positive(value) // length))


def _unused(signal: str, *own: str) -> list[TrainerKey]:
    """Return the keys of a signal's network that say nothing here."""
    names = ("normalize", "hidden_units", "num_layers", "vis_encode_type", "memory", "goal_conditioning_type")
    says = "has no network" if signal == "extrinsic" else _OWN_NETWORK
    return [
        told(f"{_R}.{signal}.network_settings.{name}", says)
        for name in (*names, "deterministic", "max_num_agents")
        if name not in own
    ]


SIGNALS: tuple[TrainerKey, ...] = (
    row("", "reward_signals.extrinsic.strength", to=_no_extrinsic, says="there is no extrinsic signal"),
    row(f"{_R}.extrinsic.strength", "reward_signals.extrinsic.strength", default=1.0),
    row(f"{_R}.extrinsic.gamma", "sac_config.gamma", default=0.99),
    *_unused("extrinsic"),
    row(
        f"{_R}.curiosity",
        "sac_config.curiosity",
        to=lambda value, given: "FORWARD",
        says="the error of a forward model",
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
        to=lambda value, given: False,
        says="as in ML-Agents",
    ),
    told(f"{_R}.curiosity.learning_rate", "uses the agent's learning rate"),
    told(f"{_R}.curiosity.encoding_size", _OWN_NETWORK),
    *_unused("curiosity"),
    row(f"{_R}.rnd.strength", "reward_signals.rnd.strength", default=1.0),
    row(f"{_R}.rnd.gamma", "reward_signals.rnd.gamma", default=0.99),
    row(f"{_R}.rnd", "reward_signals.rnd.ends", to=lambda value, given: False, says="as in ML-Agents"),
    row(f"{_R}.rnd.learning_rate", "reward_signals.rnd.learning_rate", default=1e-4),
    told(f"{_R}.rnd.encoding_size", _OWN_NETWORK),
    *_unused("rnd"),
    row(f"{_R}.gail.strength", "reward_signals.gail.strength", default=1.0),
    row(f"{_R}.gail.gamma", "reward_signals.gail.gamma", default=0.99),
    row(f"{_R}.gail.demo_path", "demonstrations.path", to=_demos),
    row(f"{_R}.gail.learning_rate", "reward_signals.gail.learning_rate", default=3e-4),
    row(f"{_R}.gail.use_actions", "reward_signals.gail.use_actions", default=False),
    row(f"{_R}.gail.use_vail", "reward_signals.gail.use_vail", default=False),
    number(f"{_R}.gail.encoding_size", "reward_signals.gail.dense_n"),
    number(f"{_R}.gail.network_settings.hidden_units", "reward_signals.gail.dense_n"),
    row(f"{_R}.gail.network_settings.num_layers", "reward_signals.gail.dense_depth"),
    told(f"{_R}.gail.samples_per_update", "as many as in the agent's batch"),
    *_unused("gail", "hidden_units", "num_layers"),
    row(f"{_B}.demo_path", "demonstrations.path", to=_demos),
    row(f"{_B}.strength", "behavioral_cloning.strength", default=1.0),
    row(f"{_B}.steps", "behavioral_cloning.steps"),
    row(
        f"{_B}.batch_size",
        "behavioral_cloning.batch_size",
        to=_per_window,
        says="batch_size / sequence_length",
    ),
    told(f"{_B}.num_epoch", "behavioral_cloning.updates sets steps per update of the agent"),
    told(f"{_B}.samples_per_update", "behavioral_cloning.updates sets steps per update of the agent"),
)
"""Keys of reward signals and cloning; the defaults of a block count where a file has the block."""
