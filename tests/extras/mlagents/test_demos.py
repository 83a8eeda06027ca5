"""``.demo`` files: hand-made bytes, round trips, what a Unity environment gives of the same, faults, fuzz."""

# ruff: noqa: E501 - bytes and faults are read across, one a line
from __future__ import annotations

import numpy as np
import pytest

from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec
from algorithm.demos.check import fitted
from algorithm.demos.episode import FaultyRecordingError, RecordedEpisode
from algorithm.demos.npz import NpzWriter, read_npz
from algorithm.demos.sources import load_demonstrations
from algorithm.extras.mlagents.demo_writing import DemoWriter, meta_of
from algorithm.extras.unity.package import recorded_behaviour
from algorithm.extras.unity.testing.sensors import Buffer, Camera, Vector
from algorithm.keys.demonstrations import DemoConfig
from main import main
from tests.extras.mlagents.demo_files import (
    HAND,
    Brain,
    Meta,
    Pair,
    episode_of,
    file_of,
    pairs_of,
    read,
    spec_of,
    written,
)
from tests.lib.episodes import ROUND, record


def assert_same(found: RecordedEpisode, expected: RecordedEpisode) -> None:
    for name in ("action_mask", "action", "reward", "terminated", "truncated"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
    assert list(found.obs) == list(expected.obs)
    for name, value in found.obs.items():
        held = (each.astype(np.float32) for each in (value, expected.obs[name]))  # all that a .demo holds
        np.testing.assert_array_equal(*held)


def test_bytes_assembled_by_hand_are_read_and_written(tmp_path):
    (tmp_path / "hand.demo").write_bytes(HAND)
    (episode,), said = read(tmp_path / "hand.demo", "Ball")
    assert (episode.number, episode.behaviour, episode.agent, said) == (0, "Ball", 5, [])
    assert episode.obs["eye"].tolist() == [[1, -2], [3, 4], [5, 6]]
    assert episode.action_mask.tolist() == [[True, False], [True, True], [True, True]]
    assert episode.action.tolist() == [[1, 0, 0.5], [0, 1, -1]]
    assert episode.reward.tolist() == [2, -1]
    assert episode.terminated.tolist() == [False, False] and episode.truncated.tolist() == [False, True]
    again = written(
        tmp_path / "again.demo", spec_of(("eye", (2,), "float32")), [episode], "Ball"
    ).read_bytes()
    first = HAND[49:99].replace(bytes.fromhex("3d0000803e"), b"").replace(b"\x31\x0a\x24", b"\x2c\x0a\x1f")
    assert again[33:] == HAND[33:49] + first + HAND[99:], "a reward from before the episode is not kept"
    assert again[:33] == bytes.fromhex("12 0801 1205616761696e 1803 2001 2d0000803f").ljust(33, b"\0")


@pytest.mark.parametrize("env_name", [*ROUND, "algorithm.env.toys:ToyMaze-v0"])
def test_npz_to_demo_and_back_is_the_same_to_the_last_bit(tmp_path, env_name):
    spec = record(tmp_path / "a.npz", env_name)
    episodes = list(read_npz(tmp_path / "a.npz", None, pytest.fail))
    found, said = read(written(tmp_path / "b.demo", spec, episodes))
    assert not said and len(found) == len(episodes)
    writer = NpzWriter(tmp_path / "c.npz")
    writer.begin()
    for episode in found:
        writer.write(episode)
    writer.finish()
    for one, other in zip(read_npz(tmp_path / "c.npz", None, pytest.fail), episodes, strict=True):
        assert_same(one, other)
    a, b = (
        load_demonstrations(DemoConfig(path=name), spec, "default", tmp_path) for name in ("a.npz", "b.demo")
    )
    exact = "float64" not in spec.obs.dtypes  # which a .demo rounds
    assert (list(a.digests.values()) == list(b.digests.values())) == exact, "types of choices come back, too"


SHAPES = spec_of(
    *((f"camera{c}", (5, 9, c), "uint8") for c in (1, 3, 4, 7)),
    ("first", (3, 12, 9), "uint8"), ("ram", (8,), "uint8"), ("map", (4, 6, 2), "float32"),
    ("few", (2,), "int64"), ("grid", (3, 4), "int8"), ("one", (), "float32"), ("raw", (4, 6, 3), "float32"),
    axes=("HWC", "", "", "", "CHW", "", "", "", "", "", "HWC"),
)  # fmt: skip


def test_every_shape_and_type_fits_the_agent_again(tmp_path):
    """Images are PNGs; numbers of all other types are float32 in the file."""
    episode = episode_of(
        SHAPES, action_mask=np.array([[True, False]] * 7), action=np.array([[1, 0, 0.25]] * 6, np.float32)
    )
    (found,), _ = read(written(tmp_path / "a.demo", SHAPES, [episode]))
    assert {name for name, value in found.obs.items() if value.dtype == np.uint8} == {
        f"camera{c}" for c in (1, 3, 4, 7)
    }
    kept, expected = fitted(found, SHAPES), fitted(episode, SHAPES)
    for name, value in expected.obs.items():
        assert kept.obs[name].dtype == value.dtype
        np.testing.assert_array_equal(kept.obs[name], value)
    large = {**episode.obs, "few": episode.obs["few"] + 2**24 + 1}
    writer = DemoWriter(tmp_path / "b.demo", SHAPES, "default")
    writer.begin()
    with pytest.raises(UsageError, match=r"obs/few(.|\n)*beyond ±16,777,216"):
        writer.write(episode_of(SHAPES, obs=large))
    writer.finish()  # as an evaluation does that ends with the error
    assert [file.name for file in tmp_path.iterdir()] == ["a.demo"]


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


def test_ml_agents_own_code_reads_what_is_written(tmp_path):
    """By the loop of its loader and the conversions of its package."""
    from google.protobuf.internal.decoder import _DecodeVarint32
    from mlagents_envs.rpc_utils import behavior_spec_from_proto, steps_from_proto

    action = ActionSpec((3, 2), 2)
    spec = spec_of(
        ("eye", (3,), "float32"), ("camera", (8, 9, 3), "uint8"), ("grid", (8, 9, 5), "uint8"), action=action
    )
    mask = action.all_allowed(5)
    mask[1] = [False, True, True, True, True]
    flat = np.array([[0, 1, 0, 1, 0, 0.5, -1]] * 4, np.float32)
    episode = episode_of(spec, 4, action_mask=mask, action=flat)
    data = written(tmp_path / "a.demo", spec, [episode]).read_bytes()
    size, at = _DecodeVarint32(data, 0)
    meta = Meta.FromString(data[at : at + size])
    assert (meta.api_version, meta.number_steps, meta.number_episodes) == (1, 5, 1)
    assert meta.mean_reward == pytest.approx(episode.reward.sum())
    size, at = _DecodeVarint32(data, 33)
    brain, pairs = Brain.FromString(data[at : at + size]), []
    while (at := at + size) < len(data):
        size, at = _DecodeVarint32(data, at)
        pairs.append(Pair.FromString(data[at : at + size]))
    behaviour = behavior_spec_from_proto(brain, pairs[0].agent_info)
    assert tuple(behaviour.action_spec) == (2, (3, 2))
    for t, pair in enumerate(pairs):
        asking, ending = steps_from_proto([pair.agent_info], behaviour)
        (seen,) = [steps for steps in (asking, ending) if len(steps)]
        for name, one in zip(spec.obs.names, seen.obs, strict=True):
            np.testing.assert_allclose(
                one[0] * (1 if name == "eye" else 255), episode.obs[name][t], rtol=1e-6
            )
        assert seen.reward[0] == (episode.reward[t - 1] if t else 0)
        assert pair.action_info.continuous_actions == ([0.5, -1] if t < 4 else [0, 0])
        assert pair.action_info.discrete_actions == ([1, 0] if t < 4 else [0, 0])
        if t < 4:
            np.testing.assert_array_equal(np.concatenate(asking.action_mask, 1)[0], ~mask[t])
    assert ending.interrupted.tolist() == [True]


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
    whole = file_of([first, second, last], number_steps=0)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            episodes, notices = read(path)
        except FaultyRecordingError as error:
            assert size < 99 and ("it ends before its" in error.why or "no step" in error.why)
        else:
            assert [len(episode.reward) for episode in episodes] == ([1] if size >= 145 else [])
            assert ("its last record is cut off, and left out" in notices) == (size not in (49, 99, 145))


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
    with pytest.raises(FaultyRecordingError, match="expected the observations ear, eye") as caught:
        fitted(found, spec_of(("eye", (2,), "float32"), ("ear", (3,), "float32")))
    assert "demonstrations.rename: {ray: ear}" in caught.value.fix


def test_recordings_are_looked_at_without_a_build(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("default: {base_config: {env_type: UNITY, env_name: Ball}}")
    (tmp_path / "a.demo").write_bytes(file_of(pairs_of()))
    assert main([".", "--demos", "a.demo"]) == 0
    (tmp_path / "a.demo").write_bytes(HAND[:99])
    assert main([".", "--demos", "a.demo"]) == 2


def test_notices_are_those_of_the_start_screen(tmp_path):
    (tmp_path / "a.demo").write_bytes(file_of(pairs_of()[:2]))
    found = load_demonstrations(
        DemoConfig(path="a.demo"), spec_of(("eye", (2,), "float32")), "Ball", tmp_path
    )
    assert found.notices == ["a.demo: episodes without an end, treated as cut off: 1"]


def test_a_recording_that_is_killed_can_be_read(tmp_path):
    spec = spec_of(("eye", (2,), "float32"))
    writer = DemoWriter(tmp_path / "a.demo", spec, "Ball")
    writer.begin()
    writer.write(episode_of(spec))
    (draft,) = tmp_path.iterdir()
    (found,), (said,) = read(draft)
    assert_same(found, episode_of(spec))
    assert "was not closed" in said
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_meta_data_always_fit_and_a_name_is_cut():
    numbers = {"number_steps": 2**31 - 1, "number_episodes": 2**31 - 1, "mean_reward": -1.5}
    assert meta_of(Meta, "a name/with_more than fits", **numbers).ByteSize() == 32
    assert meta_of(Meta, "ä/b c-1").demonstration_name == "b c-1"
