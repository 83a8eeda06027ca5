"""Tianshou's side of a comparison. Runs in an environment of its own, see ``peer.py``."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import SAC
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

from benchmarks.worker import Answer, stay_on_one_core

RATE = 3e-4


def updates(updates: int, filled: int, seed: int, sizes: list[int]) -> Answer:
    """Milliseconds of sampling and an update of SAC; the first ones apart."""
    stay_on_one_core()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    obs, action, units, batch = sizes
    algorithm, buffer = _sac(obs, action, units), ReplayBuffer(filled)
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(obs)
    for _ in range(filled):
        after = rng.standard_normal(obs)
        step = {"obs": row, "act": rng.uniform(-1.0, 1.0, action), "rew": float(row[0]), "obs_next": after}
        buffer.add(Batch(**step, terminated=False, truncated=False, info={}))
        row = after

    def take(number: int) -> None:
        with policy_within_training_step(algorithm.policy):
            for _ in range(number):
                algorithm.update(buffer, batch)

    take(max(2, updates // 10))
    begin = perf_counter()
    take(updates)
    return {"ms": (perf_counter() - begin) / updates * 1e3}


def _sac(obs: int, action: int, units: int) -> Any:
    spaces = gym.spaces.Box(-np.inf, np.inf, (obs,)), gym.spaces.Box(-1.0, 1.0, (action,))
    hidden = [units, units]
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=(obs,), hidden_sizes=hidden),
        action_shape=(action,),
        unbounded=True,
        conditioned_sigma=True,
    )
    critics = [
        ContinuousCritic(
            preprocess_net=Net(state_shape=(obs,), action_shape=(action,), hidden_sizes=hidden, concat=True)
        )
        for _ in range(2)
    ]
    adam = AdamOptimizerFactory(lr=RATE)
    policy = SACPolicy(actor=actor, action_space=spaces[1], observation_space=spaces[0])
    return SAC(
        policy=policy,
        policy_optim=adam,
        critic=critics[0],
        critic_optim=adam,
        critic2=critics[1],
        critic2_optim=adam,
        alpha=AutoAlpha(-float(action), 0.0, AdamOptimizerFactory(lr=RATE)),
    ).train()
