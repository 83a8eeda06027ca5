"""Configuration of evaluations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Strict

from algorithm.core.fields import Block, Limit, NamedEntry, Whole, option


class EvalConfig(Block):
    """Evaluation while training, on an environment of its own. One always runs at the end."""

    per_step: Limit = option(2000, "Environment steps between two evaluations. -1: only the final one.")
    episodes: Whole = option(10, "Episodes of one evaluation.", ge=1)
    max_step: Limit | None = option(
        None,
        "Steps after which an episode of an evaluation is cut off; its return is that of these steps. null: "
        "10,000 where neither the environment nor max_step_each_iter has a limit. -1: never.",
    )
    lesson: Literal["last", "current"] = option(
        "last",
        "Lesson of curricula in evaluations, --run, --eval and --video. last: the last one, wherever the "
        "training is. current: that of the training.",
    )
    video: bool = option(False, "Film the first episode of each evaluation.")
    wrappers: Annotated[tuple[NamedEntry, ...] | None, Strict(False)] = option(
        None,
        "Gymnasium wrappers of evaluations, --run, --eval and --video instead of base_config.wrappers, which "
        "then shape the training only. null: base_config.wrappers.",
        examples=[["Name", {"Name": {"argument": "value"}}]],
        names="wrappers",
    )
