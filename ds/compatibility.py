"""What learner and actor must have in common: else one would store what the other did not mean.

Every key of the configuration stands in one of two tables; a new one has to be decided.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from algorithm.config.check import KeyPath, fields
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import BEHAVIOUR_BLOCKS, Config
from algorithm.spec import AgentSpec

AGREED: Mapping[str, tuple[str, ...]] = {
    "base_config": (
        *("env_type", "env_name", "env_args", "wrappers"),
        *("max_step_each_iter", "max_episode_length", "reset_on_iteration"),
        *("noise_increasing_rate", "noise_max"),
    ),
    "": ("reset_config",),
    "nn_config": ("rep", "policy", "q"),
    "sac_config": (
        *("nn", "seq_encoder", "burn_in_step", "learn_step", "ensemble_q_num", "use_normalization"),
        *("discrete_dqn_like", "discrete_dqn_epsilon", "use_rnd", "rnd_n_sample"),
        *("action_noise", "start_repeat_c", "start_repeat_d"),
    ),
}
"""Block -> keys that change what networks are, what acting does or what the environment is."""

FREE: Mapping[str, tuple[str, ...]] = {
    "base_config": (
        *("name", "n_envs", "workers", "env_timeout", "env_restarts", "on_non_finite"),
        "reward_scale",
        *("max_iter", "max_step", "update_sac_bak_per_step", "max_actors_each_learner"),
        *("episode_queue_size", "episode_sender_process_num"),
        *("batch_queue_size", "batch_generator_process_num"),
        *("evolver_enabled", "evolver_cem_length", "evolver_cem_best", "evolver_cem_min_length"),
        *("evolver_cem_time", "evolver_remove_worst"),
    ),
    "base_config.unity_args": ("no_graphics", "port"),
    "base_config.unity_args.build_path": ("win32", "linux"),
    "net_config": (
        *("learner_host", "learner_port", "secrets", "insecure", "synchronous"),
        *("heartbeat", "max_lag", "spool_size", "patience"),
    ),
    "replay_config": (
        *("capacity", "alpha", "beta", "beta_increment_per_sampling", "td_error_min", "td_error_max"),
    ),
    "sac_config": (
        *("seed", "threads", "write_summary_per_step", "save_model_per_step", "start_step"),
        *("use_replay_buffer", "use_priority", "replay_ratio", "batch_size", "use_add_with_td"),
        *("reward_scaling", "discrete_soft_target"),
        *("ensemble_q_sample", "n_step", "refresh_carry", "tau", "update_target_per_step"),
        *("init_log_alpha", "use_auto_alpha", "target_c_alpha", "target_d_alpha"),
        *("learning_rate", "alpha_learning_rate", "learning_rate_schedule", "max_grad_norm"),
        *("gamma", "v_lambda", "v_rho", "v_c", "clip_epsilon", "use_n_step_is"),
        *("siamese", "siamese_use_q", "siamese_use_adaptive"),
        *("use_prediction", "transition_kl", "use_extra_data", "curiosity", "curiosity_strength"),
    ),
    "eval_config": ("per_step", "episodes", "video"),
    "checkpoint_config": ("keep", "best", "replay", "milestones"),
}
"""Block -> keys that each side may have for itself: the learner's own, and those of one machine."""


def paths(table: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """The dotted paths of a table's keys."""
    for block, keys in table.items():
        yield from (f"{block}.{key}" if block else key for key in keys)


_MUST_AGREE = frozenset(paths(AGREED))


def settings(config: Config) -> dict[str, Any]:
    """Dotted path -> JSON value of the keys that must be the same on both sides."""
    return {dotted: _plain(_at(config, path)) for dotted, path in _paths()}


def agreed(
    config: LoadedConfig, specs: Mapping[str, AgentSpec], nn_files: Mapping[str, Path | None]
) -> dict[str, Any]:
    """Dotted path -> JSON value of all that must be the same on both sides.

    specs:    what the environment's behaviours see and do
    nn_files: the task's networks of each behaviour, of which the content counts; None for the defaults
    Raises OSError for a file that cannot be read.
    """
    found = settings(config.config)
    for name in sorted(config.behaviours):
        for dotted, path in _paths():
            if path[0] in BEHAVIOUR_BLOCKS:
                found[f"ma_config.{name}.{dotted}"] = _plain(_at(config.behaviours[name], path))
    for name, spec in specs.items():
        action = spec.action
        found |= {f"obs_spec.{name}.{key}": _plain(value) for key, value in asdict(spec.obs).items()}
        found[f"action_spec.{name}.branches"] = list(action.branches)
        found[f"action_spec.{name}.continuous"] = action.continuous
    for name, file in nn_files.items():
        found[f"nn_file.{name}"] = None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def digest(agreed: Mapping[str, Any]) -> str:
    """SHA-256 over what :func:`agreed` gave, whatever its order."""
    text = json.dumps(agreed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each value that is not the same. theirs: the actor's; ours: the learner's."""
    keys = sorted(theirs.keys() | ours.keys())
    return tuple(
        f"{key}: the learner has {_told(ours, key)}, the actor {_told(theirs, key)}"
        for key in keys
        if _json(ours, key) != _json(theirs, key)
    )


def _json(side: Mapping[str, Any], key: str) -> str:
    return json.dumps(side[key], sort_keys=True) if key in side else "nothing of that name"


def _told(side: Mapping[str, Any], key: str) -> str:
    if key.startswith("nn_file.") and key in side:
        digest = side[key]
        return "the default networks" if digest is None else f"a file with SHA-256 {str(digest)[:12]}…"
    return _json(side, key)


def _paths() -> Iterator[tuple[str, KeyPath]]:
    for path, _ in fields():
        if ".".join(path) in _MUST_AGREE:
            yield ".".join(path), path


def _at(config: Config, path: KeyPath) -> object:
    value: object = config
    for name in path:
        value = getattr(value, name)
    return value


def _plain(value: object) -> Any:  # noqa: ANN401 - a JSON value
    """As it comes out of JSON; whatever a YAML file may hold beyond that (a date) as its text.

    A whole number is one whichever way it is written: a default of 0 is 0.0 in a run's own configuration.
    """
    return json.loads(json.dumps(value, default=str), parse_float=_number)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
