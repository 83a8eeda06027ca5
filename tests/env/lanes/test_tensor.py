"""Lanes of tensor environments: what the program sees and refuses of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import asac
from algorithm.core.data import Episode
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, VecEnv
from algorithm.env.lanes.contract import TensorEnv, TensorStep
from algorithm.env.lanes.tensor import TensorVecEnv
from algorithm.env.objects import ExternalTensorEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector
from benchmarks.pendulum import Pendulum
from tests.env.oracles import Witness

TOYS = "benchmarks.pendulum"


class Count(TensorEnv):
    """Lane i shows (i, episode, step). Episodes have 2 + i steps; odd lanes terminate, even ones are cut."""

    observation_space = gym.spaces.Box(-1e9, 1e9, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, num_envs: int, device: Any = "cpu", broken: str = "") -> None:
        self.num_envs, self.device, self._broken = num_envs, torch.device(device), broken
        self._lane = torch.arange(num_envs)
        self._episode, self._step = torch.full((num_envs,), -1), torch.zeros(num_envs, dtype=torch.int64)

    def reset(self, seed: int | None = None, lanes: Tensor | None = None) -> Tensor:
        everyone = lanes is None or self._broken == "resets all"
        chosen = torch.ones(self.num_envs, dtype=torch.bool) if everyone else lanes
        self._episode, self._step = self._episode + chosen, torch.where(chosen, 0, self._step)
        return self._see()

    def step(self, actions: Tensor) -> TensorStep:
        self._step = self._step + 1
        over, final = self._step == 2 + self._lane, self._see()
        self._episode, self._step = self._episode + over, torch.where(over, 0, self._step)
        odd = self._lane % 2 == 1
        step = TensorStep(self._see(), actions[:, 0] * 0 + 1, over & odd, over & ~odd, final)
        if self._broken == "raises":
            raise RuntimeError("the abacus broke")
        changed: dict[str, dict[str, Any]] = {
            "phantom": {"final": step.obs},
            "lost": {"final": None},
            "reward": {"reward": step.reward[:1]},
            "text": {"reward": "one"},
            "obs": {"obs": step.obs[:, :2]},
        }
        return step._replace(**changed.get(self._broken, {}))

    def state(self) -> Any:
        return [self._step] if self._broken == "state" else None

    def _see(self) -> Tensor:
        return torch.stack((self._lane, self._episode, self._step), 1).float()


def lanes(n: int, broken: str = "", told: Callable[[Fault], None] = print) -> TensorVecEnv:
    request = EnvRequest("TENSOR", "Count", n=n, seed_of=lambda i, k: k, on_fault=told)
    return TensorVecEnv(partial(Count, n, broken=broken), request)


def rolled(env: VecEnv, steps: int) -> tuple[Witness, list[Episode]]:
    seen = Witness(env.specs[DEFAULT_BEHAVIOUR])
    rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: seen}, {DEFAULT_BEHAVIOUR: seen})
    return seen, [episode for _ in range(steps) for episode in rollout.step()]


def test_each_lane_brings_its_own_transitions_and_its_last_observation():
    found, episodes = rolled(lanes(3), 8)
    for lane in range(3):
        length = 2 + lane
        expected = [
            (
                (lane, k // length, k % length),
                (lane, k // length, k % length + 1),
                k % length == length - 1 and lane == 1,
                k % length == length - 1 and lane != 1,
            )
            for k in range(8)
        ]
        assert [(t.obs, t.next_obs, t.terminated, t.truncated) for t in found.seen[lane]] == expected
    assert [(e.agent, e.length, e.total) for e in episodes if e.agent == 2] == [(2, 4, 4.0)] * 2


def test_of_a_cut_episode_without_its_last_observation_the_last_step_is_not_stored_and_said_once():
    told: list[Fault] = []
    found, episodes = rolled(lanes(2, "lost", told.append), 9)
    one, two = found.seen[0], found.seen[1]
    assert {(t.obs[2], t.next_obs[2], t.terminated) for t in one} == {(0, 1, False)}
    assert [t.truncated for t in one] == [True] * 4 + [False], "of two steps one is known"
    assert found.closed == [0] * 4
    assert [(t.obs[2], t.terminated) for t in two] == [(0, False), (1, False), (2, True)] * 3
    assert [e.length for e in episodes if e.agent == 0] == [2] * 4, "episodes are reported whole"
    assert [fault.what for fault in told] == ["Count loses the last observation of truncated episodes"]


@pytest.mark.parametrize("broken", ["reward", "text", "obs", "raises", "state"])
def test_what_breaks_the_contract_is_refused_with_its_place(broken):
    env = lanes(2, broken)
    env.reset()
    with pytest.raises(EnvError) as raised:
        env.step({DEFAULT_BEHAVIOUR: np.zeros((2, 1), np.float32)})
        env.state()
    assert "Count of 2 environments, index unknown, step" in str(raised.value)


def test_lanes_that_begin_unasked_are_refused():
    env, good = lanes(3, "resets all"), lanes(3)
    for one in (env, good):
        one.reset()
        one.step({DEFAULT_BEHAVIOUR: np.zeros((3, 1), np.float32)})
    assert good.reset([1])[DEFAULT_BEHAVIOUR].obs["obs"].tolist() == [[1, 1, 0]]
    with pytest.raises(EnvError, match="not asked to reset"):
        env.reset([1])


@pytest.mark.parametrize(
    "asked", [{"wrappers": ({"TimeLimit": {}},)}, {"render": True}, {"video": True}, {"options": {"a": 1}}]
)
def test_what_many_at_once_cannot_have_is_refused(asked):
    with pytest.raises(UsageError, match="TENSOR environments have no"):
        make_vec_env(EnvRequest("TENSOR", f"{TOYS}:Pendulum", n=2, seed_of=lambda i, k: 0, **asked))


@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("nowhere:X", {}, EnvError),
        (f"{TOYS}:Missing", {}, EnvError),
        (f"{TOYS}:TensorStep", {}, EnvError),
        ("Pendulum", {}, EnvError),
        (f"{TOYS}:Pendulum", {"colour": "red"}, EnvError),
        pytest.param(
            f"{TOYS}:Pendulum",
            {"device": "cuda"},
            UsageError,
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it is there"),
        ),
    ],
)
def test_names_that_make_no_lanes_are_refused(name, args, kind):
    with pytest.raises(kind):
        make_vec_env(EnvRequest("TENSOR", name, env_args=args, n=2, seed_of=lambda i, k: 0))


def test_lanes_begin_anew_alone_and_go_on_from_a_state_bit_for_bit():
    def made() -> VecEnv:
        return make_vec_env(EnvRequest("TENSOR", f"{TOYS}:Pendulum", n=3, seed_of=lambda i, k: 7))

    def step(env: VecEnv) -> Any:
        return env.step({DEFAULT_BEHAVIOUR: np.full((3, 1), 0.5, np.float32)})[DEFAULT_BEHAVIOUR]

    env = made()
    first = env.reset(episode=0)[DEFAULT_BEHAVIOUR].obs["obs"]
    again = env.reset([1])[DEFAULT_BEHAVIOUR]
    assert again.ids.tolist() == [1] and not np.array_equal(again.obs["obs"][0], first[1])
    [step(env) for _ in range(150)]
    state = {name: value.copy() for name, value in env.state().arrays.items()}
    other = made()
    other.reset(episode=0)
    assert other.resume(type(env.state())(state)) == {}
    for _ in range(120):  # beyond an end, with random numbers
        here, there = step(env), step(other)
        assert np.array_equal(here.obs["obs"], there.obs["obs"]) and np.array_equal(here.reward, there.reward)
    plain = lanes(2)
    plain.reset()
    assert set(plain.resume(plain.state())) == {0, 1}, "Count tells nothing of its state"


def test_the_pendulum_is_that_of_gymnasium():
    env, one = Pendulum(5), gym.make("Pendulum-v1").unwrapped
    env.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.uniform(-2, 2, (5, 1)).astype(np.float32)
        before = env.state()["state"].clone().numpy().astype(np.float64)
        step = env.step(torch.from_numpy(actions))
        for lane in range(5):
            one.state = before[lane]
            obs, reward, *_ = one.step(actions[lane])
            np.testing.assert_allclose(step.obs[lane].numpy(), obs, atol=1e-4)
            np.testing.assert_allclose(step.reward[lane].item(), reward, rtol=1e-4, atol=1e-4)


def test_a_policy_of_lanes_acts_in_python_for_one_and_for_many(tmp_path):
    keys = {"env_type": "TENSOR", "n_envs": 8, "start_step": 64, "max_step": 96, "directory": tmp_path}
    run = asac.train(f"{TOYS}:Pendulum", quiet=True, **keys)
    one, three = (run.policy("latest").act(np.ones(shape, np.float32))[0] for shape in (3, (3, 3)))
    np.testing.assert_allclose(three, [one] * 3, rtol=1e-5)
    with pytest.raises(UsageError, match="other observations"):
        run.policy("latest", env="CartPole-v1")


def test_an_instance_that_cannot_be_copied_asks_for_a_second_one():
    env = Pendulum(2)
    env.handle = np  # a module
    with pytest.raises(UsageError, match="eval_env"):
        ExternalTensorEnv(env).another()
