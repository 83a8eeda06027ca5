"""A recorded rollout in the layout of the references, and their update of it in plain code."""

import copy
import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from algorithm.agents.on_policy.descent import make_descent
from algorithm.agents.on_policy.family import OnPolicyAgent
from algorithm.agents.on_policy.family_config import A2cConfig, PpoConfig
from algorithm.agents.roles import Tensors
from algorithm.core.data import SequenceBatch
from tests.lib.on_policy import fill, make

Weights = dict[str, torch.Tensor]

UNITS = {"dense_n": 64}
"""Units of the hidden layers, two each, as the references have them."""


@dataclass(frozen=True, kw_only=True)
class RolloutRecord:
    """What N environments did in T steps, [T, N, ...]. No environment is left out of a step."""

    obs: NDArray[np.float32]
    after: NDArray[np.float32]  # the observation behind the step, the true last one of an episode
    action: NDArray[np.float32]  # [T, N] the choice, or [T, N, A_c] the action before it is clipped
    logp: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    def save(self, file: str, **more: NDArray) -> None:
        """Write an ``.npz``."""
        np.savez(file, **asdict(self), **more)


@dataclass(frozen=True, kw_only=True)
class UpdateRecord:
    """An agent with a full rollout, and all that its update depends on.

    batch:   the rollout as the learner gets it
    place:   [M] t · N + n of each of its rows
    weights: by the names of the references
    before:  all tensors of the agent
    """

    agent: OnPolicyAgent
    batch: SequenceBatch
    recorded: RolloutRecord
    place: NDArray[np.int64]
    weights: Weights
    before: Tensors

    def made(self, own: PpoConfig | A2cConfig, factor: float = 1.0) -> Weights:
        """Return the weights after our update with these keys; ``factor``: of the learning rate."""
        learner = self.agent.learner
        learner._keys, trained = own, [learner.model.policy, *learner._actor_critic.v]
        limit = own.max_grad_norm or math.inf
        learner._descent = make_descent(own, trained, max_norm=limit, skipped=learner._skipped)
        learner.load_model(self.before["model"])
        learner._generator.set_state(self.before["optim"]["random.update"])
        learner.set_factors(learning_rate=factor, clip=1.0)
        learner.update(self.batch)
        return named_weights(self.agent)

    def orders(self, epochs: int) -> list[NDArray[np.int64]]:
        """Return for each epoch the order of the transitions, [M] of t · N + n."""
        generator = torch.Generator()
        generator.set_state(self.before["optim"]["random.update"])
        m = len(self.place)
        return [self.place[torch.randperm(m, generator=generator).numpy()] for _ in range(epochs)]

    def in_order(self, values: torch.Tensor) -> NDArray[np.float32]:
        """Return values [M, 1] of the rows as [T, N]."""
        found = np.empty(len(self.place), np.float32)
        found[self.place] = values[:, 0].numpy()
        return found.reshape(self.recorded.reward.shape)


def named_weights(agent: OnPolicyAgent) -> Weights:
    """Return copies of the networks by the names that CleanRL gives them."""
    policy, v = agent.learner.model.policy, agent.learner._actor_critic.v[0]
    last = policy.head.discrete or policy.head.continuous
    nets = {"actor": nn.Sequential(*policy.net, last), "critic": nn.Sequential(*v.net, v.last)}
    found = {f"{name}.{k}": p for name, net in nets.items() for k, p in net.state_dict().items()}
    if policy.log_std is not None:
        found["log_std"] = policy.log_std.detach()
    return {name: value.clone() for name, value in found.items()}


def record(env_name: str, *, n: int = 4, steps: int = 32) -> UpdateRecord:
    """Act until a rollout is full, in episodes of at most twelve steps."""
    limit = [{"TimeLimit": {"max_episode_steps": 12}}]
    agent, collector = make(env_name, n, wrappers=limit, sizes=UNITS, rollout_step=steps)
    ids, add_steps = [], agent.replay.add_steps

    def add(steps):
        ids.append(add_steps(steps))
        return ids[-1]

    agent.replay.add_steps = add
    batch = fill(agent, collector)
    rows = {one: row for row, one in enumerate(batch.ids[:, 0].tolist())}
    row_of = np.vectorize(rows.__getitem__)(np.stack(ids))  # [T, N]
    last = np.vectorize(lambda one: one not in rows)(batch.ids[:, 1].numpy())[row_of]
    last[-1] = batch.terminated[:, 0].numpy()[row_of[-1]]  # others may go on: their value counts either way
    ends = np.flatnonzero(last)
    failed = batch.terminated[:, 0].numpy()[row_of]
    if not failed.any():  # a task that is only ever cut off: every second end shall be a failure
        failed.flat[ends[::2]] = True
    place = np.empty(row_of.size, np.int64)
    place[row_of.ravel()] = np.arange(row_of.size)
    batch = replace(batch, terminated=torch.from_numpy(failed.ravel()[place])[:, None])
    discrete = bool(agent.spec.action.branches)
    action = batch.action[:, 0].argmax(-1).float() if discrete else batch.z[:, 0]
    obs = batch.obs["obs"].numpy()
    recorded = RolloutRecord(
        obs=obs[:, 0][row_of],
        after=obs[:, 1][row_of],
        action=action.numpy()[row_of],
        logp=batch.behaviour_logp[:, 0, 0].numpy()[row_of],
        reward=batch.reward[:, 0].numpy()[row_of],
        terminated=failed,
        truncated=last & ~failed,
    )
    return UpdateRecord(
        agent=agent,
        batch=batch,
        recorded=recorded,
        place=place,
        weights=named_weights(agent),
        before=copy.deepcopy(agent.learner.tensors()),
    )


def plain_net(weights: Weights, name: str) -> nn.Sequential:
    """Return one of the networks."""
    sizes = [weights[f"{name}.{i}.weight"].shape for i in (0, 2, 4)]
    layers = [nn.Linear(into, out) for out, into in sizes]
    net = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    net.load_state_dict({k.partition(".")[2]: v for k, v in weights.items() if k.startswith(f"{name}.")})
    return net


def plain_advantages(
    recorded: RolloutRecord, critic: nn.Module, gamma: float, trace_decay: float
) -> torch.Tensor:
    """Advantages [T, N] by arXiv 1506.02438, eq. 16, one step of one environment at a time."""
    with torch.no_grad():
        value, behind = (
            critic(torch.from_numpy(x)).squeeze(-1).double() for x in (recorded.obs, recorded.after)
        )
    found = torch.zeros_like(value)
    steps, n = value.shape
    for i in range(n):
        following = 0.0
        for t in reversed(range(steps)):
            goes_on = 0.0 if recorded.terminated[t, i] else 1.0
            delta = float(recorded.reward[t, i]) + gamma * goes_on * behind[t, i] - value[t, i]
            same = 0.0 if recorded.terminated[t, i] or recorded.truncated[t, i] else 1.0
            following = delta + gamma * trace_decay * same * following
            found[t, i] = following
    return found


def plain_update(update: UpdateRecord, own: PpoConfig, factor: float = 1.0, epsilon: float = 1e-5) -> Weights:
    """Weights after the update of arXiv 1707.06347, algorithm 1, with the details of Huang et al. 2022.

    factor: of the learning rate; epsilon: Adam's
    """
    recorded, clip = update.recorded, own.clip_value
    actor, critic = (plain_net(update.weights, name) for name in ("actor", "critic"))
    named = {
        f"{name}.{k}": p
        for name, net in (("actor", actor), ("critic", critic))
        for k, p in net.named_parameters()
    }
    if "log_std" in update.weights:
        named["log_std"] = nn.Parameter(update.weights["log_std"].clone())
    advantage = plain_advantages(recorded, critic, 0.99, own.gae_lambda).float().flatten()
    obs = torch.from_numpy(recorded.obs).flatten(0, 1)
    action = torch.from_numpy(recorded.action).flatten(0, 1)
    logp = torch.from_numpy(recorded.logp).flatten()
    with torch.no_grad():
        old = critic(obs).squeeze(-1)
    target = advantage + old
    if own.normalise_advantage == "rollout":
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    adam = torch.optim.Adam(named.values(), lr=own.learning_rate * factor, eps=epsilon)
    for order in update.orders(own.num_epoch):
        for rows in np.split(order, own.num_minibatch):
            if "log_std" in named:
                normal = torch.distributions.Normal(actor(obs[rows]), named["log_std"].exp())
                now, entropy = normal.log_prob(action[rows]).sum(-1), normal.entropy().sum(-1)
            else:
                choices = torch.distributions.Categorical(logits=actor(obs[rows]))
                now, entropy = choices.log_prob(action[rows]), choices.entropy()
            ratio, gain = (now - logp[rows]).exp(), advantage[rows]
            if own.normalise_advantage == "minibatch":
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            held = ratio.clamp(1.0 - own.clip, 1.0 + own.clip)
            policy_loss = -torch.minimum(ratio * gain, held * gain).mean()
            value = critic(obs[rows]).squeeze(-1)
            error = (value - target[rows]) ** 2
            if clip is not None:
                near = old[rows] + (value - old[rows]).clamp(-clip, clip)
                error = torch.maximum(error, (near - target[rows]) ** 2)
            loss = policy_loss + own.value_coef * error.mean() - own.entropy_coef * entropy.mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(named.values(), own.max_grad_norm or math.inf)
            adam.step()
    return {name: p.detach() for name, p in named.items()}
