"""Many environments that step at once: how fast they are collected from, and whether each step is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from algorithm.env.base import VecEnv
from algorithm.env.registry import make_vec_env, wrap_vector_env
from algorithm.env.request import EnvRequest
from benchmarks.harness import Bench, smoke
from benchmarks.lanes_proof import Ledger, prove
from benchmarks.runs import timed
from benchmarks.worker import Answer

PENDULUM = "benchmarks.pendulum:Pendulum"
SIMULATORS: dict[str, tuple[str, str, int, dict[str, Any], str]] = {
    "Pendulum in torch": ("TENSOR", PENDULUM, 1024, {}, "torch"),
    "arm in torch": ("TENSOR", "benchmarks.arm:Reacher", 1024, {}, "torch"),
    "EnvPool, Hopper-v4": ("ENVPOOL", "Hopper-v4", 64, {}, "envpool"),
    "EnvPool, CartPole-v1": ("ENVPOOL", "CartPole-v1", 64, {}, "envpool"),
    "ALE's own, Pong-v5": ("GYM", "ale_py:ALE/Pong-v5", 8, {}, "ale_py"),
    "Brax, inverted_pendulum": ("BRAX", "inverted_pendulum", 256, {"episode_length": 100}, "brax"),
    "Playground, CartpoleBalance": (
        "PLAYGROUND",
        "CartpoleBalance",
        256,
        {"episode_length": 100},
        "mujoco_playground",
    ),
}
"""Title → kind, name, lanes, arguments, package."""


@smoke(numbers=[1, 4], transitions=300, vector_steps=30, rounds=1)
def lanes(
    bench: Bench,
    _: Any,
    *,
    numbers: list[int] = [1, 16, 256, 1024, 4096],
    transitions: int = 1_000_000,
    vector_steps: int = 1500,
    rounds: int = 3,
) -> Iterator[Mapping[str, Any]]:
    """Collecting in lanes of the torch pendulum, and the proof of transitions for every kind of lanes.

    transitions: of each proof; a package that is not installed is left out
    """
    rates: dict[str, list[float]] = {str(n): [] for n in numbers}
    for _round in range(rounds):
        for n in numbers:
            rates[str(n)].append(_rate(bench, n, n * vector_steps))
    print({n: round(median(found)) for n, found in rates.items()}, flush=True)
    yield {"rates": rates}
    proofs: dict[str, Any] = {}
    for title in [*(f"Gymnasium's Sync, {mode.value}" for mode in AutoresetMode), *SIMULATORS]:
        if title in SIMULATORS and find_spec(SIMULATORS[title][4]) is None:
            continue
        proofs[title] = bench.ours("lanes:proof", title=title, transitions=transitions)
        print(title, proofs[title], flush=True)
        yield {"proofs": proofs}


def _rate(bench: Bench, n: int, steps: int) -> float:
    """Transitions per second of acting, stepping and storing, without updates."""
    quiet = {"base_config__env_type": "TENSOR", "base_config__max_step": steps, "sac_config__start_step": n}
    never = {"sac_config__replay_ratio": 1e-9, "eval_config__per_step": 10**12}
    answer = timed(bench, PENDULUM, f"--agents={n}", seed=1, **quiet, **never)
    return float(steps / sum(answer["time"][part] for part in ("act", "step", "store")))


def proof(title: str, transitions: int) -> Answer:
    """Return the counts of the proof of a simulator, or of Gymnasium's class in one of its modes."""
    make = partial(_simulator, *SIMULATORS[title][:4]) if title in SIMULATORS else partial(_sync, title)
    return vars(prove(make, transitions=transitions))


def _simulator(kind: str, name: str, n: int, args: dict[str, Any], ledger: Ledger) -> VecEnv:
    request = EnvRequest(kind, name, env_args=args, n=n, seed_of=lambda i, k: 1, watch=ledger.watch)
    return make_vec_env(request)


def _sync(title: str, ledger: Ledger) -> VecEnv:
    mode, copies = AutoresetMode(title.rpartition(" ")[2]), [partial(gym.make, "CartPole-v1")] * 64
    request = EnvRequest("GYM", title, n=64, seed_of=lambda i, k: 64 * k + i, watch=ledger.watch)
    return wrap_vector_env(lambda: SyncVectorEnv(copies, autoreset_mode=mode), request)
