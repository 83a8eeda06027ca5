"""The length at which an evaluation cuts an episode off."""

from __future__ import annotations

from collections.abc import Iterable

from algorithm.config.schema import Config
from algorithm.evaluation.evaluate import Performance

DEFAULT_MAX_STEP = 10_000
"""``eval_config.max_step`` where no episode has a limit that is known."""


def episode_limit(config: Config, time_limit: int | None) -> int:
    """Return the steps after which an episode of an evaluation is cut off; −1 for never.

    time_limit: the environment's own, where it is known
    """
    of_training, own = config.base_config.max_step_each_iter, config.eval_config.max_step
    if own is None:
        own = -1 if time_limit or of_training > 0 else DEFAULT_MAX_STEP
    return min((limit for limit in (of_training, own) if limit > 0), default=-1)


def cut_off_line(performances: Iterable[Performance], config: Config, time_limit: int | None) -> str | None:
    """Return a warning if episodes were cut off by ``eval_config.max_step`` alone.

    time_limit: as for :func:`episode_limit`
    """
    limit = episode_limit(config, time_limit)
    lengths = [length for performance in performances for length in performance.lengths]
    cut = sum(length == limit for length in lengths)
    if not cut or limit in (config.base_config.max_step_each_iter, time_limit):
        return None
    return (
        f"{cut} of {len(lengths)} episodes of the evaluation were cut off after {limit:,} steps "
        "(eval_config.max_step): their returns are those of these steps"
    )
