"""The keys of ``sac_config``. Imports no torch, since configuration is read before torch is loaded."""

from __future__ import annotations

from algorithm.agents.off_policy import rules
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.fields import AnyConfig, Finite, Positive, option


class SacConfig(OffPolicyConfig):
    """Soft Actor-Critic (Haarnoja et al. 2018, arXiv 1812.05905): its temperatures and discrete policy."""

    init_log_alpha: Finite = option(
        -4.6,
        "Natural logarithm of the entropy temperature at the start; -4.6 is a temperature of 0.01.",
        resume="fixed: it says where the temperature began, which is in the checkpoint",
    )
    use_auto_alpha: bool = option(
        True,
        "Learn the temperature towards a target entropy. false: it stays at exp(init_log_alpha).",
        resume="fixed: the temperature is either trained or not, and the optimiser has numbers for it",
    )
    target_c_alpha: Finite = option(
        1.0,
        "The continuous target entropy is minus this times the number of continuous actions. Larger: less "
        "random.",
    )
    target_d_alpha: Finite = option(
        0.6,
        "The discrete target entropy is this share of the largest possible one, log n of the n actions that "
        "are allowed. Larger: more random.",
        ge=0,
        le=1,
    )
    alpha_learning_rate: Positive | None = option(
        0.007,
        "Step size of the temperatures, ten times that of the networks, so that it hardly matters where they "
        "begin. null: learning_rate.",
    )
    discrete_soft_target: bool = option(
        False,
        "Targets hold the entropy bonus of discrete actions too. false: the discrete policy alone has it, "
        "values are those of the rewards.",
    )
    discrete_dqn_like: bool = option(
        False,
        "Discrete actions are the greedy ones of the critic; there is no discrete policy.",
        resume="fixed: a discrete policy is either trained or not",
        shared=True,
    )
    discrete_dqn_epsilon: Finite = option(
        0.1,
        "Share of random actions with discrete_dqn_like, while training.",
        ge=0,
        le=1,
        shared=True,
    )


contradictions, misplaced = rules.contradictions, rules.misplaced

CLONES = MIXES = True


def sac_keys(config: AnyConfig) -> SacConfig:
    """Return the keys of SAC in a behaviour's configuration."""
    keys: SacConfig = config.sac_config
    return keys
