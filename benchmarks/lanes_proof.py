"""Check that the replay holds what a simulator returned: each transition once, and none across a reset.

A wrapper around the simulator records a fingerprint of each lane's observation, before any of our code reads
it. The transitions that follow from these records are compared with those that the replay returns.
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
"""Fingerprints of observations [N]: equal for different bytes only with a probability of 2⁻⁶⁴."""


@dataclass
class SimulatorStep:
    """The transitions of a step of N lanes, by the simulator's results."""

    took: Bool  # [N] the lane has a transition
    before: Prints  # [N]
    after: Prints  # [N]
    reward: Float  # [N]
    terminated: Bool  # [N]
    phantom: Bool  # [N] the last observation is the next episode's first


class Ledger:
    """Record of a simulator's results.

    read:     converts the simulator's observations of all lanes into ours
    expected: the transitions of its last step
    """

    def __init__(self) -> None:
        self.read: Callable[[object], Mapping[str, Array]] | None = None
        self.expected: SimulatorStep | None = None
        self._seen: Prints | None = None

    def watch(self, env: Any) -> Any:
        """Return a wrapper of the simulator that records its results."""
        return _TensorLog(env, self) if isinstance(env, TensorEnv) else _VectorLog(env, self)

    def record_reset(self, obs: object) -> None:
        """Record the observations after a reset."""
        self._seen = self._prints(obs)

    def record_step(
        self, obs: object, reward: object, terminated: object, truncated: object, final: object, took: Bool
    ) -> None:
        """Set ``expected`` to the transitions of a step, after a reset.

        obs:   observations of all N lanes, as the simulator returns them
        final: last observations of ended episodes [N, …]; None if the simulator has none, and then lanes
               that were truncated have no transition
        took:  [N] lanes that took a step, rather than only being reset in it

        The other arguments are [N].
        """
        assert self._seen is not None, "it has been reset"
        ends, cut = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        now, before, over = self._prints(obs), self._seen, ends | cut
        last = before if final is None else self._prints(_final_where(over, final, obs))
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
        """Return fingerprints of a simulator's observations."""
        assert self.read is not None
        return fingerprints(self.read(obs))


class _TensorLog(TensorEnv):
    """Wrapper of a tensor environment that records its results in a ledger."""

    def __init__(self, env: TensorEnv, ledger: Ledger) -> None:
        self._env, self._ledger = env, ledger
        self.num_envs, self.device, self.time_limit = env.num_envs, env.device, env.time_limit
        self.observation_space, self.action_space = env.observation_space, env.action_space

    @override
    def reset(self, seed: int | None = None, lanes: Any = None) -> TensorObs:
        obs = self._env.reset(seed, lanes)
        self._ledger.record_reset(_to_numpy(obs))
        return obs

    @override
    def step(self, actions: Any) -> TensorStep:
        step = TensorStep(*self._env.step(actions))
        obs, reward, terminated, truncated, final = map(_to_numpy, step)
        everyone = np.ones(self.num_envs, np.bool_)
        self._ledger.record_step(obs, reward, terminated, truncated, final, everyone)
        return step

    @override
    def close(self) -> None:
        self._env.close()


class _VectorLog(VectorWrapper):
    """Wrapper of a Gymnasium vector environment, in any autoreset mode, that records in a ledger."""

    def __init__(self, env: VectorEnv, ledger: Ledger) -> None:
        super().__init__(env)
        self._ledger, self._mode = ledger, env.metadata["autoreset_mode"]
        self._over: Bool = np.zeros(env.num_envs, np.bool_)

    @override
    def reset(self, **kwargs: Any) -> Any:
        obs, infos = self.env.reset(**kwargs)
        self._ledger.record_reset(obs)
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
        self._ledger.record_step(obs, reward, terminated, truncated, final, took)
        expected = self._ledger.expected
        if expected is not None and self._mode is not AutoresetMode.SAME_STEP:
            expected.phantom[:] = False  # the next episode has not begun
        return result


@dataclass
class Proof:
    """Counts of a proof: transitions, faults and episodes."""

    transitions: int = 0  # that were stored
    wrong: int = 0  # of these, or missing
    phantoms: int = 0  # ends whose last observation is the next episode's first
    episodes: int = 0
    seconds: float = 0.0


class _RandomAgent:
    """Random policy with a replay. ``ids``: of each lane's last transition in it, −1 for a lane without."""

    stored_carry_shape = (0,)

    def __init__(self, spec: AgentSpec, seed: int) -> None:
        self._spec, self._rng = spec, np.random.default_rng(seed)
        self.replay: ReplayBuffer | None = None

    def initial_carry(self, n: int) -> Float:
        if self.replay is None:  # the first call is for all lanes
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
    """Act at random, and compare each stored transition with the simulator's results; return the counts.

    make:    makes environments of one behaviour, whose simulator the ledger watches
    seconds: time limit
    """
    ledger, proof = Ledger(), Proof()
    with closing(make(ledger)) as env:
        ((name, spec),) = env.specs.items()
        assert isinstance(env, LanesVecEnv), "it steps many at once"
        ledger.read, stored = env.observations, _RandomAgent(spec, seed)
        collector = LocalCollector(env, {name: stored}, {name: stored})
        began = time.monotonic()
        while proof.transitions < transitions and proof.seconds < seconds:
            stored.ids[:] = -1
            proof.episodes += len(collector.step())
            _compare(proof, ledger, stored)
            proof.seconds = time.monotonic() - began
    return proof


def _compare(proof: Proof, ledger: Ledger, stored: _RandomAgent) -> None:
    """Compare a step's transitions in the replay with the expected ones; add to the counts."""
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
    size = sum(row.shape[1] for row in rows)
    rows.append(np.zeros((len(rows[0]), -size % 8), np.uint8))
    words = np.concatenate(rows, 1).view(np.uint64)
    weights = np.random.default_rng(0).integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
    prints: Prints = (words * weights).sum(1, dtype=np.uint64)
    return prints


def _final_where(over: Bool, final: Any, obs: Any) -> Any:
    """Return ``final`` for lanes whose episode is over, else ``obs``."""
    if isinstance(final, Mapping):
        return {name: _final_where(over, value, obs[name]) for name, value in final.items()}
    last = np.array(obs)
    last[over] = np.asarray(final)[over]
    return last


def _to_numpy(value: Any) -> Any:
    """Return tensors as arrays; None stays None."""
    if isinstance(value, Mapping):
        return {name: _to_numpy(tensor) for name, tensor in value.items()}
    return None if value is None else value.detach().cpu().numpy()


def _filled(obs: Any, final: Any) -> Any:
    """Return the observations of all lanes, the last one for those that ended; None if unknown."""
    if final is None:
        return None
    if not (isinstance(final, np.ndarray) and final.dtype == object):
        return final
    named = obs if isinstance(obs, Mapping) else {"": obs}
    filled = {name: np.array(value) for name, value in named.items()}
    for lane, last in enumerate(final):
        if last is not None:
            for name, value in last.items() if isinstance(last, Mapping) else [("", last)]:
                filled[name][lane] = value
    return filled if isinstance(obs, Mapping) else filled[""]
