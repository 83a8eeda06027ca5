"""Keys of players, engine and checkpoints: the third part of the table."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from algorithm.config.yaml_io import parse_value
from algorithm.extras.mlagents.keys import (
    FIRST,
    NOTHING,
    TrainerKey,
    TrainerSettings,
    absent,
    row,
    whole,
)

_E, _G, _C = "env_settings", "engine_settings", "checkpoint_settings"
_U = "base_config.unity_args"
_FLAG = "use the flag"
_ENDLESS = 1_000_000

once = partial(row, run=FIRST)


def _seed(value: object, settings: TrainerSettings) -> object:
    """Return the seed; nothing for -1, a random one, which is the default here."""
    return NOTHING if value in (-1, "-1") else value


def arguments_of(value: Any, settings: TrainerSettings) -> dict[str, Any]:  # noqa: ANN401 - as written
    """Return the words of a build's command line as names with their values. Raises ValueError."""
    arguments: dict[str, list[Any]] = {}
    for word in map(str, value if isinstance(value, list) else str(value).split()):
        if re.match(r"-+[A-Za-z]", word):
            arguments[word.removeprefix("--")] = values = []
        elif arguments:
            values.append(parse_value(word))
        else:
            raise ValueError("it must be a list that starts with a name such as --level")
    return {
        name: True if not words else words[0] if len(words) == 1 else words
        for name, words in arguments.items()
    }


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
    once(f"{_E}.seed", "sac_config.seed", to=_seed, remark="-1: a new one"),
    once(f"{_E}.timeout_wait", "base_config.env_timeout", to=whole, means="for each message"),
    once(
        f"{_E}.max_lifetime_restarts",
        "base_config.env_restarts",
        to=lambda value, settings: _ENDLESS if value in (-1, "-1") else value,
    ),
    absent(f"{_E}.restarts_rate_limit_n", "base_config.env_restarts applies to the whole run"),
    absent(f"{_E}.restarts_rate_limit_period_s", "base_config.env_restarts applies to the whole run"),
    once(f"{_G}.width", f"{_U}.width"),
    once(f"{_G}.height", f"{_U}.height"),
    once(f"{_G}.quality_level", f"{_U}.quality_level"),
    once(f"{_G}.time_scale", f"{_U}.time_scale"),
    once(f"{_G}.target_frame_rate", f"{_U}.target_frame_rate"),
    once(f"{_G}.capture_frame_rate", f"{_U}.capture_frame_rate"),
    once(f"{_G}.no_graphics", f"{_U}.no_graphics"),
    absent(f"{_G}.no_graphics_monitor", f"{_U}.no_graphics applies to all players"),
    absent(f"{_C}.run_id", f"{_FLAG}: -n NAME"),
    absent(
        f"{_C}.initialize_from", "ML-Agents' networks cannot be read; --init_from reads runs of this project"
    ),
    absent(f"{_C}.load_model", f"{_FLAG}: --resume"),
    absent(f"{_C}.resume", f"{_FLAG}: --resume"),
    absent(f"{_C}.force", "nothing is ever overwritten"),
    absent(f"{_C}.train_model", "training is the default"),
    absent(f"{_C}.inference", f"{_FLAG}: --watch"),
    absent(f"{_C}.results_dir", f"{_FLAG}: --directory"),
    absent("torch_settings.device", f"{_FLAG}: --device"),
    absent("debug", f"{_FLAG}: --debug"),
)
"""Keys of a whole run. Most have no default here, since our defaults are the same."""
