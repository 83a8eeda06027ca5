"""Keys of ``replay_config``. Imports no torch: the configuration is read before torch is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from typing_extensions import override

from algorithm.core.fields import (
    AnyConfig,
    Block,
    Contradiction,
    Finite,
    NotNegative,
    SamplerEntry,
    Share,
    Whole,
    option,
)

_NEW_PRIORITIES = "free: for priorities set from now on"
_NEW_WINDOWS = "free: for windows sampled from now on"


def _new_capacity(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``capacity``: a larger one holds every stored row."""
    if new.replay_config.capacity < old.replay_config.capacity:
        return "fixed: the stored rows would not all fit; it can only grow"
    return "free"


class ReplayConfig(Block):
    """Options of prioritised experience replay (Schaul et al. 2016, arXiv 1511.05952)."""

    capacity: Whole = option(
        524288,
        "Transitions to store. They must fit in nine tenths of the free memory.",
        ge=2,
        le=2**29 - 1,
        resume=_new_capacity,
    )
    alpha: Finite = option(
        0.4,
        "Priority exponent of PER. 0: uniform sampling.",
        ge=0,
        le=1,
        resume="fixed: the stored priorities were made with it",
    )
    beta: Finite = option(
        0.4,
        "Initial exponent of the importance-sampling weights. Grows to 1.",
        ge=0,
        le=1,
        resume="fixed: beta started from it and has grown since",
    )
    beta_increment_per_sampling: NotNegative | None = option(
        None,
        "Added to beta per sampled batch. null: linear, reaching 1 at max_step; constant without a max_step.",
        resume="free: a number applies from the current beta, null as if set from the start",
    )
    td_error_min: Finite = option(
        0.01,
        "Smaller TD errors count as this, so that every row can be drawn.",
        ge=0,
        resume=_NEW_PRIORITIES,
    )
    td_error_max: Finite = option(10.0, "Larger TD errors count as this.", gt=0, resume=_NEW_PRIORITIES)

    sampler: SamplerEntry | None = option(
        None,
        "Your sampler, module:Class or {module:Class: {kwargs}} (docs/parts.md). null: by use_priority.",
        resume="fixed: another sampler cannot use its data on stored rows",
        examples=["module:Class", {"module:Class": {"argument": "value"}}],
    )

    her_ratio: Share | Literal["auto"] = option(
        "auto",
        "Share of sampled windows relabeled with an achieved goal (HER). auto: 0.8 if the environment "
        "has goals, else 0.",
        resume=_NEW_WINDOWS,
    )
    on_device: bool = option(
        False,
        "Also keep observations in the learner's GPU memory, which saves copying batches.",
        resume="free",
    )

    @override
    def contradictions(self) -> Iterator[Contradiction]:
        """Yield a contradiction if ``td_error_min`` is above ``td_error_max``."""
        if self.td_error_min > self.td_error_max:
            yield Contradiction(
                ("td_error_min", "td_error_max"),
                f"{self.td_error_min:g} is above td_error_max = {self.td_error_max:g}: nothing fits between",
                "lower td_error_min or raise td_error_max",
            )
