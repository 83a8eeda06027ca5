"""Metrics of reward signals and cloning, with their meaning, and their charts in a report."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.core.console import panel, readout

SIGNALS = ("curiosity", "rnd", "gail")
"""Reward signals that may have a horizon of their own, by their names in metrics."""

OF_HORIZONS = {
    "loss/q": "critic loss",
    "value/q": "mean Q-value",
    "loss/value": "value loss",
    "ppo/explained_variance": "explained variance",
}
"""Metrics of a further horizon, without the suffix of its signal -> meaning."""

METRICS: Mapping[str, str] = {
    "loss/gail": "discriminator loss with gradient penalty",
    "gail/expert": "discriminator output for demonstrations; 1 is certain",
    "gail/policy": "discriminator output for the agent; 0 is certain",
    "gail/penalty": "gradient penalty, before its weight",
    "gail/bonus_mean": "mean GAIL reward",
    "rnd/bonus_mean": "mean RND bonus",
    "rnd/bonus_std": "standard deviation of the bonus",
    **{
        f"{name}_{signal}": f"{meaning} for this horizon"
        for name, meaning in OF_HORIZONS.items()
        for signal in SIGNALS
    },
    "loss/cloning": "behavioral cloning loss",
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
"""Lines of the live panel on reward signals; lines without data are left out."""
