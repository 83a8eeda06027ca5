"""Time and size of exports to ONNX, and the speed of their graphs beside this program's own actor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import torch

from algorithm.config.extras_config import ExportConfig
from algorithm.extras.onnx.check import session_of
from algorithm.extras.onnx.exporting import export_policy
from algorithm.extras.onnx.graph import PolicyGraph
from algorithm.extras.onnx.names import Ports
from algorithm.extras.onnx.reference import Reference
from benchmarks.harness import Bench, smoke
from benchmarks.inside import make_agent
from benchmarks.samples import make_spec

MEMORY = "sac_config.seq_encoder=RNN nn_config.rep.rnn=gru sac_config.burn_in_step=4 sac_config.learn_step=8"
POLICIES: dict[str, tuple[Mapping[str, Any], tuple[int, ...], str]] = {
    "17 numbers → 6 numbers": ({"action": 6}, (17,), ""),
    "17 numbers → 2 branches and 2 numbers": ({"action": 2, "branches": (3, 2)}, (17,), ""),
    "17 numbers, GRU → 6 numbers": ({"action": 6}, (17,), MEMORY),
    "84 × 84 × 3 → 2 branches": ({"branches": (3, 2)}, (84, 84, 3), ""),
    "84 × 84 × 3, GRU → 2 branches": ({"branches": (3, 2)}, (84, 84, 3), MEMORY),
}
"""Policy → its actions, its observation, its changes of the configuration."""

NAMES = list(POLICIES)


@smoke(rounds=1, sizes=[1], policies=["17 numbers → 2 branches and 2 numbers"])
def exports(
    bench: Bench,
    _: Any,
    *,
    rounds: int = 15,
    sizes: list[int] = [1, 8, 64],
    policies: list[str] = [*POLICIES],
) -> Iterator[Mapping[str, Any]]:
    """Time and size of an export with its checks, and time of a step of its graph and of the actor."""
    found: dict[str, Any] = {}
    for name in policies:
        found[name] = bench.ours("exports:export_of", policy=name, rounds=rounds, sizes=sizes)
        yield {"policies": found}


def export_of(policy: str, rounds: int, sizes: list[int]) -> dict[str, Any]:
    """Seconds, bytes, and microseconds of a step by number of agents; actor and graph take turns."""
    torch.set_num_threads(1)
    action, shape, changes = POLICIES[policy]
    # The replay is not used, and one of images would be large.
    words = f"{changes} sac_config.use_normalization=true replay_config.capacity=4096".split()
    spec = make_spec(*shape, **action)
    agent = make_agent(spec, "Pendulum-v1", None, words, 0)
    begin = time.perf_counter()
    made = export_policy(agent, ExportConfig(), {})
    seconds = time.perf_counter() - begin
    actor: Any = agent.new_policy("playing")
    graph = PolicyGraph(actor.choice, spec)
    reference = Reference(actor.choice, spec)
    weights = sum(one.numel() * one.element_size() for one in graph.model.parameters())
    return {
        "seconds": seconds,
        "bytes": len(made.data),
        "weights": weights,
        "microseconds": {n: _steps(made.data, actor, graph.ports, reference, n, rounds) for n in sizes},
    }


def _steps(
    data: bytes, actor: Any, ports: Ports, reference: Reference, n: int, rounds: int
) -> dict[str, list[float]]:
    """Microseconds of a step of n agents, one value a round, greedily."""
    seen = reference.situation(n, np.random.default_rng(0))
    memory = np.zeros((n, 1, ports.memory), np.float32) if ports.memory else None
    feeds = reference.feeds(seen, ports, memory)
    before, carry = reference.spec.action.padding(n), actor.initial_carry(n)
    session = session_of(data)
    names = [one.name for one in ports.outputs if one.name.startswith(("deterministic", "recurrent"))]
    sides: dict[str, Callable[[], Any]] = {
        "actor": lambda: actor.act(seen.obs, before, carry, seen.mask, greedy=True),
        "onnxruntime": lambda: session.run(names, feeds),
    }
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _, (side, step) in product(range(rounds + 1), sides.items()):
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < 0.05 or steps < 3:
            step()
            steps += 1
        found[side].append((time.perf_counter() - begin) / steps * 1e6)
    return {side: values[1:] for side, values in found.items()}
