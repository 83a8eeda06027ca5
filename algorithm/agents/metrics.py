"""Metrics of reward signals and cloning, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.panels import panel, readout

SIGNALS = ("curiosity", "rnd", "gail")
"""Signals that may have a horizon of their own, by their names in metrics."""

OF_HORIZONS = {
    "loss/q": "loss of the critics",
    "value/q": "mean of what the critics say about the stored actions,",
    "loss/value": "mean squared difference between values and their targets,",
    "ppo/explained_variance": "share of the targets' variance that the values explained before the update,",
}
"""Metrics of a further horizon, without the name of its signal."""

METRICS: Mapping[str, str] = {
    "loss/gail": "loss of GAIL's discriminator, the penalty on its slope included",
    "gail/expert": "mean D of demonstrated transitions: 1 is sure of them, ½ knows nothing",
    "gail/policy": "mean D of the agent's own transitions: 0 is sure of them",
    "gail/penalty": "mean of (‖∇f‖ − 1)² between demonstrated and own transitions, D = σ(f)",
    "gail/bonus_mean": "mean reward of GAIL, its strength included",
    "gail/kl": "nats that the code of use_vail holds of a transition, a mean of demonstrated and own ones",
    "gail/beta": "price of a nat of that code",
    "rnd/bonus_mean": "mean bonus of random network distillation that is added to a reward",
    "rnd/bonus_std": "standard deviation of that bonus within an update",
    **{
        f"{name}_{signal}": f"{meaning} of the horizon of {signal}"
        for name, meaning in OF_HORIZONS.items()
        for signal in SIGNALS
    },
    "loss/cloning": "loss of behavioural cloning: squared error of continuous actions, −log π of choices",
}

PANELS = (
    panel("Discriminator", expert="gail/expert", policy="gail/policy"),
    panel("Reward of GAIL", mean="gail/bonus_mean"),
    panel("Values of signals", curiosity="value/q_curiosity", rnd="value/q_rnd", gail="value/q_gail"),
    panel("Loss of cloning", log=True, loss="loss/cloning"),
)

READOUTS = (
    readout("curiosity", bonus="curiosity/bonus_mean", spread="curiosity/bonus_std", loss="loss/curiosity"),
    readout("rnd", bonus="rnd/bonus_mean", spread="rnd/bonus_std", loss="loss/rnd"),
    readout("gail", reward="gail/bonus_mean", expert="gail/expert", policy="gail/policy", loss="loss/gail"),
    readout("Q apart", **{signal: f"value/q_{signal}" for signal in SIGNALS}),
)
"""Lines of the live panel on the signals that are on."""
