"""What is logged of an update is a mean over the positions that exist."""

from dataclasses import replace

import pytest
import torch

from algorithm.agents.metrics_window import MetricsWindow
from algorithm.core import ActionSpec, AgentSpec, ObsSpec, SequenceBatch
from tests.lib.batches import Sac, random_batch, small_sac

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec((2, 3), 2))
LEARN, N = 10, 3


def make_sac() -> Sac:
    """Windows without a memory, so that each position can be looked at by itself."""
    return small_sac(spec=SPEC, n_step=N, v_rho=1.5, learn_step=LEARN)


def padded_batch(seed: int = 0) -> SequenceBatch:
    """Windows of which 45 % is padding, on both sides, with something else in it than elsewhere."""
    batch = random_batch(40, LEARN + N - 1, spec=SPEC, seed=seed)
    g = torch.Generator().manual_seed(seed)
    first = torch.randint(0, 6, (40, 1), generator=g)
    last = first + torch.randint(3, LEARN, (40, 1), generator=g)
    token = torch.arange(LEARN + N)
    obs_valid = (token >= first) & (token <= last)
    obs = torch.where(obs_valid[..., None], batch.obs["obs"], 5.0)
    valid = obs_valid[:, :-1] & obs_valid[:, 1:]
    assert 0.4 < 1 - valid[:, :LEARN].float().mean() < 0.5
    return replace(batch, obs={"obs": obs}, obs_valid=obs_valid, valid=valid)


def logged(sac: Sac, batch: SequenceBatch) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    recent, result = MetricsWindow(), sac.update(batch)
    recent.add(batch, result)
    return recent.metrics(0), result.metrics


def loop(values: torch.Tensor, valid: torch.Tensor) -> float:
    """The mean of [..., B, T] over what exists, one position at a time."""
    total, count = 0.0, 0
    for b in range(valid.shape[0]):
        for t in range(valid.shape[1]):
            if valid[b, t]:
                total += float(values[..., b, t].float().mean())
                count += 1
    return total / count


def test_values_entropies_and_ratios_by_a_loop_over_states_and_actions():
    batch, sac = padded_batch(), make_sac()
    members, policy = sac.model.q.members, sac.model.policy
    q, entropy, ratio = torch.zeros(40, LEARN), torch.zeros(40, LEARN), []
    with torch.no_grad():
        for b, t in torch.nonzero(batch.valid).tolist():
            state, action = batch.obs["obs"][b, t][None], batch.action[b, t][None]
            distribution = policy(state, {})
            parts = distribution.logits.masked_fill(~batch.action_mask[b, t], -torch.inf).split([2, 3], -1)
            branches = [torch.distributions.Categorical(logits=part) for part in parts]
            if t < LEARN:
                outputs = torch.stack([critic(state, action[:, 5:]) for critic in members])
                q[b, t] = (outputs * action[:, :5]).sum(-1).mean() / 2
                entropy[b, t] = torch.stack([branch.entropy() for branch in branches]).mean()
            if t and batch.valid[b, t - 1]:  # a step behind another, whose target it belongs to
                chosen = [one.argmax(-1) for one in action[:, :5].split([2, 3], -1)]
                logp = sum(branch.log_prob(one) for branch, one in zip(branches, chosen, strict=True))
                logp = logp + distribution.continuous.logp(batch.z[b, t][None])
                ratio.append((logp - batch.behaviour_logp[b, t].sum()).exp())
    values, _ = logged(sac, batch)
    valid = batch.valid[:, :LEARN]
    assert values["value/q_mean"] == pytest.approx(loop(q, valid), rel=1e-4)
    assert values["policy/entropy_d"] == pytest.approx(loop(entropy, valid), rel=1e-4)
    found = torch.cat(ratio)
    assert values["vtrace/rho_mean"] == pytest.approx(found.clamp(max=1.5).mean().item(), rel=1e-4)
    assert values["vtrace/clip_frac"] == pytest.approx((found > 1.5).float().mean().item(), rel=1e-4)
