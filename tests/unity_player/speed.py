"""Steps per second of several players, beside the package's own environments and communicator.

``python -m tests.unity_player.speed`` times both in turns, in pairs, with players whose step takes a
given time; each side steps all of its players at once, by threads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from algorithm.env.config import UnityArgs
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions, UnityOptions
from algorithm.env.unity.package import load
from tests.unity_player import make_build

SCENES = {"vectors": "continuous", "cameras": "watcher"}
"""What one agent sees -> scene: a vector of 2, or four cameras of 84 × 84 as PNG."""

PORT = 6200

Step = Callable[[], int]
"""Step of all players; returns how many agents took one."""


@contextmanager
def ours(build: Path, scene: str, players: int, ms: float) -> Iterator[Step]:
    """Return the step of a :class:`~algorithm.env.unity.vec.UnityVecEnv`, with random actions."""
    args = UnityArgs.model_validate(
        {"build_path": {sys.platform: str(build)}, "port": PORT, "no_graphics": False}
    )
    env = make_vec_env(
        "UNITY",
        scene,
        env_args={"ms": ms, "period": 1},
        n=players,
        seed_of=lambda _, episode: episode,
        pool=PoolOptions(unity=UnityOptions(args=args)),
    )
    rng = np.random.default_rng(0)
    try:
        ids = {name: len(result.ids) for name, result in env.reset().items()}

        def step() -> int:
            sizes = {name: spec.action.size for name, spec in env.specs.items()}
            actions = {
                name: rng.uniform(-1, 1, (ids[name], size)).astype(np.float32) for name, size in sizes.items()
            }
            taken = 0
            for name, result in env.step(actions).items():
                ids[name] = len(result.ids)
                taken += len(result.ids)
            return taken

        yield step
    finally:
        env.close()


@contextmanager
def theirs(build: Path, scene: str, players: int, ms: float) -> Iterator[Step]:
    """Return the step of so many ``UnityEnvironment``, with random actions."""
    load()
    from mlagents_envs.environment import UnityEnvironment

    def opened(number: int) -> Any:
        words = ["--scene", scene, "--ms", str(ms), "--period", "1"]
        return UnityEnvironment(
            str(build),
            worker_id=number,
            base_port=PORT + 100,
            additional_args=words,
            log_folder=str(build.parent),
            timeout_wait=30,
            no_graphics=False,
        )

    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        envs = []
        for number in range(players):
            envs.append(opened(number))
            stack.callback(envs[-1].close)
        threads = stack.enter_context(ThreadPoolExecutor(players))

        def step_one(env: Any) -> int:
            for name, spec in env.behavior_specs.items():
                asking, _ = env.get_steps(name)
                action = spec.action_spec.empty_action(len(asking))
                action.continuous[:] = rng.uniform(-1, 1, action.continuous.shape)
                env.set_actions(name, action)
            env.step()
            return sum(sum(map(len, env.get_steps(name))) for name in env.behavior_specs)

        for env in envs:
            env.reset()
        yield lambda: sum(threads.map(step_one, envs))


SIDES = {"ours": ours, "package": theirs}


def rate(side: str, seen: str, players: int, ms: float, seconds: float) -> float:
    """Return messages of each player per second, after a tenth of the time to warm up."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SIDES[side](make_build(Path(folder)), SCENES[seen], players, ms) as step,
    ):
        warm = time.monotonic() + seconds / 10
        while time.monotonic() < warm:
            step()
        count, begin = 0, time.monotonic()
        while time.monotonic() < begin + seconds:
            if step():
                count += players
        return count / (time.monotonic() - begin)


def main(words: list[str]) -> int:
    """Time all arrangements; print a line of JSON for each."""
    parser = argparse.ArgumentParser("python -m tests.unity_player.speed", description=__doc__)
    parser.add_argument("--players", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--ms", type=float, nargs="+", default=[5.0, 20.0], help="time of a player's step")
    parser.add_argument("--seen", nargs="+", choices=sorted(SCENES), default=list(SCENES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options = parser.parse_args(words)
    for seen in options.seen:
        for ms in options.ms:
            for players in options.players:
                rates: dict[str, list[float]] = {side: [] for side in SIDES}
                for _ in range(options.pairs):
                    for side in SIDES:
                        rates[side].append(round(rate(side, seen, players, ms, options.seconds), 1))
                ratio = median(a / b for a, b in zip(rates["ours"], rates["package"], strict=True))
                medians = {side: median(of_side) for side, of_side in rates.items()}
                line = {"seen": seen, "ms": ms, "players": players, **medians, "ratio": round(ratio, 3)}
                print(json.dumps(line | {"all": rates}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
