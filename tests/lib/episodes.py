"""Recordings of scripted agents, as ``--record`` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from algorithm.core.data import ActorOutput
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.demos.npz import NpzWriter
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.evaluation.callbacks import Recording
from algorithm.run.evaluation.evaluate import evaluate


class Scripted:
    """Player of allowed random actions; ``torque``: of a continuous action by the observations instead."""

    stored_carry_shape = (0,)

    def __init__(
        self, spec: AgentSpec, torque: Callable[[Mapping[str, np.ndarray]], np.ndarray] | None = None
    ):
        self.spec, self.torque, self.rng = spec, torque, np.random.default_rng(0)

    def initial_carry(self, n):
        return np.zeros((n, 0), np.float32)

    def act(self, obs, prev_action, carry, action_mask):
        action, z, logp = self.spec.action.random(self.rng, action_mask)
        if self.torque is not None:
            z = self.torque(obs).astype(np.float32)
            action[:, self.spec.action.discrete :] = np.clip(z, -1.0, 1.0)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)


def record(file: Path, env_name: str, episodes: int = 3, *, limit: int = 20, torque=None) -> AgentSpec:
    """Write a recording; return what its agents see and do."""
    env = make_vec_env(EnvRequest("GYM", env_name, seed_of=lambda i, episode: 7 * i + episode))
    spec = env.specs[DEFAULT_BEHAVIOUR]
    players = {DEFAULT_BEHAVIOUR: Scripted(spec, torque)}
    evaluate(env, players, episodes, length_limit=limit, callback=Recording(NpzWriter(file)))
    env.close()
    return spec
