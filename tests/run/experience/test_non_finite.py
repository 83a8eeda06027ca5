"""Episodes with numbers that are not finite, by hand: the run ends, or the episode does."""

import io
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from safetensors.numpy import load_file

from algorithm.app.console.output import open_console
from algorithm.core.data import ActorOutput, Segment, StepBatch
from algorithm.core.errors import NumericalError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Observation, StepResult
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.experience.faults import Faults
from algorithm.run.experience.non_finite import MAX_WARNINGS, Drop, Stop, examine
from algorithm.store.logs.metrics import read_metrics
from tests.lib.sessions import result, run
from tests.lib.toys_agents import Attentive, Guests
from tests.lib.toys_numbers import LENGTH, Event


class Spoilt(Guests):
    """The reward of ``bad``, (step of all, agent), is NaN."""

    bad = ((3, 2), (5, 0))

    def step(self, actions):
        result = super().step(actions)[DEFAULT_BEHAVIOUR]
        result.reward[[(self._line, agent) in self.bad for agent in result.ids.tolist()]] = np.nan
        return {DEFAULT_BEHAVIOUR: result}


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
        self.closed: list[int] = []

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
        self.closed.append(stream)


class Kept(Faults):
    """Remembers the lines."""

    def __init__(self) -> None:
        super().__init__(open_console(output=io.StringIO()))
        self.lines: list[tuple[str, bool]] = []

    def dropped(self, line: str, *, warn: bool) -> None:
        super().dropped(line, warn=warn)
        self.lines.append((line, warn))


def rollout_of(
    events: Sequence[Event],
    *,
    n: int = 1,
    drop: bool = True,
    most: float = math.inf,
    spoilt: Sequence[tuple[int, int]] = (),
) -> tuple[LocalCollector, Player, Kept]:
    env = make_vec_env(EnvRequest("GYM", NAME, env_args={"events": list(events)}, n=n, seed_of=seed_of))
    player, faults = Player(spoilt), Kept()
    rollout = LocalCollector(
        env,
        {"default": player},
        {"default": player},
        on_non_finite=Drop(faults, most=most) if drop else Stop(AGAIN),
    )
    return rollout, player, faults


def test_what_is_dropped_leaves_all_else_as_it_is():
    """In copy 0 a beginning, a step and the end of an episode are bad, in copy 1 what the policy gives."""
    events = [(0, 0, "obs", "nan"), (1, 2, "reward", "-inf"), (2, LENGTH, "obs", "inf")]
    rollout, player, faults = rollout_of(events, n=2, spoilt=[(1000, 3)])
    episodes = [e for _ in range(12) for e in rollout.step()]
    stored: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for segment in player.segments:
        stored[segment.stream].append(tuple(segment.obs["obs"][0].astype(int).tolist()))
    steps = {0: [(1, 1), (2, 4), (3, 5)], 1: [(1000, 3), (1001, 5), (1002, 3)]}  # seed, steps of its episode
    assert stored == {i: [(seed, t) for seed, n in of for t in range(n)] for i, of in steps.items()}
    assert player.closed == [0, 1, 0] and faults.non_finite == 4
    assert [(e.agent, e.total, e.length) for e in episodes] == [(1, 15.0, 5), (0, 15.0, 5)]
    assert rollout.steps == len(player.segments), "a step that is dropped does not count"


def test_other_agents_of_the_room_begin_anew_and_those_of_others_do_not():
    """Agent 2 gets NaN in the third step, agent 0 in the fifth."""
    player = Attentive()
    players = {DEFAULT_BEHAVIOUR: player}
    env = Spoilt(["...."] * 6, range(4), rooms=True)
    rollout = LocalCollector(env, players, players, num_envs=2, on_non_finite=Drop(Kept()))
    for _ in range(6):
        rollout.step()
    stored = {i: [s.start_step for s in player.segments if s.stream == i] for i in range(4)}
    assert stored == {0: [0, 1, 2, 3, 0], 1: [0, 1, 2, 3, 4, 0], 2: [0, 1, 0, 1, 2], 3: [0, 1, 2, 0, 1, 2]}
    assert sorted(player.closed) == [0, 1, 2, 3]
    assert rollout.steps == 4 * 6 - 2


def test_a_few_are_shown_the_others_counted():
    rollout, _, faults = rollout_of([(episode, 2, "reward", "nan") for episode in range(30)])
    for _ in range(40):
        rollout.step()
    assert faults.non_finite == 20
    assert [shown for _, shown in faults.lines] == [True] * MAX_WARNINGS + [False] * (20 - MAX_WARNINGS)
    assert "environment 0, episode 1, seed 1; after 2 steps of these environments" in faults.lines[1][0]


def test_where_a_few_are_survived_one_more_ends_the_run():
    rollout, _, faults = rollout_of([(episode, 2, "reward", "nan") for episode in range(30)], most=3)
    with pytest.raises(NumericalError, match="not finite") as caught:
        for _ in range(100):
            rollout.step()
    assert "3 episodes were dropped" in caught.value.why
    assert faults.non_finite == 3 and rollout.steps == 4


@pytest.mark.parametrize(("event", "said"), [
    ((0, 2, "reward", "nan"), ["reward of 'default' agent 0, step 2 of its episode, after action ["]),
    ((1, 3, "reward", "nan"), ["; environment 0, episode 1, seed 1; after 7 steps of these environments"]),
    ((0, 2, "reward", "-1e39"), ["reward of 'default' agent 0", "it is -1e+39, beyond float32"]),
    ((0, 2, "obs", "-inf"), ["observation 'obs'[1] of 'default' agent 0, step 2", "it is -inf"]),
    ((0, LENGTH, "obs", "inf"), ["observation 'obs'[1] of 'default' agent 0, step 5", "episode 0, seed 0"]),
    ((0, 0, "obs", "nan"), ["observation 'obs'[1]", "at the beginning of its episode", "it is nan"]),
    ((1, 0, "obs", "nan"), ["at the beginning of its episode; environment 0, episode 1, seed 1"]),
])  # fmt: skip
def test_by_default_the_run_ends_and_says_how_to_see_it_again(event, said):
    with pytest.raises(NumericalError, match="the environment returned") as caught:
        rollout, *_ = rollout_of([event], drop=False)
        for _ in range(20):
            rollout.step()
    for fragment in [*said, AGAIN, "on_non_finite: drop"]:
        assert fragment in str(caught.value)


def test_a_policy_that_gives_nan_is_named():
    rollout, player, *_ = rollout_of([], drop=False, spoilt=[(0, 3)])
    with pytest.raises(NumericalError, match="the policy gave") as caught:
        for _ in range(4):
            rollout.step()
    assert AGAIN not in caught.value.fix
    assert len(player.segments) == 3


@pytest.mark.parametrize("drop", [True, False])
def test_an_environment_that_never_begins_ends_the_run(drop):
    events = [(episode, 0, "obs", "nan") for episode in range(100)]
    with pytest.raises(NumericalError) as caught:
        rollout_of(events, drop=drop)
    assert ("10 times in a row" in str(caught.value)) == drop


@pytest.mark.parametrize(("what", "bad", "lost", "begins", "again"), [
    ("midway", "", False, False, False),
    ("midway", "reward", True, False, True),
    ("midway", "logp", True, False, True),
    ("midway", "seen", True, False, True),
    ("ended", "reward", True, False, False),
    ("ended", "final", True, False, False),
    ("ended", "seen", False, True, True),  # the next episode cannot begin so
    ("ended", "final seen", True, False, True),
    ("left", "seen", False, False, False),  # it means nothing
    ("left", "final", True, False, False),
    ("skipped", "reward", False, False, False),
    ("skipped", "logp", False, False, False),
    ("skipped", "seen", False, True, True),
])  # fmt: skip
def test_every_number_that_means_something_is_looked_at(what, bad, lost, begins, again):
    """Of one agent; a second one beside it is in order."""

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
    found = examine(result, acted)
    if found is None:
        assert not lost and not again
        return
    expected = [[False, lost], [False, begins], [False, again]]
    assert [of.tolist() for of in (found.lost, found.begins, found.again)] == expected
    assert list(found.numbers) == [1] and found.numbers[1].of_policy == (bad == "logp")


@pytest.mark.fault("F11")
def test_a_run_survives_both_and_says_so_in_the_end(task):
    """NaN in three of its training episodes and one of each evaluation, and extreme rewards in others."""
    seeds = [episode_seeds(3, "train")(0, episode) for episode in range(60)]
    events = [[seeds[k], 2, "reward", "nan"] for k in (1, 30)] + [[seeds[40], 0, "obs", "inf"]]
    events += [[seeds[k], 3, "reward", "1e30"] for k in (10, 20)]
    events += [[episode_seeds(3, "evaluate")(0, 1), 2, "reward", "nan"]]
    args = f"base_config.env_args={{events: {json.dumps(events)}}}"
    code = run(
        *("-c=endless", "-n=a", "--seed=3", "-o", "base_config.on_non_finite=drop"),
        *("-o", f"base_config.env_name={NAME}", "-o", args),
        *("-o", "sac_config.start_step=60", "-o", "sac_config.clip_epsilon=-1"),
    )
    folder = task / "a"
    assert code == 0 and result(folder)["faults"]["non_finite"] == 3 + 2
    columns = read_metrics(folder / "metrics.jsonl")
    assert np.nanmax(columns["optim/skipped"]) > 0 and np.nanmax(columns["fault/non_finite"]) == 3 + 2
    assert np.isfinite([x for x in columns["loss/q"] if not np.isnan(x)]).all()
    tensors = [load_file(file) for file in folder.glob("checkpoints/step_*/*.safetensors")]
    assert tensors and all(np.isfinite(value).all() for named in tensors for value in named.values())
