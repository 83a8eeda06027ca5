"""``.demo`` files: hand-made bytes, round trips, what a Unity environment gives of the same, faults, fuzz."""

# ruff: noqa: E501 - bytes and faults are read across, one a line
from __future__ import annotations

import contextlib
import io
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.demos.check import fitted
from algorithm.demos.config import DemoConfig
from algorithm.demos.demo_file import write_record
from algorithm.demos.demo_writing import meta_of
from algorithm.demos.episode import FaultyRecordingError, RecordedEpisode
from algorithm.demos.mlagents import DemoWriter, read_demo
from algorithm.demos.npz import NpzWriter, read_npz
from algorithm.demos.sources import load_demonstrations
from algorithm.env.unity.recorded import demo_messages, recorded_behaviour
from tests.demos.episodes import record
from tests.demos.test_sources import HYBRID, MASKED
from tests.unity_player.sensors import Buffer, Camera, Vector

Meta, Brain, Pair = demo_messages()

HAND = bytes.fromhex(
    "11 0801 120468616e64 1803 2002 2d0000c03f"  # version 1, name hand, 3 records, 2 episodes, mean 1.5
    + "00" * 15  # up to byte 33
    + "0f 3a0442616c6c 4a07 0801 1001 1a0102"  # Ball: one number, one branch of 2 choices
    + "31 0a24 3d0000803e 5005 5a020001 6a17 0a0102 220a0a080000803f000000c0 320101 4203657965 1209 32040000003f 3a0100"
    # ^ reward 1/4 of before, agent 5, choice 1 forbidden, eye = (1, -2), number 1/2, choice 0
    + "2d 0a20 3d00000040      5005          6a17 0a0102 220a0a080000404000008040 320101 4203657965 1209 3204000080bf 3a0101"
    # ^ reward 2, eye = (3, 4), number -1, choice 1
    + "31 0a24 3d000080bf 4001 4801 5005     6a17 0a0102 220a0a080000a0400000c040 320101 4203657965 1209 320400000000 3a0100"
    # ^ reward -1, done, by a limit, eye = (5, 6), an action of nobody
)


def read(path, wanted=None) -> tuple[list[RecordedEpisode], list[str]]:
    said: list[str] = []
    return list(read_demo(path, wanted, said.append)), said


def written(path: Path, spec: AgentSpec, episodes, behaviour: str = "default") -> Path:
    writer = DemoWriter(path, spec, behaviour)
    writer.begin()
    for episode in episodes:
        writer.write(episode)
    writer.finish()
    return path


def assert_same(found: RecordedEpisode, expected: RecordedEpisode) -> None:
    for name in ("action_mask", "action", "reward", "terminated", "truncated"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
    assert list(found.obs) == list(expected.obs)
    for name, value in found.obs.items():
        np.testing.assert_array_equal(value, expected.obs[name])


def episode_of(spec: AgentSpec, length: int = 6, *, seed: int = 0, **more) -> RecordedEpisode:
    """Return an episode of random numbers, cut off."""
    rng, action = np.random.default_rng(seed), spec.action
    mask = spec.action.all_allowed(length + 1)
    flat = action.random(rng, mask[:length])[0]
    seen = {
        name: rng.integers(256, size=(length + 1, *shape)).astype(dtype) if dtype == "uint8"
        else rng.normal(size=(length + 1, *shape)).astype(dtype)
        for name, shape, dtype in spec.obs.items()
    }  # fmt: skip
    ends = np.arange(length) == length - 1
    given = {
        "obs": seen,
        "action_mask": mask,
        "action": flat,
        "reward": rng.normal(size=length).astype(np.float32),
    }
    return RecordedEpisode(
        number=0, behaviour="default", agent=0, **given | more, terminated=ends & False, truncated=ends
    )


def spec_of(
    *observations: tuple[str, tuple[int, ...], str], action: ActionSpec | None = None, axes=()
) -> AgentSpec:
    names, shapes, dtypes = zip(*observations, strict=True)
    return AgentSpec(ObsSpec(names, shapes, dtypes, axes=axes), action or ActionSpec((2,), 1))


def test_bytes_assembled_by_hand_are_read_and_written(tmp_path):
    (tmp_path / "hand.demo").write_bytes(HAND)
    (episode,), said = read(tmp_path / "hand.demo", frozenset({"Ball"}))
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


@pytest.mark.parametrize("env_name", [HYBRID, MASKED, "Pendulum-v1"])
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
    assert list(a.digests.values()) == list(b.digests.values()), "types of choices come back, too"


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


def file_of(pairs, brain=None, **meta) -> bytes:
    """Return a file as ML-Agents writes it: its meta data behind the pairs, too."""
    stream = io.BytesIO()
    whole = Meta(**{"api_version": 1, "number_steps": len(pairs)} | meta)
    write_record(stream, whole)
    stream.seek(33)
    write_record(stream, brain or Brain.FromString(HAND[34:49]))
    for pair in pairs:
        write_record(stream, pair)
    if whole.number_steps == len(pairs):
        stream.write(whole.SerializeToString())
    return stream.getvalue()


def pairs_of(records: bytes = HAND) -> list:
    """Return copies of the hand-made pairs."""
    return [Pair.FromString(records[at : at + size]) for at, size in ((50, 49), (100, 45), (146, 49))]


def test_a_file_gives_what_the_environment_gives(tmp_path):
    """Names, shapes, types and order of axes of every sensor; stacks and mappings of channels."""
    sensors = [
        Camera("chw", 12, 10, layout="CHW"), Camera("chw_raw_stack", 12, 10, layout="CHW", png=False, stack=2),
        Camera("grey", 12, 10, 1), Camera("grey_stack", 12, 10, 1, stack=3), Camera("grid", 8, 9, 5),
        Camera("unsaid", 12, 10, said=False), Buffer("", 4, 3), Vector("stacked", 2, stack=3), Vector("stacked", 1),
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
    (found,), _ = read(tmp_path / "a.demo", frozenset({"Old"}))
    assert found.action.tolist() == [flat, flat] and list(found.obs) == ["sensor_0"]
    assert found.reward.tolist() == [2.5, -0.5] and found.action_mask.all()


def test_what_a_recorder_left_behind_is_said_and_used(tmp_path):
    """Killed, cut anywhere, closed in an episode, several agents at a time, episodes without a step."""
    path, (first, second, last) = tmp_path / "a.demo", pairs_of()
    other = Pair.FromString(second.SerializeToString())
    other.agent_info.id = 6
    other.agent_info.reward = 7
    for pairs, meta, lengths, said in (
        ([first, second, last], {"number_steps": 0}, [2], ["its recorder has not closed it; it is read to its end"]),
        ([first, second], {}, [1], ["episodes without an end, taken as cut off there: 1"]),
        ([first, second, last], {"number_steps": 9}, [2], ["its meta data say 9 records, and it has 3"]),
        ([first, second, last, last], {}, [2], ["episodes without a step, left out: 1"]),
        ([first, other, second, other, last, other], {}, [2, 2], ["episodes without an end, taken as cut off there: 1"]),
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


def test_notices_are_those_of_the_start_screen(tmp_path):
    (tmp_path / "a.demo").write_bytes(file_of(pairs_of()[:2]))
    found = load_demonstrations(
        DemoConfig(path="a.demo"), spec_of(("eye", (2,), "float32")), "Ball", tmp_path
    )
    assert found.notices == ["a.demo: episodes without an end, taken as cut off there: 1"]


def test_a_recording_that_is_killed_can_be_read(tmp_path):
    spec = spec_of(("eye", (2,), "float32"))
    writer = DemoWriter(tmp_path / "a.demo", spec, "Ball")
    writer.begin()
    writer.write(episode_of(spec))
    (draft,) = tmp_path.iterdir()
    (found,), (said,) = read(draft)
    assert_same(found, episode_of(spec))
    assert "has not closed it" in said
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_meta_data_always_fit_and_a_name_is_cut():
    numbers = {"number_steps": 2**31 - 1, "number_episodes": 2**31 - 1, "mean_reward": -1.5}
    assert meta_of(Meta, "a name/with_more than fits", **numbers).ByteSize() == 32
    assert meta_of(Meta, "ä/b c-1").demonstration_name == "b c-1"


def changed(number: int, **info) -> list:
    """Return the hand-made pairs with another ``number``-th one."""
    pairs = pairs_of()
    for name, value in info.items():
        if name in ("continuous_actions", "discrete_actions"):
            getattr(pairs[number].action_info, name)[:] = value
        elif name == "action_mask":
            pairs[number].agent_info.action_mask[:] = value
        else:
            setattr(pairs[number].agent_info, name, value)
    return pairs


def eye(number: int, **fields) -> list:
    pairs = pairs_of()
    observation = pairs[number].agent_info.observations[0]
    for name, value in fields.items():
        observation.ClearField(name)
        if name == "float_data":
            observation.float_data.data.extend(value)
        elif name in ("shape", "dimension_properties"):
            getattr(observation, name).extend(value)
        else:
            setattr(observation, name, value)
    return pairs


def cameras(size: tuple[int, int], count: int = 1, **fields) -> list:
    """Return pairs with a camera of 4×5 pixels, the second of another size."""
    pairs = pairs_of()
    for pair, shape in zip(pairs, ((4, 5), size, (4, 5)), strict=True):
        observation = Camera("eye", *shape).observe(np.zeros((*shape, 3), np.uint8))
        observation.shape[:] = [4, 5, 3]
        observation.compressed_data *= count
        pair.agent_info.observations[0].CopyFrom(observation)
    return pairs


def brain(**fields):
    return Brain(brain_name="Ball", **fields)


FAULTS = {
    # bytes → where, why
    "nothing": (b"", "", "it ends before its meta data"),
    "version 2": (file_of(pairs_of(), api_version=2), "", "it is of version 2; 0 and 1 are read"),
    "no steps": (file_of([]), "", "it holds no step"),
    "steps below zero": (file_of(pairs_of(), number_steps=-1), "", "its meta data say -1 steps"),
    "too many steps": (file_of(pairs_of(), number_steps=10**7 + 1), "", "say 10,000,001 steps; at most 10,000,000 are read"),
    "meta data of 10 KB": (b"\x80\x50" + bytes(10240), "byte 0", "meta data of 10,240 bytes; at most 32 are read"),
    "meta data of other bytes": (b"\x02\xff\xff" + HAND[3:], "byte 0", "the meta data cannot be decoded"),
    "a length of 4 GB": (HAND[:99] + b"\xff\xff\xff\xff\x0f" + HAND[100:], "byte 99", "step of 4,294,967,295 bytes; at most"),
    "a length without end": (HAND[:99] + b"\xff" * 6 + HAND[100:], "byte 99", "expected the length of the step"),
    "a broken record": (HAND[:100] + b"\xff" * 45 + HAND[145:], "byte 99", "the step cannot be decoded"),
    "no parameters": (HAND[:33], "", "it ends before its parameters of the behaviour"),
    "nothing to do": (file_of(pairs_of(), brain()), "", "Ball has no actions"),
    "too much to do": (file_of(pairs_of(), brain(vector_action_size_deprecated=[2**31 - 1])), "", "its behaviour has 2,147,483,647 actions"),
    "a branch without choices": (file_of(pairs_of(), brain(vector_action_size_deprecated=[0, 2])), "", "its behaviour has 0 actions in a branch"),
    "too large an observation": (file_of(eye(0, shape=[2**13, 2**13])), "", "a step has 268,435,"),
    "an observation without size": (file_of(eye(0, shape=[2, 0])), "", "observation 0 is numbers of the shape [2, 0]"),
    "a PNG of a vector": (file_of(eye(0, compression_type=1)), "", "observation 0 is a PNG of the shape [2]"),
    "another shape": (file_of(eye(1, shape=[3])), "episode 0, step 1, obs/eye", "expected the shape [2], got [3]"),
    "other numbers": (file_of(eye(2, float_data=[1])), "episode 0, step 2, obs/eye", "expected 2 numbers, got 1"),
    "NaN": (file_of(eye(1, float_data=[1, np.nan])), "episode 0, step 1, obs/eye", "not finite"),
    "a missing sensor": (file_of([*pairs_of()[:2], Pair.FromString(bytes.fromhex("0a024001"))]), "episode 0, step 0, obs/eye", "observations: expected 1, got 0"),
    "an infinite reward": (file_of(changed(1, reward=np.inf)), "episode 0, step 1, reward", "not finite"),
    "a mask of another size": (file_of(changed(1, action_mask=[True])), "episode 0, step 1, action_mask", "expected a mask of 2 choices, got 1"),
    "another action": (file_of(changed(0, continuous_actions=[])), "episode 0, step 0, action", "expected 1 continuous and 1 discrete actions, got 0 and 1"),
    "a choice too high": (file_of(changed(1, discrete_actions=[2])), "episode 0, step 1, action", "expected a choice below 2 in branch 0, got 2"),
    "an action without a number": (file_of(changed(1, continuous_actions=[np.nan])), "episode 0, step 1, action", "not finite"),
    "a PNG of another size": (file_of(cameras((5, 4))), "episode 0, step 1, obs/eye", "expected 4×5 pixels, got 5×4"),
    "a PNG of a bomb's size": (file_of(cameras((1, 2**16))), "episode 0, step 1, obs/eye", "expected 4×5 pixels, got 1×65536"),
    "too many PNGs": (file_of(cameras((4, 5), 4)), "episode 0, step 0, obs/eye", "at most a PNG for each of 3 channels, got 4"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_used_says_where_and_why(tmp_path, fault):
    content, where, why = FAULTS[fault]
    (tmp_path / "a.demo").write_bytes(content)
    with pytest.raises(FaultyRecordingError) as error:
        read(tmp_path / "a.demo")
    assert error.value.where == where and why in error.value.why, (error.value.where, error.value.why)


def test_without_the_package_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("algorithm.env.unity.package.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("algorithm.env.unity.package.sys.meta_path", [])
    for use in (lambda: read(tmp_path / "a.demo"), lambda: DemoWriter(tmp_path / "a.demo", SHAPES, "x")):
        with pytest.raises(UsageError, match=r"pip install mlagents-envs==0\.28\.0"):
            use()


def mutate(whole: bytes, rng: np.random.Generator) -> bytes:
    """Return the file with a few bits, bytes, lengths or fields changed, inserted or cut off."""
    data = bytearray(whole)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data)))
        kind = rng.integers(6)
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[at] = int(rng.integers(256))
        elif kind == 2:
            del data[max(at, 1) :]
        elif kind == 3:
            data[at:at] = bytes([0xFF] * int(rng.integers(1, 6))) + b"\x0f"
        elif kind == 4:
            number = int(rng.integers(1, 16))
            data[at:at] = bytes([number << 3 | 2, 4]) + struct.pack("<i", int(rng.integers(-(2**31), 2**31)))
        else:
            size = int(rng.integers(1, 40))
            data[at : at + size] = data[(other := int(rng.integers(len(data)))) : other + size]
    return bytes(data)


def survive(folder: Path, files: int, seed: int) -> int:
    """Read so many damaged files; none crashes, hangs or takes more than 64 MB. Return how many are refused."""
    spec = spec_of(("camera", (4, 5, 4), "uint8"), ("eye", (3,), "float32"))
    image = written(folder / "good.demo", spec, [episode_of(spec, 3, seed=k) for k in range(2)]).read_bytes()
    rng, refused, path = np.random.default_rng(seed), 0, folder / "a.demo"
    for number in range(files):
        path.write_bytes(mutate((HAND, image, file_of(cameras((4, 5))))[number % 3], rng))
        begun = time.perf_counter()
        tracemalloc.start()
        try:
            for episode in read(path)[0]:
                with contextlib.suppress(FaultyRecordingError):
                    fitted(episode, spec)
        except FaultyRecordingError:
            refused += 1
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 64 * 2**20 and time.perf_counter() - begun < 20, f"file {number} of seed {seed}"
    return refused


def test_files_that_are_damaged_at_random_are_survived(tmp_path):
    assert 100 < survive(tmp_path, 300, seed=1) < 300


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_damaged_files_are_survived(tmp_path):
    assert survive(tmp_path, 10_000, seed=2) > 3000
