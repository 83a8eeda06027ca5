"""``.demo`` files: bytes by hand, and others from the messages of the package."""

# ruff: noqa: E501 - bytes are read across, a record a line
from __future__ import annotations

import io
from typing import BinaryIO

from google.protobuf.internal.encoder import _VarintBytes

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.demos.episode import RecordedEpisode, Wanted
from algorithm.extras.mlagents.demo_reading import read_demo
from algorithm.extras.unity.package import demo_messages

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


def read(path, behaviour=None) -> tuple[list[RecordedEpisode], list[str]]:
    said: list[str] = []
    return list(read_demo(path, behaviour and Wanted(behaviour), said.append)), said


def spec_of(
    *observations: tuple[str, tuple[int, ...], str],
) -> AgentSpec:
    names, shapes, dtypes = zip(*observations, strict=True)
    return AgentSpec(ObsSpec(names, shapes, dtypes), ActionSpec((2,), 1))


def write_record(file: BinaryIO, message: object) -> None:
    data = message.SerializeToString()
    file.write(_VarintBytes(len(data)) + data)


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
