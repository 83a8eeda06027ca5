"""On-policy agents of small tasks, and collectors for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from algorithm.agents import Agent, AgentInputs
from algorithm.agents.on_policy.family import FAMILIES, OnPolicyAgent
from algorithm.agents.on_policy.family_config import A2cConfig, A3cConfig, AcktrConfig, PpoConfig
from algorithm.agents.sac.config import SacConfig
from algorithm.config.schema import BaseConfig, Config
from algorithm.core.data import Demonstrations, SequenceBatch
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.keys.signals import NnConfig
from algorithm.replay.budget import MemoryBudget
from algorithm.run.experience.collector import LocalCollector

SIZES = {"dense_n": 8}


def make(
    env_name: str = "CartPole-v1",
    n: int = 2,
    *,
    algorithm: str = "PPO",
    rep: Mapping[str, Any] | None = None,
    sac: Mapping[str, Any] | None = None,
    wrappers: Sequence[Mapping[str, Any]] = (),
    sizes: Mapping[str, Any] = SIZES,
    blocks: Mapping[str, Any] | None = None,
    demonstrations: Demonstrations | None = None,
    **own: Any,
) -> tuple[OnPolicyAgent, LocalCollector]:
    """Return an agent and a collector; ``own``: keys of the family's block, ``blocks``: others."""
    env = make_vec_env(
        EnvRequest("GYM", env_name, n=n, seed_of=lambda i, episode: 100 * i + episode, wrappers=wrappers)
    )
    block = {"rollout_step": 16, **own}
    config = Config(
        algorithm=algorithm,
        base_config=BaseConfig(env_type="GYM", env_name=env_name, max_step=1000, n_envs=n),
        sac_config=SacConfig(**{"use_normalization": False, "reward_scaling": False, **(sac or {})}),
        nn_config=NnConfig(rep=dict(rep or SIZES), policy=dict(sizes), v=dict(sizes)),
        ppo_config=PpoConfig(**({"num_minibatch": 4, **block} if algorithm == "PPO" else {})),
        a2c_config=A2cConfig(**(block if algorithm == "A2C" else {})),
        acktr_config=AcktrConfig(**(block if algorithm == "ACKTR" else {})),
        a3c_config=A3cConfig(**(block if algorithm == "A3C" else {})),
        **(blocks or {}),
    )
    agent = FAMILIES[algorithm].make_agent(
        AgentInputs(
            env.specs[DEFAULT_BEHAVIOUR],
            config,
            nn_file=None,
            behaviour="x",
            seed=1,
            device=torch.device("cpu"),
            memory=MemoryBudget(),
            demonstrations=demonstrations,
        )
    )
    assert isinstance(agent, OnPolicyAgent)
    return agent, LocalCollector(env, {DEFAULT_BEHAVIOUR: agent.policy}, {DEFAULT_BEHAVIOUR: agent})


def train(agent: Agent, collector: LocalCollector, steps: int) -> None:
    """Take steps and learn until there are so many."""
    while collector.steps < steps:
        collector.step()
        agent.learn(collector.steps)


def fill(agent: OnPolicyAgent, collector: LocalCollector) -> SequenceBatch:
    """Act until a rollout is full; return it."""
    while not agent._ring.full:
        collector.step()
    return agent.replay.chains(np.sort(np.concatenate(agent._ring._new)))


def weights(agent: OnPolicyAgent) -> dict[str, torch.Tensor]:
    """Return copies of all networks' tensors."""
    return {name: value.clone() for name, value in agent.learner.tensors()["model"].items()}
