"""Configuration of checkpoints, and of W&B."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Strict

from algorithm.core.fields import Block, Whole, option

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
