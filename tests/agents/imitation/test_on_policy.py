"""Demonstrations, GAIL and cloning with PPO and A2C."""

import copy

import numpy as np
import pytest
import torch

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.on_policy import update
from algorithm.core.data import DemoEpisode, Demonstrations
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, Z_LIMIT, ActionSpec, AgentSpec, ObsSpec
from algorithm.demos.sources import load_demonstrations
from algorithm.keys.demonstrations import DemoConfig
from algorithm.keys.signals import BehavioralCloning, ExtrinsicSignal, GailSignal, RewardSignals
from algorithm.replay.budget import MemoryBudget
from tests.lib.callbacks import watch
from tests.lib.episodes import record
from tests.lib.on_policy import make, train, weights

PENDULUM, HYBRID = "Pendulum-v1", "algorithm.env.toys:ToyHybrid-v0"
NEVER = bool


def shown(tmp_path, env_name: str = PENDULUM, episodes: int = 3, **options) -> Demonstrations:
    spec = record(tmp_path / "a.npz", env_name, episodes, **options)
    found = load_demonstrations(DemoConfig(path="a.npz"), spec, DEFAULT_BEHAVIOUR, tmp_path)
    assert found is not None
    return found


def cloning(**keys) -> dict:
    return {"behavioral_cloning": BehavioralCloning(**{"strength": 1.0, **keys})}


def gail(extrinsic: float = 1.0, **keys) -> dict:
    own = GailSignal(**{"strength": 1.0, "dense_n": 8, **keys})
    return {"reward_signals": RewardSignals(extrinsic=ExtrinsicSignal(strength=extrinsic), gail=own)}


MEMORIES = {
    "none": {},
    "rnn": {"rep": {"rnn_n": 8}, "sac": {"seq_encoder": "RNN"}, "sequence_step": 5},
    "attn": {"rep": {"attn_n": 8}, "sac": {"seq_encoder": "ATTN", "burn_in_step": 3}, "sequence_step": 5},
}


@pytest.mark.parametrize("squash", ["tanh", "clip"])
def test_a_demonstrated_action_is_stored_as_its_agent_would(squash):
    """z is the inverse of u, as far as u says it."""
    spec = AgentSpec(ObsSpec(("obs",), ((1,),), ("float32",)), ActionSpec((2,), 2, squash=squash))
    u = np.array([[0.5, -1.0], [0.0, 1.0]], np.float32)
    episode = DemoEpisode(
        obs={"obs": np.zeros((3, 1), np.float32)},
        action_mask=np.ones((3, 2), np.bool_),
        action=np.concatenate([np.eye(2, dtype=np.float32), u], 1),
        reward=np.ones(2, np.float32),
        terminated=True,
    )
    found = Demonstrations(episodes=[episode], digests={"a": "1"})
    store = DemoStore(found, spec, burn_in=0, learn=1, carry_shape=(), memory=MemoryBudget(), behaviour="x")
    batch = store.draw(200, torch.Generator().manual_seed(0))
    assert {tuple(row.tolist()) for row in batch.action[:, 0, :2]} == {(1.0, 0.0), (0.0, 1.0)}
    expected = {"clip": [0.5, -1.0], "tanh": [float(np.arctanh(0.5)), -Z_LIMIT]}[squash]
    first = batch.action[:, 0, 0] == 1.0
    torch.testing.assert_close(batch.z[first][0, 0], torch.tensor(expected))
    squashed = batch.z.tanh() if squash == "tanh" else batch.z
    torch.testing.assert_close(batch.action[..., 2:], squashed, atol=1e-6, rtol=0)
    assert batch.terminated[:, 0].tolist() == (~first).tolist() and batch.valid.all()
    (row,) = store.rows()
    assert "1 episode, 2 steps, return 2 (" in row[1]


def test_every_learned_step_of_a_sequence_is_drawn_alike():
    """Also the first ones of an episode, and none across its end."""
    spec = AgentSpec(ObsSpec(("obs",), ((1,),), ("float32",)), ActionSpec((2,)))
    episodes = [
        DemoEpisode(
            obs={"obs": np.arange(100 * i, 100 * i + n + 1, dtype=np.float32)[:, None]},
            action_mask=np.ones((n + 1, 2), np.bool_),
            action=np.eye(2, dtype=np.float32)[np.zeros(n, np.int64)],
            reward=np.ones(n, np.float32),
            terminated=False,
        )
        for i, n in enumerate((7, 12))
    ]
    store = DemoStore(
        Demonstrations(episodes=episodes, digests={}),
        spec,
        burn_in=2,
        learn=4,
        carry_shape=(),
        memory=MemoryBudget(),
        behaviour="x",
    )
    batch = store.draw(20_000, torch.Generator().manual_seed(0))
    at, valid = batch.obs["obs"][:, store.learned, 0], batch.valid[:, store.learned]
    weight = valid / valid.sum(1, keepdim=True)
    share = {s: float(weight[valid & (at == s)].sum()) / 20_000 for s in at[valid].unique().tolist()}
    assert share.keys() == {*range(7), *range(100, 112)}
    assert all(value == pytest.approx(1 / 19, rel=0.12) for value in share.values()), share


@pytest.mark.parametrize(("algorithm", "memory"), [("PPO", "rnn"), ("A2C", "attn"), ("ACKTR", "none")])
def test_cloning_beside_the_updates_leaves_their_ratios_alone(tmp_path, memory, algorithm):
    """As many steps as updates, and the next rollout begins with ratio 1, or ModelError would be raised."""
    agent, collector = make(
        HYBRID,
        algorithm=algorithm,
        blocks=cloning(strength=20.0),
        demonstrations=shown(tmp_path, HYBRID),
        **MEMORIES[memory],
    )
    train(agent, collector, 160)
    assert agent.learner.tensors()["optim"]["cloning.step"] == agent.updates > 0
    assert agent.metrics(160)["loss/cloning"] > 0


def test_pretraining_stops_when_it_is_asked_to_and_goes_on(tmp_path):
    found = shown(tmp_path)
    asked = iter([False, True])
    stopped, straight = (
        make(PENDULUM, blocks=cloning(pretrain=250), demonstrations=found)[0] for _ in range(2)
    )
    stopped.pretrain(lambda: next(asked))
    assert stopped.state().part("pretraining").meta["steps"] == 100
    resumed, _ = make(PENDULUM, blocks=cloning(pretrain=250), demonstrations=found)
    resumed.learner.load_tensors(copy.deepcopy(stopped.learner.tensors()), 0)
    resumed.load_state(stopped.state())
    assert resumed.weights_version == 1
    resumed.pretrain(NEVER)
    straight.pretrain(NEVER)
    one, other = weights(resumed), weights(straight)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_observations_are_normalised_by_the_demonstrations_from_the_first_rollout_on(tmp_path):
    found = shown(tmp_path)
    agent, collector = make(PENDULUM, sac={"use_normalization": True}, demonstrations=found)
    rows = np.concatenate([episode.obs["obs"] for episode in found.episodes])
    normaliser = agent.learner.model.normaliser
    np.testing.assert_allclose(normaliser.mean.numpy(), rows.mean(0), atol=1e-6)
    assert agent.warm_up_steps == 32
    train(agent, collector, 32)
    assert agent.updates > 0 and int(normaliser.count) > len(rows)


def test_other_episodes_are_refused_by_the_file_that_changed(tmp_path):
    found = shown(tmp_path)
    agent, _ = make(PENDULUM, blocks=gail(), demonstrations=found)
    state = agent.state()
    agent.load_state(state)
    renamed = Demonstrations(episodes=found.episodes, digests={"b.npz": found.digests["a.npz"]})
    make(PENDULUM, blocks=gail(), demonstrations=renamed)[0].load_state(state)
    other = Demonstrations(episodes=found.episodes, digests={"a.npz": "0" * 64, "c.npz": "1" * 64})
    with pytest.raises(StorageError) as error:
        make(PENDULUM, blocks=gail(), demonstrations=other)[0].load_state(state)
    assert error.value.why == "changed, new or gone: a.npz, c.npz"


def test_networks_of_signals_take_their_steps_on_demonstrations_of_their_own(tmp_path, monkeypatch):
    blocks = gail()
    blocks["reward_signals"] = blocks["reward_signals"].model_copy(update={"updates": 3})
    agent, collector = make(PENDULUM, blocks=blocks, demonstrations=shown(tmp_path), num_epoch=2)
    drawn, draw = [], DemoStore.draw
    monkeypatch.setattr(DemoStore, "draw", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    while not agent.updates:
        train(agent, collector, collector.steps + 1)
    steps = {name: float(one.tensors()["step"]) for name, one in agent.learner.optimisers().items()}
    assert steps == {"all": 8.0, "gail": 24.0} and len(drawn) == 24


def test_cloning_fades_and_then_costs_nothing(tmp_path, monkeypatch):
    agent, collector = make(
        PENDULUM, blocks=cloning(strength=0.5, steps=64), demonstrations=shown(tmp_path), learning_rate=0.004
    )
    rates, (optimiser,) = [], agent.learner._cloning.optimisers.values()
    watch(
        monkeypatch,
        agent.learner._cloning,
        "_step",
        lambda _: rates.append(optimiser.learning_rate * optimiser.factor),
    )
    train(agent, collector, 128)
    assert rates == [0.5 * 0.004 * 0.5] * 40  # of four rollouts the first, at step 32; 0 from 64 on


def test_demonstrations_that_do_not_fit_into_the_memory_are_refused(tmp_path):
    found = shown(tmp_path)
    agent, _ = make(PENDULUM)
    with pytest.raises(UsageError) as error:
        DemoStore(
            found,
            agent.spec,
            burn_in=0,
            learn=1,
            carry_shape=(),
            memory=MemoryBudget(free=1000),
            behaviour="x",
        )
    assert "demonstrations of 60 steps need" in str(error.value) and "max_episodes" in error.value.fix
    budget = MemoryBudget(free=10_000)
    before = budget.left
    DemoStore(found, agent.spec, burn_in=0, learn=1, carry_shape=(), memory=budget, behaviour="x")
    assert before - budget.left > 60 * 4 * 5


def test_of_strength_0_the_environment_rewards_nothing(tmp_path, monkeypatch):
    """Also with scaled rewards; what is left is the discriminator's."""
    found = []

    def see(rollout, batch, values, rewards, *_, **__):
        own = one.reward_bonus(agent.learner._bonuses._context(batch))
        found.append((rewards[0][batch.valid], own[batch.valid], agent.learner.return_scale.factor))

    watch(monkeypatch, update, "estimate_advantages", see)
    agent, collector = make(
        PENDULUM,
        sac={"reward_scaling": True},
        blocks=gail(extrinsic=0.0),
        demonstrations=shown(tmp_path),
        rollout_step=250,
    )
    one = agent.learner._bonuses.extensions[-1]
    train(agent, collector, 1000)
    total, own, scale = found[-1]
    torch.testing.assert_close(total, own, atol=1e-5, rtol=1e-5)
    assert scale != 1.0 and own.std() > 0


def torque(obs):
    """Return a smooth function of the observations, within the bounds."""
    return np.tanh(obs["obs"][:, 2:] - obs["obs"][:, 1:2])


def error_of(agent, found: Demonstrations) -> float:
    """Return the mean squared error of the policy's mean on all demonstrated steps."""
    model, total, n = agent.learner.model, 0.0, 0
    for episode in found.episodes:
        obs = model.normaliser({"obs": torch.tensor(episode.obs["obs"][None, :-1])})
        size = obs["obs"].shape[1]
        state, _ = model.rep(obs, torch.zeros(1, size, 1), torch.zeros(1, 0), torch.ones(1, size).bool())
        mean = model.policy(state, obs).continuous.mean[0]
        total += float((mean.detach() - torch.tensor(episode.action)).square().sum())
        n += size
    return total / n


def test_what_is_demonstrated_is_cloned_before_the_first_step_and_values_stay(tmp_path):
    found = shown(tmp_path, episodes=6, torque=torque)
    agent, _ = make(
        PENDULUM,
        blocks=cloning(strength=30.0, pretrain=500, batch_size=32),
        demonstrations=found,
        sizes={"dense_n": 32},
    )
    before, error = weights(agent), error_of(agent, found)
    values = agent.pretrain(NEVER)
    assert error_of(agent, found) < 0.01 < error and values["loss/cloning"] < 0.02
    moved = {name for name, value in weights(agent).items() if not torch.equal(value, before[name])}
    assert moved and all("policy" in name and "log_std" not in name for name in moved), moved
    assert agent.pretrain(NEVER) == {}, "once"
    assert agent.weights_version == 1, "remote actors are due the new policy"
