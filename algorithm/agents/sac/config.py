"""The keys of ``sac_config``. Imports no torch: the configuration is read before torch is loaded."""

from __future__ import annotations

from algorithm.agents.off_policy import rules
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.fields import AnyConfig, Finite, Positive, option


class SacConfig(OffPolicyConfig):
    """Soft Actor-Critic (Haarnoja et al. 2018, arXiv 1812.05905): its temperatures and discrete policy."""

    init_log_alpha: Finite = option(
        -4.6,
        "Initial log of the entropy coefficient. -4.6 is a coefficient of 0.01.",
        resume="fixed: the temperature in the checkpoint started from it",
    )
    use_auto_alpha: bool = option(
        True,
        "Learn the entropy coefficient. false: keep exp(init_log_alpha).",
        resume="fixed: the optimizer either has state for the temperature or not",
    )
    target_c_alpha: Finite = option(
        1.0,
        "Continuous target entropy is minus this per action dimension. Larger: less random.",
    )
    target_d_alpha: Finite = option(
        0.6,
        "Discrete target entropy as a share of log n, for n allowed actions. Larger: more random.",
        ge=0,
        le=1,
    )
    alpha_learning_rate: Positive | None = option(
        0.007,
        "Learning rate of the entropy coefficient. If it is high, init_log_alpha matters little. null: "
        "learning_rate.",
    )
    discrete_soft_target: bool = option(
        False,
        "Include the entropy bonus of discrete actions in targets. false: only the policy's loss has it.",
    )
    discrete_dqn_like: bool = option(
        False,
        "Choose discrete actions greedily by the critic, without a discrete policy.",
        resume="fixed: a discrete policy is either trained or not",
        shared=True,
    )
    discrete_dqn_epsilon: Finite = option(
        0.1,
        "With discrete_dqn_like: share of random actions in training.",
        ge=0,
        le=1,
        shared=True,
    )


contradictions, misplaced = rules.contradictions, rules.misplaced

CLONES = MIXES = True


def sac_keys(config: AnyConfig) -> SacConfig:
    """Return ``sac_config`` of a behaviour's configuration."""
    keys: SacConfig = config.sac_config
    return keys
