"""What an agent does around its updates: priorities at insertion, fresh data, schedules, statistics."""

import numpy as np
import pytest
import torch

from algorithm.agents.off_policy.agent import OffPolicyAgent
from algorithm.agents.off_policy.description import notices
from algorithm.agents.roles import AgentInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.family import SAC
from algorithm.agents.sac.sac import SacObjective
from algorithm.agents.schedules import FifoUpdates
from algorithm.config.schema import BaseConfig, Config, ReplayConfig
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.keys.signals import NnConfig
from algorithm.replay.budget import MemoryBudget
from algorithm.run.experience.collector import LocalCollector
from tests.lib.on_policy import train

SMALL = NnConfig(rep={"dense_n": 8}, q={"dense_n": 8}, policy={"dense_n": 8})
CART = "CartPole-v1"
VECTORS = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
CHOICE = ObsSpec(("obs",), ((),), ("int64",), ((16,),))


def agent_and_rollout(
    env_name=CART, n=2, *, env_args=None, capacity=500, max_step=200, memory=None, replay=(), **options
):
    env = make_vec_env(
        EnvRequest(
            "GYM", env_name, env_args=env_args or {}, n=n, seed_of=lambda i, episode: 100 * i + episode
        )
    )
    sac = {"start_step": 20, "batch_size": 16, "clip_epsilon": -1.0, **options}
    config = Config(
        base_config=BaseConfig(max_step=max_step, n_envs=n),
        replay_config=ReplayConfig(capacity=capacity, **dict(replay)),
        sac_config=SacConfig(**sac),
        nn_config=SMALL,
    )
    inputs = AgentInputs(
        env.specs[DEFAULT_BEHAVIOUR],
        config,
        nn_file=None,
        behaviour="x",
        seed=1,
        device=torch.device("cpu"),
        memory=memory or MemoryBudget(),
    )
    agent = OffPolicyAgent(SAC, inputs)
    return agent, LocalCollector(env, {DEFAULT_BEHAVIOUR: agent.policy}, {DEFAULT_BEHAVIOUR: agent})


@pytest.mark.parametrize(
    ("max_step", "options", "said"),
    [
        (20, {}, "the first 20 steps are random actions (sac_config.start_step)"),
        (15, {"start_step": 0}, "an update needs 16 windows (sac_config.batch_size)"),
        (21, {}, None),
        (16, {"start_step": 0}, None),
        (-1, {}, None),
    ],
)
def test_a_training_that_ends_before_its_first_update_is_told(max_step, options, said):
    agent, rollout = agent_and_rollout(n=1, max_step=max_step, **options)
    train(agent, rollout, max_step)
    assert (agent.updates > 0) is (said is None and max_step > 0)
    told = [f"nothing will be learned: {said}, and the training ends at {max_step}"]
    assert agent.notices == (told if said else [])


def test_new_rows_enter_with_their_own_td_error():
    """use_add_with_td: each new anchor has the priority that the learner's own td_error gives it."""
    agent, rollout = agent_and_rollout(use_add_with_td=True, replay_ratio=0.5, n_step=2)
    train(agent, rollout, 60)
    first = agent.replay.next_id
    while not agent._priorities._new:
        rollout.step()
    state = agent.learner._generator.get_state()
    leaves = agent.replay._sampler.tree.leaves
    ids = np.concatenate(agent._priorities._new)
    assert len(ids)
    largest = leaves[ids % 500].copy()
    agent._priorities.update(learning=True)
    agent.learner._generator.set_state(state)
    expected = agent.replay._sampler.priority(agent.learner.td_error(agent.replay.windows(ids)).numpy())
    np.testing.assert_allclose(leaves[ids % 500], expected, rtol=1e-6)
    assert not np.allclose(largest, expected)
    assert first < agent.replay.next_id


def test_where_every_new_row_is_overwritten_nothing_is_judged():
    agent, rollout = agent_and_rollout(n=6, capacity=9, batch_size=2, start_step=3, use_add_with_td=True)
    train(agent, rollout, 60)
    agent._priorities.added(np.arange(6))
    agent.learner.td_error = lambda batch: pytest.fail("nothing is left to judge")
    agent._priorities.update(learning=True)
    assert agent._priorities._new == []


def test_before_learning_begins_new_rows_keep_the_largest_priority():
    agent, rollout = agent_and_rollout(use_add_with_td=True)
    train(agent, rollout, 10)
    assert agent._priorities._new == [] and agent.learner.updates == 0
    leaves = agent.replay._sampler.tree.leaves
    assert np.unique(leaves[leaves > 0]).tolist() == [10.0**0.4]  # td_error_max ** alpha


def test_fresh_windows_are_used_once_in_full_batches():
    """use_replay_buffer: false: as many updates as full batches, whatever the replay ratio says."""
    agent, rollout = agent_and_rollout(use_replay_buffer=False, replay_ratio=7.0, n_step=2)
    seen = []
    update = agent.learner.update
    agent.learner.update = lambda batch: (seen.append(batch.ids[:, 0].clone()), update(batch))[1]
    agent._wait_for_a_batch = lambda step, owed: pytest.fail("an update was owed without a batch for it")
    train(agent, rollout, 200)
    ids = torch.cat(seen)
    assert len(set(ids.tolist())) == len(ids)
    assert agent.learner.updates == len(ids) // 16 > 8
    assert agent.replay.ready < 16
    assert isinstance(agent._schedule, FifoUpdates)
    assert agent.metrics(200)["time/replay_ratio"] == pytest.approx(agent.learner.updates / 180)


def test_the_learning_rate_falls_until_the_end_of_the_run():
    agent, _ = agent_and_rollout(learning_rate_schedule="linear", learning_rate=0.01)
    for steps in (
        {"step": 50},
        {"step": 10, "run_step": 150},
    ):  # of one of several behaviours, and of the run
        agent.learn(**steps)
        rates = [adam.learning_rate * adam.factor for adam in agent.learner.optimisers().values()]
        left = 1.0 - max(steps.values()) / 200
        assert rates == pytest.approx(
            [0.01 * left, 0.01 * left, 0.007 * left]
        )  # critics, policy, temperatures


def test_statistics_count_every_stored_observation_once():
    """use_normalization: rows of the replay, the final ones too, and what networks see is on one scale."""
    agent, rollout = agent_and_rollout(use_normalization=True)
    train(agent, rollout, 100)
    normaliser = agent.learner.model.normaliser
    assert normaliser.count.item() == len(agent.replay) > 100
    stored = agent.replay._storage.arrays["obs_float32"][: len(agent.replay)].astype(np.float64)
    np.testing.assert_allclose(normaliser.mean.numpy(), stored.mean(0), rtol=1e-6)
    np.testing.assert_allclose(normaliser.scale.numpy(), 1 / stored.std(0), rtol=1e-4)
    batch = agent.replay.sample()
    seen = agent.learner.encode(batch).obs["obs"]
    expected = ((batch.obs["obs"].numpy() - stored.mean(0)) / stored.std(0)).clip(-5, 5)
    np.testing.assert_allclose(seen.numpy(), expected, atol=1e-4)
    count = normaliser.count.item()
    evaluation = agent.new_policy("evaluation")
    evaluation.act(
        {"obs": np.full((1, 4), 50, np.float32)},
        agent.spec.action.padding(1),
        evaluation.initial_carry(1),
        agent.spec.action.all_allowed(1),
    )
    assert normaliser.count.item() == count  # frozen while evaluating


def test_beta_grows_linearly_to_one_at_the_end_of_the_run_or_with_every_batch():
    agent, _ = agent_and_rollout()
    agent.learn(10, run_step=100)
    assert agent.replay._sampler.beta == pytest.approx(0.7)
    agent, rollout = agent_and_rollout(replay={"beta_increment_per_sampling": 0.01})
    train(agent, rollout, 40)
    assert agent.replay._sampler.beta == pytest.approx(0.4 + 0.01 * agent.learner.updates)


MEMORY = {"burn_in_step": 2, "learn_step": 4}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env_name": "Pendulum-v1", "discrete_dqn_like": True}, "discrete_dqn_like has no effect"),
        ({"discrete_dqn_like": True, "policy_update_per_step": 2}, "policy_update_per_step has no effect"),
        ({"learning_rate_end": 0.5}, "learning_rate_end has no effect"),
        ({"learning_rate_schedule": "linear", "max_step": -1}, "learning_rate_schedule has no effect"),
        ({"seq_encoder": "RNN"}, "learn_step is 1: no gradient flows through time"),
        ({"seq_encoder": "RNN", **MEMORY}, None),
        ({"seq_encoder": "ATTN", **MEMORY}, "burn_in_step is 2: attention sees the last 3 observations"),
        ({"seq_encoder": "ATTN", **MEMORY, "burn_in_step": 3}, None),
        ({"replay": {"on_device": True}}, "on_device has no effect: the learner computes on the CPU"),
        ({"n": 64}, "64 updates follow each step of the 64 environments; 0.03125 makes two"),
        ({"n": 64, "use_replay_buffer": False, "use_priority": False}, None),
        ({"replay_ratio": 99}, None),
        ({"compile": "on"}, "compile has no effect: there is no C++ compiler"),
    ],
    ids=str,
)
def test_keys_without_effect_are_told(monkeypatch, options, said):
    monkeypatch.setattr("algorithm.agents.off_policy.compiled_update.shutil.which", lambda _: None)
    notices = agent_and_rollout(**options)[0].notices
    assert len(notices) == (said is not None) and all(said in line for line in notices)


@pytest.mark.parametrize(
    ("siamese", "obs", "said"), [("BYOL", CHOICE, 1), ("ATC", CHOICE, 0), ("BYOL", VECTORS.obs, 0)]
)
def test_looks_that_are_the_same_are_told(siamese, obs, said):
    keys, spec = SacConfig(siamese=siamese), AgentSpec(obs, ActionSpec((2,)))
    assert len(notices(spec, keys, SacObjective(spec.action, keys), has_encoder=True, n_envs=1)) == said


def test_the_return_of_an_agent_that_is_gone_is_forgotten():
    """reward_scaling: a long run meets any number of agents."""
    agent, rollout = agent_and_rollout()
    rollout.step()
    streams = agent.learner.return_scale.tensors()["stream"].tolist()
    assert streams
    for stream in streams:
        agent.close(stream)
    assert not len(agent.learner.return_scale.tensors()["stream"])
