"""Proof that what is stored is what a simulator has done: each transition once, and none across a reset.

What the simulator returns is noted at its own interface, before any of the program's code has seen it, as a
fingerprint of each lane's observation. What follows from that is compared with what the replay gives back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.data import ActorOutput, Array, Bool, Float, Int, StepBatch
from algorithm.core.spec import AgentSpec
from algorithm.env.base import VecEnv
from algorithm.env.lanes.base import LanesVecEnv
from algorithm.env.lanes.contract import TensorEnv, TensorObs, TensorStep
from algorithm.replay.buffer import ReplayBuffer
from algorithm.run.experience.collector import LocalCollector

Prints = NDArray[np.uint64]
"""Fingerprints of observations [N]: equal only for equal bytes, but for one in 2⁶⁴."""


@dataclass
class SimulatorStep:
    """The transitions of a step of N lanes, as they follow from what the simulator has returned."""

    took: Bool  # [N] there is one
    before: Prints  # [N]
    after: Prints  # [N]
    reward: Float  # [N]
    terminated: Bool  # [N]
    phantom: Bool  # [N] the last observation is the next episode's first


class Ledger:
    """Notes of a simulator's results. ``expected``: the transitions of its last step.

    read: converts observations of all lanes into those of the program
    """

    def __init__(self) -> None:
        self.read: Callable[[object], Mapping[str, Array]] | None = None
        self.expected: SimulatorStep | None = None
        self._seen: Prints | None = None

    def watch(self, env: Any) -> Any:  # noqa: ANN401 - either kind
        """Return the simulator, whose results are noted from now on."""
        return _TensorLog(env, self) if isinstance(env, TensorEnv) else _VectorLog(env, self)

    def begun(self, obs: object) -> None:
        """Note the observations after a reset."""
        self._seen = self._prints(obs)

    def stepped(
        self, obs: object, reward: object, terminated: object, truncated: object, final: object, took: Bool
    ) -> None:
        """Note a step. final: last observations [N, …] where episodes have ended; None if unknown."""
        assert self._seen is not None, "it has been reset"
        ends, cut = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        now, before, over = self._prints(obs), self._seen, ends | cut
        last = before if final is None else self._prints(_picked(over, final, obs))
        known = took if final is not None else took & ~(cut & ~ends)
        self.expected = SimulatorStep(
            took=known,
            before=before,
            after=np.where(over, last, now),
            reward=np.array(reward, np.float32),
            terminated=ends,
            phantom=took & over & (last == now) & (last != before) & (final is not None),
        )
        self._seen = now

    def _prints(self, obs: object) -> Prints:
        assert self.read is not None
        return fingerprints(self.read(obs))


class _TensorLog(TensorEnv):
    """A tensor environment that is written down."""

    def __init__(self, env: TensorEnv, ledger: Ledger) -> None:
        self._env, self._ledger = env, ledger
        self.num_envs, self.device, self.time_limit = env.num_envs, env.device, env.time_limit
        self.observation_space, self.action_space = env.observation_space, env.action_space

    @override
    def reset(self, seed: int | None = None, lanes: Any = None) -> TensorObs:
        obs = self._env.reset(seed, lanes)
        self._ledger.begun(_plain(obs))
        return obs

    @override
    def step(self, actions: Any) -> TensorStep:
        step = TensorStep(*self._env.step(actions))
        obs, reward, terminated, truncated, final = map(_plain, step)
        everyone = np.ones(self.num_envs, np.bool_)
        self._ledger.stepped(obs, reward, terminated, truncated, final, everyone)
        return step

    @override
    def close(self) -> None:
        self._env.close()


class _VectorLog(VectorWrapper):
    """One of Gymnasium's, in any autoreset mode."""

    def __init__(self, env: VectorEnv, ledger: Ledger) -> None:
        super().__init__(env)
        self._ledger, self._mode = ledger, env.metadata["autoreset_mode"]
        self._over: Bool = np.zeros(env.num_envs, np.bool_)

    @override
    def reset(self, **kwargs: Any) -> Any:
        obs, infos = self.env.reset(**kwargs)
        self._ledger.begun(obs)
        self._over[:] = False
        return obs, infos

    @override
    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, infos = result = self.env.step(actions)
        final, took = obs, ~self._over
        if self._mode is AutoresetMode.SAME_STEP:
            final = _filled(obs, infos.get("final_obs"))
        elif self._mode is AutoresetMode.NEXT_STEP:
            self._over = np.array(terminated, np.bool_) | np.array(truncated, np.bool_)
        self._ledger.stepped(obs, reward, terminated, truncated, final, took)
        expected = self._ledger.expected
        if expected is not None and self._mode is not AutoresetMode.SAME_STEP:
            expected.phantom[:] = False  # the next episode has not begun
        return result


@dataclass
class Proof:
    """Counts of a proof."""

    transitions: int = 0  # that were stored
    wrong: int = 0  # of these, or missing
    phantoms: int = 0  # ends whose last observation is the next episode's first
    episodes: int = 0
    seconds: float = 0.0


class _Stored:
    """A policy at random, and a recorder: a real replay. ``ids``: of the last step, −1 where nothing came."""

    stored_carry_shape = (0,)

    def __init__(self, spec: AgentSpec, seed: int) -> None:
        self._spec, self._rng = spec, np.random.default_rng(seed)
        self.replay: ReplayBuffer | None = None

    def initial_carry(self, n: int) -> Float:
        if self.replay is None:  # asked first for all of them
            self.ids: Int = np.full(n, -1)
            self.replay = ReplayBuffer(self._spec, capacity=4 * n + 2, batch_size=1)
        return np.zeros((n, 0), np.float32)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        action, z, logp = self._spec.action.random(self._rng, action_mask)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)

    def add_steps(self, steps: StepBatch) -> None:
        assert self.replay is not None
        self.ids[steps.streams] = self.replay.add_steps(steps)

    def close(self, stream: int) -> None:
        assert self.replay is not None
        self.replay.close(stream)


def prove(
    make: Callable[[Ledger], VecEnv], *, transitions: int, seconds: float = np.inf, seed: int = 0
) -> Proof:
    """Act at random, and compare every transition that is stored with what the simulator has returned.

    make: makes environments of one behaviour, and has the ledger ``watch`` their simulator
    seconds: after which it ends early
    """
    ledger, proof = Ledger(), Proof()
    with closing(make(ledger)) as env:
        ((name, spec),) = env.specs.items()
        assert isinstance(env, LanesVecEnv), "it steps many at once"
        ledger.read, stored = env.observations, _Stored(spec, seed)
        collector = LocalCollector(env, {name: stored}, {name: stored})
        began = time.monotonic()
        while proof.transitions < transitions and proof.seconds < seconds:
            stored.ids[:] = -1
            proof.episodes += len(collector.step())
            _compare(proof, ledger, stored)
            proof.seconds = time.monotonic() - began
    return proof


def _compare(proof: Proof, ledger: Ledger, stored: _Stored) -> None:
    """Compare a step's transitions, as the replay gives them back, with what is expected of it."""
    expected, there = ledger.expected, stored.ids >= 0
    assert expected is not None and stored.replay is not None, "a step was taken"
    proof.wrong += int((expected.took & ~there).sum())
    proof.phantoms += int(expected.phantom.sum())
    if not there.any():
        return
    batch = stored.replay.windows(stored.ids[there])
    before, after = (
        fingerprints({name: value[:, token].numpy() for name, value in batch.obs.items()}) for token in (0, 1)
    )
    right = (
        expected.took[there]
        & (before == expected.before[there])
        & (after == expected.after[there])
        & (batch.reward[:, 0].numpy() == expected.reward[there])
        & (batch.terminated[:, 0].numpy() == expected.terminated[there])
    )
    proof.transitions += len(right)
    proof.wrong += int((~right).sum())


def fingerprints(obs: Mapping[str, Array]) -> Prints:
    """Return a number for each row [N] of observations: Σ w x mod 2⁶⁴ over its words x, odd weights w."""
    rows = [np.ascontiguousarray(value).reshape(len(value), -1).view(np.uint8) for value in obs.values()]
    size = sum(part.shape[1] for part in rows)
    rows.append(np.zeros((len(rows[0]), -size % 8), np.uint8))
    words = np.concatenate(rows, 1).view(np.uint64)
    weights = np.random.default_rng(0).integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
    prints: Prints = (words * weights).sum(1, dtype=np.uint64)
    return prints


def _picked(over: Bool, final: Any, obs: Any) -> Any:  # noqa: ANN401 - arrays, or a dict of them
    """Return ``final`` where an episode is over, else ``obs``."""
    if isinstance(final, Mapping):
        return {name: _picked(over, value, obs[name]) for name, value in final.items()}
    picked = np.array(obs)
    picked[over] = np.asarray(final)[over]
    return picked


def _plain(value: Any) -> Any:  # noqa: ANN401 - tensors, or a dict of them
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return None if value is None else value.detach().cpu().numpy()


def _filled(obs: Any, final: Any) -> Any:  # noqa: ANN401 - any space's
    """Return observations of all lanes, in which those that ended have their last one. None: unknown."""
    if final is None:
        return None
    if not (isinstance(final, np.ndarray) and final.dtype == object):
        return final
    named = obs if isinstance(obs, Mapping) else {"": obs}
    filled = {name: np.array(part) for name, part in named.items()}
    for lane, one in enumerate(final):
        if one is not None:
            for name, part in one.items() if isinstance(one, Mapping) else [("", one)]:
                filled[name][lane] = part
    return filled if isinstance(obs, Mapping) else filled[""]
