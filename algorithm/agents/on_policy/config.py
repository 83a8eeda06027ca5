"""The rules of on-policy keys: which are barred, contradict others or have no effect. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from algorithm.agents.on_policy.family_config import BLOCKS, CLASSES, processes
from algorithm.core.fields import AnyConfig, Contradiction, contradicting

MEANINGLESS = {
    "siamese": "its losses need windows from a replay",
    "use_prediction": "its losses need windows from a replay",
    "use_rnd": "an action chosen among several does not have the policy's probability",
    "action_noise": "an action with noise does not have the policy's probability",
    "discrete_dqn_like": "there is no action-value critic",
    "use_add_with_td": "there are no priorities",
}
"""Keys of ``sac_config`` that must be off with these families -> why."""

BARRED = (
    *(f"sac_config.{key}" for key in MEANINGLESS),
    "base_config.preset",
    "base_config.noise_increasing_rate",
)
"""Dotted keys of all blocks that must be off with these families."""


CLONES = True
"""Demonstrated actions can be cloned: one loss trains encoder and policy."""

SHARED = frozenset(
    [
        "nn",
        "seed",
        "network_seed",
        "threads",
        "matmul_precision",
        "gamma",
        "critic_observations",
        "seq_encoder",
        "burn_in_step",
        "curiosity",
        "curiosity_strength",
        "extensions",
        "learning_rate_schedule",
        "learning_rate_hold",
        "learning_rate_end",
        "use_normalization",
        "reward_scaling",
        "write_summary_per_step",
        "save_model_per_step",
        "random_params",
    ]
)
"""Keys of ``sac_config`` that apply to these families, too."""


_NETWORKS = {
    "q": "has no action-value critics",
    "rep.random_shift": "learns from unaugmented observations",
}
"""Keys of ``nn_config`` without effect -> why."""


def _other_envs(old: AnyConfig, new: AnyConfig) -> str:
    if new.base_config.n_envs < old.base_config.n_envs:
        return (
            "fixed: the rollout in the checkpoint has rollout_step · n_envs steps, too many for fewer "
            "environments"
        )
    return "free: the open episodes end as truncated, and a rollout has more steps"


RESUME_RULES = {"base_config.n_envs": _other_envs}
"""Rules of keys outside of the families' blocks; see :func:`algorithm.agents.registry.resume_rule`."""


def misplaced(algorithm: str, block: str, key: str) -> tuple[str, str] | None:
    """Return why a key has no effect with on-policy learning, and what to do; None if it has an effect."""
    if block == "replay_config":
        return f"{algorithm} has no replay: it learns from the last rollout", "leave it out"
    if block == "nn_config" and key in _NETWORKS:
        return f"{algorithm} {_NETWORKS[key]}", "leave it out"
    if block != "sac_config" or key in SHARED or key in MEANINGLESS:
        return None
    block_name = BLOCKS[algorithm]
    known = key in CLASSES[algorithm].model_fields
    fix = f"set {block_name}.{key}" if known else "leave it out"
    return f"it is for SAC, and algorithm is {algorithm}", fix


def idle(config: AnyConfig, warm_up: int) -> Iterator[str]:
    """Yield a line for each key that is set and has no effect, and for a training without an update.

    warm_up: steps before the first update
    """
    name = BLOCKS[config.algorithm]
    keys, base, run = getattr(config, name), config.base_config, config.run
    if 0 < base.max_step < warm_up:
        yield (
            f"nothing will be learned: a rollout has {keys.rollout_step * base.n_envs:,} steps "
            f"({name}.rollout_step times base_config.n_envs), the first update comes after {warm_up:,}, and "
            f"the training ends at {base.max_step:,}"
        )
    if run.seq_encoder is None and keys.sequence_step != type(keys).model_fields["sequence_step"].default:
        yield f"{name}.sequence_step has no effect: there is no memory (sac_config.seq_encoder)"
    if keys.clip_schedule != "constant" and base.max_step < 0:
        yield f"{name}.clip_schedule has no effect: base_config.max_step sets no end"


def contradictions(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield the contradictions of on-policy learning, with dotted keys from the top level."""
    yield from contradictions_of_unused_keys(config, MEANINGLESS)
    yield from _of_rollouts(config)
    if processes(config) > 1:
        yield from _of_processes(config)


def contradictions_of_unused_keys(config: AnyConfig, keys: Mapping[str, str]) -> Iterator[Contradiction]:
    """Yield a contradiction for each set key in ``keys`` (of ``sac_config``: name -> why).

    Also for ``preset``, ``noise_increasing_rate`` and ``control_hz`` of ``base_config``.
    """
    base = config.base_config
    barred = {f"sac_config.{key}": (getattr(config.run, key), why) for key, why in keys.items()}
    barred["base_config.preset"] = base.chosen_preset, "presets configure SAC's critics"
    barred["base_config.noise_increasing_rate"] = base.noise_increasing_rate, keys["action_noise"]
    barred["base_config.control_hz"] = base.control_hz, "the next action cannot wait for a rollout's updates"
    for path, (value, why) in barred.items():
        if value:
            key = path.partition(".")[2]
            yield Contradiction(
                (path, "algorithm"), f"not with {config.algorithm}: {why}", f"leave {key} out"
            )


def _of_rollouts(config: AnyConfig) -> Iterator[Contradiction]:
    run, name = config.run, BLOCKS[config.algorithm]
    keys = getattr(config, name)
    size, parts = keys.rollout_step * config.base_config.n_envs, keys.num_minibatch
    too_small = parts > 1 and size // parts < 2
    yield from contradicting(
        (
            run.seq_encoder and config.algorithm == "ACKTR",
            ("sac_config.seq_encoder", "algorithm"),
            "the natural gradient works for linear and convolutional layers only, not for a memory",
            "leave seq_encoder out, or set algorithm: A2C",
        ),
        (
            run.seq_encoder and not keys.shared,
            (f"{name}.shared", "sac_config.seq_encoder"),
            "only the policy's encoder acts, so the memory of a second one is not stored",
            f"leave {name}.shared or seq_encoder out",
        ),
        (
            too_small,
            (f"{name}.num_minibatch", f"{name}.rollout_step"),
            f"a rollout of {size} steps cannot be split into {parts} minibatches of two or more",
            "lower num_minibatch, or raise rollout_step or n_envs",
        ),
        (
            run.seq_encoder and not too_small and size // keys.sequence < parts,
            (f"{name}.num_minibatch", f"{name}.sequence_step"),
            f"with a memory, a rollout of {size} steps has {size // keys.sequence} sequences of "
            f"{keys.sequence}, too few for {parts} minibatches",
            "lower num_minibatch or sequence_step, or raise rollout_step or n_envs",
        ),
    )


def _of_processes(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield the contradictions of A3C's several processes."""
    base, run, key = config.base_config, config.run, f"{BLOCKS[config.algorithm]}.num_processes"
    signals = {"rnd": config.reward_signals.rnd, "gail": config.reward_signals.gail}
    alone = "each process has its own, single environment"
    not_shared = "only encoder, policy and values are shared; every process would have its own copy of it"
    barred = {
        "base_config.n_envs": (base.n_envs > 1, alone, "leave n_envs out, and raise num_processes"),
        "base_config.workers": (base.workers > 0, alone, "leave workers out"),
        "base_config.env_type": (
            base.kind.player,
            "all Unity players are started by one process",
            "set num_processes: 1, or algorithm: A2C with n_envs",
        ),
        "base_config.reset_on_iteration": (
            base.reset_on_iteration,
            "processes do not wait for each other's episodes",
            "set reset_on_iteration: false",
        ),
        "sac_config.curiosity": (bool(run.curiosity), not_shared, "set algorithm: A2C"),
        "sac_config.extensions": (bool(run.extensions), not_shared, "set algorithm: A2C"),
        **{
            f"reward_signals.{name}.strength": (bonus.strength > 0, not_shared, "set algorithm: A2C")
            for name, bonus in signals.items()
        },
        "behavioral_cloning.strength": (
            config.behavioral_cloning.strength > 0,
            not_shared,
            "set algorithm: A2C",
        ),
    }
    for path, (there, why, fix) in barred.items():
        if there:
            yield Contradiction((path, key), f"not with several processes: {why}", fix)
