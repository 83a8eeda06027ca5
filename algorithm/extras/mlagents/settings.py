"""Settings of players, engine and checkpoints: the third part of the table."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from algorithm.config.yaml_io import parse_value
from algorithm.extras.mlagents.keys import FIRST, NOTHING, Given, TrainerKey, row, told, whole

_E, _G, _C = "env_settings", "engine_settings", "checkpoint_settings"
_U = "base_config.unity_args"
_FLAG = "use the flag"
_ENDLESS = 1_000_000

once = partial(row, run=FIRST)


def _seed(value: object, given: Given) -> object:
    return NOTHING if value in (-1, "-1") else value


def arguments_of(value: Any, given: Given | None = None) -> dict[str, Any]:  # noqa: ANN401 - as written
    """Return the words of a build's command line as names and values. Raises ValueError."""
    found: dict[str, list[Any]] = {}
    for word in map(str, value if isinstance(value, list) else str(value).split()):
        if re.match(r"-+[A-Za-z]", word):
            found[word.removeprefix("--")] = values = []
        elif found:
            values.append(parse_value(word))
        else:
            raise ValueError("a list that starts with a name such as --level")
    return {name: True if not own else own[0] if len(own) == 1 else own for name, own in found.items()}


RUN: tuple[TrainerKey, ...] = (
    once(
        f"{_E}.env_path",
        *tuple(f"{_U}.build_path.{system}" for system in ("linux", "win32", "darwin")),
        means="relative to this folder, else to the current one",
    ),
    once(f"{_E}.env_args", "base_config.env_args", to=arguments_of),
    once(f"{_E}.base_port", f"{_U}.port"),
    once(f"{_E}.num_envs", "base_config.n_envs", default=1),
    once(f"{_E}.num_areas", f"{_U}.num_areas"),
    once(f"{_E}.seed", "sac_config.seed", to=_seed, says="-1: a new one"),
    once(f"{_E}.timeout_wait", "base_config.env_timeout", to=whole, means="for each message"),
    once(
        f"{_E}.max_lifetime_restarts",
        "base_config.env_restarts",
        to=lambda value, given: _ENDLESS if value in (-1, "-1") else value,
    ),
    told(f"{_E}.restarts_rate_limit_n", "base_config.env_restarts applies to the whole run"),
    told(f"{_E}.restarts_rate_limit_period_s", "base_config.env_restarts applies to the whole run"),
    once(f"{_G}.width", f"{_U}.width"),
    once(f"{_G}.height", f"{_U}.height"),
    once(f"{_G}.quality_level", f"{_U}.quality_level"),
    once(f"{_G}.time_scale", f"{_U}.time_scale"),
    once(f"{_G}.target_frame_rate", f"{_U}.target_frame_rate"),
    once(f"{_G}.capture_frame_rate", f"{_U}.capture_frame_rate"),
    once(f"{_G}.no_graphics", f"{_U}.no_graphics"),
    told(f"{_G}.no_graphics_monitor", f"{_U}.no_graphics applies to all players"),
    told(f"{_C}.run_id", f"{_FLAG}: -n NAME"),
    told(
        f"{_C}.initialize_from", "ML-Agents' networks cannot be read; --init_from reads runs of this project"
    ),
    told(f"{_C}.load_model", f"{_FLAG}: --resume"),
    told(f"{_C}.resume", f"{_FLAG}: --resume"),
    told(f"{_C}.force", "nothing is ever overwritten"),
    told(f"{_C}.train_model", "training is the default"),
    told(f"{_C}.inference", f"{_FLAG}: --watch"),
    told(f"{_C}.results_dir", f"{_FLAG}: --directory"),
    told("torch_settings.device", f"{_FLAG}: --device"),
    told("debug", f"{_FLAG}: --debug"),
)
"""Keys of a whole run; without any default, for ours are alike."""

PLACES = {
    "hyperparameters": "",
    "network_settings": "nn_config",
    "reward_signals": "reward_signals",
    "behavioral_cloning": "behavioral_cloning",
    "torch_settings": "base_config",
}
"""First name of a key that is told -> the block with the comment, base_config for all others.

Empty: the block of the algorithm.
"""
