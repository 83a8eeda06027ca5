"""Keys of a behaviour that both trainers of ML-Agents have, of PPO and of SAC: the first part of the table.

The defaults are those of ML-Agents' ``settings.py``; what stands without a key is what its trainers do.
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
    Given,
    OfRun,
    TrainerKey,
    always,
    one_of,
    positive,
    rounded,
    row,
    told,
    whole,
)

_H, _N, _M = "hyperparameters", "network_settings", "network_settings.memory"
_CONVS = {"simple": "simple", "default": "simple", "nature_cnn": "nature", "resnet": "resnet"}
_CONVS |= dict.fromkeys(("match3", "fully_connected"), "simple")
_SCHEDULES = one_of({"constant": "constant", "linear": "linear"})
_FALLS = "constant here, decays linearly in ML-Agents"

OF_TEAMS = ("poca", "coma", "ma-poca", "mappo")
"""Names of trainers with a critic of a whole team."""

_FAMILIES = {"sac": "SAC", **dict.fromkeys(("ppo", *OF_TEAMS), "PPO")}

number = partial(row, to=whole)


def _interval(value: object, given: Given) -> object:
    """Return the steps between two checkpoints."""
    if given["even_checkpoints"] is True:
        return max(1, round(given.number("max_steps") / given.number("keep_checkpoints")))
    return to_whole(given.number("checkpoint_interval"))


def _parts(value: object, given: Given) -> int:
    return max(1, int(given.number(f"{_H}.buffer_size") // given.number(f"{_H}.batch_size")))


def _rollout(value: object, given: Given) -> int:
    return max(1, round(positive(value) / given.number("env_settings.num_envs")))


def _windows(value: object, given: Given) -> object:
    """Return the windows of a batch: experiences without a memory, sequences with one."""
    length = given.number(f"{_M}.sequence_length") if given.find(_M) else 1
    return max(1, int(positive(value) // length))


def _ratio(value: object, given: Given) -> object:
    """Return the updates for a step; releases before 1 have ``num_update`` every ``train_interval`` steps."""
    if given.find(f"{_H}.steps_per_update"):
        return rounded(1 / given.number(f"{_H}.steps_per_update"))
    updates, steps = (given.find(f"{_H}.{name}") for name in ("num_update", "train_interval"))
    return rounded((positive(updates.value) if updates else 1) / (positive(steps.value) if steps else 1))


def _signal_updates(value: object, given: Given) -> int:
    """Return the steps of the signals' networks for an update of the agent."""
    steps = given.find(f"{_H}.reward_signal_steps_per_update")
    if steps is None:
        return max(1, round(positive(value)))
    return max(1, round(given.number(f"{_H}.steps_per_update") / positive(steps.value)))


COMMON: tuple[TrainerKey, ...] = (
    row("trainer_type", "algorithm", default="ppo", to=one_of(_FAMILIES)),
    number("max_steps", "base_config.max_step", default=500_000, run=SUM),
    number("summary_freq", "sac_config.write_summary_per_step", default=50_000, run=LEAST),
    row(
        "checkpoint_interval",
        "sac_config.save_model_per_step",
        "eval_config.per_step",
        default=500_000,
        to=_interval,
        run=LEAST,
        means="also evaluates, which ML-Agents does not",
    ),
    row(
        "even_checkpoints",
        "sac_config.save_model_per_step",
        "eval_config.per_step",
        to=_interval,
        run=LEAST,
        says="max_steps / keep_checkpoints",
    ),
    number("keep_checkpoints", "checkpoint_config.keep", default=5, run=MOST),
    told("time_horizon", "targets are not cut at a horizon; for actors see base_config.max_episode_length"),
    told("threaded", "one process acts and learns in turn; main_ds.py does both at once"),
    told("init_path", "ML-Agents' networks cannot be read; --init_from reads runs of this project"),
    told("framework", "always PyTorch"),
    told("output_path", "use the flag --directory"),
    told("model_path", "use the flag --directory"),
    told("summary_path", "use the flag --directory"),
    *(
        told(
            f"self_play.{key}",
            "no self-play: all teams learn at once, against the current policies",
        )
        for key in (
            "save_steps",
            "team_change",
            "swap_steps",
            "window",
            "play_against_latest_model_ratio",
            "play_against_current_self_ratio",
            "play_against_current_best_ratio",
            "initial_elo",
        )
    ),
    row(f"{_N}.normalize", "sac_config.use_normalization", default=False),
    number(f"{_N}.hidden_units", "nn_config.rep.dense_n", "nn_config.policy.dense_n", default=128),
    row(f"{_N}.num_layers", "nn_config.policy.dense_depth", default=2),
    row(
        f"{_N}.vis_encode_type", "nn_config.rep.conv", default="simple", to=one_of(_CONVS), says="the closest"
    ),
    told(f"{_N}.goal_conditioning_type", "a goal is an ordinary observation"),
    told(f"{_N}.conditioning_type", "a goal is an ordinary observation"),
    told(f"{_N}.deterministic", "evaluations and --watch never sample; --run with --disable_sample"),
    told(f"{_N}.max_num_agents", "no networks for teams of agents"),
    always("nn_config.policy.activation", "silu"),
    always("sac_config.reward_scaling", False, "unscaled rewards, as in ML-Agents"),
    row(
        _M,
        "sac_config.seq_encoder",
        to=lambda value, given: "RNN",
        says="here the layers follow the memory",
    ),
    row(_M, "nn_config.rep.rnn", to=lambda value, given: "lstm", says="as in ML-Agents"),
    row(
        f"{_M}.memory_size",
        "nn_config.rep.rnn_n",
        default=128,
        to=lambda value, given: max(1, int(positive(value) // 2)),
        says="half: ML-Agents counts both LSTM states",
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
        says="per player: buffer_size / num_envs",
    ),
    row(
        f"{_H}.batch_size",
        "ppo_config.num_minibatch",
        default=1024,
        to=_parts,
        says="buffer_size / batch_size",
    ),
    row(
        f"{_H}.beta",
        "ppo_config.entropy_coef",
        default=5e-3,
        means="constant here, on the sum over continuous actions; in ML-Agents it decays, on their mean",
    ),
    told(f"{_H}.beta_schedule", _FALLS),
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
        to=lambda value, given: given.find(_M) is not None or value,
        says="a memory is always shared",
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
        to=_windows,
        says="batch_size / sequence_length",
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
        to=lambda value, given: 1 if to_whole(value) else NOTHING,
        says="actions are not held",
    ),
    row(f"{_H}.tau", "sac_config.tau", default=0.005),
    row(
        f"{_H}.steps_per_update", "sac_config.replay_ratio", default=1, to=_ratio, says="1 / steps_per_update"
    ),
    row(f"{_H}.num_update", "sac_config.replay_ratio", to=_ratio, says="num_update / train_interval"),
    row(f"{_H}.train_interval", "sac_config.replay_ratio", to=_ratio, says="num_update / train_interval"),
    row(
        f"{_H}.reward_signal_steps_per_update",
        "reward_signals.updates",
        to=_signal_updates,
        says="steps_per_update / it, at least 1",
    ),
    row("reward_signals.reward_signal_num_update", "reward_signals.updates", to=_signal_updates),
    row(
        f"{_H}.init_entcoef",
        "sac_config.init_log_alpha",
        default=1.0,
        to=lambda value, given: rounded(math.log(positive(value))),
        says="its logarithm",
    ),
    row(
        f"{_H}.save_replay_buffer",
        "checkpoint_config.replay",
        to=one_of({"True": "always", "False": "last"}),
        run=OfRun(lambda values: "always" if "always" in values else "last"),
        says="--resume is exact",
    ),
    told(f"{_H}.target_entropy", "sac_config.target_c_alpha and target_d_alpha set it"),
    always("sac_config.n_step", 1),
    always("sac_config.use_priority", False),
    always("sac_config.target_d_alpha", 0.2),
    always("sac_config.discrete_soft_target", True),
    always("sac_config.alpha_learning_rate", None, "learning_rate, as in ML-Agents"),
    number(f"{_N}.hidden_units", "nn_config.q.dense_n", default=128),
    row(f"{_N}.num_layers", "nn_config.q.dense_depth", default=2),
    always("nn_config.q.activation", "silu"),
    number(f"{_M}.sequence_length", "sac_config.learn_step", default=64),
    row(_M, "sac_config.burn_in_step", to=lambda value, given: 0, says="as in ML-Agents"),
)
"""Keys of SAC."""
