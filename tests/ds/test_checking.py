"""A message that passes can be stored and learned from; one wrong number and it does not pass."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from algorithm.core.data import UNKNOWN_LOGP, StepBatch
from algorithm.core.spec import Z_LIMIT
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from ds.checking import MAX_ENVIRONMENTS, STRUCTURE, check_steps, most_rows
from ds.net.protocol import BadMessage, Episodes
from ds.net.wire import encode
from tests.ds.inside import rules
from tests.ds.messages import CARRIES, SPECS, Chunk, chunk, episodes_of, step_message, together, with_column

MAX_LENGTH = 12


def check(one, most=MAX_LENGTH):
    check_steps(one, rules(most=dict.fromkeys(SPECS, most)), version=7)


def stored(one):
    """Put all transitions into a replay of their own, and read them."""
    for behaviour, steps in one.steps.items():
        replay = ReplayBuffer(
            SPECS[behaviour],
            capacity=80,
            batch_size=1,
            carry_shape=CARRIES[behaviour],
            sampler=UniformSampler(),
        )
        ids = replay.add_steps(steps)
        assert replay.sample() is not None and len(ids) == len(steps) == replay.num_transitions


ends = st.sampled_from([{}, {"terminated": True}, {"truncated": True}])
sizes = st.integers(1, MAX_LENGTH)


@given(st.sampled_from(sorted(SPECS)), sizes, ends, st.integers(0, 99), st.integers(0, 2**31 - 100))
@settings(max_examples=30)
def test_what_an_actor_makes_passes_and_can_be_stored(behaviour, length, end, agent, start):
    pieces = [chunk(behaviour, agent=agent, start=start, length=length, **end)]
    pieces += [chunk(behaviour, agent=agent + 1, length=3, **last) for last in ({"terminated": True}, {})]
    one = step_message(*pieces, Chunk("camera", 3, None), ended=[("camera", 3, -1.5, 7)])
    check(one, most=length + 6)
    assert len(one.steps[behaviour].action_mask) == 3, "an observation of its own where one begins"
    stored(one)


def agents(*of_one, name="vector", dtype=np.int64):
    return {name: np.array(of_one, dtype)}


NUMBERS = [
    ({"version": 8}, "version is 8 and must be in 0 … 7"),
    ({"closed": agents(0, name="wolf")}, "closed: there is no behaviour 'wolf'; known: 'vector', 'camera'"),
    ({"closed": agents(-1)}, r"closed of 'vector' \[0\] is -1: an agent is 0 "),
    ({"closed": agents(0, 2**31)}, r"closed of 'vector' \[1\] is 2147483648"),
    ({"closed": agents(0, dtype=np.float64)}, "closed of 'vector': expected int64, got float64"),
    ({"closed": {"vector": np.zeros((1, 1), np.int64)}}, "closed of 'vector': expected shape"),
    ({"agents": agents(0, name="wolf")}, "agents: there is no behaviour 'wolf'"),
    ({"agents": agents(0, -1)}, r"agents of 'vector' \[1\] is -1"),
    ({"agents": agents(*range(2**16 + 1))}, "number of agents is 65537"),
    ({"episodes": episodes_of(("wolf", 0, 1.0, 1))}, "episodes: there is no behaviour 'wolf'"),
    ({"episodes": episodes_of(("vector", -1, 1.0, 1))}, r"episodes of 'vector' \[0\] is -1"),
    (
        {"episodes": episodes_of(("vector", 0, 1.0, 1), ("vector", 0, np.nan, 1))},
        r"episodes of 'vector', returns \[1\] is nan",
    ),
    (
        {"episodes": episodes_of(("vector", 0, np.inf, 2**31 - 1))},
        r"episodes of 'vector', returns \[0\] is inf",
    ),
    (
        {"episodes": episodes_of(("vector", 0, 1.7e308, 9))},
        r"episodes of 'vector', returns \[0\] is 1.7e[+]308: it is not the sum of so many rewards",
    ),
    ({"episodes": episodes_of(("vector", 0, -3.5e38, 1))}, "episodes of 'vector', returns .* is -3.5e[+]38"),
    ({"episodes": episodes_of(("vector", 0, 1.0, 0))}, r"episodes of 'vector', lengths \[0\] is 0"),
    (
        {
            "episodes": {
                "vector": Episodes(agents=np.zeros(2, int), returns=np.zeros(2), lengths=np.ones(1, int))
            }
        },
        "episodes of 'vector', lengths: expected shape",
    ),
]


@pytest.mark.fault("F31")
@pytest.mark.parametrize(("changes", "said"), NUMBERS)
def test_numbers_out_of_range(changes, said):
    with pytest.raises(BadMessage, match=f"^{said}"):
        check(step_message(**changes))


def test_families_with_rollouts_take_the_policy_s_own_actions_only():
    """Another one would end the learner: its probability is not known."""
    message = step_message(chunk())
    message.steps["vector"].behaviour_logp[:] = UNKNOWN_LOGP
    check(message)
    rollouts = replace(SPECS["vector"].action, squash="clip")
    specs = {**SPECS, "vector": replace(SPECS["vector"], action=rollouts)}
    with pytest.raises(BadMessage, match="the policy has to choose the actions"):
        check_steps(message, rules(most=dict.fromkeys(SPECS, MAX_LENGTH), specs=specs), version=7)


def at(value, index, new):
    value = value.copy()
    value[index] = new
    return value


def changed(behaviour, name, index, new):
    """A chunk with one wrong number, in a column or an observation."""
    one = chunk(behaviour, terminated=True)
    kind, _, key = name.partition("/")
    value = getattr(one.steps, kind)
    return with_column(one, kind, value | {key: at(value[key], index, new)} if key else at(value, index, new))


def forbidden_choice():
    """A chunk whose mask forbids what its action is at step 1."""
    one = chunk("camera", seed=3)
    mask = np.ones_like(one.steps.next_action_mask)
    mask[0] = one.steps.action[1] == 0
    return with_column(one, "next_action_mask", mask)


def two_choices():
    one = chunk("mixed")
    for name in ("action_mask", "next_action_mask"):
        one = with_column(one, name, np.ones_like(getattr(one.steps, name)))
    return with_column(one, "action", at(one.steps.action, (2, slice(0, 3)), [1.0, 0.0, 1.0]))


def torn():
    """A chunk whose agent begins another episode after one without an end."""
    one = chunk()
    return one._replace(steps=together([one.steps, chunk(start=8, length=1).steps]))


COLUMNS = [
    (changed("vector", "reward", 1, np.nan), "reward [1] is nan: it must be finite"),
    (changed("vector", "reward", 0, -np.inf), "reward [0] is -inf: it must be finite"),
    (changed("memory", "next_carry", (1, 0, 2), np.inf), "next_carry [1, 0, 2] is inf: it must be finite"),
    (changed("vector", "behaviour_logp", (2, 0), np.nan), "behaviour_logp [2, 0] is nan: it must be finite"),
    (changed("vector", "z", (1, 1), 7.5), f"z [1, 1] is 7.5: its limit is ±{Z_LIMIT}"),
    (changed("vector", "action", (0, 1), 0.3), "continuous part [0, 1] is 0.3"),
    (changed("mixed", "action", (1, 5), 1.5), "continuous part [1, 0] is 1.5"),
    (changed("mixed", "action", (1, 0), 0.5), "action [1, 0] is 0.5: a one-hot has only 0 and 1"),
    (changed("mixed", "action", (2, slice(3, 5)), 0.0), "branches [2, 1] is 0.0: exactly one choice"),
    (two_choices(), "branches [2, 0] is 2.0: exactly one choice"),
    (forbidden_choice(), "is 1.0: action_mask does not allow that"),
    (
        changed("camera", "next_action_mask", 2, False),
        "next_action_mask, branches [2, 0] is False: a choice must be allowed",
    ),
    (changed("vector", "terminated", 0, True), "expected shape (2,"),
    (changed("vector", "start_steps", 1, 7), "expected shape (3,"),
    (changed("vector", "start_steps", 0, -1), "start_steps [0] is -1: there is no such step"),
    (changed("vector", "start_steps", 0, 2**31 - 2), "start_steps [0] is 2147483646: there is no such step"),
    (changed("vector", "streams", 2, -1), "streams [2] is -1: no agent"),
    (changed("vector", "streams", 2, 2**31), "streams [2] is 2147483648: no agent"),
    (torn(), "an episode breaks off without an end"),
    (changed("vector", "obs/obs", (0, 2), np.nan), ", obs/obs [0, 2] is nan: it must be finite"),
    (changed("vector", "next_obs/obs", (2, 2), np.nan), "next_obs/obs [2, 2] is nan: it must be finite"),
    (changed("choices", "next_obs/one", 2, 5), "next_obs/one [2] is 5: there is no such choice"),
    (changed("choices", "next_obs/one", 2, -1), "next_obs/one [2] is -1: there is no such choice"),
    (changed("choices", "obs/many", (0, 0), 2), ", obs/many [0, 0] is 2: there is no such choice"),
]


@pytest.mark.parametrize(("one", "said"), COLUMNS, ids=[said for _, said in COLUMNS])
def test_a_wrong_number_is_named_with_its_place(one, said):
    with pytest.raises(BadMessage) as caught:
        check(step_message(chunk("stack" if one.behaviour != "stack" else "vector"), one))
    text = str(caught.value)
    assert said in text and text.startswith(f"steps of '{one.behaviour}'")
    assert "\n" not in text


def test_an_open_episode_belongs_to_an_agent_that_is_there():
    one = chunk(agent=4)
    for there in ({}, agents(), agents(3), agents(4, name="camera")):
        with pytest.raises(BadMessage, match=r"streams \[2\] is 4: it is open, and its agent is not there"):
            check(step_message(one, agents=there))
    check(step_message(one, agents=agents(9, 4)))
    check(step_message(chunk(agent=4, truncated=True), agents=agents()))


ARRAYS = (
    "streams", "start_steps", "action_mask", "next_action_mask", "carry", "next_carry", "action", "z",
    "behaviour_logp", "reward", "terminated", "truncated",
)  # fmt: skip


OTHERS = {
    "long": lambda value: np.concatenate((value, value[-1:])),
    "short": lambda value: value[:-1],
    "deep": lambda value: value[:, None],
    "kind": lambda value: value.astype("float64" if value.dtype == "float32" else "uint8"),
}


@given(st.sampled_from(sorted(SPECS)), st.sampled_from(ARRAYS), st.sampled_from(sorted(OTHERS)))
def test_a_column_of_another_shape_or_dtype(behaviour, name, how):
    one = chunk(behaviour, length=4, terminated=True)
    with pytest.raises(BadMessage):
        check(step_message(with_column(one, name, OTHERS[how](getattr(one.steps, name)))))


@pytest.mark.parametrize("kind", ["obs", "next_obs"])
def test_observations_must_be_those_of_the_spec(kind):
    one = chunk("mixed")
    obs = getattr(one.steps, kind)
    for wrong in (
        {**obs, "more": obs["count"]},
        {name: value for name, value in obs.items() if name != "flag"},
        obs | {"vector": obs["vector"].astype(np.float64)},
        obs | {"vector": obs["vector"][:, :1]},
        obs | {"count": obs["count"][:-1]},
    ):
        with pytest.raises(BadMessage, match=r"steps of 'mixed'.*obs"):
            check(step_message(with_column(one, kind, wrong)))


def test_transitions_have_a_limit():
    with pytest.raises(BadMessage, match="expected one dimension"):
        check(step_message(with_column(chunk(), "reward", np.zeros((), np.float32))))
    with pytest.raises(BadMessage, match=r"number of transitions \(base_config.max_episode_length\) is 13"):
        check(step_message(chunk(length=MAX_LENGTH), chunk(agent=1, length=1)))
    check(step_message(chunk(length=MAX_LENGTH - 2), chunk(agent=1, length=2)))


def test_one_agent_sends_less_than_its_replay_holds():
    """A chain is stored whole."""
    room = rules(most=dict.fromkeys(SPECS, 99), room=dict.fromkeys(SPECS, 12))
    check_steps(step_message(chunk(length=11), chunk(agent=1, length=11)), room)
    with pytest.raises(BadMessage, match=r"transitions of one agent is 12 and must be in 1 … 11"):
        check_steps(step_message(chunk(length=12)), room)


@given(st.data())
@settings(max_examples=100)
def test_whatever_passes_can_be_stored(data):
    """Any number of any column becomes any other: it is refused, or does no harm."""
    behaviour = data.draw(st.sampled_from(sorted(SPECS)))
    pieces = [chunk(behaviour, agent=0, length=data.draw(st.integers(1, 4)), truncated=True)]
    pieces += [chunk(behaviour, agent=i % 2, length=2) for i in range(data.draw(st.integers(0, 2)))]
    honest = step_message(*pieces)
    columns = honest.steps[behaviour].columns()
    name = data.draw(st.sampled_from([name for name, value in columns.items() if value.size]))
    wrong = columns[name].copy()
    wrong.flat[data.draw(st.integers(0, wrong.size - 1))] = data.draw(hnp.from_dtype(wrong.dtype))
    steps = {behaviour: StepBatch.of_columns(columns | {name: wrong})}
    forged = step_message(steps=steps, agents=honest.agents)
    try:
        check(forged)
    except BadMessage as error:
        assert "\n" not in str(error)
    else:
        stored(forged)


@given(st.sampled_from(sorted(SPECS)), st.integers(1, 300), st.sampled_from([None, 7, 400]))
@settings(max_examples=15)
def test_the_limit_is_that_of_the_largest_message_and_not_much_more(behaviour, length, limit):
    """Every agent with an observation of its own, all agents, closed ones and episodes that there may be."""
    spec, carry = SPECS[behaviour], CARRIES[behaviour]
    most = most_rows(spec, carry, length, limit)
    assert most == min(length, limit) if limit else most > length
    one = chunk(behaviour, length=1).steps.columns()
    rows = {name: np.repeat(value, most, 0) for name, value in one.items()}
    rows["streams"] = np.arange(most)
    largest = step_message(
        steps={behaviour: StepBatch.of_columns(rows)},
        **dict.fromkeys(("closed", "agents"), agents(*range(MAX_ENVIRONMENTS), name=behaviour)),
        episodes=episodes_of(*[(behaviour, i, 1.0, 3) for i in range(MAX_ENVIRONMENTS)]),
    )
    check(largest, most)
    size = len(encode(largest))
    top = rules(specs={behaviour: spec}, carry_shapes={behaviour: carry}, most={behaviour: most}).max_message
    assert size <= top <= size + STRUCTURE
