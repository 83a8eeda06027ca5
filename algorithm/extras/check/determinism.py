"""Checks of seeds: the same seed must reproduce an episode."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from algorithm.extras.check.context import CheckContext, CheckStep, play
from algorithm.extras.check.episode_stats import collect_stats
from algorithm.extras.check.finding import Finding, error, note, ok, warning

_OTHER = 7  # number of the episode that is played in between, or in another instance

Digests = list[bytes]
"""A digest of all output of the reset and of each step."""


def digests(steps: Iterable[CheckStep]) -> Digests:
    """Return a digest of each step: observations, mask, reward and ends."""
    return [_digest(now) for now in steps]


def first_difference(first: Digests, second: Digests) -> int | None:
    """Return the first index at which two lists differ (0 is the first reset); None if none does."""
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)


@dataclass(frozen=True)
class Repeatability:
    """Comparison of the same episodes, played several times.

    first:  digests of the first time
    steps:  number of steps and resets that were compared
    places: where the episodes were played again -> first index that differs; empty if they repeat
    """

    first: Digests
    steps: int
    places: Mapping[str, int]


def measure_repeatability(context: CheckContext) -> Repeatability:
    """Play the same episodes four times with the same seeds and actions. Raises FindingError."""
    config, played = context.config, dict[str, Digests]()
    with context.instance() as instance:
        first = digests(context.limited(play(instance, config)))
        played["in the same instance"] = digests(context.limited(play(instance, config)))
    with context.instance() as instance:
        played["in a new instance"] = digests(context.limited(play(instance, config)))
    with context.instance() as instance:
        digests(context.limited(play(instance, config, episode=_OTHER), 0.1))
        played["in an instance after another episode"] = digests(context.limited(play(instance, config)))
    differences = {place: first_difference(first, again) for place, again in played.items()}
    steps = min(map(len, (first, *played.values())))
    return Repeatability(first, steps, {place: at for place, at in differences.items() if at is not None})


def check_repeatable(context: CheckContext) -> Iterator[Finding]:
    """Check that the same seeds and actions give the same episodes; an exact resume needs that."""
    measured = context.cached(measure_repeatability)
    if not measured.places:
        yield ok(
            f"bit for bit over {measured.steps} steps and resets, "
            "in new instances too: a resumed run is exact"
        )
        return
    if context.cached(collect_stats).wrappers:
        yield note("not checked: the statistics of a wrapper, as above, make every episode different")
        return
    yield warning(
        "the same seed and actions give a different episode: a resumed run is not exact",
        where="; ".join(f"{place} at {_step_name(at)}" for place, at in measured.places.items()),
        why="a run cannot be repeated from its seed; when it is resumed, open episodes end as truncated",
        fix="draw every random number from self.np_random after super().reset(seed=seed), and set all state "
        "in reset",
    )


def check_copies(context: CheckContext) -> Iterator[Finding]:
    """Check that two instances, stepped in turn, do not influence each other."""
    alone = context.cached(measure_repeatability)
    if alone.places:
        yield ok("not compared: episodes do not repeat")
        return
    with context.instance() as first, context.instance() as second:
        in_turn = zip(play(first, context.config), play(second, context.config, episode=_OTHER), strict=False)
        beside = digests(now for now, _ in context.limited(in_turn))
    at = first_difference(alone.first, beside)
    if at is not None:
        yield error(
            "two instances in one process influence each other",
            where=f"an episode differs at {_step_name(at)}, when another instance is stepped in turn",
            why="each repeats its episodes when alone; training always has a second one for evaluations",
            fix="look for state that instances share: class attributes, modules, global random numbers; "
            "until then set base_config.workers to n_envs: one process each",
        )
    yield ok(f"two instances do not affect each other, over {len(beside)} steps and resets")


def _step_name(at: int) -> str:
    """Return the name of a step, counted from the first reset, for messages."""
    return f"step {at}, counted from the first reset" if at else "the first reset"


def _digest(now: CheckStep) -> bytes:
    """Return a digest of a step's observations, mask, reward and ends."""
    values = [name.encode() + np.ascontiguousarray(value).tobytes() for name, value in now.obs.items()]
    outcome = np.array([now.reward, now.terminated, now.truncated], np.float64)
    return hashlib.blake2b(b"".join([*values, now.mask.tobytes(), outcome.tobytes()])).digest()
