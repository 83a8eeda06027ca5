"""A bandit: the mean reward of each choice, and a softmax over these. No critic, no replay, no gradient."""

import numpy as np
import torch
from torch import nn

from algorithm.agents import Acting, Agent, Family, Learner, MemorylessPolicy


class Arms(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("reward", torch.zeros(n, dtype=torch.float64))
        self.register_buffer("pulls", torch.zeros(n, dtype=torch.float64))


class BanditPolicy(MemorylessPolicy):
    def choose(self, obs, action_mask, greedy):
        n, means = len(action_mask), self.networks.reward / self.networks.pulls.clamp(min=1.0)
        probs = (10.0 * means).softmax(0).numpy()
        arm = np.full(n, probs.argmax()) if greedy else self.rng.choice(len(probs), n, p=probs)
        return np.eye(len(probs))[arm]


class BanditAgent(Agent):
    def __init__(self, inputs):
        arms = Arms(inputs.spec.action.discrete)
        super().__init__(inputs, Learner(inputs.device, inputs.seed, arms))
        self.arms, self._new = arms, []
        self.policy = self.new_policy("acting")

    def add_steps(self, steps):
        self._new.append((torch.tensor(steps.action), torch.tensor(steps.reward)))

    def learn(self, step, watch=None, *, run_step=None):
        for action, reward in self._new:
            self.arms.reward += action.T.double() @ reward.double()
            self.arms.pulls += action.sum(0)
            self.learner.updates += 1
        self._new.clear()

    def new_policy(self, purpose):
        return BanditPolicy(self.inputs, self.arms, purpose)


def make_acting(inputs):
    arms = Arms(inputs.spec.action.discrete)
    return Acting(BanditPolicy(inputs, arms), {"networks": arms})


BANDIT = Family(name="BANDIT", make_agent=BanditAgent, make_acting=make_acting)
