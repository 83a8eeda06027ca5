"""What becomes of settings that differ from those a run was trained with so far, when it is resumed.

A key that is declared ``fixed`` is refused: what has been learned or stored would not fit, or would mean
something else. Every other key is in the table below, and takes effect from the resume on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from algorithm.config.errors import ConfigError, Problem
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import BEHAVIOUR_BLOCKS, Config
from algorithm.config.validation import KeyPath, extra, field_at, fields
from algorithm.config.yaml_io import inline


@dataclass(frozen=True)
class Applied:
    """It counts from the resume on; ``note``: what else there is to know."""

    note: str = ""

    def __str__(self) -> str:
        """For a person."""
        return f"applied: {self.note}" if self.note else "applied"


@dataclass(frozen=True)
class Refused:
    """The run cannot go on with it."""

    why: str

    def __str__(self) -> str:
        """For a person."""
        return f"refused: {self.why}"


Effect = Applied | Refused
Rule = Callable[[Config, Config], Effect]
"""The effect of a key that depends on its value or on others; given are the old and the new configuration."""


@dataclass(frozen=True)
class Change:
    """A key with another value; those of a behaviour begin with ``ma_config.<behaviour>.``"""

    path: str
    before: object
    after: object
    effect: Effect


NOT_COMPARED = frozenset({"base_config.name"})
"""The folder has its name, whatever the configuration says."""

_NEW_PRIORITIES = "for priorities that are set from now on"
_EPISODES_END = "the open episodes end as truncated"

APPLIED: Mapping[str, Mapping[str, str]] = {
    "base_config": {
        "workers": "",
        "env_timeout": "",
        "env_restarts": "",
        "n_envs": _EPISODES_END,
        "max_iter": "",
        "max_step_each_iter": "",
        "reset_on_iteration": "",
        "on_non_finite": "",
        "update_sac_bak_per_step": "",
        "max_actors_each_learner": "",
        "noise_increasing_rate": "for actors that join from now on",
        "noise_max": "for actors that join from now on",
        "max_episode_length": "",
        "episode_queue_size": "",
        "episode_sender_process_num": "",
        "batch_queue_size": "",
        "batch_generator_process_num": "",
    },
    "net_config": {
        "learner_host": "",
        "learner_port": "",
        "secrets": "",
        "insecure": "",
        "synchronous": "",
        "heartbeat": "",
        "max_lag": "",
        "spool_size": "",
        "patience": "",
    },
    "": {"reset_config": "from each environment's next reset on; open episodes may end as truncated"},
    "replay_config": {
        "beta_increment_per_sampling": "a number: from where beta is; null: as if so from the start",
        "td_error_min": _NEW_PRIORITIES,
        "td_error_max": _NEW_PRIORITIES,
    },
    "sac_config": {
        "threads": "sums may be rounded otherwise, so the run is not bit for bit what it would have been",
        "write_summary_per_step": "",
        "save_model_per_step": "",
        "replay_ratio": "for the steps from now on",
        "start_repeat_c": "for random actions from now on",
        "start_repeat_d": "for random actions from now on",
        "ensemble_q_sample": "",
        "refresh_carry": "",
        "learn_step": "",
        "n_step": "",
        "batch_size": "",
        "tau": "",
        "update_target_per_step": "",
        "target_c_alpha": "",
        "target_d_alpha": "",
        "learning_rate": "",
        "alpha_learning_rate": "",
        "learning_rate_schedule": "as if it had been so from the start: linear falls from step 0 to max_step",
        "max_grad_norm": "",
        "gamma": "the critics have to learn values of another horizon",
        "v_lambda": "",
        "v_rho": "",
        "v_c": "",
        "clip_epsilon": "",
        "discrete_dqn_epsilon": "",
        "discrete_soft_target": "",
        "use_n_step_is": "",
        "siamese_use_q": "",
        "siamese_use_adaptive": "",
        "transition_kl": "",
        "use_add_with_td": "for rows that are new from now on",
        "curiosity_strength": "",
        "rnd_n_sample": "",
        "action_noise": "",
    },
    "eval_config": {"per_step": "", "episodes": "", "video": ""},
    "checkpoint_config": {
        "keep": "",
        "best": "",
        "replay": "",
        "milestones": "those that were kept for ever so far stay",
    },
}
"""Block -> key -> what else there is to know."""


def _capacity(old: Config, new: Config) -> Effect:
    if new.replay_config.capacity < old.replay_config.capacity:
        return Refused("the rows that are stored would not all fit; a larger one is possible")
    return Applied()


def _seen(old: Config, new: Config) -> Effect:
    seen = [config.sac_config.burn_in_step for config in (old, new)]
    if new.sac_config.seq_encoder == "ATTN" and seen[0] != seen[1]:
        return Refused(f"attention was trained to see {seen[0]} steps back, burn_in_step")
    return Applied()


def _extra_data(old: Config, new: Config) -> Effect:
    if new.sac_config.use_prediction:
        return Refused("the transition model would have other inputs than it was trained with")
    return Applied("without use_prediction it says nothing")


def _max_step(old: Config, new: Config) -> Effect:
    sac, moved = new.sac_config, []
    prioritised = sac.use_priority and sac.use_replay_buffer
    if sac.learning_rate_schedule == "linear":
        moved.append("the step size falls to 0 at the new end, and changes at once")
    if prioritised and new.replay_config.beta_increment_per_sampling is None:
        moved.append("beta reaches 1 at the new end, and changes at once")
    return Applied("; ".join(moved))


RULES: Mapping[str, Rule] = {
    "base_config.max_step": _max_step,
    "replay_config.capacity": _capacity,
    "sac_config.burn_in_step": _seen,
    "sac_config.use_extra_data": _extra_data,
}
"""Path -> how its effect is found."""


def changes(old: LoadedConfig, new: LoadedConfig) -> list[Change]:
    """Every key with another value, in the order of the listing, then by behaviour what only that one has.

    old: what the run was trained with so far; new: what it is to be resumed with
    """
    common = list(_compared(old.config, new.config, "", lambda path: True))
    seen = {(change.path, str(change.before), str(change.after)) for change in common}
    found = common
    for name in dict.fromkeys((*old.behaviours, *new.behaviours)):
        own = _compared(
            old.for_behaviour(name), new.for_behaviour(name), f"ma_config.{name}.", _may_be_of_a_behaviour
        )
        found += [change for change in own if _everywhere(change, name) not in seen]
    return found


def refuse(changed: Sequence[Change]) -> None:
    """Raise ConfigError with every change that is refused; return if there is none."""
    problems = [
        Problem(
            f"`{change.path}` cannot change when a run is resumed",
            f"it was {_shown(change.before)} and is now {_shown(change.after)}",
            change.effect.why,
            f"leave it: -o {shlex.quote(f'{change.path}={_shown(change.before)}')}\n"
            "or train a new run: -n NAME without --resume",
        )
        for change in changed
        if isinstance(change.effect, Refused)
    ]
    if problems:
        raise ConfigError(problems)


def table(changed: Sequence[Change]) -> list[tuple[str, str]]:
    """Rows for a person: the key; what it was, what it is, and what happens."""
    return [(c.path, f"{_shown(c.before)} → {_shown(c.after)}, {c.effect}") for c in changed]


def effect_of(path: KeyPath, old: Config, new: Config) -> Effect:
    """What happens if the key differs. KeyError for one without a class, which is a defect of the table."""
    dotted, field = ".".join(path), field_at(path)
    if field is not None and "fixed" in extra(field):
        return Refused(extra(field)["fixed"])
    if dotted in RULES:
        return RULES[dotted](old, new)
    return Applied(APPLIED[".".join(path[:-1])][path[-1]])


def _compared(old: Config, new: Config, prefix: str, chosen: Callable[[KeyPath], bool]) -> Iterator[Change]:
    for path, _ in fields():
        dotted, before, after = ".".join(path), _at(old, path), _at(new, path)
        if before != after and dotted not in NOT_COMPARED and chosen(path):
            yield Change(f"{prefix}{dotted}", before, after, effect_of(path, old, new))


def _may_be_of_a_behaviour(path: KeyPath) -> bool:
    return path[0] in BEHAVIOUR_BLOCKS


def _everywhere(change: Change, behaviour: str) -> tuple[str, str, str]:
    path = change.path.removeprefix(f"ma_config.{behaviour}.")
    return path, str(change.before), str(change.after)


def _at(config: Config, path: KeyPath) -> object:
    value: object = config
    for name in path:
        value = getattr(value, name)
    return value


def _shown(value: object) -> str:
    return inline(list(value) if isinstance(value, tuple) else value)
