"""Every two settings together: an agent trains, acts, is saved, and goes on exactly there."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents import Agent, registry
from algorithm.core import SequenceBatch
from algorithm.store.logs.registry import METRICS
from tests.lib.grid import FAMILIES, ROWS, N, Row, act, covering_rows, make_agent, play, random_obs


def with_garbage(batch: SequenceBatch) -> SequenceBatch:
    """The same, with other numbers in everything that does not exist."""

    def other(x: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        absent = ~there.view(*there.shape, *[1] * (x.dim() - 2))
        return torch.where(absent, torch.ones_like(x), x)

    changed = {
        name: other(getattr(batch, name), batch.valid) for name in ("action", "z", "reward", "behaviour_logp")
    }
    obs = {name: other(value, batch.obs_valid) for name, value in batch.obs.items()}
    return replace(batch, obs=obs, prev_action=other(batch.prev_action, batch.obs_valid), **changed)


NIGHTLY = [row for seed in (1, 2) for row in covering_rows(seed)]


def test_each_family_is_in_the_grid():
    """But A3C, which is A2C in several processes."""
    assert FAMILIES.keys() == registry.FAMILIES.keys() - {"A3C"}


def tensors(agent: Agent) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint."""
    return {
        f"{file}/{name}": value
        for file, part in agent.learner.tensors().items()
        for name, value in part.items()
    }


def resume(agent: Agent, other: Agent) -> None:
    """Let the other go on from all that a checkpoint holds of an agent."""
    other.learner.load_tensors(copy.deepcopy(agent.learner.tensors()), agent.updates)
    for name, store in agent.stores().items():
        other.stores()[name].load_state(store.state())
    other.load_state(copy.deepcopy(agent.state()))


def assert_alike(one: Agent, other: Agent, tolerance: float = 0.0) -> None:
    """All tensors are finite and the same, and so are the next actions."""
    found = tensors(other)
    for name, value in tensors(one).items():
        assert value.isfinite().all(), name
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance, msg=name)
    actions = [vars(act(agent, np.random.default_rng(2))) for agent in (one, other)]
    for name, value in actions[0].items():
        np.testing.assert_allclose(actions[1][name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def assert_trained_is_what_an_optimiser_has(agent: Agent) -> None:
    """Targets, statistics and fixed networks are none of it."""
    stored = {one.flat.data.untyped_storage().data_ptr() for one in agent.learner.optimisers().values()}
    model = agent.learner.tensors()["model"]
    owned = {name for name, value in model.items() if value.untyped_storage().data_ptr() in stored}
    assert set(agent.learner.trained()) == owned


def assert_padding_means_nothing(one: Agent, other: Agent, words: dict[str, bool]) -> None:
    """Padding changes no update, and an update changes no batch. words: of ``update``."""
    batch = one.replay.windows(one.replay.spread(16))
    kept = copy.deepcopy(batch)
    for _ in range(2):  # a turn of the policy is among them
        one.learner.update(batch, **words)
        other.learner.update(with_garbage(batch), **words)
    assert_alike(one, other, tolerance=1e-5)
    for name, value in vars(kept).items():
        torch.testing.assert_close(getattr(batch, name), value, rtol=0, atol=0)


def assert_a_policy_can_be_sent(agent: Agent) -> None:
    """By pickle, before its first action and behind it; each copy draws what the policy itself draws."""
    policy, spec, rng = agent.new_policy("playing"), agent.spec, np.random.default_rng(3)
    obs, rest = random_obs(spec.obs, rng, N), (spec.action.padding(N), policy.initial_carry(N))
    for _ in range(2):
        sent = pickle.loads(pickle.dumps(policy))
        mine, its = (one.act(obs, *rest, spec.action.all_allowed(N)) for one in (policy, sent))
        np.testing.assert_allclose(its.action, mine.action, atol=1e-5)


@pytest.mark.parametrize(
    "row",
    [
        *(pytest.param(row, id="-".join(row.values())) for row in ROWS),
        *(pytest.param(row, id="-".join(row.values()), marks=pytest.mark.slow) for row in NIGHTLY),
    ],
)
def test_it_trains_acts_and_goes_on_exactly_where_it_was_saved(row: Row):
    straight, resumed = make_agent(row, 1), make_agent(row, 2)
    before = copy.deepcopy(straight.learner.tensors()["model"])
    play(straight, np.random.default_rng(0), 12)
    assert straight.updates >= 2 and straight.learner.skipped == 0
    assert_trained_is_what_an_optimiser_has(straight)
    after = straight.learner.tensors()["model"]
    still = {name for name in straight.learner.trained() if torch.equal(before[name], after[name])}
    assert all("head.discrete" in name and row["action"] == "greedy" for name in still), still
    fixed = {name for name in after if ".fixed." in name}
    assert all(torch.equal(before[name], after[name]) for name in fixed)
    metrics = straight.metrics(48)
    assert set(metrics) <= set(METRICS) and all(np.isfinite(value) for value in metrics.values()), metrics

    resume(straight, resumed)
    for seed, agent in enumerate((straight, resumed)):
        torch.manual_seed(seed)  # random numbers of an update come from the learner's own generators
        play(agent, np.random.default_rng(1), 6)
    assert resumed.updates == straight.updates
    assert_alike(straight, resumed)
    assert_a_policy_can_be_sent(resumed)
    if row["family"] in ("SAC", "TD3"):
        assert_padding_means_nothing(straight, resumed, {})
    elif row["family"] == "ACER":
        assert_padding_means_nothing(straight, resumed, {"drawn": True})
