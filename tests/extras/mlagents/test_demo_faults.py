"""``.demo`` files that are wrong: each fault has its words, and damage at random is survived."""

# ruff: noqa: E501 - a table of faults is read across, one fault a line
from __future__ import annotations

import contextlib
import struct
import sys
import time
import tracemalloc

import numpy as np
import pytest

from algorithm.core.errors import UsageError
from algorithm.demos.check import fitted
from algorithm.demos.episode import FaultyRecordingError
from algorithm.extras.unity.testing.sensors import Camera
from tests.extras.mlagents.demo_files import (
    HAND,
    Brain,
    Pair,
    file_of,
    pairs_of,
    read,
    spec_of,
)


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
    "version 2": (file_of(pairs_of(), api_version=2), "", "its version is 2; 0 and 1 can be read"),
    "no steps": (file_of([]), "", "it holds no step"),
    "steps below zero": (file_of(pairs_of(), number_steps=-1), "", "its meta data state -1 steps"),
    "too many steps": (file_of(pairs_of(), number_steps=10**7 + 1), "", "state 10,000,001 steps; at most 10,000,000 can be read"),
    "meta data of 10 KB": (b"\x80\x50" + bytes(10240), "byte 0", "meta data of 10,240 bytes; at most 32 can be read"),
    "meta data of other bytes": (b"\x02\xff\xff" + HAND[3:], "byte 0", "the meta data cannot be decoded"),
    "a length of 4 GB": (HAND[:99] + b"\xff\xff\xff\xff\x0f" + HAND[100:], "byte 99", "step of 4,294,967,295 bytes; at most"),
    "a length without end": (HAND[:99] + b"\xff" * 6 + HAND[100:], "byte 99", "expected the length of the step"),
    "a broken record": (HAND[:100] + b"\xff" * 45 + HAND[145:], "byte 99", "the step cannot be decoded"),
    "no parameters": (HAND[:33], "", "it ends before its parameters of the behaviour"),
    "nothing to do": (file_of(pairs_of(), brain()), "", "Ball has no actions"),
    "too much to do": (file_of(pairs_of(), brain(vector_action_size_deprecated=[2**31 - 1])), "", "its behaviour has 2,147,483,647 actions"),
    "a branch without choices": (file_of(pairs_of(), brain(vector_action_size_deprecated=[0, 2])), "", "its behaviour has 0 actions in a branch"),
    "too large an observation": (file_of(eye(0, shape=[2**13, 2**13])), "", "a step has 268,435,"),
    "an observation without size": (file_of(eye(0, shape=[2, 0])), "", "has no observations"),
    "a PNG of a vector": (file_of(eye(0, compression_type=1)), "", "observation 0 is a PNG of the shape [2]"),
    "another shape": (file_of(eye(1, shape=[3])), "episode 0, step 1", "observations of (3,)"),
    "other numbers": (file_of(eye(2, float_data=[1])), "episode 0, step 2", "cannot reshape array of size 1"),
    "NaN": (file_of(eye(1, float_data=[1, np.nan])), "episode 0, step 1", "not finite"),
    "a missing sensor": (file_of([*pairs_of()[:2], Pair.FromString(bytes.fromhex("0a024001"))]), "episode 0, step 0", "the spaces of the Unity behaviour Ball have changed"),
    "an infinite reward": (file_of(changed(1, reward=np.inf)), "episode 0, step 1", "not finite"),
    "a mask of another size": (file_of(changed(1, action_mask=[True])), "episode 0, step 1", "a mask of 1 actions for 2"),
    "another action": (file_of(changed(0, continuous_actions=[])), "episode 0, step 0", "expected 1 continuous and 1 discrete actions, got 0 and 1"),
    "a choice too high": (file_of(changed(1, discrete_actions=[2])), "episode 0, step 1", "expected a choice below 2 in branch 0, got 2"),
    "an action without a number": (file_of(changed(1, continuous_actions=[np.nan])), "episode 0, step 1", "not finite"),
    "a PNG of another size": (file_of(cameras((5, 4))), "episode 0, step 1", "expected 4×5 pixels, got 5×4"),
    "a PNG of a bomb's size": (file_of(cameras((1, 2**16))), "episode 0, step 1", "expected 4×5 pixels, got 1×65536"),
    "too many PNGs": (file_of(cameras((4, 5), 4)), "episode 0, step 0", "at most a PNG for each of 3 channels, got 4"),
}  # fmt: skip


def test_without_the_package_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("algorithm.extras.unity.package.importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "mlagents_envs.environment", raising=False)
    with pytest.raises(UsageError, match=r'pip install -e "\.\[unity\]"'):
        read(tmp_path / "a.demo")


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


@pytest.mark.parametrize(
    ("files", "refused"),
    [(300, 100), pytest.param(10_000, 3000, marks=(pytest.mark.slow, pytest.mark.timeout(1800)))],
)
def test_files_that_are_damaged_at_random_are_survived(tmp_path, files, refused):
    """None crashes, hangs or takes more than 64 MB; at least so many are refused."""
    spec = spec_of(("eye", (2,), "float32"))
    rng, path = np.random.default_rng(files), tmp_path / "a.demo"
    for number in range(files):
        path.write_bytes(mutate((HAND, file_of(cameras((4, 5))))[number % 2], rng))
        begun = time.perf_counter()
        tracemalloc.start()
        try:
            for episode in read(path)[0]:
                with contextlib.suppress(FaultyRecordingError):
                    fitted(episode, spec)
        except FaultyRecordingError:
            refused -= 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * 2**20 and time.perf_counter() - begun < 20, f"file {number}"
    assert refused < 0
