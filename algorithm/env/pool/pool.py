"""N sub-environments as one vector environment: episodes, seeds, failures, resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.steps import Array, Bool, Float, Int
from algorithm.env.base import (
    EpisodeSeed,
    Executed,
    Fault,
    Observation,
    OnFault,
    Picture,
    ResetResult,
    StepResult,
    VecEnv,
)
from algorithm.env.outputs import present
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.pool.env_group import GroupFailure, RestartBudget
from algorithm.env.pool.executor import Executor
from algorithm.env.pool.repetition import (
    ActionHistory,
    find_differences,
    spec_as_json,
    split_actions,
    why_not_repeatable,
)


class EnvPool(VecEnv):
    """A :class:`~algorithm.env.base.VecEnv` of single environments; agent i is in environment i.

    executor: runs the sub-environments
    seed_of:  seed of each episode
    parameters: values of each episode, by its seed; none by default
    restarts: failures that are survived by building a sub-environment again
    on_fault: called with each of them
    """

    def __init__(
        self,
        executor: Executor,
        *,
        seed_of: EpisodeSeed,
        restarts: int,
        on_fault: OnFault,
        parameters: ParameterSource | None = None,
    ) -> None:
        self._executor, self._seed_of = executor, seed_of
        self._parameters = parameters or ParameterSource()
        self._budget = RestartBudget(restarts, on_fault)
        self._buffers = executor.buffers
        self._n = len(self._buffers.seed)
        self._open_values = np.zeros_like(self._buffers.parameters)  # [N, K] of the open episodes
        info = executor.info
        self.specs: Mapping[str, AgentSpec] = {DEFAULT_BEHAVIOUR: info.spec}
        self.time_limit = info.time_limit
        self.fps = info.fps
        self.render_modes = info.render_modes
        self.arrangement = executor.arrangement
        for remark in info.remarks:
            on_fault(Fault(what=remark.what, where="", why=remark.why, fix=remark.fix))
        self._ids: Int = np.arange(self._n)
        self._ids.flags.writeable = False  # shared by all steps
        self._all_allowed = info.spec.action.all_allowed(self._n)
        self._all_allowed.flags.writeable = False
        self._episode = [-1] * self._n
        self._stepped = (self._episode, self._open_values)  # those of the last step
        self._history = ActionHistory(self._n, info.spec.action.size)
        # Sub-environments that started an episode which the caller did not ask for and has not seen yet.
        self._unreported: set[int] = set()
        self._interrupted = self.masked = False  # the former inside a call, or after one that raised

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        indices = range(self._n) if indices is None else indices
        self._interrupted = True
        for i in indices:
            self._plan_episode(i, self._episode[i] + 1 if episode is None else episode)
        self._start_episodes(indices)
        self._unreported.difference_update(indices)
        self._interrupted = False
        rows = np.array(indices, np.int64)
        return {
            DEFAULT_BEHAVIOUR: ResetResult(
                ids=rows,
                obs={name: value[rows] for name, value in self._buffers.obs.items()},
                action_mask=self._action_mask(self._buffers.action_mask)[rows],
            )
        }

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        buffers = self._buffers
        self._interrupted = True
        buffers.action[:] = actions[DEFAULT_BEHAVIOUR]
        self._history.record(buffers.action)
        self._stepped = ([*self._episode], self._open_values.copy())
        failures = self._executor.step()
        if self._unreported:
            buffers.mark_skipped(sorted(self._unreported))
        reward = buffers.reward.copy()
        self._history.record_reward(reward)
        terminated, truncated = buffers.terminated.copy(), buffers.truncated.copy()
        ended = terminated | truncated
        final = skipped = None
        if ended.any():
            final = self._observation(buffers.final, buffers.final_mask)
            for i in np.flatnonzero(ended).tolist():
                self._episode_started(i)
        if failures or self._unreported:
            missing = self._recover(failures) & ~ended
            reward[missing] = 0.0
            skipped = missing if missing.any() else None
        self._interrupted = False
        return {
            DEFAULT_BEHAVIOUR: StepResult(
                **vars(self._observation(buffers.obs, buffers.action_mask)),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                final=final,
                skipped=skipped,
                executed=self._executed(),
            )
        }

    @override
    def state(self) -> State:
        buffers = self._buffers
        past_actions = [self._history.actions(i) for i in range(self._n)]
        names = list(self._parameters.names)
        arrays: dict[str, Array] = {
            "episode": np.array(self._episode, np.int64),
            "length": np.array([len(actions) for actions in past_actions], np.int64),
            "actions": np.concatenate(past_actions),
            "total": np.array([self._history.total_reward(i) for i in range(self._n)]),
            "action_mask": self._action_mask(buffers.action_mask),
            "masked": buffers.has_mask.copy(),
            **{f"obs/{name}": value.copy() for name, value in buffers.obs.items()},
            **({"parameters": self._open_values.copy()} if names else {}),
        }
        meta = {
            "spec": spec_as_json(self._executor.info.spec),
            "unannounced": sorted(self._unreported),
            "cut": self._interrupted,
            **({"parameters": names} if names else {}),
        }
        return State(arrays, meta)

    @override
    def resume(self, state: State) -> dict[int, str]:
        for i, episode in enumerate(state.arrays["episode"][: self._n].tolist()):
            self._plan_episode(i, episode + 1)
        if state.meta.get("cut"):
            return dict.fromkeys(range(self._n), "its last step was interrupted")
        if why := why_not_repeatable(state, self._n, self._executor.info.spec, list(self._parameters.names)):
            return dict.fromkeys(range(self._n), why)
        buffers = self._buffers
        buffers.has_mask[:] = state.arrays["masked"]
        failed = chain(*(failure.envs for failure in self._repeat_episodes(state)))
        self._unreported = set(state.meta["unannounced"])
        reasons = find_differences(state, buffers, self._action_mask(buffers.action_mask))
        return reasons | dict.fromkeys(failed, "it failed while it was repeated")

    @override
    def episode_of(self, agent: int, *, begins: bool) -> str:
        if not 0 <= agent < self._n:
            return ""
        episodes, values = (self._episode, self._open_values) if begins else self._stepped
        named = zip(self._parameters.names, values[agent].tolist(), strict=True)
        place = self._place(agent, episodes[agent])
        return ", ".join([place, *(f"{name} {value!r}" for name, value in named)])

    @override
    def infos(self, agent: int) -> dict[str, float]:
        return present(self._executor.info.infos, self._buffers.infos[agent])

    @override
    def renew_parameters(self, lessons: Mapping[str, str]) -> None:
        self._parameters.renew(lessons)
        for i, seed in enumerate(self._buffers.seed.tolist()):
            self._buffers.parameters[i] = self._parameters.draw(seed)

    @override
    def metrics(self) -> dict[str, float]:
        """Return the mean of each parameter over the open episodes."""
        means = self._open_values.mean(0).tolist()
        return {f"param/{name}": mean for name, mean in zip(self._parameters.names, means, strict=True)}

    @override
    def render(self) -> Picture | None:
        return self._executor.render()

    @override
    def close(self) -> None:
        """Release the simulators, within ten seconds."""
        self._executor.close()

    def _executed(self) -> Executed | None:
        buffers = self._buffers
        if not buffers.replaced.any():
            return None
        return Executed(buffers.executed.copy(), buffers.replaced.copy(), buffers.by_person.copy())

    def _recover(self, failures: Sequence[GroupFailure]) -> Bool:
        """Start episodes where they were lost; return the mask of those sub-environments, [N]."""
        lost = self._unreported.union(*(failure.envs for failure in failures))
        self._count_failures(failures)
        self._start_episodes(lost)  # may end the episodes of others in the same worker
        lost |= self._unreported
        self._unreported.clear()
        return np.isin(np.arange(self._n), list(lost))

    def _start_episodes(self, indices: Iterable[int]) -> None:
        """Start the planned episodes; after a failure start later ones until one succeeds."""
        requested = set(indices)
        waiting = requested
        while waiting:
            failures = self._executor.reset(sorted(waiting))
            for i in waiting:
                self._episode_started(i)
            self._count_failures(failures)
            waiting = set(chain.from_iterable(failure.envs for failure in failures))
            self._unreported |= waiting - requested

    def _episode_started(self, i: int) -> None:
        """Count the planned episode and plan the next one, which the executor may start by itself."""
        self._history.begin_episode(i)
        self._open_values[i] = self._buffers.parameters[i]
        self._episode[i] += 1
        self._plan_episode(i, self._episode[i] + 1)

    def _repeat_episodes(self, state: State) -> list[GroupFailure]:
        """Start the open episodes again with their own parameters and repeat their actions."""
        done = split_actions(state)
        for i in range(self._n):
            self._plan_episode(i, self._episode[i])
        if self._parameters.names:
            self._buffers.parameters[:] = state.arrays["parameters"]
        failures = self._executor.repeat(dict(enumerate(done)))
        for i, actions in enumerate(done):
            self._episode_started(i)
            self._history.begin_episode(
                i, actions[: self._buffers.repeated_steps[i]], self._buffers.repeated_return.item(i)
            )
        self._count_failures(failures)
        return failures

    def _plan_episode(self, i: int, episode: int) -> None:
        """Set number, seed and parameters of the next episode of sub-environment i."""
        self._episode[i] = episode - 1
        seed = self._buffers.seed[i] = self._seed_of(i, episode)
        self._buffers.parameters[i] = self._parameters.draw(seed)

    def _count_failures(self, failures: Iterable[GroupFailure]) -> None:
        """Charge failures to the budget. Raises EnvError for one too many."""
        for failure in failures:
            self._budget.survive(failure, self._describe(failure))

    def _describe(self, failure: GroupFailure) -> str:
        """Return environment, episode, seed, step and last action of a failure, for its message."""
        i = failure.envs[0] if failure.culprit is None else failure.culprit
        place = self._place(i, self._episode[i])
        step = f"step {self._history.length(i)} of the episode"
        if self._history.length(i):  # there is no action before the first step
            step += f", action [{', '.join(f'{part:.4g}' for part in self._buffers.action[i])}]"
        others = [str(other) for other in failure.envs if other != i]
        several = "s" * (len(others) > 1)
        also = f"; environment{several} {', '.join(others)} in the same process" * bool(others)
        return f"{place}, {step}{also}"

    def _place(self, i: int, episode: int) -> str:
        """Return environment, episode and seed, for a message."""
        return f"environment {i}, episode {episode}, seed {self._seed_of(i, episode)}"

    def _observation(self, obs: Mapping[str, Array], mask: Bool) -> Observation:
        """Return copies of observations [N, ...] with their masks."""
        return Observation(
            ids=self._ids,
            obs={name: value.copy() for name, value in obs.items()},
            action_mask=self._action_mask(mask),
        )

    def _action_mask(self, mask: Bool) -> Bool:
        """Return a copy of ``mask`` [N, ΣN]; one shared array while no sub-environment has given a mask."""
        if not self._buffers.has_mask.any():
            return self._all_allowed
        self.masked = True
        return mask | ~self._buffers.has_mask[:, None]
