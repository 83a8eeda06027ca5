"""Names of all metrics with their meanings, which a test compares with ``docs/metrics.md``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from algorithm.agents import registry as families
from algorithm.core.errors import UsageError
from algorithm.core.plugins import PLUGIN_METRICS

_OF_EPISODES: Mapping[str, str] = {
    "rollout/return_mean": "mean return of training episodes",
    "rollout/return_min": "lowest return",
    "rollout/return_max": "highest return",
    "rollout/return_std": "standard deviation of returns",
    "rollout/length": "mean length of training episodes",
    "eval/return_mean": "mean return of evaluation episodes",
    "eval/return_ci95": "half-width of its 95 % confidence interval",
    "eval/length": "mean length of evaluation episodes",
}

_OF_ALL: Mapping[str, str] = {
    "replay/size": "transitions in the replay buffer",
    "replay/priority_mean": "mean TD error behind the priorities",
    "replay/is_weight_min": "smallest importance-sampling weight",
    "replay/age_mean": "mean age of samples, in rows",
    "optim/grad_norm": "gradient norm of critics and encoder before clipping",
    "optim/skipped": "optimizer steps skipped because of NaN or infinity",
    "time/env_steps_per_s": "environment steps per second",
    "time/updates_per_s": "updates per second",
    "time/cpu_seconds": "CPU seconds of the process and its children",
    "time/replay_ratio": "updates per environment step, since the first update",
    "time/overrun": "share of actions that were late by more than 5 % of the period (control_hz)",
    "time/delay_ms": "greatest delay of an action since the last summary, in milliseconds (control_hz)",
    "time/share_act": "choosing actions",
    "time/share_step": "stepping environments and waiting for workers",
    "time/share_wait": "learner waits for actors",
    "time/share_store": "storing transitions",
    "time/share_sample": "sampling batches",
    "time/share_update": "updates and new priorities",
    "time/share_compile": "compiling updates",
    "sys/rss_mb": "resident memory in MiB",
    "ds/actors": "connected actors",
    "ds/lag": "mean age of actors' weights, in versions",
    "ds/waiting": "messages waiting for the learner",
    "ds/dropped": "steps that actors dropped without a learner",
    "ds/lost": "steps an earlier learner received but did not save",
    "ds/stale": "steps dropped because of old weights",
    "ds/rejected": "refused messages and connections",
    "ds/duplicates": "messages that arrived twice",
    "ds/gaps": "messages that actors dropped",
    "fault/env_restarts": "environment failures solved by a restart",
    "fault/non_finite": "episodes dropped because of NaN or infinity",
    "fault/rollbacks": "returns of the networks to the last checkpoint",
}

METRICS: Mapping[str, str] = {**_OF_EPISODES, **families.metrics(), **_OF_ALL}
"""Metric name -> meaning, for all metrics but those with a prefix in :data:`RECORDED`."""

LESSONS = "lesson/"
"""Prefix of the metrics with the numbers of lessons."""

ROLLOUT_INFOS, EVAL_INFOS = "rollout/info/", "eval/info/"
"""Prefixes of metrics from the infos of environments."""

CALLBACKS = "callback/"
"""Prefix of the metrics that callbacks log."""

RECORDED = ("unity/", LESSONS, "param/", PLUGIN_METRICS, ROLLOUT_INFOS, EVAL_INFOS, CALLBACKS)
"""Prefixes of metrics with free names: from simulators, parameters, extensions, infos and callbacks."""


def check_known(name: str) -> None:
    """Raise UsageError for an unknown name of a metric."""
    if name in METRICS or name.startswith(RECORDED):
        return
    close = difflib.get_close_matches(name, METRICS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    fix = f"{hint}let the names of your own metrics begin with {PLUGIN_METRICS}"
    raise UsageError(f"there is no metric {name!r}", why="it is not in METRICS", fix=fix)
