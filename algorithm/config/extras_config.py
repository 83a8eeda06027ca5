"""The keys of extras, which are declared here: a configuration is checked whole, whatever is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from typing_extensions import override

from algorithm.core.fields import Block, Contradiction, Natural, Positive, Whole, contradicting, option

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
    sampler: Literal["tpe", "random", "grid"] = option(
        "tpe", "tpe: learns from earlier trials. grid: all combinations."
    )
    startup: Whole = option(10, "Trials drawn at random before tpe learns.", ge=1)
    pruner: Literal["auto", "median", "hyperband", "wilcoxon", "none"] = option(
        "auto",
        "Stops poor trials early. auto: median; wilcoxon (a test over the seeds) with several seeds; none "
        "with cost.",
    )
    prune_after: Natural | None = option(
        None, "Environment steps of a trial before it can be pruned. null: a third of base_config.max_step."
    )
    metric: str = option("eval/return_mean", "Metric to optimize (docs/metrics.md).", min_length=1)
    value: Literal["last", "best", "auc"] = option(
        "last", "Value of a run: the last one of its metric, the best one, or the mean over steps."
    )
    direction: Literal["maximize", "minimize"] = option(
        "maximize", "Whether a higher or a lower metric is better."
    )
    cost: Literal["core_seconds"] | None = option(
        None, "Second objective, minimized: processor seconds of a trial. null: none."
    )
    seeds: Whole = option(1, "Runs per trial, one per seed. Their mean is the trial's value.", ge=1)
    jobs: Whole = option(1, "Runs in parallel.", ge=1)
    timeout: Positive | None = option(None, "Minutes after which no trial starts. null: no limit.")
    final_seeds: Whole = option(
        5, "Fresh seeds to compare the best trial with the unchanged section at the end.", ge=0
    )

    @property
    def pruning(self) -> str:
        """The pruner, with ``auto`` resolved."""
        if self.pruner != "auto":
            return self.pruner
        if self.cost is not None:
            return "none"
        return "wilcoxon" if self.seeds > 1 else "median"

    @override
    def contradictions(self) -> Iterator[Contradiction]:
        """Yield pruners that cannot compare the trials of such a study."""
        several = self.seeds > 1
        return contradicting(
            (
                several and self.pruner in ("median", "hyperband"),
                ("seeds", "pruner"),
                f"{self.pruner} compares the curves of single runs, and a trial has {self.seeds} seeds",
                "set pruner: wilcoxon, which compares seeds, or seeds: 1",
            ),
            (
                not several and self.pruner == "wilcoxon",
                ("seeds", "pruner"),
                "wilcoxon is a test over seeds, and a trial has one",
                "set pruner: median, or seeds: 5 or more",
            ),
            (
                self.cost is not None and self.pruner not in ("auto", "none"),
                ("cost", "pruner"),
                "with two objectives, unfinished trials cannot be ranked",
                "set pruner: none, or cost: null",
            ),
        )
