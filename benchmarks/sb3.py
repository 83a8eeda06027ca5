"""Stable-Baselines3's side of every comparison. Runs in an environment of its own, see ``peer.py``."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from statistics import fmean
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from typing_extensions import override

from benchmarks.worker import Answer, make_env, stay_on_one_core

LIBRARY = {"library": "stable-baselines3", "version": stable_baselines3.__version__}
WATCHED = {
    "act": ("", "_sample_action"),
    "step": ("env", "step"),
    "store": ("", "_store_transition"),
    "sample": ("replay_buffer", "sample"),
    "update": ("", "train"),
}
"""Activity → where the method is, and the method, whose calls it is made of."""


def train(
    algorithm: str,
    policy: str,
    env: Mapping[str, Any],
    seed: int,
    fit: Mapping[str, Any],
    library: str = "stable_baselines3",
    **settings: Any,
) -> Answer:
    """Train with settings that are like ours; ``parameters``: torch's weights, without target networks.

    library: its module; of ``sb3_contrib`` and ``sbx`` too, whose classes are used alike
    """
    kind = getattr(import_module(library), algorithm)
    model = kind(policy, make_env(**env), seed=seed, device="cpu", **settings)
    trained = (getattr(model, name, None) for name in ("critic", "actor", "q_net"))
    torches = [module for module in trained if isinstance(module, torch.nn.Module)]
    sizes = [p.numel() for module in torches for p in module.parameters() if p.requires_grad]
    named = {"library": library.replace("_", "-"), "version": import_module(library).__version__}
    return {**_fit(model, env, seed, **fit), **named, "parameters": sum(sizes)}


class _Noise(gym.Env):
    """Observations and rewards of normal numbers."""

    def __init__(self, obs: int, action: int) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (action,), np.float32)

    @override
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.standard_normal(self.observation_space.shape, np.float32), {}

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs = self.np_random.standard_normal(self.observation_space.shape, np.float32)
        return obs, float(obs[0]), False, False, {}


def updates(library: str, a_call: int, updates: int, filled: int, seed: int, sizes: list[int]) -> Answer:
    """Milliseconds of sampling and an update of SAC, ``a_call`` of them in a call; the first ones apart."""
    stay_on_one_core()
    torch.set_num_threads(1)
    obs, action, units, batch = sizes
    kind, arch = import_module(library).SAC, [units, units]
    net_arch = {"pi": arch, "qf": arch} if library == "sbx" else arch
    same = {"batch_size": batch, "learning_starts": filled, "buffer_size": filled, "seed": seed}
    model = kind("MlpPolicy", _Noise(obs, action), policy_kwargs={"net_arch": net_arch}, device="cpu", **same)
    model.set_logger(configure(None, []))
    model.learn(filled)  # random actions
    for _ in range(max(2, updates // 10 // a_call)):
        model.train(a_call, batch)
    begin = perf_counter()
    for _ in range(max(1, updates // a_call)):
        model.train(a_call, batch)
    if library == "sbx":
        import_module("jax").block_until_ready(model.policy.qf_state.params)
    return {"ms": (perf_counter() - begin) / max(1, updates // a_call) / a_call * 1e3}


def bare(
    env: Mapping[str, Any],
    seed: int,
    fit: Mapping[str, Any],
    algorithm: str,
    library: str = "stable_baselines3",
    policy: str = "",
    replay: str = "",
    learning_starts: int = 0,
) -> Answer:
    """Train with nothing said but the policy's class and the seed; ``error`` where that cannot be.

    library: its module, as for :func:`train` · policy: another class than that of the observations
    replay: class of the replay buffer · learning_starts: 0, or instead of its default
    """
    try:
        made = Monitor(make_env(**env))
        space = made.observation_space
        picture = len(space.shape or ()) == 3 and min(space.shape[:2]) >= 36  # its CnnPolicy needs so many
        policy = policy or (
            "MultiInputPolicy"
            if isinstance(space, gym.spaces.Dict)
            else "CnnPolicy"
            if picture
            else "MlpPolicy"
        )
        module = import_module(library)
        said: dict[str, Any] = {"learning_starts": learning_starts} if learning_starts else {}
        said |= {"replay_buffer_class": getattr(module, replay)} if replay else {}
        model = getattr(module, algorithm)(policy, made, seed=seed, device="cpu", **said)
        named = {"library": library.replace("_", "-"), "version": module.__version__}
        return {"algorithm": algorithm, "policy": policy, **_fit(model, env, seed, **fit), **named}
    except Exception as error:
        return {**LIBRARY, "algorithm": algorithm, "error": f"{type(error).__name__}: {error}"}


def rollouts(
    algorithm: str, env_id: str, copies: int, seed: int, steps: int, settings: Mapping[str, Any]
) -> Answer:
    """Train PPO or A2C without evaluation; ``seconds`` of all of it."""
    torch.set_num_threads(1)
    env = make_vec_env(partial(make_env, env_id), copies, seed=seed)
    model = getattr(stable_baselines3, algorithm)("MlpPolicy", env, seed=seed, device="cpu", **settings)
    model.set_logger(configure(None, []))
    begin = perf_counter()
    model.learn(steps)
    seconds = perf_counter() - begin
    return {**LIBRARY, "threads": 1, "seed": seed, "steps": model.num_timesteps, "seconds": seconds}


class _Evaluation(BaseCallback):  # type: ignore[misc]  # only the peer has its class
    """Evaluates the deterministic policy on an environment of its own; ``seconds`` is the time it took.

    core_seconds: of processors since it was made, at each point of the curve, without evaluations
    """

    def __init__(self, env: gym.Env, every: int, episodes: int) -> None:
        super().__init__()
        self._env, self._every, self._episodes = env, every, episodes
        self.curve: list[tuple[int, float]] = []
        self.core_seconds: list[float] = []
        self.seconds = 0.0
        self._begun = sum(os.times()[:4])

    def _on_step(self) -> bool:
        if self.num_timesteps % self._every == 0:
            self.evaluate()
        return True

    def evaluate(self) -> None:
        """Add a point to the curve, or do the one of this step again."""
        begin, core = perf_counter(), sum(os.times()[:4])
        returns, _ = evaluate_policy(self.model, self._env, self._episodes, return_episode_rewards=True)
        if self.curve and self.curve[-1][0] == self.num_timesteps:
            self.curve.pop()
            self.core_seconds.pop()
        self.curve.append((self.num_timesteps, fmean(map(float, returns))))
        self.core_seconds.append(core - self._begun)
        self._begun += sum(os.times()[:4]) - core
        self.seconds += perf_counter() - begin


def _fit(
    model: Any, env: Mapping[str, Any], seed: int, *, steps: int, every: int = 0, episodes: int = 10
) -> Answer:
    """Train, and say what it took. every: steps between two evaluations; 0: none, but a stopwatch."""
    torch.set_num_threads(1)
    model.set_logger(configure(None, []))
    evaluation, spent = None, {}
    if every:
        evaluation = _Evaluation(Monitor(make_env(**env)), every, episodes)
        evaluation._env.reset(seed=seed + 1000)
    else:
        spent = _watch(model)
    begin = perf_counter()
    model.learn(steps, callback=evaluation)
    seconds = perf_counter() - begin - (evaluation.seconds if evaluation else 0.0)
    if evaluation:
        evaluation.evaluate()  # the last update follows the callback
    else:
        spent["update"] -= spent["sample"]  # which happens within
        spent["other"] = seconds - sum(spent.values())
    return {
        **LIBRARY,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "seconds": seconds,
        "time": spent,
        "curve": evaluation.curve if evaluation else [],
        "core_seconds": evaluation.core_seconds if evaluation else [],
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _watch(model: Any) -> dict[str, float]:
    """Seconds of each activity, which grow as its method is called."""
    spent = dict.fromkeys(WATCHED, 0.0)

    def timed(name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] += perf_counter() - begin

    for name, (owner, method) in WATCHED.items():
        holder = getattr(model, owner) if owner else model
        setattr(holder, method, partial(timed, name, getattr(holder, method)))
    return spent
