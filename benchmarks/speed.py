"""How fast a training is: its updates, its steps, with a memory, from pixels; ours by ``result.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import yaml

from benchmarks.harness import HERE, ROOT, Bench, Ours, Theirs, in_pairs, shares, smoke
from benchmarks.runs import timed
from benchmarks.worker import Answer

EQUAL = HERE / "equal"
MEMORY = HERE / "memory"
PRESET = "atari/pong"
BULLET = "pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0"
CASES = ("gru", "lstm", "attn", "gru_long")
"""Sections of ``memory/config.yaml``."""

Found = Iterator[Mapping[str, Any]]


@smoke(pairs=1, updates=2, filled=300)
def updates(bench: Bench, _: Any, *, pairs: int = 5, updates: int = 300, filled: int = 20_000) -> Found:
    """Gradient updates per second."""
    figures = in_pairs(
        *_sides(bench, "half_cheetah", filled + updates, filled),
        pairs,
        rate=update_rate,
        same=("threads", "parameters", "steps", "updates"),
    )
    yield {"unit": "updates/s", **figures}


@smoke(pairs=1, steps=302, start_step=300, tasks=["pendulum"])
def steps(
    bench: Bench,
    _: Any,
    *,
    pairs: int = 5,
    steps: int = 3000,
    start_step: int = 256,
    tasks: list[str] = ["pendulum", "half_cheetah"],
) -> Found:
    """Environment steps per second at one update a step, and where the time goes."""
    found: dict[str, Any] = {}
    for task in tasks:
        print(task, flush=True)
        figures = in_pairs(
            *_sides(bench, task, steps, start_step),
            pairs,
            rate=lambda answer: answer["steps"] / answer["seconds"],
            same=("threads", "parameters", "steps", "updates"),
        )
        parts = {side: shares([pair[side] for pair in figures["answers"]]) for side in figures["answers"][0]}
        found[task] = {"env_id": equal(task)["base_config"]["env_name"], **figures, "shares": parts}
        yield {"tasks": found}


def equal(task: str) -> dict[str, Any]:
    """A section of ``equal/config.yaml``: what both libraries train with."""
    sections = yaml.safe_load((EQUAL / "config.yaml").read_text("utf-8"))
    default, own = sections["default"], sections[task]
    return {block: {**default.get(block, {}), **own.get(block, {})} for block in {**default, **own}}


def their_settings(task: str, **changes: Any) -> dict[str, Any]:
    """The arguments of ``sb3.train`` that say the same as a section of ``equal/config.yaml``."""
    config = equal(task)
    same = {key: config["sac_config"][key] for key in ("learning_rate", "tau", "gamma", "batch_size")}
    started = {"learning_starts": config["sac_config"]["start_step"]}
    q = config["nn_config"]["q"]
    size = {"buffer_size": config["replay_config"]["capacity"]}
    size |= {"policy_kwargs": {"net_arch": [q["dense_n"]] * q["dense_depth"]}}
    same |= {"algorithm": "SAC", "policy": "MlpPolicy"}
    return {"env": {"env_id": config["base_config"]["env_name"]}, **same, **started, **size, **changes}


def _sides(bench: Bench, task: str, steps: int, start: int) -> tuple[Ours, Theirs]:
    """Ours and theirs: seed → the answer of a training on a section of ``equal/config.yaml``."""
    size = {"base_config__max_step": steps, "eval_config__per_step": steps}
    said = {**their_settings(task, learning_starts=start), "fit": {"steps": steps}}
    return (
        lambda seed: timed(bench, str(EQUAL), "-c", task, seed=seed, sac_config__start_step=start, **size),
        lambda seed: bench.theirs("sb3:train", seed=seed, **said),
    )


def update_rate(answer: Answer) -> float:
    """Updates per second of getting batches and updating."""
    return float(answer["updates"] / (answer["time"]["sample"] + answer["time"]["update"]))


ON_POLICY: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "ppo": (
        "gym/cart_pole -c ppo",
        "CartPole-v1",
        8,
        {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98},
    ),
    "a2c": ("gym/cart_pole -c a2c", "CartPole-v1", 8, {"ent_coef": 0.0}),
    "pendulum": ("Pendulum-v1 -o algorithm=PPO", "Pendulum-v1", 1, {}),
    "cheetah": (f"{BULLET} -o algorithm=PPO", BULLET, 1, {}),
}
"""Case → words of our command line; their environment, its copies, and what is not their default."""


@smoke(pairs=1, steps=256, cases=["ppo", "a2c"])
def rollouts(
    bench: Bench, _: Any, *, pairs: int = 5, steps: int = 20_480, cases: list[str] = list(ON_POLICY)
) -> Found:
    """Environment steps per second of on-policy learning, updates included."""
    found: dict[str, Any] = {}
    for case in cases:
        print(case, flush=True)
        found[case] = in_pairs(
            *_on_policy(bench, case, steps),
            pairs,
            rate=lambda answer: answer["steps"] / answer["seconds"],
            same=("threads",),
        )
        yield {"cases": found}


def _on_policy(bench: Bench, case: str, steps: int) -> tuple[Ours, Theirs]:
    words, env_id, copies, settings = ON_POLICY[case]
    size: dict[str, Any] = {"base_config__max_step": steps, "eval_config__per_step": steps}
    size |= {f"sac_config__{key}": "false" for key in ("use_normalization", "reward_scaling")}
    said = {"algorithm": "A2C" if case == "a2c" else "PPO", "env_id": env_id, "copies": copies}
    return (
        lambda seed: timed(bench, *words.split(), seed=seed, base_config__n_envs=copies, **size),
        lambda seed: bench.theirs("sb3:rollouts", seed=seed, steps=steps, settings=settings, **said),
    )


@smoke(rounds=1, updates=1, filled=150, cases=["gru"])
def memory(
    bench: Bench,
    _: Any,
    *,
    rounds: int = 3,
    updates: int = 60,
    filled: int = 5000,
    cases: list[str] = list(CASES),
) -> Found:
    """Gradient updates per second with a memory."""
    answers: dict[str, list[Answer]] = {case: [] for case in cases}
    size = {"base_config__max_step": filled + updates, "eval_config__per_step": filled + updates}
    for seed in range(rounds):  # the cases take turns
        for case, found in answers.items():
            found.append(
                timed(bench, str(MEMORY), "-c", case, seed=seed, sac_config__start_step=filled, **size)
            )
            print(f"{case}: {update_rate(found[-1]):.1f} updates/s", flush=True)
    yield {"cases": {case: _summary(case, found) for case, found in answers.items()}}


def _summary(case: str, answers: list[Answer]) -> dict[str, Any]:
    parts = (("sampling", "sample"), ("update", "update"))
    return {
        "window": answers[0]["window"],
        "parameters": answers[0]["parameters"],
        "updates_per_second": median(map(update_rate, answers)),
        "ms": {
            name: median(1000 * one["time"][part] / one["updates"] for one in answers) for name, part in parts
        },
        "answers": answers,
    }


@smoke(pairs=1, steps=90, start_step=70, capacity=200)
def pixels(
    bench: Bench, _: Any, *, pairs: int = 5, steps: int = 3000, start_step: int = 500, capacity: int = 100_000
) -> Found:
    """Environment steps per second on Pong's pixels, one update in ten steps.

    Their SAC has no discrete actions, so their side is DQN, which trains one network where ours trains three.
    """
    base = yaml.safe_load((ROOT / "envs" / PRESET / "config.yaml").read_text("utf-8"))["default"][
        "base_config"
    ]
    env = {"env_id": base["env_name"], "args": base["env_args"], "wrappers": base["wrappers"]}
    keys = {
        "base_config__max_step": steps,
        "eval_config__per_step": steps,
        "replay_config__capacity": capacity,
    }
    plain: dict[str, Any] = {
        "start_step": start_step,
        "batch_size": 64,
        "replay_ratio": 0.1,
        "n_step": 1,
        "use_priority": False,
    }
    keys |= {f"sac_config__{key}": value for key, value in plain.items()}
    settings: dict[str, Any] = {"buffer_size": capacity, "learning_starts": start_step, "batch_size": 64}
    settings |= {"train_freq": 10, "algorithm": "DQN", "policy": "CnnPolicy"}
    figures = in_pairs(
        lambda seed: timed(bench, PRESET, seed=seed, **keys),
        lambda seed: bench.theirs("sb3:train", env=env, seed=seed, fit={"steps": steps}, **settings),
        pairs,
        rate=lambda answer: answer["steps"] / answer["seconds"],
        same=("threads", "steps", "updates"),
    )
    sides = {side: [pair[side] for pair in figures["answers"]] for side in figures["answers"][0]}
    peak = {side: median(one["peak_rss_mb"] for one in answers) for side, answers in sides.items()}
    parts = {side: shares(answers) for side, answers in sides.items()}
    yield {"env": env, "speed": {**figures, "shares": parts, "peak_rss_mb": peak}}
