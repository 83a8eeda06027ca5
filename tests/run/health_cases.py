"""Troubles that the watchdog has to name, and what looks alike and is none, as made-up summaries."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from algorithm.config.schema import Config

Series = float | Callable[[int], float]
Row = tuple[int, dict[str, float]]

RETURNS = {
    "rollout/return_mean": 100.0,
    "rollout/return_min": 50.0,
    "rollout/return_max": 200.0,
    "rollout/length": 200.0,
}
KEYS = {
    **{"init_log_alpha": -2.3, "learning_rate": 0.0003, "tau": 0.005, "reward_scaling": False},
    **{"discrete_soft_target": True, "target_d_alpha": 0.3},
}


class Case(NamedTuple):
    """A configuration with summaries, and the step at which a line is due; 0: never."""

    name: str
    config: Config
    rows: list[Row]
    step: int = 0


def sac(*, capacity: int = 20_000, scale: float = 1.0, **keys: Any) -> Config:
    """A configuration of SAC."""
    return Config.model_validate(
        {
            "base_config": {"reward_scale": scale},
            "replay_config": {"capacity": capacity, "td_error_max": 1.0},
            "sac_config": {**KEYS, **keys},
        }
    )


def on_policy(algorithm: str = "PPO", *, scaling: bool = False, **keys: Any) -> Config:
    """A configuration of an on-policy family."""
    block = f"{algorithm.lower()}_config"
    shared = {"reward_scaling": scaling}
    return Config.model_validate({"algorithm": algorithm, block: keys, "sac_config": shared})


def summaries(series: Mapping[str, Series], *, count: int = 30, every: int = 1000) -> Iterator[Row]:
    """Made-up summaries; a series is a number, or a function of how many came before."""
    for k in range(count):
        values = {name: value(k) if callable(value) else value for name, value in series.items()}
        yield 1000 + every * k, {**RETURNS, "loss/q": 1.0 + k, **values}


def temperature(
    part: str = "d", *, growth: float = 1.5, start: float = 0.1, **other: Series
) -> dict[str, Series]:
    """A temperature that grows beyond all returns."""
    return {
        f"policy/alpha_{part}": lambda k: start * growth**k,
        f"policy/entropy_{part}": 0.5,
        f"policy/target_entropy_{part}": 0.5,
        **other,
    }


def rising(k: int) -> float:
    """Mean returns that rise."""
    return 100.0 + k


NAN = math.nan
MEAN, LENGTH, BEST = "rollout/return_mean", "rollout/length", "rollout/return_max"
WORSE: dict[str, Series] = {MEAN: lambda k: 100.0 if k < 1 else 90.0}
DIVERGING: dict[str, Series] = {"value/q_mean": lambda k: -(1.5**k)}
CLIPPED: dict[str, Series] = {"value/clipped": 0.9, "replay/priority_mean": 3.0}
CLIP = {"clip_epsilon": 0.5, "tau": 0.02, "update_target_per_step": 2}
# Returns of at most 200, as at random; a bonus of 0.9 · 5 a step, 450 where it never ends.
ENDLESS = {"value/q_mean": lambda k: 400 * (1 - 0.5**k), **WORSE}
BONUS_D = {"policy/alpha_d": 0.9, "policy/entropy_d": 5.0, **ENDLESS}
BONUS_C = {"policy/alpha_c": 0.9, "policy/entropy_c": 5.0, **ENDLESS}
NOTHING: dict[str, Series] = {"ppo/explained_variance": -0.1}
COLLAPSED: dict[str, Series] = {"policy/entropy_share": lambda k: 1.0 if k < 4 else 0.005}


def _cases(
    table: list[tuple[Any, ...]],
) -> list[Case]:
    """Rows (name, configuration, series, step), the step left out for silence."""
    return [Case(name, config, [*summaries(series)], *step) for name, config, series, *step in table]


TROUBLES = _cases(
    [
        ("a discrete temperature", sac(), temperature(), 11_000),
        ("a continuous temperature", sac(target_c_alpha=2), temperature("c"), 11_000),
        ("a temperature with scaled rewards", sac(scale=1000.0), temperature(growth=2.0), 17_000),
        # Returns of at most 200 over 200 steps: 1 a step, 100 with γ = 0.99. So 200; told beyond 5 · 200.
        ("diverging critics", sac(n_step=3), DIVERGING, 19_000),
        # With γ = 0.999 a reward of 1 a step is worth 1,000.
        ("diverging critics that look far ahead", sac(gamma=0.999), DIVERGING, 23_000),
        # With γ = 1 nothing but an episode is known: 200 steps of 1.
        ("diverging critics without a discount", sac(gamma=1.0), DIVERGING, 19_000),
        (
            "diverging critics without entropy in the targets",
            sac(discrete_soft_target=False),
            DIVERGING | {"policy/alpha_d": 1e4, "policy/entropy_d": 0.5},
            19_000,
        ),
        ("critics held back by their clip", sac(**CLIP), CLIPPED, 3000),
        ("values of the discrete bonus", sac(init_log_alpha=-1.0), BONUS_D, 7000),
        ("values of the continuous bonus", sac(discrete_soft_target=False), BONUS_C, 7000),
        (
            "values of the bonus with divided rewards",
            sac(),
            BONUS_D | {"policy/alpha_d": 0.09, "value/return_scale": 10.0},
            7000,
        ),
        (
            "values of the bonus in long episodes",
            sac(),
            BONUS_D | {MEAN: lambda k: NAN if k % 2 else 90.0},
            7000,
        ),
        ("values that learn nothing", on_policy(), NOTHING, 12_000),
        ("the same, rewards scaled", on_policy(scaling=True), NOTHING, 12_000),
        ("values with a trust region", on_policy("ACKTR", scaling=True), NOTHING, 12_000),
        ("a policy that stops exploring", on_policy("A2C", entropy_coef=0.0), COLLAPSED, 10_000),
    ]
)
"""Each gets one line."""

LIKE_TROUBLE = _cases(
    [
        ("the temperature belongs to the rewards", sac(), temperature(**{BEST: 1e9})),
        ("it falls", sac(), temperature(growth=0.9, start=1e4)),
        ("it is large, and stays", sac(), temperature(**{"policy/alpha_d": 50.0})),
        ("it was set so", sac(init_log_alpha=math.log(1e4)), temperature(start=1e4, growth=1.08)),
        (
            "it goes up and down",
            sac(),
            temperature(**{"policy/alpha_d": lambda k: 0.1 * 1.5**k * (2 if k % 4 else 1)}),
        ),
        ("it hardly grows", sac(), temperature(growth=1.02, start=20.0)),
        ("it is not learned", sac(use_auto_alpha=False), temperature()),
        ("nothing is known of returns", sac(), temperature(**{LENGTH: NAN})),
        ("rewards were divided by little", sac(), temperature(**{"value/return_scale": 1e-6})),
        ("values grow to the possible", sac(), {"value/q_mean": lambda k: 200 * (1 - 0.5**k)}),
        ("values are large and do not grow", sac(), {"value/q_mean": 5000.0}),
        ("the bonus is in them", sac(), DIVERGING | {"policy/alpha_d": 1e4, "policy/entropy_d": 0.5}),
        (
            "it is, in the unit of the rewards",
            sac(),
            DIVERGING | {"policy/alpha_d": 1e2, "policy/entropy_d": 0.5, "value/return_scale": 100.0},
        ),
        ("rewards are scaled", sac(scale=10_000.0), DIVERGING),
        ("values of unknown returns", sac(), DIVERGING | {LENGTH: NAN}),
        ("they swing", sac(), {"value/q_mean": lambda k: 1.5**k * (-1) ** k * (3 if k % 3 else 1)}),
        ("there is no clip", sac(clip_epsilon=-1.0), CLIPPED),
        ("it takes few gradients", sac(**CLIP), CLIPPED | {"value/clipped": 0.7}),
        (
            "it does not always",
            sac(**CLIP),
            CLIPPED | {"value/clipped": lambda k: 0.2 if k % 3 == 0 else 1.0},
        ),
        ("values are near", sac(**CLIP), CLIPPED | {"replay/priority_mean": 2.0}),
        (
            "values come near",
            sac(**CLIP),
            CLIPPED | {"replay/priority_mean": lambda k: 100 * 0.85**k},
        ),
        ("nothing was learned yet", sac(**CLIP), CLIPPED | {"value/clipped": NAN}),
        ("rewards allow as much", sac(), BONUS_D | {BEST: 320.0}),
        ("returns are better than at random", sac(), BONUS_D | {MEAN: rising}),
        ("the bonus is too small for that", sac(), BONUS_D | {"policy/alpha_d": 0.3}),
        ("entropy costs", sac(), BONUS_D | {"policy/entropy_d": -5.0}),
        ("there is no entropy", sac(), BONUS_D | {"policy/entropy_d": NAN}),
        (
            "values are low at times",
            sac(),
            BONUS_D | {"value/q_mean": lambda k: 100.0 if k % 5 == 0 else 400.0},
        ),
        ("a bonus with unknown returns", sac(), BONUS_D | {LENGTH: NAN}),
        ("hardly an episode ends", sac(), BONUS_D | {MEAN: lambda k: NAN if k % 3 else 90.0}),
        ("the bonus is in no target", sac(discrete_soft_target=False), BONUS_D),
        ("there is little to explain", on_policy(), NOTHING | {MEAN: rising}),
        (
            "something is explained",
            on_policy(),
            {"ppo/explained_variance": lambda k: 0.01 if k % 11 == 0 else -1.0},
        ),
        ("nothing is known of episodes", on_policy(), NOTHING | {LENGTH: NAN}),
        ("the best choices are sure", on_policy(), COLLAPSED | {MEAN: rising}),
        ("there was never a choice", on_policy(), {"policy/entropy_share": 0.005}),
        (
            "it still tries others",
            on_policy(),
            {"policy/entropy_share": lambda k: 1.0 if k < 4 else 0.02},
        ),
    ]
)
"""None gets a line."""

LIKE_TROUBLE += [
    Case("too early for a clip", sac(**CLIP), [*summaries(CLIPPED, every=30)]),
]
