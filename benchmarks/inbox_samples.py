"""What synthetic actors send, and what their learner agreed to. Without torch: the actors are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from algorithm.data import Array, Segment
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec
from ds.protocol import PROTOCOL, Hello, Join, Parcel, Part
from ds.security import AUTHORITY, TOKEN, ActorSecurity

BEHAVIOUR = "default"
LANES = 5
"""Parcels of an actor under way at the same time: ``episode_sender_process_num`` by default."""

AGREED: Mapping[str, int] = {}
DIGEST = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
"""Of what is agreed, see :func:`ds.agreement.digest`; what that imports would cost each actor a second."""
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Sample:
    """shape, dtype: of the observation · action: of the agent · length: L · capacity: rows of the replay."""

    shape: tuple[int, ...]
    dtype: str
    action: ActionSpec
    length: int
    capacity: int

    @property
    def spec(self) -> AgentSpec:
        """Of the agent."""
        return AgentSpec(ObsSpec(("obs",), (self.shape,), (self.dtype,)), self.action)


SAMPLES = {
    "vectors": Sample((27,), "float32", ActionSpec((), 6), 500, 2**18),
    "images": Sample((84, 84, 1), "uint8", ActionSpec((6,)), 100, 2**14),
    "short": Sample((4,), "float32", ActionSpec((2,)), 20, 2**18),
    "pendulum": Sample((3,), "float32", ActionSpec((), 1), 200, 20_100),
}


def segment(sample: Sample, rng: np.random.Generator) -> Segment:
    """A whole episode of random numbers."""
    spec, length = sample.spec, sample.length
    mask = spec.action.all_allowed(length + 1)
    action, z, logp = spec.action.random(rng, mask[:-1])
    shape = (length + 1, *sample.shape)
    obs: Array = rng.standard_normal(shape, np.float32)
    if sample.dtype == "uint8":
        obs = rng.integers(256, size=shape, dtype=np.uint8)
    return Segment(
        stream=0,
        start_step=0,
        obs={"obs": obs},
        action_mask=mask,
        carry=np.zeros((length + 1, 0), np.float32),
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=rng.standard_normal(length, np.float32),
        terminated=np.zeros(length, bool),
        truncated=np.arange(length) == length - 1,
    )


def parcel(made: Segment, *, actor: str, lane: int, number: int, version: int) -> Parcel:
    """One episode of the agent whose number is that of the lane."""
    return Parcel(
        actor=actor,
        lane=lane,
        number=number,
        version=version,
        steps=made.length,
        stride=made.length,  # the learner hands out all steps of it at once
        parts=(Part(BEHAVIOUR, lane, replace(made, stream=lane)),),
        episodes=((BEHAVIOUR, lane, 1.0, made.length),),
        dropped=0,
    )


def hello(actor: str) -> Hello:
    """First words."""
    return Hello(protocol=PROTOCOL, actor=actor, host="benchmark", pid=1, versions={})


def join(actor: str, lanes: Sequence[int] = (0,) * LANES) -> Join:
    """Agrees to :data:`AGREED`."""
    return Join(actor=actor, agreed=AGREED, digest=DIGEST, version=0, lanes=tuple(lanes), taken_steps=0)


def actor_security(folder: Path | None) -> ActorSecurity:
    """Token and TLS with what is in ``folder``; nothing without one."""
    if folder is None:
        return ActorSecurity()
    return ActorSecurity(token(folder), (folder / AUTHORITY).read_bytes())


def token(folder: Path) -> str:
    """That everybody shows."""
    return (folder / TOKEN).read_text().strip()
