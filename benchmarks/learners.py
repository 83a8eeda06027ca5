"""Cost of an update with each option of a learner, and with each signal, in units of the plain one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Bench, smoke
from benchmarks.inside import fill, make_agent
from benchmarks.samples import make_demonstrations, make_segment, make_spec

OFF = "sac_config.use_priority=false sac_config.compile=off"
PLAIN = f"sac_config.n_step=1 {OFF} replay_config.capacity=4096"
BATCH, ALONE = "nn_config.q.norm=batch nn_config.policy.norm=batch", "sac_config.use_target_network=false"
LAYER, THIRD = "nn_config.q.norm=layer", "sac_config.policy_update_per_step=3"
FLASH = "base_config.preset=flash64"
LEARNERS = {
    "plain": "",
    "policy every third": THIRD,
    "critics with layer norm": LAYER,
    "the same, policy every third": f"{LAYER} {THIRD}",
    "the same with one critic": f"{LAYER} {THIRD} sac_config.ensemble_q_num=1 sac_config.ensemble_q_sample=1",
    "batch norm, target networks, policy every third": f"{BATCH} {THIRD}",
    "batch norm, no target networks, policy every third": f"{BATCH} {THIRD} {ALONE}",
    "quantiles": "sac_config.value_head=quantile",
    "histograms": "sac_config.value_head=categorical",
    "flash64": FLASH,
}
SIGNALS = {
    "plain": "",
    "RND bonus": "reward_signals.rnd.strength=1",
    "curiosity": "sac_config.curiosity=FORWARD",
    "curiosity with γ 0.9": "sac_config.curiosity=FORWARD reward_signals.curiosity.gamma=0.9",
    "GAIL": "reward_signals.gail.strength=1",
    "cloning": "behavioral_cloning.strength=1",
    "share: 0.5": "demonstrations.share=0.5",
}
PRESETS = ["continuous", "flash"]


@smoke(rounds=1, updates=1)
def learners(bench: Bench, _: Any, *, rounds: int = 5, updates: int = 100) -> Iterator[Mapping[str, Any]]:
    """Time of an update."""
    yield {"milliseconds": bench.ours("learners:times", rounds=rounds, updates=updates)}


@smoke(rounds=1, updates=1, engines=["off"])
def signals(
    bench: Bench, _: Any, *, rounds: int = 5, updates: int = 100, engines: list[str] = ["off", "on"]
) -> Iterator[Mapping[str, Any]]:
    """Time of an update with its batches, with a reward signal or demonstrations; as written and compiled."""
    found: dict[str, Any] = {}
    for engine in engines:
        found[engine] = bench.ours("learners:signal_times", rounds=rounds, updates=updates, engine=engine)
        yield {"milliseconds": found}


@smoke(updates=1, devices=["cpu"], engines=["off"])
def devices(
    bench: Bench,
    _: Any,
    *,
    updates: int = 200,
    devices: list[str] = ["cpu", "cuda"],
    engines: list[str] = ["off", "on"],
) -> Iterator[Mapping[str, Any]]:
    """Time of an update with its batch on a GPU, as written and compiled."""
    found: dict[str, dict[str, Any]] = {device: {} for device in devices}
    for device, engine in product(devices, engines):
        asked = {"updates": updates, "device": device, "engine": engine}
        found[device][engine] = bench.ours("learners:device_times", **asked)
        yield {"milliseconds": found}


def device_times(updates: int, device: str, engine: str) -> dict[str, float]:
    """Milliseconds of an update; a GPU's are wall-clock time, so beside no other process."""
    torch.set_num_threads(1)
    spec, found = make_spec(17, action=6), {}
    same = f"sac_config.start_step=0 replay_config.capacity=4096 sac_config.compile={engine}"
    for preset in PRESETS:
        changes = f"{same} base_config.preset={preset} base_config.max_step=100000"
        agent = make_agent(spec, "Pendulum-v1", None, changes.split(), 0, device=device)
        fill(agent.replay, make_segment(spec, np.random.default_rng(0), 1000), 4000)
        agent.learn(10)  # compiled in these
        agent.own_metrics(10)  # waits for the device, as below
        begin = time.perf_counter()
        agent.learn(10 + updates)
        agent.own_metrics(10 + updates)
        found[preset] = (time.perf_counter() - begin) / updates * 1e3
    return found


def signal_times(rounds: int, updates: int, engine: str) -> dict[str, list[float]]:
    """CPU milliseconds of an update as :func:`times`; engine: ``sac_config.compile``."""
    torch.set_num_threads(1)
    spec, agents = make_spec(17, action=6), {}
    shown = make_demonstrations(spec, np.random.default_rng(1), episodes=10, length=200)
    same = f"{PLAIN} sac_config.start_step=0 demonstrations.path=expert.npz".replace(
        "compile=off", f"compile={engine}"
    )
    for name, changes in SIGNALS.items():
        agents[name] = make_agent(spec, "Pendulum-v1", None, f"{same} {changes}".split(), 0, shown)
        fill(agents[name].replay, make_segment(spec, np.random.default_rng(0), 1000), 4000)
        agents[name].learn(2)  # as written, then compiled
    found: dict[str, list[float]] = {name: [] for name in agents}
    for number, (name, agent) in product(range(rounds + 1), agents.items()):
        begin = time.process_time()
        agent.learn(2 + (number + 1) * updates)
        found[name].append((time.process_time() - begin) / updates * 1e3)
    return {name: values[1:] for name, values in found.items()}


def times(rounds: int, updates: int) -> dict[str, list[float]]:
    """CPU milliseconds of an update, one value a round; the learners take turns, the first round warms up."""
    torch.set_num_threads(1)
    spec, agents = make_spec(17, action=6), {}
    for name, changes in LEARNERS.items():
        agents[name] = make_agent(spec, "Pendulum-v1", None, f"{PLAIN} {changes}".split(), 0)
        fill(agents[name].replay, make_segment(spec, np.random.default_rng(0), 1000), 4000)
    found: dict[str, list[float]] = {name: [] for name in agents}
    for _, (name, agent) in product(range(rounds + 1), agents.items()):
        batch: Any = agent.replay.sample()
        begin = time.process_time()
        for _ in range(updates):
            agent.learner.update(batch.to(agent.learner.device))
        found[name].append((time.process_time() - begin) / updates * 1e3)
    return {name: values[1:] for name, values in found.items()}
