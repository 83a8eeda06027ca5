"""Numbers that are not finite, by hand: the run ends, and nothing of them is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from safetensors.numpy import load_file

from algorithm.core.data import ActorOutput, Segment, StepBatch
from algorithm.core.errors import NumericalError
from algorithm.core.seeding import episode_seeds
from algorithm.env.base import Observation, StepResult
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.experience.non_finite import first_bad
from algorithm.store.logs.metrics import read_metrics
from tests.lib.sessions import result, run
from tests.lib.toys_numbers import LENGTH, Event

pytestmark = pytest.mark.fault("F10")

NAME = "tests.lib.toys_numbers:Numbers-v0"
AGAIN = "asac task --check --seed=3"


def seed_of(copy: int, episode: int) -> int:
    return 1000 * copy + episode


class Player:
    """Acts at random with a carry that counts steps; its log-probability is NaN where ``spoilt`` says."""

    stored_carry_shape = (1,)

    def __init__(self, spoilt: Sequence[tuple[int, int]] = ()) -> None:
        self._rng = np.random.default_rng(0)
        self._spoilt = set(spoilt)  # (seed, step) as observed
        self.segments: list[Segment] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        assert np.isfinite(obs["obs"]).all() and np.isfinite(carry).all()
        assert np.array_equal(carry, obs["obs"][:, 1:]), "the carry is of another step"
        action = self._rng.uniform(-0.9, 0.9, (len(carry), 1)).astype(np.float32)
        z = np.arctanh(action)
        spoilt = [tuple(row) in self._spoilt for row in obs["obs"].astype(int).tolist()]
        logp = np.where(np.array(spoilt)[:, None], np.nan, 0.0).astype(np.float32)
        return ActorOutput(action=np.tanh(z), z=z, behaviour_logp=logp, carry=carry + 1)

    def add_steps(self, steps: StepBatch) -> None:
        self.segments += steps.segments()

    def close(self, stream: int) -> None:
        raise AssertionError("no episode breaks off")


def rollout_of(
    events: Sequence[Event], *, spoilt: Sequence[tuple[int, int]] = ()
) -> tuple[LocalCollector, Player]:
    env = make_vec_env(EnvRequest("GYM", NAME, env_args={"events": list(events)}, seed_of=seed_of))
    player = Player(spoilt)
    return LocalCollector(env, {"default": player}, {"default": player}, again=AGAIN), player


@pytest.mark.parametrize(("event", "said"), [
    ((0, 2, "reward", "nan"), ["reward of 'default' agent 0, step 2 of its episode, after action ["]),
    ((1, 3, "reward", "nan"), ["; environment 0, episode 1, seed 1; after 7 steps of these environments"]),
    ((0, 2, "reward", "-1e39"), ["reward of 'default' agent 0", "it is -1e+39, beyond float32"]),
    ((0, 2, "obs", "-inf"), ["observation 'obs'[1] of 'default' agent 0, step 2", "it is -inf"]),
    ((0, LENGTH, "obs", "inf"), ["observation 'obs'[1] of 'default' agent 0, step 5", "episode 0, seed 0"]),
    ((0, 0, "obs", "nan"), ["observation 'obs'[1]", "at the beginning of its episode", "it is nan"]),
    ((1, 0, "obs", "nan"), ["at the beginning of its episode; environment 0, episode 1, seed 1"]),
])  # fmt: skip
def test_the_run_ends_and_says_how_to_see_it_again(event, said):
    with pytest.raises(NumericalError, match="the environment returned") as caught:
        rollout, _ = rollout_of([event])
        for _ in range(20):
            rollout.step()
    for fragment in [*said, AGAIN]:
        assert fragment in str(caught.value)


def test_a_policy_that_gives_nan_is_named():
    rollout, player = rollout_of([], spoilt=[(0, 3)])
    with pytest.raises(NumericalError, match="the policy gave") as caught:
        for _ in range(4):
            rollout.step()
    assert AGAIN not in caught.value.fix
    assert len(player.segments) == 3


@pytest.mark.parametrize(("what", "bad", "begins"), [
    ("midway", "", None),
    ("midway", "reward", False),
    ("midway", "logp", False),
    ("midway", "seen", False),
    ("ended", "reward", False),
    ("ended", "final", False),
    ("ended", "seen", True),  # the next episode cannot begin so
    ("ended", "final seen", False),
    ("left", "seen", None),  # it means nothing
    ("left", "final", False),
    ("skipped", "reward", None),
    ("skipped", "logp", None),
    ("skipped", "seen", True),
])  # fmt: skip
def test_every_number_that_means_something_is_looked_at(what, bad, begins):
    """Of one agent; a first one beside it is in order."""

    def number(name: str, *shape: int) -> np.ndarray:
        value = np.ones((2, *shape), np.float32)
        value[1] = np.nan if name in bad.split() else 1.0
        return value

    flags = {name: np.array([False, name == what]) for name in ("left", "skipped")}
    ended, mask = np.array([False, what in ("ended", "left")]), np.zeros((2, 0), np.bool_)
    ids, pixels = np.arange(2) + 7, np.zeros((2, 3), np.uint8)
    final = Observation(ids=ids, obs={"obs": number("final", 2)}, action_mask=mask)
    result = StepResult(
        ids=ids,
        obs={"obs": number("seen", 2), "pixels": pixels},
        action_mask=mask,
        reward=number("reward"),
        terminated=ended,
        truncated=ended & False,
        final=final if ended.any() else None,
        **{name: flag if flag.any() else None for name, flag in flags.items()},
    )
    action = np.zeros((2, 1), np.float32)
    acted = ActorOutput(action=action, z=action, behaviour_logp=number("logp", 1), carry=action)
    place = first_bad(result, acted)
    assert (place and place.begins) == begins
    assert place is None or (place.row == 1 and place.number.of_policy == (bad == "logp"))


@pytest.mark.fault("F11")
def test_a_run_survives_extreme_rewards_and_says_so_in_the_end(task):
    seeds = [episode_seeds(3, "train")(0, episode) for episode in range(60)]
    events = [[seeds[k], 3, "reward", "1e30"] for k in (10, 20)]
    args = f"base_config.env_args={{events: {json.dumps(events)}}}"
    code = run(
        *("-c=endless", "-n=a", "--seed=3"),
        *("-o", f"base_config.env_name={NAME}", "-o", args),
        *("-o", "sac_config.start_step=60", "-o", "sac_config.clip_epsilon=-1"),
    )
    folder = task / "a"
    assert code == 0 and result(folder)["faults"] == {"env_restarts": 0, "rollbacks": 0}
    columns = read_metrics(folder / "metrics.jsonl")
    assert np.nanmax(columns["optim/skipped"]) > 0
    assert np.isfinite([x for x in columns["loss/q"] if not np.isnan(x)]).all()
    files = list(folder.glob("checkpoints/step_*/*.safetensors"))
    assert files
    for file in files:
        for name, value in load_file(file).items():
            assert np.isfinite(value).all(), name
