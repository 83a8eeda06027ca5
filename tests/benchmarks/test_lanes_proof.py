"""The proof of transitions: what it sees, and simulators that are proved where they are installed."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.lanes.tensor import TensorVecEnv
from algorithm.env.registry import make_vec_env, wrap_vector_env
from algorithm.env.request import EnvRequest
from benchmarks.lanes_proof import Ledger, Proof, prove
from tests.env.lanes.test_tensor import Count


def counted(broken: str, ledger: Ledger) -> VecEnv:
    pool = {"watch": ledger.watch, "on_fault": lambda fault: None}
    request = EnvRequest("TENSOR", "Count", n=8, seed_of=lambda i, k: k, **pool)
    return TensorVecEnv(partial(Count, 8, broken=broken), request)


def gathered(mode: AutoresetMode, ledger: Ledger) -> VecEnv:
    request = EnvRequest("GYM", "CartPole-v1", n=8, seed_of=lambda i, k: 8 * k + i, watch=ledger.watch)
    copies = [partial(gym.make, "CartPole-v1")] * 8
    return wrap_vector_env(lambda: SyncVectorEnv(copies, autoreset_mode=mode), request)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_is_proved(mode):
    proof = prove(partial(gathered, mode), transitions=2000)
    assert (proof.wrong, proof.phantoms) == (0, 0) and proof.transitions >= 2000 and proof.episodes > 50


def test_the_proof_sees_a_last_observation_that_is_the_next_first_one():
    assert prove(partial(counted, ""), transitions=2000).phantoms == 0
    bad = prove(partial(counted, "phantom"), transitions=2000)
    assert bad.wrong == 0 and bad.phantoms == bad.episodes > 100


def test_the_proof_sees_a_difference_between_what_came_and_what_is_stored(monkeypatch):
    """Here the program itself changes the reward of one lane in each step."""
    own = TensorVecEnv.step

    def changed(self: TensorVecEnv, actions: Any) -> Any:
        result = own(self, actions)
        result[DEFAULT_BEHAVIOUR].reward[0] += 1
        return result

    monkeypatch.setattr(TensorVecEnv, "step", changed)
    assert prove(partial(counted, ""), transitions=200).wrong > 5


def of_kind(kind: str, name: str, args: dict[str, Any], ledger: Ledger) -> VecEnv:
    pool = {"watch": ledger.watch}
    return make_vec_env(EnvRequest(kind, name, env_args=args, n=4, seed_of=lambda i, k: 5, **pool))


@pytest.mark.parametrize(
    ("kind", "name", "args", "package"),
    [
        ("ENVPOOL", "CartPole-v1", {}, "envpool"),
        ("BRAX", "inverted_pendulum", {"episode_length": 30}, "brax"),
        ("PLAYGROUND", "CartpoleBalance", {"episode_length": 30}, "mujoco_playground"),
        ("GYM", "ale_py:ALE/Pong-v5", {}, "ale_py"),
    ],
)
def test_simulators_of_many_are_proved_where_they_are_installed(kind, name, args, package):
    if importlib.util.find_spec(package) is None:
        with pytest.raises((EnvError, UsageError), match="pip install"):
            of_kind(kind, name, args, Ledger())
        return
    proof: Proof = prove(partial(of_kind, kind, name, args), transitions=400)
    assert (proof.wrong, proof.phantoms) == (0, 0) and proof.transitions >= 400
