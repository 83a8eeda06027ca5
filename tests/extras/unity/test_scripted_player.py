"""The scripted player against the package's own client code, which was written for real builds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.core.data import Segment
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extras.unity import package
from algorithm.extras.unity.testing import make_build
from algorithm.extras.unity.testing.sensors import Camera
from algorithm.extras.unity.testing.tasks import LEARNABLE
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from tests.extras.unity.ledgers import compare
from tests.extras.unity.test_link import free_port

package.load()

from mlagents_envs import rpc_utils  # noqa: E402
from mlagents_envs.environment import UnityEnvironment  # noqa: E402


@contextmanager
def opened(folder: Path, *args: str, **more: Any) -> Iterator[UnityEnvironment]:
    build = make_build(folder, "--ledger", str(folder / "ledger"), *args)
    port, log = free_port(), str(folder)
    env = UnityEnvironment(str(build), base_port=port, log_folder=log, timeout_wait=20, **more)
    try:
        env.reset()
        yield env
    finally:
        env.close()


def act(env: UnityEnvironment, rng: np.random.Generator) -> dict[str, Any]:
    """Give every agent that asks a random action that is allowed, and step; return the actions."""
    taken = {}
    for name, spec in env.behavior_specs.items():
        asking, _ = env.get_steps(name)
        action = spec.action_spec.empty_action(len(asking))
        action.continuous[:] = np.tanh(rng.normal(size=action.continuous.shape))
        for branch, mask in enumerate(asking.action_mask or []):
            for row in range(len(asking)):
                action.discrete[row, branch] = rng.choice(np.flatnonzero(~mask[row]))
        env.set_actions(name, action)
        taken[name] = action
    env.step()
    return taken


@pytest.mark.parametrize("as_png", [True, False])
@pytest.mark.parametrize(("channels", "stack"), [(3, 1), (1, 1), (1, 3), (5, 1), (4, 3)])
def test_the_package_reads_each_kind_of_camera(channels: int, stack: int, as_png: bool, rng: Any) -> None:
    """A stack begins with zeros and has the oldest image first."""
    camera = Camera("c", 8, 9, channels, png=as_png, stack=stack)
    images = [np.zeros((8, 9, channels)), *rng.integers(256, size=(2, 8, 9, channels)).astype(np.uint8)]
    for image in images[1:]:
        message = camera.observe(image)
    read = np.asarray(rpc_utils._observation_to_np_array(message))
    assert np.allclose(read, np.concatenate(images[-stack:], axis=2) / 255, atol=1e-6)


@pytest.mark.parametrize(("period", "alone"), [(1, False), (5, True)])
def test_an_end_comes_at_once_and_with_a_decision_period_alone(
    period: int, alone: bool, tmp_path: Path, rng: Any
) -> None:
    with opened(tmp_path, "--task=echo", f"--period={period}", "--max-step=12") as env:
        kinds = []
        for _ in range(60):
            kinds.append(tuple(map(len, env.get_steps("Echo?team=0"))))
            act(env, rng)
    assert ((0, 1) in kinds) == alone and (1, 1) in kinds and (0, 0) not in kinds


def test_agents_of_another_offset_are_in_other_messages_and_a_destroyed_one_gets_a_new_id(
    tmp_path: Path, rng: Any
) -> None:
    with opened(tmp_path, "--task=echo", "--agents=4", "--period=4", "--offsets", "--respawn") as env:
        asked, ended = [], []
        for _ in range(100):
            questions, ends = env.get_steps("Echo?team=0")
            asked.append(questions.agent_id.tolist())
            ended += ends.agent_id.tolist()
            act(env, rng)
        assert max(map(len, asked)) < 4
        assert len(ended) > 5 and len(set(ended)) == len(ended), "each object ends once"
        env.reset()
        asking, _ = env.get_steps("Echo?team=0")
        assert (asking.obs[0][:, 3:] == 0).all(), "all episodes begin, and no action of the last one is left"


def test_the_first_sight_of_a_behaviour_brings_its_spaces(tmp_path: Path, rng: Any) -> None:
    with opened(tmp_path, "--task=late") as env:
        seen = []
        for _ in range(25):
            seen.append(len(env.behavior_specs))
            act(env, rng)
    assert seen[:15] == [1] * 15 and seen[-1] == 2


ECHO = AgentSpec(ObsSpec(("echo",), ((7,),), ("float32",)), ActionSpec((3, 2), 1))


def stored_by_hand(env: UnityEnvironment, rng: np.random.Generator, messages: int) -> ReplayBuffer:
    """Store what the agents of ``EchoChoice`` see, with loops: who is missing waits."""
    replay = ReplayBuffer(ECHO, capacity=20_000, batch_size=4, sampler=UniformSampler())
    name = "EchoChoice?team=0"
    open_: dict[int, tuple[Any, Any, Any, int]] = {}

    def follow(row: Any, *, ended: bool) -> None:
        if row.agent_id not in open_:
            return  # an end before the first question
        obs, mask, action, step = open_[row.agent_id]
        z = np.arctanh(action[None, 5:].astype(np.float64)).astype(np.float32)
        after = np.ones(5, bool) if ended else allowed(row)
        replay.add(
            Segment(
                stream=row.agent_id,
                start_step=step,
                obs={"echo": np.stack([obs, row.obs[0]])},
                action_mask=np.stack([mask, after]),
                action=np.concatenate([action[None, :5], np.tanh(z)], axis=1),
                z=z,
                behaviour_logp=np.zeros((1, 2), np.float32),
                reward=np.array([row.reward + row.group_reward], np.float32),
                terminated=np.array([ended and not row.interrupted]),
                truncated=np.array([ended and row.interrupted]),
                carry=np.zeros((2, 0), np.float32),
            )
        )

    for _ in range(messages):
        if name not in env.behavior_specs:  # its agents decide one step later
            act(env, rng)
            continue
        asking, ended = env.get_steps(name)
        for agent in ended.agent_id:
            follow(ended[agent], ended=True)
            open_.pop(agent, None)
        for agent in asking.agent_id:
            follow(asking[agent], ended=False)
        taken = act(env, rng)[name]
        for row, agent in enumerate(asking.agent_id):
            onehot = np.zeros(5, np.float32)
            onehot[[taken.discrete[row, 0], 3 + taken.discrete[row, 1]]] = 1
            step = open_[agent][3] + 1 if agent in open_ else 0
            action = np.concatenate([onehot, taken.continuous[row]])
            open_[agent] = (asking[agent].obs[0], allowed(asking[agent]), action, step)
    return replay


def allowed(row: Any) -> np.ndarray:
    return np.concatenate([~mask for mask in row.action_mask])


def test_what_was_stored_by_hand_equals_the_ledger_and_each_change_of_it_is_found(
    tmp_path: Path, rng: Any
) -> None:
    args = ("--task=echoes", "--agents=3", "--period=4", "--offsets", "--destroy=0.005")
    with opened(tmp_path, *args, seed=3) as env:
        replay = stored_by_hand(env, rng, 300)
    result = compare(replay, tmp_path / "ledger", "EchoChoice")
    assert result.wrong == [] and result.stored > 150
    assert len(result.missing) <= 3 and result.truncated_here == 0, "those of the last message"
    slots = np.flatnonzero(replay._storage.links[: len(replay), 1])[::50]
    replay._storage.acted[slots, replay._storage.layout.reward] += 0.1
    assert len(compare(replay, tmp_path / "ledger", "EchoChoice").wrong) == len(slots)
    replay._storage.byte[slots, 0] ^= 1
    assert len(compare(replay, tmp_path / "ledger", "EchoChoice").wrong) == 2 * len(slots)


def best(name: str, asking: Any, cues: dict[int, int]) -> tuple[Any, Any]:
    """The best actions of all that ask, worked out from what they see."""
    first, rows = asking.obs[0], range(len(asking))
    if name == "Continuous":
        return first, None
    if name == "Branches":
        shown = np.stack([first[:, :3].argmax(1), first[:, 3:].argmax(1)], axis=1)
        masked = [asking.action_mask[branch][rows, shown[:, branch]] for branch in (0, 1)]
        return None, (shown + np.stack(masked, axis=1)) % [3, 4]
    if name == "Camera":
        quarters = first.reshape(len(first), 2, 12, 2, 12, 3).mean((2, 4, 5))
        return None, quarters.reshape(len(first), 4).argmax(1)[:, None]
    for row, agent in enumerate(asking.agent_id):
        if first[row, :4].any():
            cues[agent] = int(first[row, :4].argmax())
    return None, np.array([[cues[agent]] for agent in asking.agent_id])


@pytest.mark.parametrize(("task", "period"), [("two", 3), ("camera", 1), ("recall", 2)])
def test_the_best_policy_gets_the_optimum(task: str, period: int, tmp_path: Path) -> None:
    _, optima = LEARNABLE[task]
    returns: dict[str, list[float]] = {name: [] for name in optima}
    totals: dict[int, float] = {}
    cues: dict[int, int] = {}
    with opened(tmp_path, "--task", task, "--agents=4", f"--period={period}", seed=2) as env:
        for _ in range(120):
            for full in env.behavior_specs:
                name = full.partition("?")[0]
                asking, ended = env.get_steps(full)
                for row in (ended[agent] for agent in ended):
                    total = totals.pop(row.agent_id, 0.0)
                    returns[name].append(total + row.reward + row.group_reward)
                for row in (asking[agent] for agent in asking):
                    known = row.agent_id in totals
                    gain = row.reward + row.group_reward
                    totals[row.agent_id] = totals[row.agent_id] + gain if known else 0.0
                if len(asking):
                    continuous, discrete = best(name, asking, cues)
                    action = env.behavior_specs[full].action_spec.empty_action(len(asking))
                    if continuous is not None:
                        action.continuous[:] = continuous
                    if discrete is not None:
                        action.discrete[:] = discrete
                    env.set_actions(full, action)
            env.step()
    for name, optimum in optima.items():
        assert len(returns[name]) > 20
        assert np.mean(returns[name]) == pytest.approx(optimum, abs=0.04 if name == "Branches" else 1e-5)
