"""The keys of extras, which are declared here: a configuration is checked whole, whatever is installed."""

from __future__ import annotations

from typing import Any, Literal

from algorithm.core.fields import AnyConfig, AtLeastOne, Block, Finite, Natural, Whole, option

OLDEST, NEWEST = 9, 20
"""Operator sets: 9 is Barracuda's, 20 the newest that torch's TorchScript exporter is documented to write."""


class ExportConfig(Block):
    """A policy as an ONNX graph, which `--export FILE.onnx` writes."""

    opset: Whole = option(
        15,
        "ONNX operator set. 15: newest for Unity's Sentis. 9: Barracuda, without attention.",
        ge=OLDEST,
        le=NEWEST,
        resume="free",
    )
    check: bool = option(
        True,
        "Compare the graph with the policy before keeping it; needs onnxruntime. false: check operators "
        "only.",
        resume="free",
    )


class TuneConfig(Block):
    """Search of hyperparameters by `--tune`: what is searched, how, and what counts."""

    params: dict[str, Any] = option(
        {},
        "Search space: {key: {in: [...]}} or {key: {truncated: [lo, hi], log: true, step: s}}.",
    )
    trials: Whole = option(30, "Trials per study.", ge=1)
    sampler: Literal["tpe", "random"] = option("tpe", "tpe: learns from earlier trials.")
    startup: Whole = option(10, "Trials drawn at random before tpe learns.", ge=1)
    pruner: Literal["median", "none"] = option(
        "median", "Stops poor trials early. median: below the median of the others; with one seed only."
    )
    prune_after: Natural | None = option(
        None, "Environment steps of a trial before it can be pruned. null: a third of base_config.max_step."
    )
    metric: str = option(
        "eval/return_mean", "Metric to optimize, its last value (docs/metrics.md).", min_length=1
    )
    direction: Literal["maximize", "minimize"] = option(
        "maximize", "Whether a higher or a lower metric is better."
    )
    seeds: Whole = option(1, "Runs per trial, one per seed. Their mean is the trial's value.", ge=1)
    jobs: Whole = option(1, "Runs in parallel.", ge=1)
    final_seeds: Whole = option(
        5, "Fresh seeds to compare the best trial with the unchanged section at the end.", ge=0
    )

    @property
    def prunes(self) -> bool:
        """Whether poor trials are ended early: those of several seeds have no common curve."""
        return self.pruner == "median" and self.seeds == 1


def _other_window(before: AnyConfig, after: AnyConfig) -> str:
    """Return the effect of another ``self_play.window`` on a resumed run."""
    if (before.self_play.window > 0) != (after.self_play.window > 0):
        return "fixed: a checkpoint holds either past policies or none"
    return "free: the oldest ones beyond it are dropped"


class SelfPlayConfig(Block):
    """Games against past policies, for environments with teams. One team learns at a time."""

    window: Whole = option(
        0,
        "Past policies to play against, besides the untrained one. 0: no self-play. ML-Agents: 10.",
        ge=0,
        resume=_other_window,
    )
    save_steps: Whole = option(20_000, "Steps of the learning team between two past policies.", ge=1)
    team_change: AtLeastOne | None = option(
        None, "Steps after which another team learns. null: five times save_steps."
    )
    swap_steps: Whole = option(10_000, "Steps after which the opponents become another past policy.", ge=1)
    play_against_latest_model_ratio: Finite = option(
        0.5, "Probability that they become the newest policy instead.", ge=0, le=1
    )
    initial_elo: Finite = option(
        1200.0, "Rating of the untrained policy.", resume="fixed: ratings begin there"
    )

    @property
    def steps_of_team(self) -> int:
        """Steps after which another team learns."""
        return self.team_change or 5 * self.save_steps
