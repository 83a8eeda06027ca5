"""SAC and FlashSAC as their papers have them: a module and an Adam for each part, nothing flat or shared."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from algorithm.core.data import SequenceBatch


class PlainSac:
    """One-step SAC as the paper's algorithm box: a module and an Adam for each part, nothing flat or shared.

    Identity encoder; the noise of both samples comes from outside, so that it can be compared step by step.
    """

    def __init__(
        self,
        critics: list[nn.Module],
        policy: nn.Module,
        *,
        gamma: float,
        tau: float,
        learning_rate: float,
        log_alpha: float,
        target_entropy: float,
    ) -> None:
        self.critics = [copy.deepcopy(c).requires_grad_(True) for c in critics]
        self.targets = [copy.deepcopy(c).requires_grad_(False) for c in critics]
        self.policy = copy.deepcopy(policy)
        self.log_alpha = torch.tensor(log_alpha, requires_grad=True)
        self.gamma, self.tau, self.target_entropy = gamma, tau, target_entropy
        self.critic_adam = torch.optim.Adam([p for c in self.critics for p in c.parameters()], learning_rate)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), learning_rate)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], learning_rate)

    def sample(self, state: Tensor, noise: Tensor, *, training: bool = True) -> tuple[Tensor, Tensor]:
        """u and its log-density by the textbook formula, from standard normal noise."""
        normal = self.policy.train(training)(state, {}).continuous
        z = normal.mean + normal.log_std.exp() * noise
        gaussian = torch.distributions.Normal(normal.mean, normal.log_std.exp()).log_prob(z)
        return z.tanh(), (gaussian - torch.log(1 - z.tanh().square() + 1e-12)).sum(-1)

    def update(self, batch: SequenceBatch, noise: Callable[[], Tensor]) -> Tensor:
        """One update; returns the TD errors [E, B]."""
        state, following = batch.obs["obs"][:, 0], batch.obs["obs"][:, 1]
        action, reward = batch.action[:, 0], batch.reward[:, 0]
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            u, logp = self.sample(following, noise())
            value = torch.stack([c(following, u)[:, 0] for c in self.targets]).amin(0) - alpha * logp
            y = reward + self.gamma * (~batch.terminated[:, 0]) * value
        q = torch.stack([c(state, action)[:, 0] for c in self.critics])
        self._step(self.critic_adam, 0.5 * (batch.weight * (q - y).square()).mean(-1).sum())
        u, logp = self.sample(state, noise())
        value = torch.stack([c(state, u)[:, 0] for c in self.critics]).amin(0)
        self._step(self.policy_adam, (alpha * logp - value).mean())
        self._step(self.alpha_adam, (self.log_alpha * (-logp.detach() - self.target_entropy)).mean())
        with torch.no_grad():
            for target, online in zip(self.targets, self.critics, strict=True):
                for own, source in zip(target.parameters(), online.parameters(), strict=True):
                    own += self.tau * (source - own)
        return (q - y).detach()

    @staticmethod
    def _step(adam: torch.optim.Optimizer, loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()
        adam.step()


class PlainFlash(PlainSac):
    """One-step FlashSAC (arXiv 2604.04539) with HL-Gauss: batch norms of both halves, one mode for each pass.

    critics, targets: networks of torch's layers; num, limit: of the bins
    """

    def __init__(
        self, critics: list[nn.Module], targets: list[nn.Module], policy: nn.Module, *, num, limit, **of_sac
    ) -> None:
        super().__init__(critics, policy, tau=0.0, **of_sac)
        self.targets = [copy.deepcopy(one).requires_grad_(False) for one in targets]
        self.limit, self.centres = limit, torch.linspace(-limit, limit, num)
        width = 2 * limit / (num - 1)
        self.edges = torch.linspace(-limit - width / 2, limit + width / 2, num + 1)
        self.sigma = 0.75 * width

    def means(self, critics: list[nn.Module], state: Tensor, action: Tensor) -> Tensor:
        """The means of the histograms [E, B]."""
        return torch.stack([c(torch.cat([state, action], -1)).softmax(-1) @ self.centres for c in critics])

    def update(self, batch: SequenceBatch, noise: Callable[[], Tensor]) -> Tensor:
        """One update; returns the critics' loss. Gradients stay in the parameters."""
        state, following = batch.obs["obs"][:, 0], batch.obs["obs"][:, 1]
        action, reward, ended = batch.action[:, 0], batch.reward[:, 0], batch.terminated[:, 0]
        alpha, size = self.log_alpha.detach().exp(), len(state)
        with torch.no_grad():
            u, logp = self.sample(following, noise(), training=False)
            both = torch.cat([torch.cat([state, action], -1), torch.cat([following, u], -1)])
            masses = torch.stack([c.train()(both)[size:].softmax(-1) for c in self.targets])  # [M, B, K]
            mean, bins = masses @ self.centres, []
            for row in range(size):
                value = min(mean[:, row]) - alpha * logp[row]
                y = (reward[row] + self.gamma * (~ended[row]) * value).clamp(-self.limit, self.limit)
                below = Normal(y, self.sigma).cdf(self.edges)
                bins.append(below.diff() / (below[-1] - below[0]))
            aim = torch.stack(bins)
        outs = [c.train()(both)[:size].log_softmax(-1) for c in self.critics]
        loss = sum((batch.weight * -(aim * out).sum(-1)).mean() for out in outs)
        self._step(self.critic_adam, loss)
        for critic in self.critics:
            critic.eval().requires_grad_(False)
        u, logp = self.sample(state, noise(), training=True)
        self._step(self.policy_adam, (alpha * logp - self.means(self.critics, state, u).amin(0)).mean())
        return loss.detach()
