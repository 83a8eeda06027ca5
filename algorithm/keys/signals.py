"""The keys of ``nn_config``, ``reward_signals`` and ``behavioral_cloning``, which any family may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from algorithm.core.fields import (
    AnyConfig,
    AtLeastOne,
    Block,
    Finite,
    Share,
    Whole,
    block,
    option,
)

_OTHER_NETWORKS = "fixed: the networks would differ from the trained ones"
_OTHER_HORIZON = "fixed: values were learned for the old horizon"
_UNTRAINED = "fixed: what it trains is not in the checkpoint, or would be lost"


def _on_as_before(read: Callable[[AnyConfig], float]) -> Callable[[AnyConfig, AnyConfig], str]:
    """Return the resume rule of a strength: free, unless it turns on or off the training of networks."""

    def rule(old: AnyConfig, new: AnyConfig) -> str:
        """Return the effect of another strength on a resumed run."""
        return "free" if (read(old) > 0) == (read(new) > 0) else _UNTRAINED

    return rule


class NnConfig(Block):
    """Keyword arguments of the network classes, the task's own or the default ones.

    Declared here and not beside the networks because importing ``algorithm.nn`` imports torch.
    """

    rep: dict[str, Any] | None = option(
        None,
        "Arguments of ModelRep (docs/networks.md).",
        resume=_OTHER_NETWORKS,
        shared=True,
    )
    policy: dict[str, Any] | None = option(
        None,
        "Arguments of ModelPolicy (docs/networks.md). On-policy algorithms also have std and log_std_init.",
        resume=_OTHER_NETWORKS,
        shared=True,
    )
    q: dict[str, Any] | None = option(
        None,
        "Arguments of ModelQ (docs/networks.md).",
        resume=_OTHER_NETWORKS,
        shared=True,
    )
    v: dict[str, Any] | None = option(
        None,
        "Arguments of ModelV, for on-policy algorithms (docs/networks.md).",
        resume=_OTHER_NETWORKS,
        shared=True,
    )


class ExtrinsicSignal(Block):
    """The environment's reward."""

    strength: Finite = option(
        1.0, "Factor on the environment's reward. 0: learn from other signals only.", ge=0
    )


def _gamma() -> Any:  # noqa: ANN401 - as option
    """Declare the discount factor of a signal."""
    return option(
        None,
        "Discount factor of this reward. null: the agent's. A different one adds critics or value networks.",
        resume=_OTHER_HORIZON,
        shared=True,
    )


def _ends() -> Any:  # noqa: ANN401 - as option
    """Declare whether a signal's value ends with the task."""
    return option(
        True,
        "Returns end at terminal states. false: bootstrap there too, so the end of an episode costs nothing.",
        resume=_OTHER_HORIZON,
        shared=True,
    )


class CuriositySignal(Block):
    """Horizon of the bonus of sac_config.curiosity."""

    gamma: Share | None = _gamma()
    ends: bool = _ends()


class RndSignal(Block):
    """Bonus for what is new, by random network distillation (arXiv 1810.12894)."""

    strength: Finite = option(
        0.0,
        "Factor on the bonus. 0: off.",
        ge=0,
        shared=True,
        resume=_on_as_before(lambda config: config.reward_signals.rnd.strength),
    )
    gamma: Share | None = _gamma()
    ends: bool = _ends()
    learning_rate: Finite = option(0.0001, "Learning rate of its network.", gt=0)


class GailSignal(Block):
    """Reward for behaviour like demonstrations, by a discriminator (arXiv 1606.03476)."""

    strength: Finite = option(
        0.0,
        "Factor on the reward. Needs demonstrations.path. 0: off.",
        ge=0,
        resume=_on_as_before(lambda config: config.reward_signals.gail.strength),
    )
    gamma: Share | None = _gamma()
    ends: bool = _ends()
    form: Literal["GAIL", "AIRL"] = option(
        "GAIL",
        "GAIL: −log(1 − D), never negative, favors long episodes. AIRL: log D − log(1 − D), of either sign.",
        resume="fixed: values were learned for the old form",
    )
    learning_rate: Finite = option(0.0003, "Learning rate of the discriminator D.", gt=0)
    use_actions: bool = option(
        True,
        "The discriminator sees actions. false: observations only.",
        resume=_OTHER_NETWORKS,
    )
    gradient_penalty: Finite = option(
        10.0, "Coefficient of (‖∇D's logit‖ − 1)² in the discriminator's loss.", ge=0
    )
    dense_n: Whole = option(128, "Units per layer of the discriminator.", ge=1, resume=_OTHER_NETWORKS)
    dense_depth: Whole = option(2, "Layers of the discriminator.", ge=0, resume=_OTHER_NETWORKS)


class RewardSignals(Block):
    """Sources of the reward that is learned from; it is their sum."""

    updates: AtLeastOne = option(
        1,
        "Updates of the signals' networks per update of the agent. Each draws new demonstrations.",
    )
    extrinsic: ExtrinsicSignal = block(ExtrinsicSignal, "The environment's own reward.")
    curiosity: CuriositySignal = block(CuriositySignal, "The horizon of the curiosity bonus.")
    rnd: RndSignal = block(RndSignal, "A bonus for novel observations (RND).")
    gail: GailSignal = block(GailSignal, "A reward for resembling the demonstrations (GAIL).")


class BehavioralCloning(Block):
    """Supervised learning of demonstrated actions."""

    strength: Finite = option(
        0.0,
        "Factor on the algorithm's learning rate for cloning. 0: off.",
        ge=0,
        resume=_on_as_before(lambda config: config.behavioral_cloning.strength),
    )
    steps: Whole = option(0, "Environment steps until the cloning rate reaches 0. 0: constant.", ge=0)
    batch_size: AtLeastOne | None = option(
        None, "Sequences per cloning step. null: as in the algorithm's updates."
    )
    pretrain: Whole = option(0, "Cloning steps before the first environment step, then an evaluation.", ge=0)
    updates: Whole = option(1, "Cloning steps per update of the agent.", ge=1)


def sharing(config: AnyConfig) -> list[int]:
    """Return a number for the horizon of the agent and of each signal that is on; equal ones share critics.

    Number k means the horizon of entry k: 0 is the agent, then follow the signals.
    """
    signals, agent = config.reward_signals, config.run.gamma
    is_on = (
        (signals.curiosity, config.run.curiosity is not None),
        (signals.rnd, signals.rnd.strength > 0),
        (signals.gail, signals.gail.strength > 0),
    )
    ends = [(agent if keys.gamma is None else keys.gamma, keys.ends) for keys, on in is_on if on]
    horizons = [(agent, True), *ends]
    return [horizons.index(horizon) for horizon in horizons]
