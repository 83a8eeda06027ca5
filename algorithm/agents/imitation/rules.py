"""Contradictions between reward signals, demonstrations and the keys of other blocks. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from algorithm.core.fields import AnyConfig, Contradiction, contradicting

_KEY = "demonstrations"
_USES = ("share", "interventions", "pretrain", "offline", "warm_up_policy")
_NO_EPISODES = "there are no demonstrations to learn from"
_NAME_SOME = "set demonstrations.path to a recording of --record"


_NOT_STEPPED = "no environment is stepped"
_AGAINST_OFFLINE = {
    "sac_config.start_step": (f"{_NOT_STEPPED}, so there are no random actions", "set start_step: 0"),
    f"{_KEY}.share": ("every batch is already all demonstrations", "leave share out"),
    f"{_KEY}.warm_up_policy": (
        f"{_NOT_STEPPED}, so there is no replay to fill",
        "leave warm_up_policy out; it is for the run that continues from this one",
    ),
    f"{_KEY}.interventions": (f"{_NOT_STEPPED}, so nobody can take over", "leave interventions out"),
    "sac_config.use_replay_buffer": (
        f"{_NOT_STEPPED}, so there is no new data to use once",
        "set use_replay_buffer: true",
    ),
    "sac_config.discrete_dqn_like": (
        "nothing would keep greedy choices close to the demonstrated ones",
        "set discrete_dqn_like: false",
    ),
    "reward_signals.gail.strength": (
        "there are no transitions of the agent for the discriminator",
        "set the strength to 0",
    ),
    "eval_config.episodes": ("it is evaluated in the environment alone", "set episodes: 1 or more"),
    "base_config.max_iter": (f"{_NOT_STEPPED}, so no iteration ends", "set base_config.max_step"),
    "base_config.unity_args.editor": ("evaluations need a separate player", "set build_path"),
}
"""Key that offline training excludes -> why, and what to do."""


def contradictions(config: AnyConfig, *, clones: bool, mixes: bool) -> Iterator[Contradiction]:
    """Yield contradictions of reward signals, cloning and demonstrations; dotted keys from the top level.

    clones: the chosen family's policy can clone actions
    mixes:  the family's updates learn from windows, which may be demonstrated ones
    """
    yield from _of_signals(config)
    yield from _of_cloning(config, clones=clones)
    yield from _of_uses(config, mixes=mixes)
    if mixes:
        yield from _of_updates(config)


def _of_signals(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield contradictions: all signals off, GAIL without demonstrations, keys of a signal that is off."""
    signals = config.reward_signals
    strengths = {name: getattr(signals, name).strength for name in ("extrinsic", "rnd", "gail")}
    switches = {name: f"reward_signals.{name}.strength" for name in strengths}
    off = {switches[name]: name for name in ("rnd", "gail") if not strengths[name]}
    if config.run.curiosity is None:
        off = {"sac_config.curiosity": "curiosity", **off}
    yield from contradicting(
        (
            not (any(strengths.values()) or config.run.curiosity or config.run.extensions),
            tuple(switches.values()),
            "all are 0, so there is no reward",
            "raise one of them",
        ),
        (
            signals.gail.strength > 0 and config.demonstrations.path is None,
            (switches["gail"], f"{_KEY}.path"),
            _NO_EPISODES,
            f"{_NAME_SOME}, or the strength to 0",
        ),
        *(
            (
                getattr(getattr(signals, name), key) != default,
                (f"reward_signals.{name}.{key}", switch),
                f"the {name} reward is off, so there is nothing to discount",
                f"set {switch}, or leave {key} out",
            )
            for switch, name in off.items()
            for key, default in (("gamma", None), ("ends", True))
        ),
    )


def _of_cloning(config: AnyConfig, *, clones: bool) -> Iterator[Contradiction]:
    """Yield contradictions: no demonstrations, a family that cannot clone, keys of cloning that is off."""
    cloning = config.behavioral_cloning
    yield from contradicting(
        (
            cloning.strength > 0 and config.demonstrations.path is None,
            ("behavioral_cloning.strength", f"{_KEY}.path"),
            _NO_EPISODES,
            f"{_NAME_SOME}, or the strength to 0",
        ),
        (
            cloning.strength > 0 and not clones,
            ("behavioral_cloning.strength", "algorithm"),
            f"{config.algorithm} does not support cloning",
            "set algorithm: SAC, TD3, PPO or A2C, or the strength to 0",
        ),
        *(
            (
                getattr(cloning, key) != type(cloning).model_fields[key].default and not cloning.strength,
                (f"behavioral_cloning.{key}", "behavioral_cloning.strength"),
                "the strength is 0, so there is no cloning",
                f"set behavioral_cloning.strength, or leave {key} out",
            )
            for key in ("pretrain", "steps", "batch_size", "updates")
        ),
    )


def _of_uses(config: AnyConfig, *, mixes: bool) -> Iterator[Contradiction]:
    """Yield contradictions: uses without demonstrations or by a family that mixes none, keys without use."""
    shown = config.demonstrations
    used = [key for key in _USES if getattr(shown, key)]
    without = {"warm_up_policy", "interventions", *(("share",) if shown.interventions else ())}
    yield from contradicting(
        *(
            (
                shown.path is None and key not in without,
                (f"{_KEY}.{key}", f"{_KEY}.path"),
                _NO_EPISODES,
                f"{_NAME_SOME}, or leave {key} out",
            )
            for key in used
        ),
        *(
            (
                not mixes,
                (f"{_KEY}.{key}", "algorithm"),
                f"{config.algorithm} learns from its own rollouts only",
                f"set algorithm: SAC or TD3, or leave {key} out",
            )
            for key in used
        ),
        (
            shown.interventions and not shown.share,
            (f"{_KEY}.interventions", f"{_KEY}.share"),
            "the share of a batch that is drawn from a person's steps is 0",
            "set share, such as 0.5, or leave interventions out",
        ),
        (
            shown.value_weight != type(shown).model_fields["value_weight"].default and not shown.offline,
            (f"{_KEY}.value_weight", f"{_KEY}.offline"),
            "it applies to offline training only",
            "set offline: true, or leave value_weight out",
        ),
    )


def _of_updates(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield contradictions between demonstrations and the keys of a family that mixes them into batches."""
    keys, shown, cloning = config.run, config.demonstrations, config.behavioral_cloning
    random = keys.start_step not in (0, type(keys).model_fields["start_step"].default)
    greedy = bool(getattr(keys, "discrete_dqn_like", False))
    yield from contradicting(
        (
            shown.share > 0 and shown.share * keys.batch_size + 1e-9 < 1,
            (f"{_KEY}.share", "sac_config.batch_size"),
            f"{shown.share:g} of {keys.batch_size} windows is less than one, so none would be drawn",
            "raise one of them, or leave share out",
        ),
        (
            shown.share > 0 and not keys.use_replay_buffer,
            (f"{_KEY}.share", "sac_config.use_replay_buffer"),
            "new data is used once, so there are no batches to mix demonstrations into",
            "set use_replay_buffer: true, or share: 0",
        ),
        (
            cloning.strength > 0 and greedy,
            ("behavioral_cloning.strength", "sac_config.discrete_dqn_like"),
            "the critics choose the actions, so there is no policy to clone into",
            "set discrete_dqn_like: false, or the strength to 0",
        ),
        (
            shown.warm_up_policy > 0 and random,
            (f"{_KEY}.warm_up_policy", "sac_config.start_step"),
            "before learning starts, one acts with the policy and the other at random",
            "set start_step: 0, or leave warm_up_policy out",
        ),
    )
    if shown.offline:
        yield from _offline(config, random=random, greedy=greedy)


def _offline(config: AnyConfig, *, random: bool, greedy: bool) -> Iterator[Contradiction]:
    """Yield contradictions of ``offline`` and the keys that it excludes.

    random: ``start_step`` is set, for random actions first; greedy: ``discrete_dqn_like`` is set
    """
    keys, shown = config.run, config.demonstrations
    holds = {
        "sac_config.start_step": random,
        f"{_KEY}.share": shown.share > 0,
        f"{_KEY}.warm_up_policy": shown.warm_up_policy > 0,
        f"{_KEY}.interventions": shown.interventions,
        "sac_config.use_replay_buffer": not keys.use_replay_buffer,
        "sac_config.discrete_dqn_like": greedy,
        "reward_signals.gail.strength": config.reward_signals.gail.strength > 0,
        "eval_config.episodes": not config.eval_config.episodes,
        "base_config.max_iter": config.base_config.max_iter > 0,
        "base_config.unity_args.editor": config.base_config.in_editor,
    }
    for key, (why, fix) in _AGAINST_OFFLINE.items():
        if holds[key]:
            yield Contradiction((f"{_KEY}.offline", key), why, fix)
