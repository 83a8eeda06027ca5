"""The agents of one behaviour: their actions, and their transitions on the way to the replay."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from algorithm.agents.roles import Policy, Recorder
from algorithm.core.data import (
    PERSON_LOGP,
    UNKNOWN_LOGP,
    ActorOutput,
    Bool,
    Episode,
    Float,
    Int,
    State,
    StepBatch,
)
from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.env.base import Executed, Observation, ResetResult, StepResult
from algorithm.run.experience.non_finite import BadNumber, Number, examine, examine_first, refuse, without
from algorithm.run.experience.rows import NO_IDS, LiveAgents, joined, mixed, moved, picked, places, recorded


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Results of a step for the agents of one behaviour."""

    episodes: list[Episode]  # that ended with it
    to_reset: list[int]  # agents at the length limit
    to_drop: list[int]  # agents in an episode with numbers that are not finite
    taken: int  # transitions


class AgentProcessor(LiveAgents):
    """Agents of one behaviour that act, and whose transitions go to a recorder.

    on_bad: called for every number that is not finite; if it does not raise, the agent's episode ends there

    Raises ValueError if an id stands twice in ``first``, or the policy's ``stored_carry_shape`` has more
    numbers than its carry.
    """

    def __init__(
        self,
        name: str,
        spec: AgentSpec,
        policy: Policy,
        recorder: Recorder | None,
        first: Observation,
        *,
        on_bad: Callable[[BadNumber], None] = refuse,
    ) -> None:
        super().__init__(name, spec, policy, first)
        self.recorder, self._on_bad = recorder, on_bad
        self.acted: ActorOutput | None = None
        self._acted_before = False  # whether the result is of an action from an earlier step for any agent
        self._stored, kept = policy.stored_carry_shape, self.carry.shape[1:]
        if math.prod(self._stored) > math.prod(kept):
            raise ValueError(f"stored_carry_shape of {name!r} must fit into its carry {kept}: {self._stored}")

    def act(self) -> Float:
        """Return flat actions [N, A]; the policy is not called without agents that need an action."""
        if len(self.ids):
            self.acted = self.policy.act(self.obs, self.prev_action, self.carry, self.action_mask)
        else:
            self.acted = self._nobody_acts()
        return self.acted.action

    def record(self, result: StepResult, length_limit: int) -> Recorded:
        """Pass the step's transitions to the recorder, and continue with the present agents.

        Raises ValueError if ``result`` contradicts itself about the present agents; see
        :class:`~algorithm.env.base.StepResult`.
        """
        acted = self.acted
        assert acted is not None
        self._acted_before = False
        if self._changes(result):
            result, acted = self._rearranged(result, acted)
        result, again = self._examined(result, acted)
        if result.executed is not None:
            acted = self._executed(acted, result.executed)
        skipped = self._nobody if result.skipped is None else result.skipped
        lost = skipped.nonzero()[0]
        if len(lost):
            self._close(self.ids[lost], self.step[lost])
        ended = result.terminated | result.truncated
        self.step += ~skipped
        self.total += result.reward.astype(np.float32)  # as they are stored and recorded
        over_limit = (self.step == length_limit) & ~ended
        stored = ~skipped if result.unknown is None else ~(skipped | result.unknown)
        rows = stored.nonzero()[0]
        if self.recorder and len(rows):
            self._store(self.recorder, rows, acted, result, _seen_after(result, ended), over_limit)
        if result.unknown is not None:
            self._close(self.ids[result.unknown], self.step[result.unknown])
        self.obs, self.action_mask = dict(result.obs), result.action_mask
        self.prev_action, self.carry = acted.action, acted.carry
        finished = (ended | over_limit).nonzero()[0]
        recorded = Recorded(
            episodes=[self._episode(i) for i in finished],
            to_reset=self.ids[over_limit].tolist(),
            to_drop=again,
            taken=len(rows),
        )
        self._begin(finished)
        self._begin(lost)
        if result.left is not None:
            self._move(self.ids[~result.left])
        return recorded

    def _executed(self, acted: ActorOutput, executed: Executed) -> ActorOutput:
        """Return the output with the actions that were executed, whose densities are not known."""
        spec, rows = self._spec.action, executed.replaced.nonzero()[0]
        done = executed.action[rows]
        onehot = done[:, : spec.discrete]
        if (onehot.astype(np.bool_) & ~self.action_mask[rows]).any():
            raise EnvError(
                "the environment has executed a choice that its action mask forbids",
                where=f"behaviour {self.name!r}, base_config.interventions",
                why="what was executed is learned from, and masked choices have no probability",
                fix="let action_mask allow all that a person may do",
            )
        done_z = spec.unsquashed(done[:, spec.discrete :])
        action, z, logp = acted.action.copy(), acted.z.copy(), acted.behaviour_logp.copy()
        action[rows] = np.hstack((onehot, spec.squashed(done_z)))
        z[rows] = done_z
        logp[rows] = np.where(executed.by_person[rows, None], PERSON_LOGP, UNKNOWN_LOGP)
        return replace(acted, action=action, z=z, behaviour_logp=logp)

    def _episode(self, i: int) -> Episode:
        """Return the finished episode of the agent in row i."""
        return Episode(self.name, int(self.ids[i]), float(self.total[i]), int(self.step[i]))

    def _changes(self, result: StepResult) -> bool:
        """Return whether other agents are present after ``result`` than before."""
        if result.left is not None or result.vanished is not None or len(self._waiting["ids"]):
            return True
        return not (result.ids is self.ids or np.array_equal(result.ids, self.ids))

    def _rearranged(self, result: StepResult, acted: ActorOutput) -> tuple[StepResult, ActorOutput]:
        """Move every agent to its row in ``result``; absent agents wait, and vanished ones end.

        Return the result and the last output, in the same rows. In the result, agents that appeared are
        skipped, and agents that left have their final observation.
        """
        self._refuse_incomplete_ends(result)
        known = joined(self._rows(acted), self._waiting)
        if result.vanished is not None:
            gone = np.isin(known["ids"], result.vanished)
            self._close(known["ids"][gone], known["step"][gone])
            known = picked(known, ~gone)
        source = places(known["ids"], result.ids)
        appeared, waits = source < 0, np.ones(len(known["ids"]), np.bool_)
        waits[source[~appeared]] = False
        self._acted_before = bool(np.isin(self._waiting["ids"], result.ids).any())
        self._waiting = picked(known, waits)
        present = {name: moved(value, source) for name, value in known.items()}
        self._set_rows({**present, "ids": result.ids})
        acted = ActorOutput(**{name: present[f"acted/{name}"] for name in vars(acted)})
        obs = result.obs
        if result.left is not None and result.final is not None:
            obs = {name: mixed(result.left, result.final.obs[name], value) for name, value in obs.items()}
        return replace(
            result,
            obs=obs,
            reward=np.where(appeared, 0.0, result.reward),
            terminated=result.terminated & ~appeared,
            truncated=result.truncated & ~appeared,
            skipped=appeared if result.skipped is None else appeared | result.skipped,
        ), acted

    def _refuse_incomplete_ends(self, result: StepResult) -> None:
        """Raise ValueError if the result of an agent's last action is missing."""
        left = result.left
        if left is None:
            return
        unended = result.ids[left & ~(result.terminated | result.truncated)].tolist()
        if unended or (left.any() and result.final is None):
            agents = unended or result.ids[left].tolist()
            missing = "neither terminated nor truncated" if unended else "no final observation"
            raise ValueError(
                f"{self.name!r} agents {agents} left with {missing}: one that leaves in the middle of its "
                "episode is truncated with what it saw last in final, or is missing in the result"
            )

    def _examined(self, result: StepResult, acted: ActorOutput) -> tuple[StepResult, list[int]]:
        """Detect NaN and infinity as they arrive; from the replay they would show much later.

        Return the result, in which affected agents are skipped, and the agents that need a new episode.
        """
        findings = examine(result, acted)
        if findings is None:
            return result, []
        self._report(findings.numbers, self.ids, np.where(findings.begins, 0, self.step + 1), acted.action)
        return without(result, findings.lost), result.ids[findings.again].tolist()

    def unusable(self, first: Observation) -> list[int]:
        """Return the agents whose first observation in ``first`` is not finite."""
        numbers, n = examine_first(first), len(first.ids)
        self._report(numbers, first.ids, np.zeros(n, np.int64), self._spec.action.padding(n))
        return [int(first.ids[i]) for i in numbers]

    def _report(self, numbers: Mapping[int, Number], ids: Int, steps: Int, action: Float) -> None:
        """Call ``on_bad`` for each number; ids, steps in the episode and last actions are by row."""
        for i, number in numbers.items():
            bad = BadNumber(
                number=number, behaviour=self.name, agent=int(ids[i]), step=int(steps[i]), action=action[i]
            )
            self._on_bad(bad)

    def _close(self, ids: Int, steps: Int) -> None:
        """End the episodes of agents ``ids`` as truncated; those at step 0 have stored nothing yet."""
        if self.recorder:
            for stream in ids[steps > 0].tolist():
                self.recorder.close(stream)

    def _store(
        self,
        recorder: Recorder,
        rows: Int,
        acted: ActorOutput,
        result: StepResult,
        after: Observation,
        over_limit: Bool,
    ) -> None:
        """Give the transitions of the agents in ``rows`` to the recorder."""
        steps = StepBatch(
            streams=self.ids,
            start_steps=self.step - 1,
            obs=self.obs,
            action_mask=self.action_mask,
            carry=recorded(self.carry, self._stored),
            next_obs=dict(after.obs),
            next_action_mask=after.action_mask,
            next_carry=recorded(acted.carry, self._stored),
            action=acted.action,
            z=acted.z,
            behaviour_logp=acted.behaviour_logp,
            reward=result.reward.astype(np.float32),
            terminated=result.terminated,
            truncated=result.truncated | over_limit,
            lag=int(self._acted_before),  # an update may have come between
        )
        recorder.add_steps(steps if len(rows) == len(steps) else steps.rows(rows))

    def restart(self, named: Collection[int], first: ResetResult) -> None:
        """Begin episodes of the agents in ``first``, after a reset; open ones end as truncated.

        Agents that the reset removed lose their rows, new ones get rows behind the others.

        named: agents whose reset was requested; ValueError if one has neither begun nor been removed
        """
        removed = NO_IDS if first.removed is None else first.removed
        ended = np.concatenate((first.ids, removed))
        if lasting := sorted(set(named) & set(self.ids[~np.isin(self.ids, ended)].tolist())):
            raise ValueError(
                f"a reset of {self.name!r} agents {lasting} has neither restarted nor removed them"
            )
        of_rows, of_waiting = np.isin(self.ids, ended), np.isin(self._waiting["ids"], ended)
        self._close(self.ids[of_rows], self.step[of_rows])
        if of_waiting.any():
            self._close(self._waiting["ids"][of_waiting], self._waiting["step"][of_waiting])
            self._waiting = picked(self._waiting, ~of_waiting)
            self._agents = None
        stays, new = ~np.isin(self.ids, removed), ~np.isin(first.ids, self.ids)
        if new.any() or not stays.all():
            self._move(np.concatenate((self.ids[stays], first.ids[new])))
        seen = places(self.ids, first.ids)
        for name, value in first.obs.items():
            self.obs[name] = self.obs[name].copy()
            self.obs[name][seen] = value
        self.action_mask = self.action_mask.copy()
        self.action_mask[seen] = first.action_mask
        self._begin(np.sort(seen))

    def abandon(self, state: State) -> None:
        """End the episodes that are open in ``state`` as truncated, since they are not continued."""
        for kind in ("", "waiting/"):
            ids, steps = state.arrays[f"{kind}ids"], state.arrays[f"{kind}step"]
            self._close(ids.astype(np.int64), steps.astype(np.int64))


def _seen_after(result: StepResult, ended: Bool) -> Observation:
    """Return the observation after each action: the final one where the episode ended."""
    final = result.final
    if final is None:
        return result
    obs = {name: mixed(ended, final.obs[name], value) for name, value in result.obs.items()}
    mask = mixed(ended, final.action_mask, result.action_mask)
    return Observation(ids=result.ids, obs=obs, action_mask=mask)
