"""Configuration of evaluations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Strict

from algorithm.core.fields import Block, Limit, NamedEntry, Whole, option

USUAL, EARLY = 2000, 1000
"""Steps between evaluations where ``per_step`` is null, and between the first ones."""


class EvalConfig(Block):
    """Evaluation while training, on an environment of its own. Also one at the end."""

    per_step: Limit | None = option(
        None,
        "Environment steps between evaluations. null: 2,000, and 1,000 before step 8,000. -1: only the final "
        "one.",
    )
    episodes: Whole = option(
        10,
        "Episodes per evaluation. 0: no evaluations, for a robot that cannot be opened twice.",
        ge=0,
        le=100_000,
    )
    max_step: Limit | None = option(
        None,
        "Limit of evaluation episodes in steps. null: 10,000 if nothing else limits them. -1: none.",
    )
    lesson: Literal["last", "current"] = option(
        "last",
        "Curriculum lesson in evaluations, --run, --eval and --video: the last one, or the training's "
        "current one.",
    )
    video: bool = option(False, "Film the first episode of each evaluation.")
    wrappers: Annotated[tuple[NamedEntry, ...] | None, Strict(False)] = option(
        None,
        "Replaces base_config.wrappers in evaluations, --run, --eval and --video. null: the same.",
        examples=[["Name", {"Name": {"argument": "value"}}]],
    )
