"""Checks of seeds: the same seed must reproduce an episode."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithm.core.data import Bool, Float
from algorithm.core.spec import ActionSpec
from algorithm.env.checks.context import CheckContext, EnvInstance, ResetOutput, StepOutput
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, note, ok, warning

_STARTS = 5

Digests = list[bytes]
"""A digest of all output of the reset and of each step."""

Choose = Callable[[ActionSpec, np.random.Generator, Bool], Float]
"""(spec, random numbers, mask [1, ΣN]) -> flat action [A]."""


def random_policy(spec: ActionSpec, rng: np.random.Generator, mask: Bool) -> Float:
    """Act randomly, as in the warm-up."""
    action, _, _ = spec.random(rng, mask)
    flat: Float = action[0]
    return flat


def idle_policy(spec: ActionSpec, rng: np.random.Generator, mask: Bool) -> Float:
    """Take the middle of every continuous action, and the first allowed choice of each branch."""
    action = np.zeros(spec.size, np.float32)
    for where in spec.branch_slices:
        action[where.start + int(mask[0, where].argmax())] = 1.0
    return action


def play(
    instance: EnvInstance,
    seed_of: Callable[[int], int],
    choose: Choose,
    over: Callable[[int], bool],
    *,
    episode: int = 0,
) -> Digests:
    """Play episodes from number ``episode`` on, until ``over(steps)``, steps and resets together."""
    rng = np.random.default_rng(episode)
    found: Digests = []
    while True:
        now: ResetOutput | StepOutput = instance.reset(seed_of(episode))
        found.append(_digest(instance, now))
        ended = False
        while not ended:
            if over(len(found)):
                return found
            now = instance.step(choose(instance.spec.action, rng, now.mask[None]))
            found.append(_digest(instance, now))
            ended = now.terminated or now.truncated
        episode += 1


def first_difference(one: Digests, other: Digests) -> int | None:
    """Return the first place (0 is the first reset) in which two lists differ; None for none."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


@dataclass(frozen=True)
class Repeatability:
    """First places where repeated episodes differ, in the same instance and in new ones; None for none."""

    digests: Digests
    steps: int  # compared, including resets
    same_instance: int | None
    new_instance: int | None
    later: int | None  # in a new instance, after another episode

    @property
    def exact(self) -> bool:
        """True if all are equal bit for bit."""
        return self.same_instance is None and self.new_instance is None and self.later is None


def measure_repeatability(context: CheckContext) -> Repeatability:
    """Play the same episodes four times with the same seeds and actions. Raises FindingError."""
    seeds = context.config.seed_of
    with context.instance() as instance:
        first = play(instance, seeds, random_policy, context.enough())
        again = play(instance, seeds, random_policy, context.enough())
    with context.instance() as instance:
        fresh = play(instance, seeds, random_policy, context.enough())
    with context.instance() as instance:
        play(instance, seeds, random_policy, context.enough(0.1), episode=7)
        later = play(instance, seeds, random_policy, context.enough())
    steps = min(len(first), len(again), len(fresh), len(later))
    return Repeatability(first, steps, *(first_difference(first, other) for other in (again, fresh, later)))


def check_repeatable(context: CheckContext) -> Iterator[Finding]:
    """Check that episodes repeat, which an exact resume needs."""
    found = context.cached(measure_repeatability)
    if found.exact:
        yield ok(
            f"bit for bit over {found.steps} steps and resets, in new instances too: a resumed run is exact"
        )
        return
    if context.cached(collect_stats).wrappers:
        yield note("not checked: the statistics of a wrapper, as above, make every episode another one")
        return
    places = {
        "in the same instance": found.same_instance,
        "in a new instance": found.new_instance,
        "in an instance after another episode": found.later,
    }
    differences = [f"{place} at {_moment(at)}" for place, at in places.items() if at is not None]
    yield warning(
        "the same seed and actions bring another episode: a resumed run is not exact",
        where="; ".join(differences),
        why="a run cannot be repeated from its seed; when it is resumed, open episodes end as truncated",
        fix="draw every random number from self.np_random after super().reset(seed=seed), and set all state "
        "in reset",
    )


def check_seeds_differ(context: CheckContext) -> Iterator[Finding]:
    """Check that seeds have an effect."""
    seeds = [context.config.seed_of(episode) for episode in range(_STARTS)]
    with context.instance() as instance:
        starts = {_digest(instance, instance.reset(seed)) for seed in seeds}
    if len(starts) == 1:
        yield note(
            f"{_STARTS} seeds bring the same first observation",
            why="right for a task that always starts alike; otherwise reset ignores its seed",
            fix="super().reset(seed=seed), then draw from self.np_random",
        )
    yield ok(f"{len(starts)} starts of {_STARTS} seeds")


def check_generator(context: CheckContext) -> Iterator[Finding]:
    """Check that an episode leaves the random state of the process unchanged."""
    with context.instance() as instance:
        before = _global_states()
        play(instance, context.config.seed_of, random_policy, context.enough())
        changed = [name for name, state in _global_states().items() if before.get(name, state) != state]
    if changed:
        yield warning(
            f"an episode draws from the random numbers of the whole process: {', '.join(changed)}",
            why="environments in one process change each other's episodes, and no seed repeats one",
            fix="draw from self.np_random; until then set base_config.workers to n_envs: a process for each",
        )
    yield ok("the random state of the process stays as it is")


def _moment(at: int) -> str:
    return f"step {at}, counted from the first reset" if at else "the first reset"


def _digest(instance: EnvInstance, now: ResetOutput | StepOutput) -> bytes:
    """Digest everything an agent observes; another check reports what does not fit the space."""
    state = hashlib.blake2b(digest_size=16)
    for name, value in instance.adapter.observations.read(now.obs).items():
        state.update(name.encode())
        state.update(np.ascontiguousarray(value).tobytes())
    state.update(now.mask.tobytes())
    if isinstance(now, StepOutput):
        state.update(np.asarray(now.reward, np.float64).tobytes())
        state.update(bytes((now.terminated, now.truncated)))
    return state.digest()


def _global_states() -> dict[str, bytes]:
    """Digest every generator of the process; torch's where the environment imported it."""
    states: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state(legacy=False)}
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.random.get_rng_state().tolist()
    return {name: repr(_plain(state)).encode() for name, state in states.items()}


def _plain(state: Any) -> Any:  # noqa: ANN401 - what a generator's state is made of
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
