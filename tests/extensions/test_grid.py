"""Every pair of settings that extensions meet: they train, act, are saved, and go on exactly there."""

from __future__ import annotations

import random
from itertools import combinations, product

import numpy as np
import pytest
import torch

from algorithm.agents.config import NnConfig, RewardSignals
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.sac.config import SacConfig
from algorithm.config.schema import BaseConfig, Config, ReplayConfig
from algorithm.core.data import Segment, State
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extensions import make_extensions
from algorithm.extensions.options import Build
from algorithm.nn.loader import load_networks
from algorithm.replay.budget import MemoryBudget
from algorithm.runs.logs.metrics import METRICS
from tests.batches import CPU, Sac, sac_agent

ALL = {
    "siamese": "BYOL",
    "siamese_use_q": True,
    "siamese_use_adaptive": True,
    "use_prediction": True,
    "curiosity": "FORWARD",
    "use_rnd": True,
    "rnd_n_sample": 3,
}
EXTENSIONS = {
    "none": {},
    "ATC": {"siamese": "ATC"},
    "BYOL": {"siamese": "BYOL"},
    "ATC+q": {"siamese": "ATC", "siamese_use_q": True},
    "BYOL+adaptive": {"siamese": "BYOL", "siamese_use_adaptive": True},
    "prediction": {"use_prediction": True},
    "prediction-extra": {"use_prediction": True, "use_extra_data": False},
    "FORWARD": {"curiosity": "FORWARD"},
    "INVERSE": {"curiosity": "INVERSE", "curiosity_strength": 0.5},
    "rnd": {"use_rnd": True, "rnd_n_sample": 3},
    "all": ALL,
}
ACTIONS = {
    "continuous": (ActionSpec(continuous=2), {}),
    "discrete": (ActionSpec((3,)), {}),
    "branches": (ActionSpec((2, 3)), {}),
    "hybrid": (ActionSpec((2, 3), 2), {}),
    "greedy": (ActionSpec((3,), 1), {"discrete_dqn_like": True}),
}
ENCODERS = {
    "MLP": {},
    "RNN": {"seq_encoder": "RNN", "burn_in_step": 2, "learn_step": 3},
    "ATTN": {"seq_encoder": "ATTN", "burn_in_step": 1, "learn_step": 3},
}
OBSERVATIONS = {
    "vector": ObsSpec(("v",), ((3,),), ("float32",)),
    "image": ObsSpec(("i",), ((3, 10, 8),), ("uint8",)),
    "mixed": ObsSpec(
        ("v", "i", "c", "s"),
        ((3,), (9, 8, 1), (2,), ()),
        ("float32", "uint8", "int64", "float32"),
        ((), (), (2, 3), ()),
    ),
}
REPLAYS = {
    "priorities": {},
    "uniform": {"use_priority": False},
    "fresh": {"use_replay_buffer": False},
    "v-trace": {"n_step": 3},
    "own priorities": {"use_add_with_td": True},
    "normalised": {"use_normalization": True},
}
FACTORS = EXTENSIONS, ACTIONS, ENCODERS, OBSERVATIONS, REPLAYS
NN = {"dense_n": 8}


def pairs(row):
    """Which two settings of different factors a combination brings together."""
    return set(combinations(enumerate(row), 2))


def covering_rows(factors, allowed=lambda row: True):
    """Combinations in which every pair occurs; the next is the best of some that contain a missing one."""
    rng = random.Random(7)
    everything = [row for row in product(*factors) if allowed(row)]
    missing = set().union(*map(pairs, everything))
    rows = []
    while missing:
        first, second = min(missing)
        candidates = [row for row in everything if row[first[0]] == first[1] and row[second[0]] == second[1]]
        best = max(
            rng.sample(candidates, min(40, len(candidates))), key=lambda row: len(pairs(row) & missing)
        )
        rows.append(best)
        missing -= pairs(best)
    return rows


ROWS = covering_rows(FACTORS)


def make_agent(row, seed):
    extensions, action, encoder, obs, replay = (
        choices[name] for choices, name in zip(FACTORS, row, strict=True)
    )
    action_spec, action_options = action
    sac = {"start_step": 0, "batch_size": 6, **extensions, **action_options, **encoder, **replay}
    config = Config(
        base_config=BaseConfig(max_step=100),
        replay_config=ReplayConfig(capacity=200),
        sac_config=SacConfig(**sac),
        nn_config=NnConfig(rep={**NN, "dense_depth": 1}, q=NN, policy=NN),
    )
    return sac_agent(
        AgentSpec(obs, action_spec), config, nn_file=None, behaviour="x", seed=seed, device=CPU,
        memory=MemoryBudget(free=10**9),
    )  # fmt: skip


def random_obs(obs, rng, *lead):
    """Normal numbers, pixels and choices."""
    found = {}
    for (name, shape, dtype), categories in zip(obs.items(), obs.categories, strict=True):
        if categories:
            value = rng.integers(0, np.reshape(categories, shape), (*lead, *shape))
        elif dtype == "uint8":
            value = rng.integers(0, 256, (*lead, *shape))
        else:
            value = rng.normal(size=(*lead, *shape))
        found[name] = value.astype(dtype)
    return found


def segments(agent, rng, streams, length=7):
    """One episode each, every other one terminated, the others truncated."""
    for stream in streams:
        mask = agent.spec.action.all_allowed(length + 1)
        action, z, logp = agent.spec.action.random(rng, mask[:-1])
        end = np.arange(length) == length - 1
        yield Segment(
            stream=stream,
            start_step=0,
            obs=random_obs(agent.spec.obs, rng, length + 1),
            action_mask=mask,
            carry=rng.normal(size=(length + 1, *agent.policy.stored_carry_shape)).astype(np.float32) * 0.1,
            action=action,
            z=z,
            behaviour_logp=logp,
            reward=rng.normal(size=length).astype(np.float32),
            terminated=end & (stream % 2 == 0),
            truncated=end & (stream % 2 == 1),
        )


def act(agent, rng):
    action = agent.spec.action
    obs = random_obs(agent.spec.obs, rng, 4)
    return agent.policy.act(obs, action.padding(4), agent.policy.initial_carry(4), action.all_allowed(4))


def copied(state):
    return State({name: np.array(value) for name, value in state.arrays.items()}, state.meta)


def tensors_of(sac):
    return {f"{file}/{name}": v for file, part in sac.tensors().items() for name, v in part.items()}


def continued(one, other):
    """Load the state of one agent into another."""
    saved = {file: {k: v.clone() for k, v in part.items()} for file, part in one.learner.tensors().items()}
    other.learner.load_tensors(saved, one.learner.updates)
    other.load_state(copied(one.state()))


def assert_alike(one, other):
    """Compare all tensors, which must be finite, and the next actions."""
    after, expected = tensors_of(other.learner), tensors_of(one.learner)
    assert after.keys() == expected.keys()
    for name, value in expected.items():
        assert value.isfinite().all() and torch.equal(value, after[name]), name
    actions = [vars(act(agent, np.random.default_rng(2))) for agent in (one, other)]
    for name, value in actions[0].items():
        assert np.array_equal(value, actions[1][name]), name


def train(agent, rng):
    """Two updates at least, with data that is new between them."""
    for step in (1, 2):
        for segment in segments(agent, rng, range(10 * step, 10 * step + 3)):
            agent.add(segment)
        agent.learn(step)
    assert agent.learner.updates >= 2 and agent.learner.skipped == 0


@pytest.mark.parametrize("row", ROWS, ids="-".join)
def test_what_is_trained_is_what_lies_in_an_optimisers_storage(row):
    sac = make_agent(row, 1).learner
    stored = {adam.flat.data.untyped_storage().data_ptr() for adam in sac.optimisers().values()}
    model = sac.tensors()["model"]
    expected = {name for name, value in model.items() if value.untyped_storage().data_ptr() in stored}
    assert set(sac.trained()) == expected
    assert len(expected) < len(model), "targets are none of them"


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.slow) if i % 2 else row for i, row in enumerate(ROWS)],
    ids=str,
)
def test_it_trains_acts_and_goes_on_exactly_where_it_was_saved(row):
    one, other = make_agent(row, 1), make_agent(row, 2)
    assert len(one.learner.extensions) >= {"none": 0, "all": 4}.get(row[0], 1)
    train(one, np.random.default_rng(0))
    assert all(np.isfinite(v) for v in one.metrics(2).values()) and set(one.metrics(2)) <= set(METRICS)
    act(one, np.random.default_rng(1))

    continued(one, other)

    batch = one.replay.windows(one.replay.spread(6))
    for seed, agent in enumerate((one, other)):
        torch.manual_seed(seed)  # whatever is random in an update comes from the learner's own generator
        agent.learner.update(batch)
    assert_alike(one, other)


def test_every_pair_is_there_and_no_more_than_can_be_run():
    seen = set().union(*map(pairs, ROWS))
    for (i, one), (j, other) in combinations(enumerate(FACTORS), 2):
        assert {((i, a), (j, b)) for a, b in product(one, other)} <= seen
    assert len(ROWS) <= 90 and len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("siamese", ["ATC", "BYOL"])
def test_the_order_of_all_extensions_does_not_matter(encoder, siamese):
    row = ("all", "hybrid", encoder, "mixed", "v-trace")
    source = make_agent(row, 1)
    train(source, np.random.default_rng(0))
    batch = source.replay.windows(source.replay.spread(6))
    config = SacConfig(**{**source.config.sac_config.model_dump(), "siamese": siamese})

    def trained(order):
        torch.manual_seed(0)
        networks = load_networks(
            source.spec, None, NETWORKS, rep={**NN, "dense_depth": 1}, q=NN, policy=NN,
            seq_encoder=config.seq_encoder, context=config.burn_in_step + 1,
        )  # fmt: skip
        build = Build(
            spec=source.spec,
            state_size=networks.state_size,
            options=config,
            signals=RewardSignals(),
            make_network=networks.make,
        )
        made = make_extensions(build)
        assert len(made) == 4
        order = order(range(len(made)))
        sac = Sac(source.spec, networks, config, device=CPU, seed=0, extensions=[made[i] for i in order])
        for _ in range(2):
            sac.update(batch)
        common = {k: v for k, v in sac.tensors()["model"].items() if not k.startswith("extensions")}
        own = {f"{type(x).__name__}.{k}": v for x in sac.extensions for k, v in x.state_dict().items()}
        return {**common, **own}

    plain = trained(list)
    for order in (lambda n: list(reversed(n)), lambda n: [*n[2:], *n[:2]]):
        for name, value in trained(order).items():
            torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-6, msg=name)
