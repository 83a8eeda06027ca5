"""What learner and actors say to each other. How it becomes bytes is in ``ds.wire``.

An actor says hello, is given a slot and the run's seed, builds its environments from them, joins, and then
sends parcels and beats until it says goodbye. Everything is asked by the actor; the learner only answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from algorithm.data import Segment

PROTOCOL = 1
"""Both sides must speak the same one."""

Why = Literal["protocol", "full", "differs", "malformed", "oversize"]


@dataclass(frozen=True, kw_only=True)
class Hello:
    """An actor's first words, and again whenever the learner does not know it any more."""

    protocol: int
    actor: str  # drawn by the actor's process; the same when it comes back
    host: str
    pid: int
    versions: Mapping[str, str]  # of python, torch, numpy, gymnasium


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """What an actor builds its environments and random numbers from."""

    run: str  # for the actor's screen
    learner: str  # drawn by the learner's process: another one after a restart
    seed: int  # of the run
    slot: int  # k: the smallest number that no other living actor has; its noise depends on it
    number: int  # actors welcomed in this run before: seeds and streams depend on it
    synchronous: bool
    heartbeat: float  # seconds between two beats; after three without one the slot is freed


@dataclass(frozen=True, kw_only=True)
class Join:
    """An actor is ready to act. Answered with :class:`Joined`."""

    actor: str
    agreed: Mapping[str, Any]  # dotted path -> JSON value of all that must be the same on both sides
    digest: str  # SHA-256 over ``agreed``, see ``ds.compatibility``
    version: int  # newest weights it has seen, 0 for none
    lanes: tuple[int, ...]  # of each lane the number of the last parcel that a learner took
    taken_steps: int  # environment steps in those parcels


@dataclass(frozen=True, kw_only=True)
class Joined:
    """From here on parcels are taken."""

    max_message: int  # bytes of the largest parcel
    lanes: tuple[int, ...]  # of each lane the last parcel that this learner knows of
    receipt: Receipt


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The learner cannot work with this actor, and never will as it is."""

    why: Why
    reason: str  # one line
    differences: tuple[str, ...] = ()  # a line each
    fix: str = ""


@dataclass(frozen=True)
class Part:
    """Consecutive transitions of one agent; without a segment its episode ends as truncated where it is."""

    behaviour: str
    agent: int
    segment: Segment | None  # its ``stream`` is the agent; the learner gives it one of its own


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What an actor has to hand over at a time: usually one episode, or one step of all in synchronous mode.

    Parcels of a lane are numbered from 1 and arrive in that order, each any number of times; a number that
    never arrives was dropped by the actor.
    """

    actor: str
    lane: int
    number: int
    version: int  # of the oldest weights that acted in it
    steps: int  # environment steps that it accounts for
    stride: int  # environment steps of one step of all of the actor's environments
    parts: tuple[Part, ...]
    episodes: tuple[tuple[str, int, float, int], ...]  # of those that ended: behaviour, agent, return, length
    dropped: int  # environment steps that the actor has given up so far


@dataclass(frozen=True, kw_only=True)
class Beat:
    """An actor is alive."""

    actor: str
    version: int  # weights it acts with
    steps: int  # environment steps so far
    waiting: int  # parcels that wait to be sent
    dropped: int  # environment steps given up so far


State = Literal["taken", "again", "rejected", "stale", "unknown", "finished"]


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The answer to a parcel and to a beat.

    taken: it is the learner's now, or was before · again: there is no room now, send it again ·
    rejected: it cannot be used, for ``reason`` · stale: made with weights too old, and dropped ·
    unknown: say hello first · finished: the training has ended, and so shall the actor
    """

    state: State
    version: int  # newest weights
    warming_up: Mapping[str, bool] = field(default_factory=dict)  # behaviour -> act at random
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Asks for weights; answered by a stream of chunks, see ``ds.weights``."""

    actor: str
    than: int  # only if they are newer than this version


@dataclass(frozen=True, kw_only=True)
class Bye:
    """An actor leaves; its slot is free at once."""

    actor: str
    reason: str
