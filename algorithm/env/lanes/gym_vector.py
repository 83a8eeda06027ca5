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
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from typing_extensions import override

from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.steps import Bool, Float, Int
from algorithm.env.adapter import Adapter, has_mask_method
from algorithm.env.base import (
    EpisodeSeed,
    Observation,
    OnFault,
    StepResult,
    ignore_fault,
)
from algorithm.env.config import INTERVENTION_KEYS, InterventionKeys
from algorithm.env.executed import ExecutedActions
from algorithm.env.lanes.base import LanesVecEnv, made
from algorithm.env.masks import MASK, MASKS_METHOD
from algorithm.env.outputs import (
    EpisodeInfos,
    SpaceMismatchError,
    flags_of,
    info_of,
    numbers_of,
    observation_of,
    present,
    results_of,
)
from algorithm.env.pool.env_group import close_error
from algorithm.env.pool.process_exit import as_exception
from algorithm.env.pool.watchdog import closing_in_time
from algorithm.env.spaces import check_spaces

_PHRASES = {
    AutoresetMode.NEXT_STEP: "next-step autoreset",
    AutoresetMode.SAME_STEP: "same-step autoreset",
    AutoresetMode.DISABLED: "reset by this program",
}


class GymVectorEnv(LanesVecEnv):
    """N sub-environments that one vector class of Gymnasium steps.

    make:    builds the vector environment, usually by ``gymnasium.make_vec``
    seed_of: seed of each episode
    options: passed to every ``reset`` called here (``reset_config``)
    name:    of the environment, for messages
    infos:   keys of the infos with numbers of an episode
    interventions: those with actions that were executed in place of the policy's
    on_fault: called once if the class loses last observations

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
        interventions: InterventionKeys = INTERVENTION_KEYS,
        on_fault: OnFault = ignore_fault,
    ) -> None:
        self._env = env = made(make, name, "its own vector class")
        check_spaces(env, name, "single_")
        super().__init__(
            Adapter(env.single_observation_space, env.single_action_space, name),
            env.num_envs,
            name=name,
            owner=type(env.unwrapped).__name__,
            seed_of=seed_of,
            on_fault=on_fault,
        )
        self._mode = self._autoreset_mode()
        self._start_next = {
            AutoresetMode.NEXT_STEP: self._next_step,
            AutoresetMode.SAME_STEP: self._same_step,
            AutoresetMode.DISABLED: self._reset_ended,
        }[self._mode]
        spec = env.spec
        self.time_limit = spec.kwargs.get("max_episode_steps", spec.max_episode_steps) if spec else None
        self.arrangement = f"{self._n} in {self._class} ({_PHRASES[self._mode]})"
        self._infos = EpisodeInfos(infos, self._n)
        self._executed = ExecutedActions(env.single_action_space, interventions)
        self._has_method = has_mask_method(env.unwrapped, self.adapter)
        self._last_infos = "final_info" if self._mode is AutoresetMode.SAME_STEP else ""
        self._options = dict(options or {})
        self._seed_each = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._seeds = [0] * self._n
        self._resets_itself: Bool = np.zeros(self._n, np.bool_)  # reset by the class in the next step
        self._before = self._last  # the output before the last one

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        scaled = self._actions.to_env(actions[DEFAULT_BEHAVIOUR])
        returned = self._call("step", lambda: self._env.step(scaled))
        self._step += 1
        try:
            obs, rewards, terminations, truncations, infos = results_of("step", returned)
            reward = numbers_of(rewards, self._n, "rewards")
            terminated = flags_of(terminations, self._n, "terminations")
            truncated = flags_of(truncations, self._n, "truncations")
            ended = terminated | truncated
            took = ~self._resets_itself
            last = infos.get(self._last_infos, {}) if self._last_infos else infos
            sources = [(infos, took & ~ended), (last, took & ended)]
            executed, by_person = self._executed.read_batch(sources, scaled, actions[DEFAULT_BEHAVIOUR])
            self._infos.add_batch(sources, took, ended, by_person)
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        skipped, final = self._resets_itself, None
        self._episode[skipped] += 1
        self._resets_itself = np.zeros(self._n, np.bool_)
        # With same-step autoreset the observation already belongs to the next episode.
        over = terminated & (self._mode is not AutoresetMode.SAME_STEP)
        self._before, self._last = self._last, self._read(obs, infos, over)
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
                executed=executed,
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
        with closing_in_time(self._name):
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
            last_seen = self._last_of(i, infos, over=bool(terminated[i]))
            mask[i] = last_seen.action_mask
            for name, value in last_seen.obs.items():
                last[name][i] = value[0]
        return seen, Observation(ids=self._ids, obs=last, action_mask=mask)

    def _lost(self, ended: Bool, infos: Mapping[str, Any]) -> Bool:
        """Return which episodes [N] have ended without their last observations; report the first one."""
        if self._mode is not AutoresetMode.SAME_STEP:
            return np.zeros(self._n, np.bool_)
        lost: Bool = ended & ~np.asarray(infos.get("_final_obs", "final_obs" in infos), np.bool_)
        if lost.any():
            self._report_lost()
        return lost

    def _last_of(self, i: int, infos: Mapping[str, Any], *, over: bool) -> Observation:
        """Return the last observation of sub-environment i's episode, [1, ...]."""
        try:
            obs = observation_of(infos["final_obs"], i)
            info = info_of(infos["final_info"], i) if "final_info" in infos else {}
            mask = self._masks.read(obs, info, over=over)
            arrays = self._observations.read_each([obs])
        except (SpaceMismatchError, LookupError, TypeError) as error:
            raise self._space_error(f'infos["final_obs"] of environment {i}: {error}') from error
        if mask is None and MASK in infos and "final_info" not in infos and not over:
            raise self._error(
                "cut an episode off without its last action mask",
                why=f'same-step autoreset must put it into infos["final_info"][{MASK!r}]',
                fix="report it to the environment's authors; it cannot be trained on",
            )
        allowed = self._all_allowed[i] if mask is None else mask
        return Observation(ids=np.array([i]), obs=arrays, action_mask=allowed[None])

    def _reset_ended(
        self, seen: Observation, ended: Bool, terminated: Bool, infos: Mapping[str, Any]
    ) -> tuple[Observation, Observation]:
        return self._reset(np.flatnonzero(ended)), seen

    @override
    def _reset(self, chosen: Int) -> Observation:
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
        returned = self._call("reset", lambda: self._env.reset(seed=seed, options=options or None))
        try:
            obs, infos = results_of("reset", returned)
        except SpaceMismatchError as error:
            raise self._space_error(str(error)) from error
        if self._has_method and MASK not in infos:
            raise self._error(
                f"has a method {MASKS_METHOD}, which a vector class does not call",
                why=f'{self._class} passes on only infos["{MASK}"]',
                fix="put the mask into the info of a single environment, or pass the class of a single one",
            )
        first = self._read(obs, infos, kept & self._resets_itself)
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
        """Keep the masks of lanes that go on: the infos of a reset do not contain them."""
        if first.action_mask is self._last.action_mask:
            return first
        mask = np.where(kept[:, None], self._last.action_mask, first.action_mask)
        return replace(first, action_mask=mask)

    def _autoreset_mode(self) -> AutoresetMode:
        """Return the autoreset mode of the class. Raises EnvError for none, or one that resets twice."""
        stated = self._env.metadata.get("autoreset_mode")
        if not isinstance(stated, AutoresetMode):
            raise self._error(
                "does not declare its autoreset mode",
                why=f"metadata['autoreset_mode'] of {self._class} is {stated!r}",
                fix="set it to a gymnasium.vector.AutoresetMode",
            )
        env = self._env.unwrapped
        if isinstance(env, AsyncVectorEnv) and not env.shared_memory and stated is AutoresetMode.NEXT_STEP:
            raise self._error(
                "would be reset twice",
                why="without shared memory AsyncVectorEnv resets again in the step after a reset",
                fix="build it with shared_memory=True or another autoreset_mode",
            )
        return stated
