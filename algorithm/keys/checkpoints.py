"""Keys of checkpoints, evaluations and W&B."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Strict

from algorithm.core.fields import Block, Limit, NamedEntry, Whole, option

_OTHER_RUN = "free: a new W&B run starts, with all rows so far"


class CheckpointConfig(Block):
    """Retention of checkpoints."""

    keep: Whole = option(3, "Number of newest checkpoints to keep.", ge=1)
    best: bool = option(True, "Also keep the one with the best evaluation.")
    replay: Literal["always", "last", "never"] = option(
        "always", "Which checkpoints include the replay buffer."
    )
    milestones: Annotated[tuple[Whole, ...], Strict(False)] = option(
        (),
        "Environment steps whose checkpoints are kept forever.",
        resume="free: checkpoints kept so far stay",
    )


class WandbConfig(Block):
    """Weights & Biases: what it gets, and where."""

    project: str | None = option(
        None,
        "W&B project for metrics, configuration, films and plots. null: no W&B.",
        min_length=1,
        resume=_OTHER_RUN,
    )
    entity: str | None = option(
        None,
        "W&B team or user. null: the account's default.",
        min_length=1,
        resume=_OTHER_RUN,
    )
    mode: Literal["online", "offline"] = option(
        "online",
        "offline: send nothing. Each start writes all rows so far into a new folder below `wandb/` for "
        "`wandb sync`. WANDB_MODE wins.",
    )
    tags: Annotated[tuple[str, ...], Strict(False)] = option((), "Tags of the run on W&B.")
    group: str | None = option(None, "W&B group, such as an experiment with several seeds.", min_length=1)


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
