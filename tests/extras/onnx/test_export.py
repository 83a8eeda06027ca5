"""Graphs of every kind of policy, and what the check of a graph finds in one that is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from algorithm.agents.base import Agent
from algorithm.core.spec import AgentSpec, ObsSpec
from algorithm.env.pool.repetition import spec_from_json, specs_as_json
from algorithm.extras.onnx import play
from algorithm.extras.onnx.check import session_of
from algorithm.extras.onnx.errors import ExportError
from algorithm.extras.onnx.graph import PolicyGraph, draw_graph
from algorithm.extras.onnx.reference import Situation
from algorithm.nn import Rep
from tests.extras.onnx.draws import wrong_draws
from tests.extras.onnx.policies import (
    PLAIN,
    Added,
    agent_of,
    checker,
    exported,
    graph_of,
    reference,
)
from tests.lib import grid as agents

ROWS: tuple[tuple[str, str, str, str, str, int], ...] = (
    # family, action, memory, observations, replay (the last one is without a normaliser), opset
    ("SAC", "continuous", "none", "vector", "v-trace", 9),
    ("SAC", "discrete", "GRU", "mixed", "v-trace", 15),
    ("SAC", "branches", "attention", "vector", "raw", 15),
    ("SAC", "hybrid", "none", "mixed", "raw", 15),
    ("SAC", "hybrid", "GRU", "vector", "v-trace", 20),
    ("SAC", "greedy", "none", "vector", "v-trace", 15),
    ("SAC", "greedy", "attention", "mixed", "raw", 15),
    ("SAC", "continuous", "attention", "mixed", "v-trace", 17),
    ("TD3", "continuous", "GRU", "mixed", "raw", 9),
    ("TD3", "continuous", "none", "vector", "v-trace", 15),
    ("PPO", "continuous", "none", "mixed", "v-trace", 15),
    ("PPO", "hybrid", "attention", "vector", "v-trace", 15),
    ("A2C", "branches", "none", "mixed", "v-trace", 9),
    ("ACKTR", "discrete", "none", "vector", "v-trace", 15),
    ("ACER", "branches", "GRU", "vector", "v-trace", 9),
    ("ACER", "continuous", "none", "vector", "v-trace", 15),
    ("SAC", "hybrid", "GRU", "for critics", "v-trace", 15),
    ("SAC", "greedy", "none", "for critics", "raw", 15),
    ("PPO", "continuous", "none", "for critics", "v-trace", 9),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row)))
def test_the_graph_is_the_policy(row: tuple[Any, ...]) -> None:
    """As it is checked before a file is kept; a rollout of the policy's own numpy and its graph, besides."""
    family, action, memory, obs, replay, opset = row
    acts = "falling" if family in ("SAC", "TD3") and memory != "none" else "fresh"
    agent = agent_of(family=family, action=action, memory=memory, obs=obs, replay=replay, exploration=acts)
    found = exported(agent, opset=opset)
    assert found.card["largest_difference"] < 1e-5
    # Greedy branches are chosen by the critics.
    assert len(agent.spec.obs.names) - len(found.card["observations"]) == (
        obs == "for critics" and action != "greedy"
    )
    if obs != "for critics":
        assert wrong_draws(agent, found.data) == []
    assert found.card["opset"] == opset and found.card["target"]["name"] == (
        "Barracuda" if opset == 9 else "Sentis"
    )
    size = 4 * sum(one.numel() for one in graph_of(agent).model.parameters())
    assert len(found.data) <= 1.05 * size + 2**17


@pytest.mark.parametrize("opset", [9, 15])
def test_a_batch_norm_goes_by_its_running_statistics(opset: int) -> None:
    agent = agent_of(norm="inverted")
    for name, buffer in agent.learner.model.policy.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.uniform_(0.5, 2.0)
    assert exported(agent, opset=opset).card["largest_difference"] < 1e-5


ODD = ObsSpec(
    ("bits", "flag", "bytes", "stack", "planes", "floats", "scalar", "table"),
    ((4,), (2,), (5,), (4, 12, 12), (3, 10, 9), (9, 10, 3), (), (2, 3)),
    ("int8", "bool", "uint8", "uint8", "uint8", "float32", "float32", "float32"),
    stacks=(1, 1, 1, 4, 1, 1, 1, 1),
    axes=("", "", "", "", "CHW", "", "", ""),
)


@pytest.mark.parametrize("opset", [9, 15])
def test_every_kind_of_observation_is_what_was_trained_on(
    opset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(agents.OBSERVATIONS, "odd", ODD)
    card = exported(agent_of(obs="odd"), opset=opset).card
    assert card["operators"]["Floor"] == 2, "of both images of bytes: Barracuda's Cast does nothing"
    shapes = [one["shape"][1:] for one in card["inputs"]]
    assert shapes == [[4], [2], [5], [4, 12, 12], [3, 10, 9], [3, 9, 10], [1], [2, 3]]


def test_what_float32_does_not_hold_goes_in_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that: the input of a float64 near 0 stays float32, which Unity's runtimes read."""
    names, dtypes = ("near", "time", "count", "small"), ("float64", "float64", "int64", "int32")
    monkeypatch.setitem(agents.OBSERVATIONS, "far", ObsSpec(names, ((2,),) * 4, dtypes))
    agent = agents.make_agent({**PLAIN, "obs": "far"}, seed=3)
    far, rng = {"time": 1.7e9, "count": 2e8}, np.random.default_rng(0)
    rows = {
        name: (far.get(name, 0.0) + 9.0 * rng.normal(size=(200, 2))).astype(kind)
        for name, kind in zip(names, dtypes, strict=True)
    }
    agent.learner.model.normaliser.observe(rows)
    card = exported(agent).card
    assert card["largest_difference"] < 1e-5
    assert [one["type"] for one in card["inputs"]] == ["float32", "float64", "int64", "float32"]


@pytest.mark.parametrize("rnn", ["gru", "lstm"])
def test_layers_of_memory_are_what_they_were(rnn: str) -> None:
    """Two layers of each, step by step against the modules that were trained."""
    from algorithm.extras.onnx.rewrites import rewritten
    from algorithm.nn import GRU, LSTM, Attention

    torch.manual_seed(1)
    for own in (
        {"gru": GRU, "lstm": LSTM}[rnn](5, 6, depth=2),
        Attention(8, 4, depth=2, heads=2),
    ):
        for parameter in own.parameters():
            nn.init.normal_(parameter, std=0.5)
        copied = rewritten(nn.Sequential(own))[0]
        assert type(copied) is not type(own)
        carry = other = torch.zeros(3, *own.carry_shape)
        width = 5 if not isinstance(own, Attention) else 8
        for _ in range(7):
            x = torch.randn(3, 1, width)
            (out, after), (out_2, after_2) = (
                one(x, c, torch.ones(3, 1, dtype=torch.bool)) for one, c in ((own, carry), (copied, other))
            )
            carry, other = after[:, 0], after_2[:, 0]
            torch.testing.assert_close(out_2, out, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(other, carry, rtol=1e-5, atol=1e-6)


# ---- what the check finds


def _mask_is_inverted(graph: PolicyGraph) -> None:
    draw = graph._choice.draw
    object.__setattr__(
        graph._choice, "draw", lambda policy, state, mask, *draws: draw(policy, state, ~mask, *draws)
    )


def _normaliser_is_left_out(graph: PolicyGraph) -> None:
    graph.model.normaliser.shift.zero_()


def _memory_is_not_fed(graph: PolicyGraph) -> None:
    remembered = graph._remembered
    graph._remembered = lambda memory, lead: remembered(memory * 0.0, lead)


def _version_depends_on_inputs(graph: PolicyGraph) -> None:
    outputs = graph.forward
    graph.forward = lambda *given: (outputs(*given)[0] + given[0].sum(), *outputs(*given)[1:])


def _another_action_is_remembered(graph: PolicyGraph) -> None:
    """The mode goes on where a sample was taken."""
    outputs = graph._outputs
    graph._outputs = lambda first, mode, carries: (
        *outputs(first, mode, carries)[:-1],
        outputs(mode, mode, carries)[-1],
    )


def _batch_is_fixed(graph: PolicyGraph) -> None:
    graph._indices = lambda onehot: torch.ones(len(onehot), 1, dtype=torch.int64) + onehot[:, :1].long()


@pytest.mark.parametrize(
    ("row", "damage", "named"),
    [
        ({}, _normaliser_is_left_out, "deterministic_continuous_actions"),
        ({}, _version_depends_on_inputs, "version_number"),
        ({"action": "discrete"}, _mask_is_inverted, "discrete_actions violate the mask"),
        ({"action": "discrete"}, _batch_is_fixed, "does not run for a batch of 3"),
        ({"memory": "GRU"}, _memory_is_not_fed, "deterministic_continuous_actions"),
        ({"memory": "GRU"}, _another_action_is_remembered, "output recurrent_out"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_graph_that_is_wrong_is_found(
    row: dict[str, str], damage: Callable[[PolicyGraph], None], named: str
) -> None:
    agent = agent_of(**row)
    graph = graph_of(agent)
    with torch.no_grad():
        damage(graph)
    with pytest.raises(ExportError) as caught:
        checker(agent, graph)()
    assert named in str(caught.value) and caught.value.exit_code == 5


# ---- operators


class Einsum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,bi->b", x, x).unsqueeze(-1) + x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(3, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x.unsqueeze(1))[0][:, 0]


class Indexed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, 1] = x[:, 0] * 2.0
        return x


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.double() * 2.0).float()


def planted(own: nn.Module) -> Agent:
    """Return an agent with a user's module in front of its policy."""
    agent = agent_of(obs="vector", replay="raw")
    model = agent.learner.model
    model.policy = Added(model.policy, nn.Sequential(nn.Linear(8, 3), own, nn.Linear(3, 8)))
    return agent


@pytest.mark.parametrize(
    ("own", "operator"),
    [(nn.LayerNorm(3), "ReduceMean"), (nn.GELU(), "Erf"), (nn.ELU(), "Elu"), (nn.SiLU(), "Sigmoid")],
    ids=lambda one: type(one).__name__ if isinstance(one, nn.Module) else "",
)
def test_what_unity_has_becomes_elementary_operators(own: nn.Module, operator: str) -> None:
    assert operator in exported(planted(own)).card["operators"]


def test_the_exporter_is_the_one_that_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchScript's exporter names modules in its nodes; this fails where torch ignores ``dynamo=False``."""
    monkeypatch.setattr(sys, "stdout", None)  # as in a program with windows alone
    nodes = {node.name for node in draw_graph(graph_of(agent_of(memory="GRU")), 15).graph.node}
    assert {"/policy/net/net.0/Gemm", "/rep/memory/layers.0/Gemm"} <= nodes


# ---- names, memory, limits


def test_the_memory_and_version_that_a_graph_states() -> None:
    graph = graph_of(agent_of(memory="GRU", action="branches", obs="vector"))
    session = session_of(draw_graph(graph, 15).SerializeToString())
    ones = {"obs_0": np.ones((1, 3), np.float32), "action_masks": np.ones((1, 5), np.float32)}
    names = ["memory_size", "version_number"]
    values = session.run(names, {**ones, "recurrent_in": np.zeros((1, 1, 26), np.float32)})
    assert [value.tolist() for value in values] == [[26.0], [3.0]], "ML-Agents' version of its format"


class Remembering(Rep):
    """No memory of its own, but the action before is part of the state."""

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(spec)
        self.layer = nn.Linear(3 + spec.action.size, 8)

    def forward(self, obs: Any, prev_action: Any, carry: Any, valid: Any) -> Any:
        return self.layer(torch.cat([obs["v"], prev_action], -1)), carry


def test_zeros_are_a_start_that_is_none_of_zeros() -> None:
    agent = agent_of(memory="GRU", action="hybrid", obs="vector")
    rep = agent.learner.model.rep
    rep.initial_carry = lambda n: torch.full((n, *rep.carry_shape), 0.5)
    assert exported(agent).card["largest_difference"] < 1e-5


def test_the_action_before_is_a_memory() -> None:
    agent = agent_of(obs="vector")
    agent.learner.model.rep = Remembering(agent.spec)
    found = exported(agent)
    assert found.card["memory"] == 4 and found.card["largest_difference"] < 1e-5


@pytest.mark.parametrize("kind", agents.OBSERVATIONS)
def test_a_run_notes_what_its_agents_see_and_do(kind: str) -> None:
    obs = agents.OBSERVATIONS[kind]
    axes = tuple("HWC" if len(shape) == 3 else "" for shape in obs.shapes)
    for seen in (obs, replace(obs, axes=axes)):
        spec = AgentSpec(seen, agents.ACTIONS["hybrid"][0])
        assert spec_from_json(json.loads(json.dumps(specs_as_json({"own": spec})))["own"]) == spec


# ---- without torch


def test_the_runner_acts_as_the_policy_does_without_torch(tmp_path: Path) -> None:
    """Two agents, five steps, images, choices, masks and memory; importing torch raises there."""
    agent = agent_of(memory="GRU", action="hybrid", obs="mixed")
    written(agent, tmp_path)
    own = reference(agent)
    rng, carry, before = np.random.default_rng(4), own.initial_carry(2), agent.spec.action.padding(2)
    steps, expected = [own.situation(2, rng) for _ in range(5)], []
    for step in steps:
        before, carry = own.act(step, before, carry)
        choices = [before[:, where].argmax(1) for where in agent.spec.action.branch_slices]
        expected += [np.stack(choices, 1), before[:, agent.spec.action.discrete :]]
    np.savez(
        tmp_path / "steps.npz",
        **{f"{i}/{k}": v for i, step in enumerate(steps) for k, v in {**step.obs, "mask": step.mask}.items()},
    )
    (tmp_path / "play.py").write_text(Path(play.__file__).read_text())
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    (tmp_path / "run.py").write_text(
        "import sys, numpy as np, play\n"
        "policy, steps, out = play.ExportedPolicy('p.onnx'), np.load('steps.npz'), {}\n"
        "for i in range(5):\n"
        "    obs = {k.split('/')[1]: steps[k] for k in steps if k[0] == str(i)}\n"
        "    for j, x in enumerate(policy.act(obs, obs.pop('mask'))): out[f'{i}/{j}'] = x\n"
        "assert 'torch' not in sys.modules and 'algorithm' not in sys.modules\n"
        "np.savez('out.npz', **out)\n"
    )
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as out:
        for number, wanted in enumerate(expected):
            np.testing.assert_allclose(out[f"{number // 2}/{number % 2}"], wanted, atol=1e-5)


class Corridor(gym.Env[Any, Any]):
    """Rewards of the action, three steps; masks as of PettingZoo, or in the info, allow one choice."""

    def __init__(self, mask: str, action: gym.Space[Any]) -> None:
        self.action_space, self._mask, self._time = action, mask, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._time = 0
        return self._seen()

    def step(self, action: Any) -> Any:
        self._time += 1
        assert self.action_space.contains(action)
        obs, info = self._seen()
        return obs, float(np.sum(action)), self._time == 3, False, info

    def _seen(self) -> Any:
        mask = {"action_mask": (np.arange(3) == self._time % 3).astype(np.int8)}
        seen = {"v": np.full(3, self._time, np.float32)}
        return (seen | mask, {}) if self._mask == "observed" else (seen, mask)


@pytest.mark.parametrize("mask", ["observed", "in the info"])
def test_the_runner_obeys_masks_wherever_they_stand(
    mask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Choices 0, 1 and 2, which are 5, 6 and 7 in the environment."""
    space = gym.spaces.Discrete(3, start=5)
    monkeypatch.setattr(gym, "make", lambda name: Corridor(mask, space))
    play.main(written(agent_of(action="discrete", obs="vector"), tmp_path), "x", "2")
    assert capsys.readouterr().out == "episode 1: return 18\nepisode 2: return 18\n"


def test_the_runner_scales_actions_as_the_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounds −1 and 3, as well as 0 and 2: 1 + 2u and 1 + u."""
    low, high = np.array([-1, 0], np.float32), np.array([3, 2], np.float32)
    monkeypatch.setattr(gym, "make", lambda name: Corridor("", gym.spaces.Box(low, high)))
    agent = agent_of(obs="vector")
    play.main(written(agent, tmp_path), "x")
    obs = {"v": np.repeat(np.arange(3, dtype=np.float32)[:, None], 3, 1)}
    none = np.zeros((3, 0), np.bool_)
    u, _ = reference(agent).act(Situation(obs, none), np.zeros((3, 2), np.float32), np.zeros((3, 0)))
    total = float((np.array([1, 1]) + np.array([2, 1]) * u).sum())
    assert float(capsys.readouterr().out.removeprefix("episode 1: return ")) == pytest.approx(total, rel=1e-4)


def written(agent: Agent, folder: Path) -> str:
    """Write the export of an agent; return its name."""
    found = exported(agent, check=False)
    (folder / "p.onnx").write_bytes(found.data)
    (folder / "p.json").write_text(json.dumps(found.card))
    return str(folder / "p.onnx")
