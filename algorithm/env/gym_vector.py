"""An environment's own vector class (``gymnasium.vector.VectorEnv``), in each of its autoreset modes.

Such a class steps all sub-environments in one call and decides when one whose episode has ended is reset
(https://gymnasium.farama.org/api/vector/autoreset/). In every mode the results are the transitions of N plain
environments:

* next step: the step after an end is a reset. It ignores the action, so the agent is ``skipped`` in it.
* same step: an end returns the next episode's first observation; the last one is in the infos.
* disabled: sub-environments whose episode has ended are reset here, within the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from typing_extensions import override

from algorithm.core.data import Bool, Float, Int, State
from algorithm.core.errors import EnvError, described
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import (
    EpisodeSeed,
    Observation,
    OnFault,
    ResetResult,
    StepResult,
    VecEnv,
    ignore_fault,
)
from algorithm.env.env_id import advice
from algorithm.env.gym import Adapter
from algorithm.env.masks import MASK
from algorithm.env.outputs import (
    EpisodeInfos,
    SpaceMismatchError,
    flags_of,
    info_of,
    lost_final,
    numbers_of,
    observation_of,
    present,
)
from algorithm.env.pool.env_group import close_error
from algorithm.env.pool.process_exit import as_exception, exits_as_errors
from algorithm.env.spaces import check_spaces

_T = TypeVar("_T")

_PHRASES = {
    AutoresetMode.NEXT_STEP: "next-step autoreset",
    AutoresetMode.SAME_STEP: "same-step autoreset",
    AutoresetMode.DISABLED: "reset by us",
}


class GymVectorEnv(VecEnv):
    """N sub-environments, stepped by one vector class.

    make:    builds the vector environment, usually by ``gymnasium.make_vec``
    seed_of: seed of each episode
    options: passed to every ``reset`` called here (``reset_config``)
    name:    of the environment, for messages
    infos:   keys of the infos with numbers of an episode
    on_fault: is told once of last observations that the class loses

    Seeds and options reach the sub-environments with every reset called here: the first one, requested ones,
    and with autoreset disabled that of every episode. Where the class resets by itself, later episodes use
    its own random numbers, and the class decides about the options. Gymnasium's own two classes take a seed
    per sub-environment; any other takes one for all, as ``VectorEnv.reset`` declares: that of the first to
    reset.

    A partial reset needs a class that honours ``options["reset_mask"]``.

    Raises :class:`EnvError` if it cannot be built, for unsupported spaces, and for a class without an
    autoreset mode.
    """

    def __init__(
        self,
        make: Callable[[], VectorEnv],
        *,
        seed_of: EpisodeSeed,
        options: Mapping[str, Any] | None = None,
        name: str,
        infos: Sequence[str] = (),
        on_fault: OnFault = ignore_fault,
    ) -> None:
        self._env = _make(make, name)
        check_spaces(self._env, name, "single_")
        self._n = self._env.num_envs
        self._class = type(self._env.unwrapped).__name__
        self._name, self._step = name, 0
        self._mode = self._autoreset_mode()
        self._start_next = {
            AutoresetMode.NEXT_STEP: self._next_step,
            AutoresetMode.SAME_STEP: self._same_step,
            AutoresetMode.DISABLED: self._reset_ended,
        }[self._mode]
        adapter = Adapter(self._env.single_observation_space, self._env.single_action_space, name)
        self.specs = {DEFAULT_BEHAVIOUR: adapter.spec}
        self.fps = None  # images come from single environments
        self.render_modes = ()
        spec = self._env.spec
        self.time_limit = spec.kwargs.get("max_episode_steps", spec.max_episode_steps) if spec else None
        self.arrangement = f"{self._n} in {self._class} ({_PHRASES[self._mode]})"
        self._observations, self._masks = adapter.observations, adapter.masks
        self._actions = adapter.actions
        self._infos = EpisodeInfos(infos, self._n)
        self._last_infos = "final_info" if self._mode is AutoresetMode.SAME_STEP else ""
        self._all_allowed = adapter.spec.action.all_allowed(self._n)
        self._all_allowed.flags.writeable = False  # shared by all steps
        self._seed_of, self._options = seed_of, dict(options or {})
        self._seed_each = isinstance(self._env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._on_fault, self._told_lost = on_fault, False
        self._ids: Int = np.arange(self._n)
        self._episode: Int = np.full(self._n, -1)
        self._seeds = [0] * self._n
        self._resets_itself: Bool = np.zeros(self._n, np.bool_)  # reset by the class in the next step
        # The last output of the class, and the one before.
        self._last = self._before = Observation(
            ids=self._ids, obs=adapter.spec.obs.zeros(self._n), action_mask=self._all_allowed
        )

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        chosen = self._ids if indices is None else np.array(indices, np.int64)
        if episode is not None:
            self._episode[chosen] = episode - 1
        seen = self._reset(chosen)
        return {
            DEFAULT_BEHAVIOUR: ResetResult(
                ids=chosen,
                obs={name: value[chosen] for name, value in seen.obs.items()},
                action_mask=seen.action_mask[chosen],
            )
        }

    @override
    def state(self) -> State:
        return State({"episode": self._episode.copy()})

    @override
    def resume(self, state: State) -> dict[int, str]:
        """Restore the numbers of the episodes: the class cannot repeat one environment's episode alone."""
        episode = state.arrays["episode"][: self._n]
        self._episode[: len(episode)] = episode
        reason = f"{self._class} steps all environments together and cannot repeat the episode of one"
        return dict.fromkeys(range(self._n), reason)

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        scaled = self._actions.to_env(actions[DEFAULT_BEHAVIOUR])
        obs, rewards, terminations, truncations, infos = self._call("step", lambda: self._env.step(scaled))
        self._step += 1
        try:
            reward = numbers_of(rewards, self._n, "rewards")
            terminated = flags_of(terminations, self._n, "terminations")
            truncated = flags_of(truncations, self._n, "truncations")
            ended = terminated | truncated
            self._infos.add_batch(infos, ~self._resets_itself, ended, last=self._last_infos)
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        skipped, final = self._resets_itself, None
        self._episode[skipped] += 1
        self._resets_itself = np.zeros(self._n, np.bool_)
        # With same-step autoreset the observation already belongs to the next episode.
        over = terminated & (self._mode is not AutoresetMode.SAME_STEP)
        self._before, self._last = self._last, self._observation(obs, infos, over)
        seen, lost = self._last, self._lost(ended, infos)
        if ended.any():
            seen, final = self._start_next(seen, ended, terminated, infos)
        return {
            DEFAULT_BEHAVIOUR: StepResult(
                **vars(seen),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                final=final,
                skipped=skipped if skipped.any() else None,
                unknown=lost & ~terminated if lost.any() else None,
            )
        }

    @override
    def infos(self, agent: int) -> dict[str, float]:
        return present(self._infos.keys, self._infos.values[agent])

    @override
    def close(self) -> None:
        """Close the vector environment. Raises EnvError."""
        try:
            self._env.close()
        except BaseException as error:
            raise close_error(self._name, as_exception(error)) from error

    def _next_step(
        self, seen: Observation, ended: Bool, terminated: Bool, infos: Mapping[str, Any]
    ) -> tuple[Observation, Observation]:
        """Return the last observations also as the next: the class resets in the next step."""
        self._resets_itself = ended
        return seen, seen

    def _same_step(
        self, seen: Observation, ended: Bool, terminated: Bool, infos: Mapping[str, Any]
    ) -> tuple[Observation, Observation]:
        """Take the last observations from the infos: one object for each, or one structure for all."""
        self._episode[ended] += 1
        lost = self._lost(ended, infos)
        last = {name: value.copy() for name, value in seen.obs.items()}
        mask = seen.action_mask.copy()
        for name, value in self._before.obs.items():
            last[name][lost] = value[lost]
        for i in np.flatnonzero(ended & ~lost).tolist():
            found = self._last_of(i, infos, over=bool(terminated[i]))
            mask[i] = found.action_mask
            for name, value in found.obs.items():
                last[name][i] = value[0]
        return seen, Observation(ids=self._ids, obs=last, action_mask=mask)

    def _lost(self, ended: Bool, infos: Mapping[str, Any]) -> Bool:
        """Return which episodes [N] have ended without their last observations, and tell of the first one."""
        if self._mode is not AutoresetMode.SAME_STEP:
            return np.zeros(self._n, np.bool_)
        lost: Bool = ended & ~np.asarray(infos.get("_final_obs", "final_obs" in infos), np.bool_)
        if lost.any() and not self._told_lost:
            self._told_lost = True
            self._on_fault(lost_final(self._name, self._class, self._step))
        return lost

    def _last_of(self, i: int, infos: Mapping[str, Any], *, over: bool) -> Observation:
        """Return the last observation of sub-environment i's episode, [1, ...]."""
        try:
            obs = observation_of(infos["final_obs"], i)
            info = info_of(infos["final_info"], i) if "final_info" in infos else {}
            mask = self._masks.read(obs, info, over=over)
            one = self._observations.read_each([obs])
        except (SpaceMismatchError, LookupError, TypeError) as error:
            raise self._space_error(f'infos["final_obs"] of environment {i}: {error}') from error
        if mask is None and MASK in infos and "final_info" not in infos and not over:
            raise self._error(
                "cut an episode off without its last action mask",
                why=f'same-step autoreset has to put it into infos["final_info"][{MASK!r}]',
                fix="report it to the environment's authors; it cannot be trained on",
            )
        row = np.array([i])
        return Observation(
            ids=row, obs=one, action_mask=self._all_allowed[row] if mask is None else mask[None]
        )

    def _reset_ended(
        self, seen: Observation, ended: Bool, terminated: Bool, infos: Mapping[str, Any]
    ) -> tuple[Observation, Observation]:
        return self._reset(np.flatnonzero(ended)), seen

    def _reset(self, chosen: Int) -> Observation:
        """Start the next episode in the sub-environments ``chosen``. Returns the observations of all."""
        self._episode[chosen] += 1
        self._infos.begin_next(chosen)
        for i in chosen.tolist():
            self._seeds[i] = self._seed_of(i, int(self._episode[i]))
        seed: Any = list(self._seeds) if self._seed_each else self._seeds[chosen[0]]
        options = dict(self._options)  # gymnasium's own classes remove reset_mask from it
        kept = np.ones(self._n, np.bool_)
        kept[chosen] = False
        if kept.any():
            options["reset_mask"] = ~kept
        obs, infos = self._call("reset", lambda: self._env.reset(seed=seed, options=options or None))
        first = self._observation(obs, infos, kept & self._resets_itself)
        if any(
            not np.array_equal(value[kept], self._last.obs[name][kept], equal_nan=True)
            for name, value in first.obs.items()
        ):
            raise self._error(
                "changed environments that it was not asked to reset",
                why=f'{self._class} does not honour options["reset_mask"]',
                fix="set base_config.workers to 1, for single environments; or, if the class resets by "
                "itself, max_step_each_iter to -1 and reset_on_iteration to false",
            )
        self._resets_itself[chosen] = False
        self._last = self._with_masks_kept(first, kept)
        return self._last

    def _with_masks_kept(self, first: Observation, kept: Bool) -> Observation:
        """Keep the masks of the others: the infos of a reset do not contain them."""
        if first.action_mask is self._last.action_mask:
            return first
        mask = np.where(kept[:, None], self._last.action_mask, first.action_mask)
        return replace(first, action_mask=mask)

    def _observation(self, obs: Any, infos: Mapping[str, Any], over: Bool) -> Observation:  # noqa: ANN401 - any space
        """Copy the class's arrays, which it may reuse. over: sub-environments whose task has ended."""
        try:
            own = self._observations.read_batch(obs, self._n)
            mask = self._masks.read_batch(obs, infos, over)
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        return Observation(ids=self._ids, obs=own, action_mask=self._all_allowed if mask is None else mask)

    def _call(self, call: str, run: Callable[[], _T]) -> _T:
        try:
            return run()
        except BaseException as raised:
            error = as_exception(raised)
            raise self._error(
                f"failed in {call}",
                why=described(error),
                fix="run with --debug for the environment's own traceback",
            ) from error

    def _autoreset_mode(self) -> AutoresetMode:
        stated = self._env.metadata.get("autoreset_mode")
        if not isinstance(stated, AutoresetMode):
            raise self._error(
                "does not declare its autoreset mode",
                why=f"metadata['autoreset_mode'] of {self._class} is {stated!r}",
                fix="a gymnasium.vector.AutoresetMode belongs there",
            )
        env = self._env.unwrapped
        if isinstance(env, AsyncVectorEnv) and not env.shared_memory and stated is AutoresetMode.NEXT_STEP:
            raise self._error(
                "would be reset twice",
                why="without shared memory AsyncVectorEnv resets again in the step after a reset",
                fix="build it with shared_memory=True or another autoreset_mode",
            )
        return stated

    def _space_error(self, why: str) -> EnvError:
        return self._error(
            "returned what its spaces do not allow", why=why, fix="report it to the environment's authors"
        )

    def _error(self, what: str, *, why: str, fix: str) -> EnvError:
        return EnvError(
            f"{self._name} {what}",
            where=f"{self._class} of {self._n} environments, index unknown, step {self._step}",
            why=why,
            fix=fix,
        )


def _make(make: Callable[[], VectorEnv], name: str) -> VectorEnv:
    try:
        with exits_as_errors():
            return make()
    except Exception as error:
        raise EnvError(
            "the environment could not be made",
            where=f"{name}, a vector class of its own",
            why=described(error),
            fix=advice(error, "check base_config.env_name and env_args"),
        ) from error
