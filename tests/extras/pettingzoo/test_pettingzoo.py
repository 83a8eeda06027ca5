from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from algorithm.config.locate import find_env
from algorithm.core.data import Float, StepBatch
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.seeding import episode_seeds
from algorithm.env.base import Fault, VecEnv
from algorithm.env.config import PettingZooArgs
from algorithm.env.objects import source_of
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extras.pettingzoo.vec import PettingZooVecEnv
from algorithm.run.experience.collector import LocalCollector
from tests.extras.toys_games import Crowd, Ring
from tests.lib.episodes import Scripted

TOYS = "tests.extras.toys_games"


def made(toy: str = "Crowd", n: int = 1, **options: Any) -> PettingZooVecEnv:
    request = EnvRequest("PETTINGZOO", f"{TOYS}:{toy}", n=n, seed_of=episode_seeds(1, "train"), **options)
    env = make_vec_env(request)
    assert isinstance(env, PettingZooVecEnv)
    return env


class Tape:
    """Recorder of transitions by agent, in the form of the toys' ledgers."""

    def __init__(self) -> None:
        self.steps: dict[int, list[tuple[Any, ...]]] = {}
        self.closed: list[int] = []

    def add_steps(self, steps: StepBatch) -> None:
        (before,), (after,) = steps.obs.values(), steps.next_obs.values()
        for row, agent in enumerate(steps.streams.tolist()):
            end = "terminated" if steps.terminated[row] else "truncated" if steps.truncated[row] else ""
            self.steps.setdefault(agent, []).append(
                (before[row].tolist(), steps.action[row], steps.reward[row], after[row].tolist(), end)
            )

    def close(self, stream: int) -> None:
        self.closed.append(stream)


def collector(env: VecEnv, tape: Tape, **options: Any) -> LocalCollector:
    policies = {name: Scripted(spec) for name, spec in env.specs.items()}
    return LocalCollector(env, policies, dict.fromkeys(policies, tape), num_envs=len(env._slots), **options)


def same(line: tuple[Any, ...], stored: tuple[Any, ...]) -> bool:
    _, obs, action, reward, after, end = line
    flat = stored[1]
    done = np.argmax(flat) if np.ndim(action) == 0 else 2 * flat
    return (obs, reward, after, end) == (stored[0], stored[2], *stored[3:]) and np.allclose(done, action)


@pytest.mark.parametrize("toy", ["Crowd", "Ring"])
@pytest.mark.parametrize("limit", [-1, 3])
def test_every_transition_is_that_of_the_game(toy: str, limit: int) -> None:
    env, tape = made(toy, n=3), Tape()
    source = collector(env, tape, length_limit=limit)
    episodes = [episode for _ in range(700) for episode in source.step()]
    lines = 0
    for i, game in enumerate(slot.game for slot in env._slots):
        for k, name in enumerate(game.env.possible_agents):
            ledger = [line for line in game.env.ledger.lines if line[0] == name]
            stored = tape.steps[3 * i + k]
            cut = [(*step[:4], "") if limit > 0 and step[4] == "truncated" else step for step in stored]
            expected = [(*line[:5], "") if limit > 0 and line[5] == "truncated" else line for line in ledger]
            assert len(stored) == len(ledger)
            assert all(map(same, expected, cut)), f"{name} of {i}"
            lines += len(ledger)
    assert source.steps == lines > 1000
    ends = [step[4] for steps in tape.steps.values() for step in steps if step[4]]
    assert limit > 0 or len(episodes) == len(ends) > 100


def actions_of(env: PettingZooVecEnv, rng: np.random.Generator, masks: Any) -> dict[str, Float]:
    return {name: spec.action.random(rng, masks[name])[0] for name, spec in env.specs.items()}


def asked(results: Any) -> dict[str, Any]:
    here = {
        n: np.ones(len(r.ids), bool) if getattr(r, "left", None) is None else ~r.left
        for n, r in results.items()
    }
    return {name: result.action_mask[here[name]] for name, result in results.items()}


@pytest.mark.parametrize("toy", ["Crowd", "Ring"])
def test_resumed_episodes_go_on_bit_for_bit(toy: str) -> None:
    env, other, rng = made(toy, n=3, joint=True), made(toy, n=3, joint=True), np.random.default_rng(0)
    masks = asked(env.reset(episode=0))
    for _ in range(40):
        masks = asked(env.step(actions_of(env, rng, masks)))
    env.reset([4])
    masks = {name: seen.action_mask for name, seen in env._seen(range(3)).items()}
    order = {name: np.argsort(np.argsort(ids)) for name, ids in env._rows.items()}
    masks = {name: mask[order[name]] for name, mask in masks.items()}
    state = env.state()
    other.reset(episode=0)
    assert other.resume(state) == {}
    for _ in range(60):
        actions = actions_of(env, rng, masks)
        results, others = env.step(actions), other.step(actions)
        for name, result in results.items():
            assert vars(result).keys() == vars(others[name]).keys()
            np.testing.assert_equal(vars(result) | {"final": None}, vars(others[name]) | {"final": None})
        masks = asked(results)


@pytest.mark.parametrize("toy", ["Crowd", "Ring"])
def test_what_is_not_repeated_is_named_and_ends(toy: str) -> None:
    env, tape = made(toy, n=3), Tape()
    source = collector(env, tape)
    for _ in range(33):
        source.step()
    state = source.state()
    arrays = {name: value.copy() for name, value in state.arrays.items()}
    arrays["env/total"][1] += 1
    resumed, later = made(toy, n=3), Tape()
    again = collector(resumed, later)
    (line,) = again.load_state(dataclasses.replace(state, arrays=arrays))
    assert "environment 1: repeated, it got other rewards" in line
    before = {name: len(ids) for name, ids in resumed._rows.items()}
    assert before == {name: len(group.ids) for name, group in again._groups.items()}
    for _ in range(200):
        again.step()
    assert {name: group.ids.tolist() for name, group in again._groups.items()} == resumed._rows
    assert resumed._slots[1].episode > 0 and set(later.closed) <= {3, 4, 5}
    lines = [line for line in resumed._slots[1].game.env.ledger.lines if line[0] == "blue"]
    assert all(map(same, lines[-20:], later.steps[5][-20:]))


def test_a_failed_environment_is_made_again_and_its_agents_vanish() -> None:
    faults: list[Fault] = []
    env, tape = made("Ring", n=2, restarts=2, on_fault=faults.append, env_args={"fail_at": 10}), Tape()
    source = collector(env, tape)
    for _ in range(15):
        source.step()
    assert [fault.what for fault in faults] == [f"{TOYS}:Ring failed in step"] * 2
    assert "environment 0, episode" in faults[0].where and "the toy is broken" in faults[0].why
    assert "count_step" in faults[0].trace
    assert tape.closed, "open episodes end as truncated"
    with pytest.raises(EnvError, match="failed in step"):
        for _ in range(15):
            source.step()


class Silent(Ring):
    """Every episode is over at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = []


class Careless(Crowd):
    """An agent goes without an end."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        result = super().step(actions)
        self.agents = []
        return (*result[:2], dict.fromkeys(actions, False), dict.fromkeys(actions, False), result[4])


def test_faulty_environments_are_refused() -> None:
    request = {"n": 1, "seed_of": episode_seeds(1, "train")}
    env = PettingZooVecEnv(EnvRequest("PETTINGZOO", f"{__name__}:Silent", **request))
    with pytest.raises(EnvError, match="needs no actions"):
        env.reset()
    env = PettingZooVecEnv(EnvRequest("PETTINGZOO", f"{__name__}:Careless", **request))
    masks = asked(env.reset())
    with pytest.raises(EnvError, match="neither terminated nor truncated"):
        env.step(actions_of(env, np.random.default_rng(0), masks))
    with pytest.raises(EnvError, match="not one of PettingZoo"):
        PettingZooVecEnv(EnvRequest("PETTINGZOO", f"{TOYS}:Ledger", **request))
    with pytest.raises(EnvError, match="has no Nothing"):
        PettingZooVecEnv(EnvRequest("PETTINGZOO", f"{TOYS}:Nothing", **request))


def test_masks_infos_and_facts() -> None:
    ring, crowd = made("Ring"), made("Crowd", infos=("time", "reward_extra"), video=True)
    assert ring.specs["red"].obs.names == ("observation",) and not ring.masked
    ring.reset()
    assert ring.masked and ring.fps == 5
    masks = asked(crowd.reset())
    while True:
        result = crowd.step(actions_of(crowd, np.random.default_rng(0), masks))
        masks = asked(result)
        if len(ended := result["red"].ids[result["red"].terminated | result["red"].truncated]):
            break
    infos = crowd.infos(int(ended[0]))
    assert infos["reward_extra"] <= infos["time"] and infos["time"] >= 1
    assert crowd.render().shape == (8, 8, 3)
    with pytest.raises(UsageError, match="no wrappers"):
        made(wrappers=("ClipReward",))


def test_each_agent_also_observes_what_all_observe() -> None:
    env, rng = made("Crowd", joint=True), np.random.default_rng(0)
    masks = asked(env.reset())
    assert env.specs["blue"].obs.shapes[1] == (12,) and env.specs["red"].obs.dtypes[1] == "float32"
    for _ in range(50):
        episode = env._slots[0].episode
        results = env.step(actions_of(env, rng, masks))
        masks = asked(results)
        seen, lasts = {}, {}
        for result in results.values():
            here = np.ones(len(result.ids), bool) if result.left is None else ~result.left
            seen |= {int(i): result.obs["obs"][row] for row, i in enumerate(result.ids) if here[row]}
            ends = result.terminated | result.truncated
            lasts |= {int(i): result.final.obs["obs"][row] for row, i in enumerate(result.ids) if ends[row]}
        every = lasts if env._slots[0].episode > episode else {**lasts, **seen}
        for result in results.values():
            for row, agent in enumerate(result.ids.tolist()):
                if agent in seen:
                    np.testing.assert_array_equal(result.obs["all"][row], in_turn(agent, seen))
                if agent in lasts:
                    expected = in_turn(agent, {**every, agent: lasts[agent]})
                    np.testing.assert_array_equal(result.final.obs["all"][row], expected)


def in_turn(agent: int, seen: dict[int, Any]) -> Float:
    order = [agent, *(other for other in range(3) if other != agent)]
    return np.concatenate([seen.get(other, np.zeros(4)) for other in order]).astype(np.float32)


class Lingering(Crowd):
    """Agents that have ended stay in ``agents``."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.agents = [agent for agent in self.agents if agent in actions]
        result = super().step(actions)
        self.agents += [agent for agent in actions if agent not in self.agents]
        return result


def test_an_agent_that_has_ended_does_not_act_even_if_it_stays() -> None:
    request = EnvRequest("PETTINGZOO", f"{__name__}:Lingering", seed_of=episode_seeds(1, "train"))
    env, rng = PettingZooVecEnv(request), np.random.default_rng(0)
    masks = asked(env.reset())
    for _ in range(60):
        results = env.step(actions_of(env, rng, masks))
        masks = asked(results)
    assert env._slots[0].episode > 2


AGENTS = "the agents are red_0, red_1, blue"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"share": {"green*": "g"}}, f"no agent matches 'green\\*'.*{AGENTS}"),
        ({"share": {"*": "all"}}, "red_0 and blue cannot share the behavior 'all': their spaces differ.*Box"),
        ({"share": {"red_*": "blue"}}, "the behavior 'blue' has the name of an agent"),
        ({"teams": {"red_*": 0}}, "1 agent without a team: blue"),
        ({"teams": {"red_*": 0, "blue": 1, "x": 2}}, f"no agent matches 'x'.*{AGENTS}"),
        ({"teams": {"*": 3}}, "self-play needs two teams"),
    ],
)
def test_patterns_that_do_not_fit(args: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        made(pettingzoo=PettingZooArgs(**args), teams=True)
    assert re.search(message, error.value.line)


@pytest.mark.parametrize(
    ("args", "alike", "behaviours", "teams"),
    [
        ({}, False, ["red", "red", "blue"], [0, 0, 1]),
        ({"share": {}}, False, ["red_0", "red_1", "blue"], [0, 1, 2]),
        ({"share": {"*": "one"}}, True, ["one"] * 3, [0, 1, 2]),
        ({"teams": {"red_0": 1, "*": 4}}, False, ["red", "red", "blue"], [1, 4, 4]),
    ],
)
def test_groups(args: dict[str, Any], alike: bool, behaviours: list[str], teams: list[int]) -> None:
    env = made(n=2, pettingzoo=PettingZooArgs(**args), env_args={"alike": alike})
    assert [env._behaviour(agent) for agent in range(3)] == behaviours
    assert [env.team_of(agent) for agent in range(6)] == teams * 2
    assert env.environments_of([1, 5, 2]) == [0, 1]


def passed(env: Any, **options: Any) -> VecEnv:
    return make_vec_env(EnvRequest("OBJECT", source_of(env), seed_of=episode_seeds(1, "train"), **options))


def test_objects_are_classes_functions_and_instances() -> None:
    instance = Crowd()
    for env in (passed(Ring, n=2), passed(lambda **args: Crowd(**args), n=2, video=True), passed(instance)):
        assert isinstance(env, PettingZooVecEnv)
        collector(env, Tape()).step()
        env.close()
    assert instance.agents, "an instance is not closed"
    assert source_of(instance).another()._env is not instance
    for options in ({"n": 2}, {"workers": 1}, {"env_args": {"alike": True}}):
        with pytest.raises(UsageError, match=r"an instance is one|has no workers|has no arguments"):
            passed(instance, **options)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("pettingzoo.classic.tictacto_v3", "did you mean tictactoe_v3"),
        ("mpe2.simple_v3:Nothing", "name a class or a function"),
        (f"{TOYS}:Crowd", "base_config.env_type=PETTINGZOO"),
    ],
)
def test_wrong_names(name: str, advice: str) -> None:
    kind = "GYM" if name.startswith("tests") else "PETTINGZOO"
    with pytest.raises(EnvError) as error:
        make_vec_env(EnvRequest(kind, name, seed_of=episode_seeds(1, "train")))
    assert advice in error.value.fix


def test_parallel_games_are_preferred_and_names_need_no_folder() -> None:
    assert find_env("mpe2.simple_spread_v3").keys_of_name["base_config.env_type"] == "PETTINGZOO"
    env = PettingZooVecEnv(
        EnvRequest("PETTINGZOO", "mpe2.simple_spread_v3", seed_of=episode_seeds(1, "train"))
    )
    assert env.reset()["agent"].ids.tolist() == [0, 1, 2] and env.time_limit == 25
