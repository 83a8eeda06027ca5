"""``.demo`` files: hand-made bytes, what a Unity environment gives of the same, faults, fuzz."""

# ruff: noqa: E501 - bytes and faults are read across, one a line
from __future__ import annotations

import numpy as np
import pytest

from algorithm.demos.check import fitted
from algorithm.demos.episode import FaultyRecordingError
from algorithm.extras.unity.package import recorded_behaviour
from algorithm.extras.unity.testing.sensors import Buffer, Camera, Vector
from tests.extras.mlagents.demo_files import (
    HAND,
    Brain,
    Pair,
    file_of,
    pairs_of,
    read,
    spec_of,
)


def test_bytes_assembled_by_hand_are_read(tmp_path):
    (tmp_path / "hand.demo").write_bytes(HAND)
    (episode,), said = read(tmp_path / "hand.demo", "Ball")
    assert (episode.number, episode.behaviour, episode.agent, said) == (0, "Ball", 5, [])
    assert episode.obs["eye"].tolist() == [[1, -2], [3, 4], [5, 6]]
    assert episode.action_mask.tolist() == [[True, False], [True, True], [True, True]]
    assert episode.action.tolist() == [[1, 0, 0.5], [0, 1, -1]]
    assert episode.reward.tolist() == [2, -1]
    assert episode.terminated.tolist() == [False, False] and episode.truncated.tolist() == [False, True]


def test_a_file_gives_what_the_environment_gives(tmp_path):
    """Names, shapes, types and order of axes of every sensor; stacks and mappings of channels."""
    sensors = [
        Camera("chw", 12, 10, layout="CHW"), Camera("chw_raw_stack", 12, 10, layout="CHW", png=False, stack=2),
        Camera("grey", 12, 10, 1), Camera("grey_stack", 12, 10, 1, stack=3), Camera("grid", 8, 9, 5),
        Camera("unsaid", 12, 10, typed=False), Buffer("", 4, 3), Vector("stacked", 2, stack=3), Vector("stacked", 1),
    ]  # fmt: skip
    rng = np.random.default_rng(3)
    pairs = pairs_of()
    for pair in pairs:
        del pair.agent_info.observations[:]
        for one in sensors:
            value = rng.integers(256, size=one.frame).astype(np.uint8)
            pair.agent_info.observations.append(
                one.observe(value if isinstance(one, Camera) else value.astype(np.float32))
            )
    (tmp_path / "a.demo").write_bytes(file_of(pairs))
    (found,), _ = read(tmp_path / "a.demo")
    infos = [pair.agent_info for pair in pairs]
    behaviour = recorded_behaviour(Brain.FromString(HAND[34:49]), infos[0])
    assert tuple(found.obs) == behaviour.spec.obs.names and "sensor_6" in found.obs
    before, end = behaviour.read(infos)
    for name, shape, dtype in behaviour.spec.obs.items():
        assert (found.obs[name].dtype, found.obs[name].shape) == (np.dtype(dtype), (3, *shape))
        np.testing.assert_array_equal(found.obs[name], np.concatenate([before.obs[name], end.obs[name]]))
    np.testing.assert_array_equal(found.reward, [before.reward[1], end.reward[0]])


@pytest.mark.parametrize(("brain", "actions", "flat"), [
    ({"vector_action_size_deprecated": [2], "vector_action_space_type_deprecated": 1}, [0.5, -1.0], [0.5, -1.0]),
    ({"vector_action_size_deprecated": [2, 3], "vector_action_space_type_deprecated": 0}, [1.0, 2.0], [0, 1, 0, 0, 1]),
])  # fmt: skip
@pytest.mark.parametrize("version", [0, 1])
def test_files_of_older_recorders_are_read(tmp_path, version, brain, actions, flat):
    pairs = pairs_of()
    for pair in pairs:
        pair.ClearField("action_info")
        del pair.agent_info.action_mask[:]
        pair.action_info.vector_actions_deprecated.extend(actions)
        pair.agent_info.group_reward = 0.5
        del pair.agent_info.observations[0].dimension_properties[:]
        pair.agent_info.observations[0].ClearField("name")
    (tmp_path / "a.demo").write_bytes(
        file_of(pairs, Brain(brain_name="Old?team=1", **brain), api_version=version)
    )
    (found,), _ = read(tmp_path / "a.demo", "Old")
    assert found.action.tolist() == [flat, flat] and list(found.obs) == ["sensor_0"]
    assert found.reward.tolist() == [2.5, -0.5] and found.action_mask.all()


def test_what_a_recorder_left_behind_is_said_and_used(tmp_path):
    """Killed, cut anywhere, closed in an episode, several agents at a time, episodes without a step."""
    path, (first, second, last) = tmp_path / "a.demo", pairs_of()
    other = Pair.FromString(second.SerializeToString())
    other.agent_info.id = 6
    other.agent_info.reward = 7
    for pairs, meta, lengths, said in (
        ([first, second, last], {"number_steps": 0}, [2], ["it was not closed by its recorder; it is read to its end"]),
        ([first, second], {}, [1], ["episodes without an end, treated as cut off: 1"]),
        ([first, second, last], {"number_steps": 9}, [2], ["its meta data state 9 records, and it has 3"]),
        ([first, second, last, last], {}, [2], ["episodes without a step, left out: 1"]),
        ([first, other, second, other, last, other], {}, [2, 2], ["episodes without an end, treated as cut off: 1"]),
    ):  # fmt: skip
        path.write_bytes(file_of(pairs, **meta))
        episodes, notices = read(path)
        assert [len(episode.reward) for episode in episodes] == lengths
        assert notices == said
        assert episodes[0].reward.tolist() == [2, -1][: lengths[0]] and episodes[0].truncated[-1]
    assert episodes[1].reward.tolist() == [7, 7] and episodes[1].number == 1


def test_a_recording_that_ends_in_the_middle_needs_no_last_action(tmp_path):
    """Older recorders wrote none; whatever stands there is nobody's."""
    first, second, _ = pairs_of()
    first.agent_info.action_mask[:] = [True, False]  # of the decision before, as Unity records actions
    for action in (None, [7], []):
        if action is None:
            second.ClearField("action_info")
        else:
            second.action_info.discrete_actions[:] = action
        (tmp_path / "a.demo").write_bytes(file_of([first, second]))
        (found,), said = read(tmp_path / "a.demo")
        assert found.action.tolist() == [[1, 0, 0.5]] and found.reward.tolist() == [2]
        assert found.action_mask.all(), "a choice that was made was allowed"
        assert len(said) == 2 and "masks forbid" in said[1]


def test_sensors_are_found_by_their_place_where_they_have_no_name(tmp_path):
    """One without numbers is left out; a name that is another one is not overlooked."""
    pairs = pairs_of()
    for pair in pairs:
        seen = pair.agent_info.observations
        seen[0].ClearField("name")
        for one in (Vector("", 0), Vector("ray", 3)):
            seen.append(one.observe(np.ones(one.frame, np.float32)))
    (tmp_path / "a.demo").write_bytes(file_of(pairs))
    (found,), _ = read(tmp_path / "a.demo")
    assert list(found.obs) == ["sensor_0", "ray"]
    kept = fitted(found, spec_of(("eye", (2,), "float32"), ("ray", (3,), "float32")))
    assert kept.obs["eye"].tolist() == [[1, -2], [3, 4], [5, 6]]
    with pytest.raises(FaultyRecordingError, match="expected the observations ear, eye"):
        fitted(found, spec_of(("eye", (2,), "float32"), ("ear", (3,), "float32")))
