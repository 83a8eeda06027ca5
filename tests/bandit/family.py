"""A bandit: the mean reward of each choice, and a softmax over these. No critic, no replay, no gradient."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from algorithm.agents.roles import Acting, Family
from algorithm.core.data import ActorOutput, State
from algorithm.core.seeding import stream


class Arms(nn.Module):
    """Sum of rewards and number of pulls of each arm."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("reward", torch.zeros(n, dtype=torch.float64))
        self.register_buffer("pulls", torch.zeros(n, dtype=torch.float64))

    def values(self) -> np.ndarray:
        """Return the mean reward of each arm, 0 before its first pull."""
        return (self.reward / self.pulls.clamp(min=1.0)).numpy()


class BanditPolicy:
    """Softmax over ten times the arms' values."""

    def __init__(self, arms: Arms, rng: np.random.Generator) -> None:
        self.arms, self.rng, self.warming_up = arms, rng, False

    stored_carry_shape = (0,)

    def initial_carry(self, n):
        return np.zeros((n, 0), np.float32)

    def act(self, obs, prev_action, carry, action_mask, *, greedy=False):
        n, logits = len(carry), 10.0 * self.arms.values()
        probs = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        best = np.full(n, logits.argmax())
        arm = best if greedy else self.rng.choice(len(probs), n, p=probs)
        onehot = np.eye(len(probs), dtype=np.float32)[arm]
        logp = np.log(probs[arm]).astype(np.float32)[:, None]
        return ActorOutput(action=onehot, z=np.zeros((n, 0), np.float32), behaviour_logp=logp, carry=carry)

    def state(self):
        return State(meta={"rng": self.rng.bit_generator.state})

    def load_state(self, state):
        self.rng.bit_generator.state = state.meta["rng"]


class BanditAgent:
    """See :class:`algorithm.agents.roles.Agent`."""

    notices, warm_up_steps, updates_per_step = (), 0, 1.0

    def __init__(
        self,
        spec,
        config,
        *,
        nn_file,
        behaviour,
        seed,
        device,
        memory,
        greedy=False,
        make_replay=None,
        demonstrations=None,
    ):
        self.spec, self.config, self.updates, self._seed, self._behaviour = spec, config, 0, seed, behaviour
        self.arms = Arms(spec.action.discrete)
        self.policy = BanditPolicy(self.arms, stream(seed, "acting", behaviour))
        self._new: list[tuple[Tensor, Tensor]] = []

    def add(self, segment):
        self._new.append((torch.from_numpy(segment.action), torch.from_numpy(segment.reward)))

    def add_steps(self, steps):
        self.add(steps)

    def close(self, stream):
        """Nothing is open."""

    def learn(self, step, watch=None, *, run_step=None):
        for action, reward in self._new:
            self.arms.reward += action.T.double() @ reward.double()
            self.arms.pulls += action.sum(0)
            self.updates += 1
        self._new.clear()

    def pretrain(self, stop):
        return {}

    def update_ratio(self, step):
        return self.updates / max(1, step)

    @property
    def weights_version(self):
        return self.updates // self.config.base_config.update_sac_bak_per_step

    def stores(self):
        return {}

    def acting_parts(self):
        return {"arms": self.arms}

    def new_policy(self, purpose):
        return BanditPolicy(self.arms, stream(self._seed, purpose, self._behaviour))

    def tensors(self):
        return {"model": self.arms.state_dict()}

    def trained(self):
        return ()

    def load_tensors(self, tensors, updates):
        self.load_model(tensors["model"])
        self.updates = updates
        return True

    def load_model(self, model):
        self.arms.load_state_dict(dict(model))

    def begin_with(self, model, optim):
        self.load_model(model)

    def attach(self, *, restore, report):
        """Means cannot diverge."""

    def state(self):
        return State.joined({"own": State(meta={"updates": self.updates}), "policy": self.policy.state()})

    def load_state(self, state):
        self.policy.load_state(state.part("policy"))

    def metrics(self, step):
        return {"time/replay_ratio": self.update_ratio(step)}

    def pictures(self):
        return {}

    def rows(self):
        return [("algorithm", f"bandit of {self.spec.action.discrete} arms")]


def make_acting(spec, config, *, nn_file, behaviour, run_seed, own_seed, device):
    arms = Arms(spec.action.discrete)
    return Acting(BanditPolicy(arms, stream(own_seed, "acting", behaviour)), {"arms": arms})


FAMILIES = {"BANDIT": Family(name="BANDIT", make_agent=BanditAgent, make_acting=make_acting)}
