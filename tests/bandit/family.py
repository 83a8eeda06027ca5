"""A bandit: the mean reward of each choice, and a softmax over these. No critic, no replay, no gradient."""

import numpy as np
import torch
from torch import nn

from algorithm.agents.base import Agent, Family
from algorithm.agents.learner import Learner
from algorithm.agents.roles import Acting
from algorithm.core.data import ActorOutput, State
from algorithm.core.seeding import stream


class Arms(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("reward", torch.zeros(n, dtype=torch.float64))
        self.register_buffer("pulls", torch.zeros(n, dtype=torch.float64))


class BanditPolicy:
    stored_carry_shape, warming_up = (0,), False

    def __init__(self, arms, rng):
        self.arms, self.rng = arms, rng

    def initial_carry(self, n):
        return np.zeros((n, 0), np.float32)

    def act(self, obs, prev_action, carry, action_mask, *, greedy=False):
        n, probs = len(carry), (10.0 * self.arms.reward / self.arms.pulls.clamp(min=1.0)).softmax(0).numpy()
        arm = np.full(n, probs.argmax()) if greedy else self.rng.choice(len(probs), n, p=probs)
        logp = np.log(probs[arm]).astype(np.float32)[:, None]
        onehot = np.eye(len(probs), dtype=np.float32)[arm]
        return ActorOutput(action=onehot, z=np.zeros((n, 0), np.float32), behaviour_logp=logp, carry=carry)

    def state(self):
        return State(meta={"rng": self.rng.bit_generator.state})

    def load_state(self, state):
        self.rng.bit_generator.state = state.meta["rng"]


class BanditLearner(Learner):
    def __init__(self, arms, device):
        super().__init__(device, seed=0)
        self.arms = arms

    def modules(self):
        return self.arms

    def update(self, action, reward):
        self.arms.reward += action.T.double() @ reward.double()
        self.arms.pulls += action.sum(0)
        self.updates += 1


class BanditAgent(Agent):
    updates_per_step = 1.0

    def __init__(self, inputs):
        super().__init__(inputs, BanditLearner(Arms(inputs.spec.action.discrete), inputs.device))
        self.policy, self._new = self.new_policy("acting"), []

    def add(self, segment):
        self._new.append((torch.from_numpy(segment.action), torch.from_numpy(segment.reward)))

    add_steps = add

    def learn(self, step, watch=None, *, run_step=None):
        for action, reward in self._new:
            self.learner.update(action, reward)
        self._new.clear()

    def acting_parts(self):
        return {"arms": self.learner.arms}

    def new_policy(self, purpose):
        return BanditPolicy(self.learner.arms, stream(self._inputs.seed, purpose, self._inputs.behaviour))


def make_acting(inputs):
    arms = Arms(inputs.spec.action.discrete)
    return Acting(BanditPolicy(arms, stream(inputs.own_seed, "acting", inputs.behaviour)), {"arms": arms})


FAMILIES = {"BANDIT": Family(name="BANDIT", make_agent=BanditAgent, make_acting=make_acting)}
