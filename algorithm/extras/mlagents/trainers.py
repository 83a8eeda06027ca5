"""Keys of a behaviour: the first part of the table, common ones, then those of PPO and of SAC.

The defaults are those of ML-Agents' ``settings.py``; rows of ``always`` are habits of its trainers.
"""

from __future__ import annotations

import math
from functools import partial

from algorithm.core.fields import to_whole
from algorithm.extras.mlagents.keys import (
    LEAST,
    MOST,
    NOTHING,
    SUM,
    OfWholeRun,
    TrainerKey,
    TrainerSettings,
    absent,
    always,
    one_of,
    positive,
    rounded,
    row,
    whole,
    windows,
)

_H, _N, _M = "hyperparameters", "network_settings", "network_settings.memory"
_CONVS = {"simple": "simple", "nature_cnn": "nature", "resnet": "resnet"}
_CONVS |= dict.fromkeys(("match3", "fully_connected"), "simple")
_SCHEDULES = one_of({"constant": "constant", "linear": "linear"})
_FALLS = "constant here, decays linearly in ML-Agents"

_LATEST = "self_play.play_against_latest_model_ratio"
_FIRST_OF = OfWholeRun(lambda values: values[0], "that of the first behavior with self-play")

POCA = "poca"
"""The trainer with a critic of a whole team."""

_FAMILIES = {"sac": "SAC", "ppo": "PPO", POCA: "PPO"}

number = partial(row, to=whole)


def _checkpoint_steps(value: object, settings: TrainerSettings) -> object:
    """Return the steps between two checkpoints."""
    if settings["even_checkpoints"] is True:
        return max(1, round(settings.number("max_steps") / settings.number("keep_checkpoints")))
    return to_whole(settings.number("checkpoint_interval"))


def _minibatches(value: object, settings: TrainerSettings) -> int:
    """Return the number of minibatches of a rollout."""
    return max(1, int(settings.number(f"{_H}.buffer_size") // settings.number(f"{_H}.batch_size")))


def _rollout(value: object, settings: TrainerSettings) -> int:
    """Return the steps of a rollout for each player."""
    return max(1, round(positive(value) / settings.number("env_settings.num_envs")))


def _ratio(value: object, settings: TrainerSettings) -> object:
    """Return the updates for a step."""
    return rounded(1 / positive(value))


def _signal_updates(value: object, settings: TrainerSettings) -> int:
    """Return the steps of the signals' networks for an update of the agent."""
    return max(1, round(settings.number(f"{_H}.steps_per_update") / positive(value)))


COMMON: tuple[TrainerKey, ...] = (
    row("trainer_type", "algorithm", default="ppo", to=one_of(_FAMILIES)),
    number("max_steps", "base_config.max_step", default=500_000, run=SUM),
    number("summary_freq", "sac_config.write_summary_per_step", default=50_000, run=LEAST),
    row(
        "checkpoint_interval",
        "sac_config.save_model_per_step",
        "eval_config.per_step",
        default=500_000,
        to=_checkpoint_steps,
        run=LEAST,
        means="also evaluates, which ML-Agents does not",
    ),
    row(
        "even_checkpoints",
        "sac_config.save_model_per_step",
        "eval_config.per_step",
        to=_checkpoint_steps,
        run=LEAST,
        remark="max_steps / keep_checkpoints",
    ),
    number("keep_checkpoints", "checkpoint_config.keep", default=5, run=MOST),
    absent("time_horizon", "targets are not cut at a horizon; for actors see base_config.max_episode_length"),
    absent("threaded", "one process acts and learns in turn; main_ds.py does both at once"),
    absent("init_path", "ML-Agents' networks cannot be read; --init_from reads runs of this project"),
    absent("framework", "always PyTorch"),
    number("self_play.window", "self_play.window", default=10, run=_FIRST_OF),
    number("self_play.save_steps", "self_play.save_steps", default=20_000, run=_FIRST_OF),
    number("self_play.team_change", "self_play.team_change", run=_FIRST_OF),
    number("self_play.swap_steps", "self_play.swap_steps", default=10_000, run=_FIRST_OF),
    row("self_play.play_against_latest_model_ratio", _LATEST, default=0.5, run=_FIRST_OF),
    row("self_play.play_against_current_self_ratio", _LATEST, run=_FIRST_OF, means="its former name"),
    row("self_play.play_against_current_best_ratio", _LATEST, run=_FIRST_OF, means="its former name"),
    row("self_play.initial_elo", "self_play.initial_elo", default=1200.0, run=_FIRST_OF),
    row(f"{_N}.normalize", "sac_config.use_normalization", default=False),
    number(f"{_N}.hidden_units", "nn_config.rep.dense_n", "nn_config.policy.dense_n", default=128),
    row(f"{_N}.num_layers", "nn_config.policy.dense_depth", default=2),
    row(
        f"{_N}.vis_encode_type",
        "nn_config.rep.conv",
        default="simple",
        to=one_of(_CONVS),
        remark="the closest",
    ),
    absent(f"{_N}.goal_conditioning_type", "a goal is an ordinary observation"),
    absent(f"{_N}.conditioning_type", "a goal is an ordinary observation"),
    absent(f"{_N}.deterministic", "evaluations and --watch never sample; --run with --disable_sample"),
    absent(f"{_N}.max_num_agents", "no networks for teams of agents"),
    always("nn_config.policy.activation", "silu"),
    always("sac_config.reward_scaling", False, "unscaled rewards, as in ML-Agents"),
    row(
        _M,
        "sac_config.seq_encoder",
        to=lambda value, settings: "RNN",
        remark="here the layers follow the memory",
    ),
    row(_M, "nn_config.rep.rnn", to=lambda value, settings: "lstm", remark="as in ML-Agents"),
    row(
        f"{_M}.memory_size",
        "nn_config.rep.rnn_n",
        default=128,
        to=lambda value, settings: max(1, int(positive(value) // 2)),
        remark="half: ML-Agents counts both LSTM states",
    ),
)
"""Keys of both trainers."""

PPO: tuple[TrainerKey, ...] = (
    number(f"{_H}.learning_rate", "ppo_config.learning_rate", default=3e-4),
    row(f"{_H}.learning_rate_schedule", "sac_config.learning_rate_schedule", default="linear", to=_SCHEDULES),
    row(
        f"{_H}.buffer_size",
        "ppo_config.rollout_step",
        default=10_240,
        to=_rollout,
        remark="per player: buffer_size / num_envs",
    ),
    row(
        f"{_H}.batch_size",
        "ppo_config.num_minibatch",
        default=1024,
        to=_minibatches,
        remark="buffer_size / batch_size",
    ),
    row(
        f"{_H}.beta",
        "ppo_config.entropy_coef",
        default=5e-3,
        means="constant here, on the sum over continuous actions; in ML-Agents it decays, on their mean",
    ),
    absent(f"{_H}.beta_schedule", _FALLS),
    row(f"{_H}.epsilon", "ppo_config.clip", "ppo_config.clip_value", default=0.2),
    row(
        f"{_H}.epsilon_schedule",
        "ppo_config.clip_schedule",
        default="linear",
        to=_SCHEDULES,
        means="linear decays to 0 here, to 0.1 in ML-Agents",
    ),
    row(f"{_H}.lambd", "ppo_config.gae_lambda", default=0.95),
    row(f"{_H}.num_epoch", "ppo_config.num_epoch", default=3),
    row(
        f"{_H}.shared_critic",
        "ppo_config.shared",
        to=lambda value, settings: settings.find(_M) is not None or value,
        remark="a memory is always shared",
    ),
    always(
        "nn_config.policy.log_std_init",
        rounded(-math.log(3)),
        "a standard deviation of ⅓: ML-Agents draws with 1, then divides by 3",
    ),
    always("ppo_config.normalise_advantage", "rollout"),
    always("ppo_config.max_grad_norm", None),
    number(f"{_N}.hidden_units", "nn_config.v.dense_n", default=128),
    row(f"{_N}.num_layers", "nn_config.v.dense_depth", default=2),
    always("nn_config.v.activation", "silu"),
    number(f"{_M}.sequence_length", "ppo_config.sequence_step", default=64),
)
"""Keys of PPO."""

SAC: tuple[TrainerKey, ...] = (
    number(f"{_H}.learning_rate", "sac_config.learning_rate", default=3e-4),
    row(
        f"{_H}.learning_rate_schedule", "sac_config.learning_rate_schedule", default="constant", to=_SCHEDULES
    ),
    row(
        f"{_H}.batch_size",
        "sac_config.batch_size",
        default=128,
        to=windows,
        remark="batch_size / sequence_length",
    ),
    number(f"{_H}.buffer_size", "replay_config.capacity", default=50_000),
    row(
        f"{_H}.buffer_init_steps",
        "sac_config.start_step",
        default=0,
        means="random actions here, the untrained policy in ML-Agents",
    ),
    row(
        f"{_H}.buffer_init_steps",
        "sac_config.start_repeat_c",
        "sac_config.start_repeat_d",
        to=lambda value, settings: 1 if to_whole(value) else NOTHING,
        remark="actions are not held",
    ),
    row(f"{_H}.tau", "sac_config.tau", default=0.005),
    row(
        f"{_H}.steps_per_update",
        "sac_config.replay_ratio",
        default=1,
        to=_ratio,
        remark="1 / steps_per_update",
    ),
    row(
        f"{_H}.reward_signal_steps_per_update",
        "reward_signals.updates",
        to=_signal_updates,
        remark="steps_per_update / it, at least 1",
    ),
    row(
        f"{_H}.init_entcoef",
        "sac_config.init_log_alpha",
        default=1.0,
        to=lambda value, settings: rounded(math.log(positive(value))),
        remark="its logarithm",
    ),
    row(
        f"{_H}.save_replay_buffer",
        "checkpoint_config.replay",
        to=one_of({"True": "always", "False": "last"}),
        run=OfWholeRun(lambda values: "always" if "always" in values else "last"),
        remark="--resume is exact",
    ),
    always("sac_config.n_step", 1),
    always("sac_config.use_priority", False),
    always("sac_config.target_d_alpha", 0.2),
    always("sac_config.discrete_soft_target", True),
    always("sac_config.alpha_learning_rate", None, "learning_rate, as in ML-Agents"),
    number(f"{_N}.hidden_units", "nn_config.q.dense_n", default=128),
    row(f"{_N}.num_layers", "nn_config.q.dense_depth", default=2),
    always("nn_config.q.activation", "silu"),
    number(f"{_M}.sequence_length", "sac_config.learn_step", default=64),
    row(_M, "sac_config.burn_in_step", to=lambda value, settings: 0, remark="as in ML-Agents"),
)
"""Keys of SAC."""
