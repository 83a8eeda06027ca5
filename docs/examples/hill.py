"""A family: try weights for an episode, and keep them if no others had a larger return."""

import numpy as np
import torch
from torch import nn

import asac
from algorithm.agents import Agent, Family, Learner, MemorylessPolicy


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in {"best": (4, 2), "tried": (4, 2), "top": (), "total": ()}.items():
            self.register_buffer(name, torch.zeros(shape))  # buffers are in each checkpoint


class HillPolicy(MemorylessPolicy):
    def choose(self, obs, action_mask, greedy):
        weights = self.networks.best if greedy else self.networks.tried
        return np.eye(2)[(obs["obs"] @ weights.numpy()).argmax(1)]


class HillClimber(Agent):
    ended = False

    def __init__(self, inputs):
        super().__init__(inputs, Learner(inputs.device, inputs.seed, Weights()))
        self.policy = self.new_policy("acting")

    def new_policy(self, purpose):
        return HillPolicy(self.inputs, self.learner.modules(), purpose)

    def add_steps(self, steps):
        self.learner.modules().total += steps.reward.sum()  # of one environment: n_envs is 1
        self.ended = (steps.terminated | steps.truncated).any()

    def learn(self, step, watch=None, *, run_step=None):
        if self.ended:
            own, random = self.learner.modules(), self.learner.generators()["update"]
            if own.total >= own.top:
                own.best.copy_(own.tried)
                own.top.copy_(own.total)
            own.tried.copy_(own.best + torch.randn(own.best.shape, generator=random))
            own.total.zero_()
            self.learner.updates += 1


HILL = Family(name="HILL", make_agent=HillClimber)

if __name__ == "__main__":
    run = asac.train("CartPole-v1", algorithm="hill:HILL", max_step=10_000, seed=1, quiet=True)
    print(f"mean return {run.evaluate(10).mean:.0f}")
