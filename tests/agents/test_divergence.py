"""Updates that are not finite: skipped and counted, rolled back, and in the end refused."""

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from algorithm.agents import divergence as divergence
from algorithm.agents.divergence import EXTREME_PATIENCE, PATIENCE, RECOVERY, ROLL_BACKS, DivergenceMonitor
from algorithm.agents.off_policy.agent import OffPolicyAgent
from algorithm.config import load_config_file
from algorithm.core.data import State
from algorithm.core.errors import NumericalError
from algorithm.run.experience.collector import LocalCollector
from tests.agents.off_policy.test_agent import agent_and_rollout
from tests.lib.batches import random_batch, weights
from tests.lib.on_policy import train
from tests.lib.sessions import run

pytestmark = pytest.mark.fault("F11")


class Learner:
    """Counts skipped steps as it is told."""

    def __init__(self) -> None:
        self.skipped = 0
        self.loaded: list[object] = []

    def roll_back(self, tensors: object) -> None:
        self.loaded.append(tensors)


class Told:
    """Keeps what a person would be told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rollbacks = 0

    def skipped(self, line: str) -> None:
        self.lines.append(line)

    def rolled_back(self, line: str) -> None:
        self.rollbacks += 1
        self.lines.append(line)


SAVED = {"model": {}}
BATCH = random_batch(4)


def guard_and_all(*, saved: object = SAVED) -> tuple[DivergenceMonitor, Learner, Told]:
    learner, told = Learner(), Told()
    guard = DivergenceMonitor(learner, "sac_config")
    guard.attach(restore=lambda: saved, report=told)
    return guard, learner, told


def play(guard: DivergenceMonitor, learner: Learner, updates: Iterable[int]) -> list[bool]:
    """Updates with so many skipped steps each; −1: none, but TD errors that are not finite."""
    verdicts = []
    for step, skipped in enumerate(updates):
        learner.skipped += max(0, skipped)
        verdicts.append(guard.passes(BATCH, step, finite=skipped >= 0))
    return verdicts


def test_it_is_said_at_one_ten_a_hundred():
    guard, learner, told = guard_and_all()
    play(guard, learner, [1, 0] * 120)
    assert [line.split(" skipped")[0] for line in told.lines] == [
        "1 step",
        "so far 10 steps",
        "so far 100 steps",
    ]
    assert "· step 18 ·" in told.lines[1]
    guard, learner, told = guard_and_all()
    play(guard, learner, [3, 0, 30])
    assert [line.split(" skipped")[0] for line in told.lines] == ["so far 3 steps", "so far 33 steps"]


@pytest.mark.parametrize(("reward", "observation", "said"), [
    (1e30, 1.0, ["|reward| up to 1e+30", "base_config.reward_scale", "base_config.wrappers", "ClipReward"]),
    (1.0, -1e20, ["|observation| up to 1e+20", "clip or scale sensors", "base_config.wrappers"]),
    (2.0, 3.0, ["|reward| up to 2,", "up to 3 in", "sac_config.learning_rate", "sac_config.max_grad_norm"]),
])  # fmt: skip
def test_the_likely_cause_and_the_key_to_change_are_named(reward, observation, said):
    guard, learner, told = guard_and_all()
    batch = random_batch(4, 2, exists=torch.tensor([2, 1, 2, 1]))
    batch.reward.clamp_(-1, 1)
    batch.obs["obs"].clamp_(-1, 1)
    batch.reward[0, 1], batch.obs["obs"][2, 1, 0] = reward, observation
    batch.reward[1, 1] = batch.obs["obs"][1, 2, 0] = 1e35  # padding means nothing
    learner.skipped = 1
    guard.passes(batch, 1234, finite=True)
    for fragment in ["· step 1,234 ·", *said]:
        assert fragment in told.lines[0]


GOOD, BAD = [0], [1] * PATIENCE
"""Skipped steps of updates."""


@pytest.mark.parametrize(
    ("before", "after", "rollbacks"),
    [
        ([0, 1, 2, -1], [0], 0),
        (([1] * (PATIENCE - 1) + GOOD) * 3, GOOD, 0),
        ([1] * 4, [1] * (PATIENCE - 4), 1),
        (BAD, [1] * (PATIENCE - 1), 1),
        # good updates need not follow each other: as many as RECOVERY in all forget earlier roll backs
        (BAD * ROLL_BACKS + GOOD * 700, [1, *GOOD * (RECOVERY - 700), *BAD * ROLL_BACKS], 2 * ROLL_BACKS),
    ],
    ids=["counted", "good ones between", "in a row", "begun anew", "recovered"],
)
def test_skipped_updates_in_a_row_roll_back_also_after_a_resume(before, after, rollbacks):
    guard, learner, told = guard_and_all()
    verdicts = play(guard, learner, before)
    resumed, fresh, more = guard_and_all()
    fresh.skipped = 3  # that learner has its own count
    resumed.load_state(State(meta=json.loads(json.dumps(guard.state().meta))))
    verdicts += play(resumed, fresh, after)
    assert verdicts == [skipped == 0 for skipped in before + after]
    assert told.rollbacks + more.rollbacks == rollbacks == len(learner.loaded + fresh.loaded)
    assert resumed.skipped == sum(map(abs, before + after))


def test_a_reward_that_is_in_most_batches_needs_more_in_a_row():
    guard, learner, told = guard_and_all()
    extreme = replace(BATCH, reward=torch.full_like(BATCH.reward, 1e30))
    for step in range(EXTREME_PATIENCE):
        assert told.rollbacks == 0
        learner.skipped += 1
        guard.passes(extreme, step, finite=True)
    assert told.rollbacks == 1


@pytest.mark.parametrize(
    ("saved", "updates", "said"),
    [
        (SAVED, BAD * (ROLL_BACKS + 1), "3 times did not help"),
        (SAVED, BAD * ROLL_BACKS + GOOD * (RECOVERY - 1) + BAD, "3 times did not help"),
        (None, BAD, "no checkpoint to go back to"),
    ],
    ids=["at once", "hardly recovered", "nothing saved"],
)
def test_where_rolling_back_does_not_help_training_has_diverged(saved, updates, said):
    guard, learner, _ = guard_and_all(saved=saved)
    play(guard, learner, updates[:-1])
    with pytest.raises(NumericalError) as caught:
        play(guard, learner, updates[-1:])
    assert caught.value.exit_code == 5 and said in caught.value.why and "|reward| up to" in caught.value.why


def numbers(*events: tuple, **options: object) -> tuple[OffPolicyAgent, LocalCollector]:
    """An agent in copies of an environment that returns other numbers where the events say."""
    own = {"env_args": {"events": events}, "n": 3, "use_normalization": False}
    return agent_and_rollout("tests.lib.toys_numbers:Numbers-v0", **{**own, **options})


def all_finite(agent: OffPolicyAgent) -> bool:
    priorities = agent.replay._sampler.tree.leaves if hasattr(agent.replay._sampler, "tree") else np.zeros(1)
    tensors = [*weights(agent.learner).values(), *agent.learner.tensors()["optim"].values()]
    return bool(np.isfinite(priorities).all()) and all(torch.isfinite(t).all() for t in tensors)


@pytest.mark.parametrize(("place", "number", "options"), [
    ("reward", "1e30", {"use_add_with_td": True, "n_step": 2}),
    ("reward", "-3e38", {"seq_encoder": "RNN", "burn_in_step": 1, "learn_step": 2, "refresh_carry": True}),
    ("obs", "-1e30", {"use_normalization": True, "use_priority": False}),
])  # fmt: skip
def test_training_survives_an_extreme_number(place, number, options):
    """One of three copies returns it. Nothing that is not finite enters anywhere, and learning goes on."""
    agent, rollout = numbers((102, 3, place, number), **options)
    told = Told()
    agent._guard.attach(restore=lambda: None, report=told)
    train(agent, rollout, 36)
    assert agent._guard.skipped == 0 < agent.learner.updates
    train(agent, rollout, 75)
    before, skipped = weights(agent.learner), agent._guard.skipped
    train(agent, rollout, 84)
    stored = agent.replay.windows(agent.replay.spread(500))
    extreme = stored.reward if place == "reward" else stored.obs["obs"]
    assert extreme.abs().max() > 1e29, "it stands in the replay"
    assert all(torch.isfinite(value).all() for value in (stored.behaviour_logp, stored.z, stored.carry))
    if place == "reward" or not agent.config.sac_config.use_normalization:  # which clips it
        assert 0 < skipped <= agent._guard.skipped < agent.learner.updates
        assert f"|{'reward' if place == 'reward' else 'observation'}| up to" in told.lines[0]
    assert all_finite(agent)
    after = weights(agent.learner)
    assert any(not torch.equal(after[name], value) for name, value in before.items())
    values = agent.metrics(84)
    assert values["optim/skipped"] == agent._guard.skipped
    assert all(np.isfinite(value) for name, value in values.items() if name.startswith(("loss/", "optim/")))


def test_td_errors_that_are_not_finite_leave_the_priorities_as_they_were():
    agent, rollout = numbers(replay={"td_error_max": 100.0}, reward_scaling=False)
    agent._guard.attach(restore=lambda: None, report=Told())
    train(agent, rollout, 60)
    before = agent.replay._sampler.tree.leaves.copy()
    recent = agent._recent.metrics(0)
    sample = agent.replay.sample
    agent.replay.sample = lambda: spoilt(sample())
    for _ in range(2):
        agent._update_once(agent._batches, 61, _NoWatch())
    assert np.array_equal(agent.replay._sampler.tree.leaves, before)
    assert agent._guard.skipped == 2 and agent._recent.metrics(0) == recent
    agent.replay.sample, update = sample, agent.learner.update
    agent.learner.update = lambda batch: replace(update(batch), priority=torch.full((16,), torch.nan))
    agent._update_once(agent._batches, 62, _NoWatch())  # although every optimiser took its step
    assert np.array_equal(agent.replay._sampler.tree.leaves, before)
    assert agent._guard.skipped == 3 and agent._recent.metrics(0) == recent
    agent.learner.update = update
    agent._update_once(agent._batches, 63, _NoWatch())
    assert not np.array_equal(agent.replay._sampler.tree.leaves, before)


class _NoWatch:
    def lap(self, part: str) -> None:
        pass


def spoilt(batch):
    batch.reward[0] = 3.4e38
    return batch


def test_new_transitions_without_a_finite_td_error_keep_the_largest_priority():
    agent, rollout = numbers((7, 2, "reward", "3.4e38"), use_add_with_td=True, n=1, reward_scaling=False)
    told = Told()
    agent._guard.attach(restore=lambda: None, report=told)
    while rollout.steps < 36:
        rollout.step()
        agent.learn(rollout.steps)
    rollout.step()  # episode 7 of 5 steps each: its second one
    ids = np.concatenate(agent._priorities._new)
    kept = agent.replay._sampler.tree.leaves[ids % 500].copy()
    agent._schedule.due = lambda step: 0
    agent.learn(37)
    assert np.array_equal(agent.replay._sampler.tree.leaves[ids % 500], kept) and kept.min() > 0
    assert agent._guard.skipped == 1 and "use_add_with_td" in told.lines[0]


def test_a_whole_run_goes_back_to_its_checkpoint_three_times_and_ends_with_code_5(task, capsys):
    code = run(
        *("-c=endless", "-n=a", "--seed=3", "-o", "base_config.env_name=tests.lib.toys_numbers:Numbers-v0"),
        *("-o", "base_config.env_args={always: '1e30'}", "-o", "sac_config.start_step=60"),
        *("-o", "sac_config.save_model_per_step=50", "-o", "sac_config.replay_ratio=1", "--max_step=600"),
    )
    said = capsys.readouterr()
    assert code == 5 and "training has diverged" in said.err and "3 times did not help" in said.err
    told = [line for line in said.out.splitlines() if line.startswith("warning: networks and optimisers")]
    assert len(told) == ROLL_BACKS
    files = list((task / "a").glob("checkpoints/step_*/model.safetensors"))
    assert files
    for file in files:
        for name, value in load_file(file).items():
            assert np.isfinite(value).all(), name


@pytest.mark.parametrize(("reward", "observation", "advice"), [
    (1e30, 3.0, "scale rewards by base_config.reward_scale, or clip them: base_config.wrappers: "
     "[{ClipReward: {max_reward: 10}}]"),
    (3.0, 1e30, "clip or scale sensors with your own wrapper: base_config.wrappers: [module:Class]"),
])  # fmt: skip
def test_what_is_advised_can_be_written_into_a_configuration(reward, observation, advice, tmp_path):
    assert divergence._advice(reward, observation, "ppo_config") == advice
    (tmp_path / "config.yaml").write_text(f"base_config: {{{advice.rpartition('base_config.')[2]}}}")
    assert load_config_file(tmp_path / "config.yaml").config.base_config.wrappers
