"""Configuration of checkpoints, and of W&B."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Strict

from algorithm.core.fields import Block, Whole, option

_OTHER_RUN = "free: another run of W&B begins, with all rows so far"


class CheckpointConfig(Block):
    """Retention of checkpoints."""

    keep: Whole = option(3, "How many of the newest.", ge=1)
    best: bool = option(True, "Also the one with the best evaluation.")
    replay: Literal["always", "last", "never"] = option(
        "always", "With which checkpoints the replay is saved."
    )
    milestones: Annotated[tuple[Whole, ...], Strict(False)] = option(
        (),
        "Environment steps whose checkpoints are kept for ever.",
        resume="free: those that were kept for ever so far stay",
    )


class WandbConfig(Block):
    """Weights & Biases: what it gets, and where."""

    project: str | None = option(
        None,
        "Project that the run's metrics, configuration, films and plots are uploaded to. null: no W&B.",
        min_length=1,
        resume=_OTHER_RUN,
    )
    entity: str | None = option(
        None,
        "Team or user that the project belongs to. null: the default one of the account.",
        min_length=1,
        resume=_OTHER_RUN,
    )
    mode: Literal["online", "offline"] = option(
        "online",
        "offline: nothing is sent. Each start of the run writes all rows so far into a folder of its own "
        "below `wandb/` of the run's folder, and `wandb sync` uploads it.",
    )
    tags: Annotated[tuple[str, ...], Strict(False)] = option((), "Tags of the run on W&B.")
    group: str | None = option(
        None, "Group of the run on W&B, such as one experiment with several seeds.", min_length=1
    )
