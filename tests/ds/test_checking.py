"""A trajectory that passes can be stored and learned from; one wrong number and it does not pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace

from algorithm.core.spec import Z_LIMIT
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from ds.checking import STRUCTURE, check_trajectory, message_limit
from ds.net.protocol import BadMessage, TrajectoryChunk
from ds.net.wire import encode
from tests.ds.inside import terms
from tests.ds.trajectories import CARRIES, SPECS, chunk, trajectory, with_column

MAX_LENGTH = 12


def check(one, max_length=MAX_LENGTH):
    check_trajectory(one, terms(max_length=max_length), version=7)


def stored(one):
    """Put all chunks into a replay of their own, and read them."""
    for piece in one.chunks:
        if piece.transitions is not None:
            replay = ReplayBuffer(
                SPECS[piece.behaviour],
                capacity=32,
                batch_size=1,
                carry_shape=CARRIES[piece.behaviour],
                sampler=UniformSampler(),
            )
            ids = replay.add(piece.transitions.segment(piece.agent))
            assert replay.sample() is not None and len(ids) == piece.transitions.length


ends = st.sampled_from([{}, {"terminated": True}, {"truncated": True}])
sizes = st.integers(1, MAX_LENGTH)


@given(st.sampled_from(sorted(SPECS)), sizes, ends, st.integers(0, 99), st.integers(0, 2**31 - 100))
@settings(max_examples=30)
def test_what_an_actor_makes_passes_and_can_be_stored(behaviour, length, end, agent, start):
    piece = chunk(behaviour, agent=agent, start=start, length=length, **end)
    one = trajectory(piece, TrajectoryChunk("camera", 3, None), episodes=(("camera", 3, -1.5, 7),))
    check(one)
    stored(one)


NUMBERS = [
    ({"number": 0}, "number is 0"),
    ({"channel": -1}, "channel is -1"),
    ({"version": -1}, "version is -1"),
    ({"version": 8}, "version is 8 and must be in 0 … 7"),
    ({"dropped": -1}, "dropped is -1"),
    (
        {"chunks": (TrajectoryChunk("wolf", 0, None),)},
        "chunk 0: there is no behaviour 'wolf'; known: 'vector', 'camera'",
    ),
    ({"chunks": (TrajectoryChunk("vector", -1, None),)}, "chunk 0: agent is -1"),
    ({"chunks": (TrajectoryChunk("vector", 2**31, None),)}, "chunk 0: agent is 2147483648"),
    ({"gone": (("wolf", 0),)}, "gone 0: there is no behaviour 'wolf'"),
    ({"gone": (("vector", 0), ("vector", -1))}, "gone 1: agent is -1"),
    ({"episodes": (("wolf", 0, 1.0, 1),)}, "episode 0: there is no behaviour 'wolf'"),
    ({"episodes": (("vector", -1, 1.0, 1),)}, "episode 0: agent is -1"),
    ({"episodes": (("vector", 0, 1.0, 1), ("vector", 0, np.nan, 1))}, "episode 1: the return is nan"),
    ({"episodes": (("vector", 0, np.inf, 2**31 - 1),)}, "episode 0: the return is inf"),
    (
        {"episodes": (("vector", 0, 1.7e308, 9),)},
        "episode 0: the return is 1.7e[+]308, not a sum of 9 rewards",
    ),
    (
        {"episodes": (("vector", 0, -3.5e38, 1),)},
        "episode 0: the return is -3.5e[+]38, not a sum of 1 rewards",
    ),
    ({"episodes": (("vector", 0, 1.0, 0),)}, "episode 0: length is 0"),
]


@pytest.mark.fault("F31")
@pytest.mark.parametrize(("changes", "said"), NUMBERS)
def test_numbers_out_of_range(changes, said):
    with pytest.raises(BadMessage, match=f"^{said}"):
        check(replace(trajectory(), **changes))


def at(value, index, new):
    value = value.copy()
    value[index] = new
    return value


def changed(behaviour, name, index, new):
    """A chunk with one wrong number, in a column or an observation."""
    one = chunk(behaviour, terminated=True)
    obs = one.transitions.obs
    if name in obs:
        return with_column(one, "obs", obs | {name: at(obs[name], index, new)})
    return with_column(one, name, at(getattr(one.transitions, name), index, new))


def forbidden_choice():
    """A chunk whose mask forbids what its action is at step 1."""
    one = chunk("camera", seed=3)
    mask = np.ones_like(one.transitions.action_mask)
    mask[1] = one.transitions.action[1] == 0
    return with_column(one, "action_mask", mask)


def two_choices():
    one = chunk("mixed")
    one = with_column(one, "action_mask", np.ones_like(one.transitions.action_mask))
    return with_column(one, "action", at(one.transitions.action, (2, slice(0, 3)), [1.0, 0.0, 1.0]))


COLUMNS = [
    (changed("vector", "reward", 1, np.nan), "reward [1] is nan: it must be finite"),
    (changed("vector", "reward", 0, -np.inf), "reward [0] is -inf: it must be finite"),
    (changed("memory", "carry", (1, 0, 2), np.inf), "carry [1, 0, 2] is inf: it must be finite"),
    (changed("vector", "behaviour_logp", (2, 0), np.nan), "behaviour_logp [2, 0] is nan: it must be finite"),
    (changed("vector", "z", (1, 1), 7.5), f"z [1, 1] is 7.5: its limit is ±{Z_LIMIT}"),
    (changed("vector", "action", (0, 1), 0.3), "continuous part [0, 1] is 0.3"),
    (changed("mixed", "action", (1, 5), 1.5), "continuous part [1, 0] is 1.5"),
    (changed("mixed", "action", (1, 0), 0.5), "action [1, 0] is 0.5: a one-hot has only 0 and 1"),
    (changed("mixed", "action", (2, slice(3, 5)), 0.0), "branch 1 [2] is 0.0: exactly one choice"),
    (two_choices(), "branch 0 [2] is 2.0: exactly one choice"),
    (forbidden_choice(), "is 1.0: action_mask does not allow that"),
    (changed("camera", "action_mask", 3, False), "action_mask, branch 0 [3] is 0: a choice must be allowed"),
    (changed("vector", "terminated", 0, True), "terminated [0] is True: only the last step"),
    (changed("vector", "truncated", 1, True), "truncated [1] is True: only the last step"),
    (changed("vector", "obs", (3, 2), np.nan), "obs 'obs' [3, 2] is nan: it must be finite"),
    (changed("choices", "one", 2, 5), "obs 'one' [2] is 5: there is no such choice"),
    (changed("choices", "one", 2, -1), "obs 'one' [2] is -1: there is no such choice"),
    (changed("choices", "many", (0, 0), 2), "obs 'many' [0, 0] is 2: there is no such choice"),
]


@pytest.mark.parametrize(("one", "said"), COLUMNS, ids=[said for _, said in COLUMNS])
def test_a_wrong_number_is_named_with_its_place(one, said):
    with pytest.raises(BadMessage) as caught:
        check(trajectory(TrajectoryChunk("vector", 9, None), one))
    text = str(caught.value)
    assert said in text and text.startswith(f"chunk 1 (behaviour '{one.behaviour}', agent 0)")
    assert "\n" not in text


ARRAYS = ("action_mask", "carry", "action", "z", "behaviour_logp", "reward", "terminated", "truncated")


@given(
    st.sampled_from(sorted(SPECS)),
    st.sampled_from(ARRAYS),
    st.sampled_from(["long", "short", "deep", "kind"]),
)
def test_a_column_of_another_shape_or_dtype(behaviour, name, how):
    one = chunk(behaviour, length=4, terminated=True)
    value = getattr(one.transitions, name)
    if how == "long":
        value = np.concatenate((value, value[-1:]))
    elif how == "short":
        value = value[:-1]
    elif how == "deep":
        value = value[:, None]
    else:
        value = value.astype("float64" if value.dtype == "float32" else "uint8")
    with pytest.raises(BadMessage):
        check(trajectory(with_column(one, name, value)))


def test_observations_must_be_those_of_the_spec():
    one = chunk("mixed")
    obs = one.transitions.obs
    for wrong in (
        {**obs, "more": obs["count"]},
        {name: value for name, value in obs.items() if name != "flag"},
        obs | {"vector": obs["vector"].astype(np.float64)},
        obs | {"vector": obs["vector"][:, :1]},
        obs | {"count": obs["count"][:-1]},
    ):
        with pytest.raises(BadMessage, match=r"chunk 0 .*obs"):
            check(trajectory(with_column(one, "obs", wrong)))


def test_a_segment_belongs_to_its_time_and_has_a_limit():
    one = chunk(length=2)
    for wrong in (
        with_column(one, "start_step", -1),
        with_column(one, "start_step", 2**31 - 1 - 2),
        with_column(one, "reward", np.zeros((), np.float32)),
        chunk(length=MAX_LENGTH + 1),
    ):
        with pytest.raises(BadMessage):
            check(trajectory(wrong))
    check(trajectory(one, chunk(length=MAX_LENGTH)))


@given(st.data())
@settings(max_examples=100)
def test_whatever_passes_can_be_stored(data):
    """Any number of any column becomes any other: it is refused, or does no harm."""
    behaviour = data.draw(st.sampled_from(sorted(SPECS)))
    one = chunk(behaviour, length=data.draw(st.integers(1, 4)), truncated=True)
    columns = [name for name in ARRAYS if getattr(one.transitions, name).size]
    name = data.draw(st.sampled_from([*columns, *one.transitions.obs]))
    value = one.transitions.obs[name] if name in one.transitions.obs else getattr(one.transitions, name)
    index = data.draw(st.integers(0, value.size - 1))
    wrong = value.copy()
    wrong.flat[index] = data.draw(hnp.from_dtype(value.dtype))
    obs = one.transitions.obs
    changed = with_column(one, "obs", obs | {name: wrong}) if name in obs else with_column(one, name, wrong)
    forged = trajectory(changed)
    try:
        check(forged)
    except BadMessage as error:
        assert "\n" not in str(error)
    else:
        stored(forged)


@given(st.sampled_from(sorted(SPECS)), st.integers(1, 300))
@settings(max_examples=15)
def test_the_limit_is_that_of_the_largest_message_and_not_much_more(behaviour, length):
    """A segment, its episode and the word that its agent is gone, in the largest numbers."""
    largest = chunk(behaviour, agent=2**31 - 1, start=2**30, length=length)
    told = {"episodes": ((behaviour, 2**31 - 1, 1e38, 2**31 - 1),), "gone": ((behaviour, 2**31 - 1),)}
    size = len(
        encode(trajectory(largest, actor="a" * 32, number=2**53, dropped=2**53, version=2**53, **told))
    )
    limit = message_limit({behaviour: SPECS[behaviour]}, CARRIES, length)
    assert size <= limit <= size + STRUCTURE
