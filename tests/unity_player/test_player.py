"""The scripted player against the package's own client code, which was written for real builds."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.core.data import Segment
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.unity import package
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from tests.unity_player import make_build, speed
from tests.unity_player.compare import compare, read_ledgers
from tests.unity_player.tasks import LEARNABLE

package.load()

from mlagents_envs.environment import UnityEnvironment  # noqa: E402
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel  # noqa: E402
from mlagents_envs.side_channel.environment_parameters_channel import (  # noqa: E402
    EnvironmentParametersChannel,
)
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel  # noqa: E402


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def opened(
    folder: Path, *args: str, channels: list[Any] | None = None, **more: Any
) -> Iterator[UnityEnvironment]:
    build = make_build(folder, "--ledger", str(folder / "ledger"), *args)
    env = UnityEnvironment(
        str(build),
        base_port=free_port(),
        side_channels=channels or [],
        log_folder=str(folder),
        timeout_wait=20,
        **more,
    )
    try:
        yield env
    finally:
        env.close()


def act(env: UnityEnvironment, rng: np.random.Generator) -> dict[str, Any]:
    """Give every agent that asks a random action that is allowed; return the actions."""
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
    return taken


def test_settings_and_samplers_arrive_and_statistics_come_back(tmp_path: Path, rng: Any) -> None:
    engine, parameters, statistics = (
        EngineConfigurationChannel(),
        EnvironmentParametersChannel(),
        StatsSideChannel(),
    )
    engine.set_configuration_parameters(width=80, height=60, quality_level=2, time_scale=20.0)
    parameters.set_float_parameter("size", 1.5)
    parameters.set_uniform_sampler_parameters("mass", 1, 2, 7)
    parameters.set_gaussian_sampler_parameters("wind", 0, 3, 8)
    parameters.set_multirangeuniform_sampler_parameters("place", [(0, 1), (4, 6)], 9)
    channels = [engine, parameters, statistics]
    with opened(tmp_path, channels=channels, seed=5, num_areas=3, additional_args=["--scene", "x"]) as env:
        env.reset()
        (name,) = env.behavior_specs
        assert name == "Continuous?team=0"
        assert len(env.get_steps(name)[0]) == 3  # an agent in each area
        for _ in range(3):
            act(env, rng)
            env.step()
        assert [(key, len(values)) for key, values in statistics.stats.items()] == [("Rounds/Score", 9)]
    ((start, *lines),) = read_ledgers(tmp_path / "ledger")
    assert (start["seed"], start["areas"], start["api"]) == (5, 3, "1.5.0")
    assert start["argv"][-2:] == ["--scene", "x"]
    settings = {line["setting"]: line["value"] for line in lines if line["kind"] == "engine"}
    assert settings == {"screen": [80, 60], "quality_level": 2, "time_scale": 20.0}
    assert [
        (line["name"], line["sampler"], line["numbers"], line["seed"])
        for line in lines
        if line["kind"] == "parameter"
    ] == [
        ("size", "number", [1.5], None),
        ("mass", "uniform", [1, 2], 7),
        ("wind", "gaussian", [0, 3], 8),
        ("place", "multirange", [0, 1, 4, 6], 9),
    ]


def test_an_end_comes_at_once_and_with_a_decision_period_alone(tmp_path: Path, rng: Any) -> None:
    for period, alone in ((1, False), (5, True)):
        with opened(tmp_path, "--task=echo", f"--period={period}", "--max-step=12") as env:
            env.reset()
            kinds = []
            for _ in range(60):
                asking, ended = env.get_steps("Echo?team=0")
                kinds.append((len(asking), len(ended)))
                act(env, rng)
                env.step()
        assert ((0, 1) in kinds) == alone and (1, 1) in kinds and (0, 0) not in kinds


def test_agents_of_another_offset_are_in_other_messages_and_a_destroyed_one_gets_a_new_id(
    tmp_path: Path, rng: Any
) -> None:
    with opened(tmp_path, "--task=echo", "--agents=4", "--period=4", "--offsets", "--respawn") as env:
        env.reset()
        asked, ended = [], []
        for _ in range(200):
            questions, ends = env.get_steps("Echo?team=0")
            asked.append(questions.agent_id.tolist())
            ended += ends.agent_id.tolist()
            assert not ends.interrupted.any()
            act(env, rng)
            env.step()
    assert asked[:3] == [[0], [1], [2]] or max(map(len, asked)) < 4
    assert len(ended) > 10 and len(set(ended)) == len(ended), "each object ends once"
    assert not any(set(later) & set(ended) for later in asked[-1:])


def test_a_reset_begins_all_episodes_without_a_word(tmp_path: Path, rng: Any) -> None:
    with opened(tmp_path, "--task=echo", "--agents=2") as env:
        env.reset()
        for _ in range(5):
            act(env, rng)
            env.step()
        before = env.get_steps("Echo?team=0")[0].obs[0]
        env.reset()
        asking, _ = env.get_steps("Echo?team=0")
    assert asking.agent_id.tolist() == [0, 1]
    assert (asking.obs[0][:, 2] == before[:, 2] + 1).all() and (asking.obs[0][:, 3] == 0).all()
    assert not asking.obs[0][:, 4:].any(), "no action of the last episode is left"


def test_a_group_is_rewarded_together_and_its_reward_comes_apart(tmp_path: Path, rng: Any) -> None:
    with opened(tmp_path, "--task=group", "--agents=2") as env:
        env.reset()
        act(env, rng)
        env.step()
        _, ended = env.get_steps("Member?team=0")
    groups = np.array(ended.group_id)
    assert sorted(groups.tolist()) == [1, 1, 1, 2, 2, 2]
    for group in (1, 2):
        rows = groups == group
        assert np.allclose(ended.group_reward[rows], ended.reward[rows].mean(), atol=1e-6)


def test_the_first_sight_of_a_behaviour_brings_its_spaces(tmp_path: Path, rng: Any) -> None:
    with opened(tmp_path, "--task=late") as env:
        env.reset()
        seen = []
        for _ in range(25):
            seen.append(len(env.behavior_specs))
            act(env, rng)
            env.step()
    assert seen[:15] == [1] * 15 and seen[-1] == 2


ECHO = AgentSpec(ObsSpec(("echo",), ((7,),), ("float32",)), ActionSpec((3, 2), 1))


def stored_by_hand(env: UnityEnvironment, rng: np.random.Generator, messages: int) -> ReplayBuffer:
    """Store what the agents of ``EchoChoice`` see, with loops: who is missing waits."""
    replay = ReplayBuffer(ECHO, capacity=20_000, batch_size=4, sampler=UniformSampler())
    name = "EchoChoice?team=0"
    open_: dict[int, list[Any]] = {}

    def follow(row: Any, *, ended: bool) -> None:
        if row.agent_id not in open_:
            return  # an end before the first question
        (obs, mask, action, step) = open_[row.agent_id]
        z = np.arctanh(action[None, 5:].astype(np.float64)).astype(np.float32)
        after = np.concatenate([~m for m in row.action_mask]) if not ended else np.ones(5, bool)
        flat = np.concatenate([action[None, :5], np.tanh(z)], axis=1)
        replay.add(
            Segment(
                stream=row.agent_id,
                start_step=step,
                obs={"echo": np.stack([obs, row.obs[0]])},
                action_mask=np.stack([mask, after]),
                action=flat,
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
            env.step()
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
            question = asking[agent]
            mask = np.concatenate([~m for m in question.action_mask])
            open_[agent] = [question.obs[0], mask, np.concatenate([onehot, taken.continuous[row]]), step]
        env.step()
    return replay


def test_what_was_stored_by_hand_equals_the_ledger_and_each_change_of_it_is_found(
    tmp_path: Path, rng: Any
) -> None:
    args = ("--task=echoes", "--agents=3", "--period=4", "--offsets", "--destroy=0.005")
    with opened(tmp_path, *args, seed=3) as env:
        env.reset()
        replay = stored_by_hand(env, rng, 600)
    result = compare(replay, tmp_path / "ledger", "EchoChoice")
    assert result.wrong == [] and result.stored > 300
    assert len(result.missing) <= 3 and result.truncated_here == 0, "those of the last message"
    slots = np.flatnonzero(replay._storage.links[: len(replay), 1])[::50]
    replay._storage.real[slots, replay._storage.layout.reward] += 0.1
    assert len(compare(replay, tmp_path / "ledger", "EchoChoice").wrong) == len(slots)
    replay._storage.byte[slots, 0] ^= 1
    assert len(compare(replay, tmp_path / "ledger", "EchoChoice").wrong) == 2 * len(slots)


def best(name: str, asking: Any, cues: dict[int, int]) -> tuple[Any, Any]:
    """The best actions of all that ask, worked out from what they see."""
    masks = [np.asarray(mask) for mask in asking.action_mask or []]
    first, rows = asking.obs[0], range(len(asking))
    if name in ("Continuous", "Member"):
        return first, None
    if name == "Branches":
        shown = np.stack([first[:, :3].argmax(1), first[:, 3:].argmax(1)], axis=1)
        masked = np.stack([masks[branch][rows, shown[:, branch]] for branch in (0, 1)], axis=1)
        return None, (shown + masked) % [3, 4]
    if name == "Hybrid":
        choice = first.argmax(1)
        return asking.obs[1][rows, choice][:, None], choice[:, None]
    if name == "Camera":
        height, width = first.shape[1] // 2, first.shape[2] // 2
        quarters = [first[:, y : y + height, x : x + width] for y in (0, height) for x in (0, width)]
        return None, np.stack([quarter.mean((1, 2, 3)) for quarter in quarters], axis=1).argmax(1)[:, None]
    for row, agent in enumerate(asking.agent_id):
        if first[row, :4].any():
            cues[agent] = int(first[row, :4].argmax())
    return None, np.array([[cues[agent]] for agent in asking.agent_id])


@pytest.mark.parametrize(("task", "period"), [*((name, 1) for name in LEARNABLE), ("recall", 2), ("two", 3)])
def test_the_best_policy_gets_the_optimum(task: str, period: int, tmp_path: Path) -> None:
    _, optima = LEARNABLE[task]
    returns: dict[str, list[float]] = {name: [] for name in optima}
    totals: dict[int, float] = {}
    cues: dict[int, int] = {}
    with opened(tmp_path, "--task", task, "--agents=4", f"--period={period}", seed=2) as env:
        env.reset()
        for _ in range(150):
            for full in env.behavior_specs:
                name = full.partition("?")[0]
                asking, ended = env.get_steps(full)
                for step, is_end in [
                    *((ended[a], True) for a in ended),
                    *((asking[a], False) for a in asking),
                ]:
                    if is_end:
                        total = totals.pop(step.agent_id, 0.0)
                        returns[name].append(total + step.reward + step.group_reward)
                    elif step.agent_id in totals:
                        totals[step.agent_id] += step.reward + step.group_reward
                    else:
                        totals[step.agent_id] = 0.0
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
        assert np.mean(returns[name]) == pytest.approx(optimum, abs=0.03 if name == "Branches" else 1e-5)


def test_the_measurement_of_speed_runs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--players=2", "--ms=1", "--pairs=1", "--seconds=0.2"]
    assert speed.main(words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["seen"] for line in lines] == ["vectors", "cameras"]
    assert all(line["ours"] > 0 and line["package"] > 0 for line in lines)
