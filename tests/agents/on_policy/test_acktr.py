"""ACKTR: its updates stay within the trust region, and what it cannot train is named before it begins."""

import pytest
import torch

from algorithm.agents.on_policy.descent import sampled_loss
from algorithm.core.errors import ModelError
from tests.lib.on_policy import fill, make, train


def test_samples_are_of_the_policy_and_of_values_with_standard_deviation_1():
    """The gradient of −log π(a) is −1 by log π(a), that of ½ (V − v)² with v = V + ξ is −ξ by V."""
    log_prob, value = (torch.tensor(x, requires_grad=True) for x in ([-1.0, -2.0], [3.0, 5.0]))
    sampled_loss(log_prob, [value], [torch.tensor([0.5, -2.0])]).backward()
    assert log_prob.grad.tolist() == [-1.0, -1.0] and value.grad.tolist() == [-0.5, 2.0]


def outputs(learner, batch):
    """Mean, or log π of all choices, and values of a rollout."""
    obs = {name: one[:, :-1].flatten(0, 1) for name, one in batch.obs.items()}
    with torch.no_grad():
        policy = learner.model.policy(obs["obs"], obs)
        found = policy.continuous if policy.logits is None else policy.logits.log_softmax(-1)
        return found, learner._actor_critic.v[0](obs["obs"], obs)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_an_update_changes_policy_and_values_by_what_the_trust_region_allows(task: str):
    """Half of kl_clip is KL(π_old ‖ π_new) + ½ E(V_new − V_old)². One layer each, so nothing is neglected."""
    clip, keys = 1e-4, {"momentum": 0.0, "inverse_every": 1, "damping": 1e-6}
    agent, collector = make(
        task, 8, algorithm="ACKTR", sizes={"dense_depth": 0}, rollout_step=64, kl_clip=clip, **keys
    )
    train(agent, collector, 8 * 64 * 5)
    batch, learner = fill(agent, collector), agent.learner
    old, value = outputs(learner, batch)
    assert learner.update(batch)["acktr/step_scale"] < 1.0
    new, after = outputs(learner, batch)
    if task == "CartPole-v1":
        kl = (old.exp() * (old - new)).sum(-1)
    else:
        normals = (torch.distributions.Normal(one.mean, one.log_std.exp()) for one in (old, new))
        kl = torch.distributions.kl_divergence(*normals).sum(-1)
    assert 0.6 < (kl.mean() + 0.5 * (after - value).square().mean()) / (clip / 2) < 1.6


def test_layer_norm_of_default_images_is_named_with_the_key_that_leaves_it_out():
    camera = {"rep": {"dense_n": 8}, "algorithm": "ACKTR"}
    with pytest.raises(ModelError, match=r"ModelRep\.images\.0\.dense\.1 has no Fisher matrix") as told:
        make("algorithm.env.toys:ToyTwoCameras-v0", **camera)
    assert "LayerNorm" in told.value.why and "nn_config.rep.bounded: false" in told.value.fix
