"""Messages about studies: spaces that are refused, limits, and studies that cannot go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from algorithm.app.cli.parsing import parse_args
from algorithm.config import load_config
from algorithm.extras.tune.command import checked_space
from tests.messages import refusal
from tests.messages.config import _refusal

RATE = "sac_config.learning_rate"
GOOD = {RATE: {"truncated": [1e-4, 1e-2], "log": True}}
SPACES: tuple[dict[str, Any], ...] = (
    {},
    {"sac_config.lerning_rate": {"in": [1]}},
    {"inherited": {"in": ["a"]}},
    {"base_config.name": {"in": ["a"]}},
    {"tune_config.trials": {"in": [1]}},
    {"base_config.max_step": {"in": [100, 200]}},
    {RATE: {"in": []}},
    {RATE: {"in": [0.1, "much"]}},
    {RATE: {"truncated": [-1, 1]}},
    {RATE: {"std": 1.0}},
    {RATE: 3},
    {RATE: {"in": [1], "truncated": [0, 1]}},
    {RATE: {"in": [1, 2], "log": True}},
    {RATE: {"truncated": [1, 1]}},
    {RATE: {"truncated": [0, 1], "log": True}},
    {RATE: {"truncated": [1, 2], "log": True, "step": 0.1}},
    {RATE: {"truncated": [1, 2], "step": 5}},
    {"sac_config.n_step": {"truncated": [1, 5], "step": 0.5}},
    {"sac_config.seq_encoder": {"truncated": [1, 2]}},
    {"nn_config.policy.dense_depth": {"truncated": [3, 1]}},
)
LIMITS: tuple[dict[str, Any], ...] = (
    {"base_config.max_step": -1},
    {"tune_config.metric": "eval/return"},
    {"eval_config.per_step": -1},
    {"eval_config.episodes": 0},
    {"tune_config.prune_after": 200_000},
    {"algorithm": "PPO"},
    {"sac_config.random_params": {"learning_rate": {"in": [0.1]}}},
)
COMMANDS = (
    "gym/pendulum --tune a -n b",
    "gym/pendulum --tune a --resume --dry_run",
    "gym/pendulum --tune a --eval 3",
    "gym/pendulum --tune --repeat 2",
    "gym/pendulum --tune --quiet",
    "gym/pendulum --tune a --resume -c default",
)


def messages() -> Iterator[tuple[str, str]]:
    for space in SPACES:
        yield f"params {space}", _refused({"tune_config.params": space})
    for limit in LIMITS:
        yield f"{limit}", _refused({"tune_config.params": GOOD, **limit})
    for words in COMMANDS:
        yield f"main.py {words}", _refusal(lambda words=words: parse_args(words.split()))


def _refused(overrides: dict[str, Any]) -> str:
    return refusal(lambda: checked_space(load_config("Pendulum-v1", overrides=overrides, seed=1)))
