"""Actions that a person executed in place of the policy's: stored, acted on, counted, learned from."""

from contextlib import closing
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import asac
from algorithm.core.data import PERSON_LOGP, UNKNOWN_LOGP, ActorOutput, StepBatch
from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.actions import Actions
from algorithm.env.config import InterventionKeys
from algorithm.env.executed import ExecutedActions
from algorithm.env.lanes.gym_vector import GymVectorEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector
from tests.lib.batches import random_batch, small_sac
from tests.run.experience.intervening import SPACES, Intervening, numbers

NAME = "tests.run.experience.intervening:Intervening-v0"
SEEDS = episode_seeds(3, "train")
LOGP = np.float32(np.log(0.5))


class Player:
    """Acts at random, and keeps the transitions and what it was told of its last actions."""

    stored_carry_shape = (0,)

    def __init__(self, spec) -> None:
        self.spec, self.rng = spec.action, np.random.default_rng(0)
        self.told: list[tuple[np.ndarray, np.ndarray]] = []
        self.batches: list[StepBatch] = []

    def initial_carry(self, n):
        return np.zeros((n, 0), np.float32)

    def act(self, obs, prev_action, carry, action_mask):
        self.told.append((prev_action, obs["obs"]))
        action, z, logp = self.spec.random(self.rng, action_mask)
        return ActorOutput(action=action, z=z, behaviour_logp=np.full_like(logp, LOGP), carry=carry)

    def add_steps(self, steps: StepBatch) -> None:
        self.batches.append(steps)


def vector(kind, style, mode):
    makes = [partial(Intervening, kind, style)] * 3
    infos = ("helped",)
    return GymVectorEnv(
        lambda: SyncVectorEnv(makes, autoreset_mode=mode), seed_of=SEEDS, name="x", infos=infos
    )


def single(kind, style, workers):
    args = {"kind": kind, "style": style}
    request = EnvRequest("GYM", NAME, n=3, seed_of=SEEDS, env_args=args, workers=workers, infos=("helped",))
    return make_vec_env(request)


STYLES = ("taken", "person", "rare")
WAYS = {
    "one process": partial(single, workers=0),
    "workers": partial(single, workers=2),
    **{mode.value: partial(vector, mode=mode) for mode in AutoresetMode},
}


def executed(action: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of flat actions [N, A] in their space."""
    actions = Actions(SPACES[kind], "x")
    return np.array([numbers(actions.to_env(one)) for one in action]).reshape(len(action), -1)


@pytest.mark.parametrize(
    ("way", "kind", "style"),
    [
        *(("one process", kind, style) for kind in SPACES for style in STYLES),
        *((way, kind, style) for way in list(WAYS)[1:] for kind, style in zip(SPACES, STYLES, strict=True)),
    ],
)
def test_what_is_stored_is_what_was_executed(way, kind, style):
    """A ledger of 300 transitions: each observation is the action that led there."""
    with closing(WAYS[way](kind, style)) as env:
        player = Player(env.specs[DEFAULT_BEHAVIOUR])
        rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player})
        while rollout.steps < 300:
            rollout.step()
    action, z, logp = (
        np.concatenate([getattr(steps, name) for steps in player.batches])
        for name in ("action", "z", "behaviour_logp")
    )
    seen = np.concatenate([steps.next_obs["obs"] for steps in player.batches])
    by_person, unknown = seen[:, -1] > 0, logp <= UNKNOWN_LOGP
    np.testing.assert_allclose(executed(action, kind), seen[:, :-1], atol=1e-4)
    np.testing.assert_allclose(np.tanh(z), action[:, player.spec.discrete :], atol=1e-6)
    assert (logp[~unknown] == LOGP).all() and (unknown == unknown[:, :1]).all()
    assert 0.25 < by_person.mean() < 0.42 and not unknown[~by_person].any()
    if style != "taken" or kind != "discrete":  # there a person may choose what the policy has chosen
        assert (logp[by_person] == (UNKNOWN_LOGP if style == "taken" else PERSON_LOGP)).all()
    assert any(last.any() for last, _ in player.told)
    for last, obs in player.told:
        begun = last.any(1)  # at the start of an episode it is told nothing
        if not begun.any():
            continue
        np.testing.assert_allclose(executed(last[begun], kind), obs[begun, :-1], atol=1e-4)


@pytest.mark.parametrize("style", ["person", "rare"])
@pytest.mark.parametrize("way", WAYS)
def test_the_share_of_a_person_s_steps_is_a_number_of_the_episode(way, style):
    with closing(WAYS[way]("continuous", style)) as env:
        rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: Player(env.specs[DEFAULT_BEHAVIOUR])})
        episodes = [episode for _ in range(100) for episode in rollout.step()]
    reported = [episode.infos for episode in episodes if "intervention_rate" in episode.infos]
    assert len(reported) > 10 and any(infos["helped"] for infos in reported)
    assert all(infos["intervention_rate"] == pytest.approx(infos["helped"]) for infos in reported)
    assert all(infos["unaided"] == (infos["helped"] == 0) for infos in reported)


def test_of_an_unknown_density_the_ratio_is_one():
    sac = small_sac(n_step=3, use_n_step_is=True)
    batch = random_batch(8, 3)
    batch.behaviour_logp[:4] = UNKNOWN_LOGP
    with torch.no_grad():
        policy = sac.model.policy(batch.obs["obs"].flatten(0, 1), {})
        policy = policy.map(lambda x: x.view(8, 4, -1)[:, 1:].flatten(0, 1))
        ratio = sac.log_ratio(batch, policy)
    assert (ratio[:4] == 0.0).all() and (ratio[4:] != 0.0).all()


KEYS = InterventionKeys()
BOX = Box(-2.0, 2.0, (2,))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, (None, None)),
        ({"is_intervention": False, "teleop_action": [9.0, 9.0]}, (None, False)),
        ({"is_intervention": np.True_, "teleop_action": [1.0, -2.0]}, ([0.5, -1.0], True)),
        ({"is_intervention": 1.0, "action_intervention": [0.0, 0.0]}, ([0.0, 0.0], True)),
        ({"is_intervention": True, "action_taken": [2.0, 2.0]}, ([1.0, 1.0], True)),
        ({"action_taken": [0.0, 0.0]}, (None, None)),
        ({"action_taken": [0.0, 1.0]}, ([0.0, 0.5], None)),
        ({"teleop_action": [1.0, -2.0]}, ([0.5, -1.0], True)),
        ({"is_intervention": False, "action_taken": [0.0, 1.0]}, ([0.0, 0.5], False)),
        ({"is_intervention": False, "action_taken": None}, (None, False)),
        (
            {"is_intervention": True, "teleop_action": None, "action_intervention": [2.0, 0.0]},
            ([1.0, 0.0], True),
        ),
        ({"action_taken": None}, (None, None)),
    ],
    ids=str,
)
def test_infos_are_read_as_they_are_meant(info, expected):
    action, by_person = ExecutedActions(BOX, KEYS).read(info, np.zeros(2))
    assert by_person == expected[1]
    assert action is None if expected[0] is None else action.tolist() == expected[0]


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 10, (3,), np.int64),
        Box(-1.0, 1.0, (2,), np.float16),
        Box(1.0, 1.001, (1,)),
        Box(2.0, 2.0, (1,)),
    ],
    ids=str,
)
def test_what_was_sent_and_comes_back_is_no_other_action(space):
    """A Box of integers rounds, and so does one of half precision."""
    actions, reader = Actions(space, "x"), ExecutedActions(space, KEYS)
    for u in np.linspace(-1.0, 1.0, 23, dtype=np.float32):
        sent = actions.to_env(np.full(actions.spec.size, u, np.float32))
        assert reader.read({"action_taken": sent.copy()}, sent) == (None, None)


def test_numbers_of_a_vector_class_beside_the_infos_are_left_alone():
    infos = {"fps": 30.0, "is_intervention": np.array([True, False]), "teleop_action": np.full((2, 2), 2.0)}
    rows, sent = np.ones(2, np.bool_), np.zeros((2, 2))
    executed, by_person = ExecutedActions(BOX, KEYS).read_batch(
        [(infos, rows)], sent, sent.astype(np.float32)
    )
    assert by_person.tolist() == executed.replaced.tolist() == [True, False]
    assert executed.action.tolist() == [[1.0, 1.0], [0.0, 0.0]]


class Forbidding(Intervening):
    """Forbids all choices but the policy's, and a person makes another one."""

    def step(self, action):
        *result, info = super().step(action)
        allowed = np.arange(-1, 3) == (0 if self.steps % 2 else 1)
        return (*result, {**info, "action_mask": allowed.astype(np.int8)})


def test_a_person_s_choice_that_the_mask_forbids_ends_the_run(tmp_path):
    with pytest.raises(EnvError) as error:
        asac.train(Forbidding("discrete"), max_step=200, quiet=True, directory=tmp_path, seed=1)
    assert "mask" in error.value.what


def test_names_of_infos_can_be_others_and_none():
    info = {"done": [2.0, 2.0], "action_taken": [1.0, 1.0]}
    zeros = np.zeros(2)
    assert ExecutedActions(BOX, InterventionKeys(executed="done")).read(info, zeros)[0].tolist() == [1.0, 1.0]
    assert ExecutedActions(BOX, InterventionKeys(executed="")).read(info, zeros) == (None, None)


def test_a_run_with_a_person_learns_and_reports_the_share(tmp_path):
    run = asac.train(
        Intervening("hybrid", "person"),
        max_step=300,
        quiet=True,
        directory=tmp_path,
        overrides=["sac_config.start_step=50", "sac_config.write_summary_per_step=100"],
    )
    assert 0.1 < np.nanmean(run.metrics["rollout/info/intervention_rate"]) < 0.6
