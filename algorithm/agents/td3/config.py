"""The keys of ``td3_config``. Imports no torch."""

from __future__ import annotations

from algorithm.agents.off_policy import rules
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.fields import AnyConfig, Block, Finite, Positive, Whole, option

BLOCKS = {"TD3": "td3_config"}
"""Name of the family -> its block of keys."""

contradictions = rules.contradictions

CLONES = MIXES = True


class Td3Config(Block):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477)."""

    policy_delay: Whole = option(2, "Critic updates per update of policy and target networks.", ge=1)
    exploration_noise: Positive = option(
        0.1,
        "Standard deviation of training noise on actions in [−1, 1]. action_noise adds to it.",
        shared=True,
        resume="free: for actions from now on",
    )
    target_noise: Finite = option(0.2, "Standard deviation of the target policy's noise.", ge=0)
    target_noise_clip: Finite = option(0.5, "Clip range of that noise.", ge=0)


def td3_block(config: AnyConfig) -> Td3Config:
    """Return ``td3_config`` of a behaviour's configuration."""
    block: Td3Config = config.td3_config
    return block


def shared_keys(config: AnyConfig) -> OffPolicyConfig:
    """Return the shared keys with TD3's values: ``policy_delay`` for both delays, uncorrected targets."""
    keys: OffPolicyConfig = config.sac_config
    delay = td3_block(config).policy_delay
    changed = {"policy_update_per_step": delay, "update_target_per_step": delay, "use_n_step_is": False}
    return keys.model_copy(update=changed)


_DELAYED = ("policy_update_per_step", "update_target_per_step")
_OF_NETWORKS = {
    "v": ("TD3 uses action-value critics, nn_config.q", "leave it out"),
    "policy.log_std": ("TD3 has its own key for the noise", "set td3_config.exploration_noise"),
}
_OF_DENSITIES = ("use_n_step_is", "v_lambda", "v_rho", "v_c")


def misplaced(algorithm: str, block: str, key: str) -> tuple[str, str] | None:
    """Return why a key of a block has no effect with TD3, and what to do; None if it has an effect."""
    if block != "sac_config":
        return _OF_NETWORKS.get(key) if block == "nn_config" else None
    if key in _DELAYED:
        return "TD3 has one delay for policy and targets", "set td3_config.policy_delay"
    if key in _OF_DENSITIES:
        return "a deterministic policy has no density, so targets are not corrected", "leave it out"
    if key not in OffPolicyConfig.model_fields and key != "random_params":
        return "it is for SAC's temperatures or discrete policy, and algorithm is TD3", "leave it out"
    return None
