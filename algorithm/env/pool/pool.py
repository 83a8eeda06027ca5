"""N copies of an environment as one: their episodes, their seeds, and what to do when one fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from algorithm.data import Array, Bool, Float, Int, State
from algorithm.env.base import EpisodeSeed, Observation, OnFault, Picture, StepResult, Trace
from algorithm.env.pool.action_history import Trail
from algorithm.env.pool.env_group import Failure
from algorithm.env.pool.executor import Executor
from algorithm.env.pool.restart_budget import Budget
from algorithm.env.pool.resume_check import described, split, unfit, unlike
from algorithm.spec import DEFAULT_BEHAVIOUR, AgentSpec


class EnvPool:
    """A :class:`~algorithm.env.base.VecEnv` with one agent in each copy; agent i lives in copy i.

    executor: runs the copies
    seed_of:  seed of each episode
    restarts: failures that are survived by starting a copy anew
    on_fault: told of each of them
    """

    def __init__(self, executor: Executor, *, seed_of: EpisodeSeed, restarts: int, on_fault: OnFault) -> None:
        self._executor, self._seed_of = executor, seed_of
        self._budget = Budget(restarts, on_fault)
        self._board = executor.board
        self._n = len(self._board.seed)
        self.specs: Mapping[str, AgentSpec] = {DEFAULT_BEHAVIOUR: executor.spec}
        self.time_limit, self.fps = executor.time_limit, executor.fps
        self.render_modes = executor.render_modes
        self.arrangement = executor.arrangement
        self._ids: Int = np.arange(self._n)
        self._ids.flags.writeable = False  # the same array every time
        self._all_allowed = executor.spec.action.all_allowed(self._n)
        self._all_allowed.flags.writeable = False
        self._episode = [-1] * self._n
        self._trail = Trail(self._n, executor.spec.action.size)
        # Copies that began a new episode for which the caller did not ask: it does not know of it yet.
        self._unannounced: set[int] = set()
        self._cut = False  # in the middle of a call, or one was left by an error

    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, Observation]:
        """See :class:`~algorithm.env.base.VecEnv`."""
        indices = range(self._n) if indices is None else indices
        self._cut = True
        for i in indices:
            self._plan(i, self._episode[i] + 1 if episode is None else episode)
        self._begin(indices)
        self._unannounced.difference_update(indices)
        for i in indices:
            self._trail.forget(i)
        self._cut = False
        rows = np.array(indices, np.int64)
        return {
            DEFAULT_BEHAVIOUR: Observation(
                ids=rows,
                obs={name: value[rows] for name, value in self._board.obs.items()},
                action_mask=self._allowed(self._board.action_mask)[rows],
            )
        }

    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        """See :class:`~algorithm.env.base.VecEnv`."""
        board = self._board
        self._cut = True
        board.action[:] = actions[DEFAULT_BEHAVIOUR]
        self._trail.record(board.action)
        failures = self._executor.step()
        if self._unannounced:
            board.skip(sorted(self._unannounced))
        reward = board.reward.copy()
        self._trail.earn(reward)
        terminated, truncated = board.terminated.copy(), board.truncated.copy()
        ended = terminated | truncated
        final = skipped = None
        if ended.any():
            final = self._seen(board.final, board.final_mask)
            for i in np.flatnonzero(ended).tolist():
                self._begun(i)
        if failures or self._unannounced:
            missing = self._recover(failures) & ~ended
            reward[missing] = 0.0
            skipped = missing if missing.any() else None
        self._cut = False
        return {
            DEFAULT_BEHAVIOUR: StepResult(
                **vars(self._seen(board.obs, board.action_mask)),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                final=final,
                skipped=skipped,
            )
        }

    def state(self) -> State:
        """See :class:`~algorithm.env.base.VecEnv`."""
        board = self._board
        done = [self._trail.actions(i) for i in range(self._n)]
        arrays: dict[str, Array] = {
            "episode": np.array(self._episode, np.int64),
            "length": np.array([len(actions) for actions in done], np.int64),
            "actions": np.concatenate(done),
            "total": np.array([self._trail.total(i) for i in range(self._n)]),
            "action_mask": self._allowed(board.action_mask),
            "masked": board.masked.copy(),
            **{f"obs/{name}": value.copy() for name, value in board.obs.items()},
        }
        meta = {
            "spec": described(self._executor.spec),
            "failures": self._budget.spent,
            "unannounced": sorted(self._unannounced),
            "cut": self._cut,
        }
        return State(arrays, meta)

    def resume(self, state: State) -> dict[int, str]:
        """See :class:`~algorithm.env.base.VecEnv`. Every process repeats the episodes of its own copies."""
        self._budget.resume(state.meta.get("failures", 0))
        for i, episode in enumerate(state.arrays["episode"][: self._n].tolist()):
            self._plan(i, episode + 1)
        if state.meta.get("cut"):
            return dict.fromkeys(range(self._n), "its last step never came to its end")
        if why := unfit(state, self._n, self._executor.spec):
            return dict.fromkeys(range(self._n), why)
        board = self._board
        board.masked[:] = state.arrays["masked"]
        failed = chain(*(failure.copies for failure in self._repeat(split(state))))
        self._unannounced = set(state.meta["unannounced"])
        reasons = unlike(state, board, self._allowed(board.action_mask))
        return reasons | dict.fromkeys(failed, "it failed while it was repeated")

    def trace(self, agent: int) -> Trace | None:
        """See :class:`~algorithm.env.base.VecEnv`."""
        if not 0 <= agent < self._n:
            return None
        ended = self._trail.ended(agent)
        open_now = self._episode[agent]
        episode, actions = ended or (open_now, self._trail.actions(agent))
        return Trace(
            copy=agent,
            episode=episode,
            seed=self._seed_of(agent, episode),
            actions=actions,
            next_seed=self._seed_of(agent, open_now) if ended else None,
            to_env=self._executor.actions.to_env,
        )

    def render(self) -> Picture | None:
        """See :class:`~algorithm.env.base.VecEnv`."""
        return self._executor.render()

    def close(self) -> None:
        """Release the simulators, within ten seconds."""
        self._executor.close()

    def _recover(self, failures: Sequence[Failure]) -> Bool:
        """Begin episodes in all copies that lost theirs; returns which those are, [N]."""
        lost = self._unannounced.union(*(failure.copies for failure in failures))
        self._survive(failures)
        self._begin(lost)  # may cost other copies of the same worker their episodes
        lost |= self._unannounced
        self._unannounced.clear()
        return np.isin(np.arange(self._n), list(lost))

    def _begin(self, indices: Iterable[int]) -> None:
        """Begin planned episodes in these copies; where that fails, later ones until one begins."""
        asked = set(indices)
        waiting = asked
        while waiting:
            failures = self._executor.reset(sorted(waiting))
            for i in waiting:
                self._begun(i)
            self._survive(failures)
            waiting = set(chain.from_iterable(failure.copies for failure in failures))
            self._unannounced |= waiting - asked

    def _begun(self, i: int) -> None:
        """The planned episode has begun; plan the next one, which the executor may begin by itself."""
        self._trail.begin(i, self._episode[i])
        self._episode[i] += 1
        self._plan(i, self._episode[i] + 1)

    def _repeat(self, done: Sequence[Float]) -> list[Failure]:
        """Begin the episode before the planned one in every copy and do in it what was done, [L, A] each."""
        for i in range(self._n):
            self._plan(i, self._episode[i])
        failures = self._executor.repeat(dict(enumerate(done)))
        for i, actions in enumerate(done):
            self._begun(i)
            self._trail.repeat(i, actions[: self._board.taken[i]], self._board.total.item(i))
        self._survive(failures)
        return failures

    def _plan(self, i: int, episode: int) -> None:
        self._episode[i] = episode - 1
        self._board.seed[i] = self._seed_of(i, episode)

    def _survive(self, failures: Iterable[Failure]) -> None:
        """Raises the failure that is too many."""
        for failure in failures:
            self._budget.survive(failure, self._where(failure))

    def _where(self, failure: Failure) -> str:
        i = failure.copies[0] if failure.at is None else failure.at
        place = f"copy {i}, episode {self._episode[i]}, seed {self._seed_of(i, self._episode[i])}"
        step = f"step {self._trail.length(i)} of the episode"
        if self._trail.length(i):  # before the first one there is none
            step += f", action [{', '.join(f'{part:.4g}' for part in self._board.action[i])}]"
        others = [str(copy) for copy in failure.copies if copy != i]
        copies = "copies" if len(others) > 1 else "copy"
        also = f"; {copies} {', '.join(others)} in the same process" if others else ""
        return f"{place}, {step}{also}"

    def _seen(self, obs: Mapping[str, Array], mask: Bool) -> Observation:
        return Observation(
            ids=self._ids,
            obs={name: value.copy() for name, value in obs.items()},
            action_mask=self._allowed(mask),
        )

    def _allowed(self, mask: Bool) -> Bool:
        """A copy of the board's ``mask`` [N, ΣN]; the same array every time while no copy has given one."""
        if not self._board.masked.any():
            return self._all_allowed
        return mask | ~self._board.masked[:, None]
