"""SAC by hand (arXiv 1812.05905): replay and networks of the package, losses in PyTorch."""

import gymnasium as gym
import torch
from gymnasium.wrappers import RecordEpisodeStatistics
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from algorithm.core import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn import ModelPolicy, ModelQ
from algorithm.replay import ReplayBuffer

spec = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
policy, log_alpha = ModelPolicy(spec, 3), torch.zeros((), requires_grad=True)
critics = torch.nn.ModuleList([ModelQ(spec, 3), ModelQ(spec, 3)])
slow = AveragedModel(critics, multi_avg_fn=get_ema_multi_avg_fn(0.995))
parts = [*critics.parameters()], [*policy.parameters()], [log_alpha]
optimizer = torch.optim.Adam([parameter for part in parts for parameter in part], lr=1e-3)


def losses(batch, gamma=0.99, target_entropy=-1.0):
    """Yield those of the critics (eq. 5), the policy (eq. 9) and the temperature (eq. 18)."""
    (obs, after), alpha = batch.obs["obs"].unbind(1), log_alpha.exp().detach()
    with torch.no_grad():
        u, logp = policy(after, {}).continuous.sample()
        value = torch.cat([q(after, u) for q in slow.module], -1).amin(-1) - alpha * logp
        target = batch.reward[:, 0] + gamma * ~batch.terminated[:, 0] * value
    yield sum((q(obs, batch.action[:, 0])[:, 0] - target).square().mean() for q in critics) / 2
    u, logp = policy(obs, {}).continuous.sample()
    yield (alpha * logp - torch.cat([q(obs, u) for q in critics], -1).amin(-1)).mean()
    yield -log_alpha * (logp.detach() + target_entropy).mean()


def train(max_step):
    env = RecordEpisodeStatistics(gym.make("Pendulum-v1"))
    obs, replay = env.reset(seed=1)[0], ReplayBuffer(spec, capacity=10**5, batch_size=256)
    for _ in range(max_step):
        u = policy(torch.tensor(obs), {}).continuous.sample()[0].detach().numpy()
        new, r, end, cut, _ = env.step(2.0 * u)
        replay.add_transition(obs, u, reward=r, next_obs=new, terminated=end, truncated=cut)
        obs = env.reset()[0] if end or cut else new
        if batch := replay.sample():
            optimizer.zero_grad()
            for loss, part in zip(losses(batch), parts, strict=True):
                loss.backward(inputs=part)
            optimizer.step()
            slow.update_parameters(critics)
    print("returns:", *(round(one) for one in env.return_queue))


if __name__ == "__main__":
    train(max_step=4_000)
