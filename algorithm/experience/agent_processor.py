"""The agents of one behaviour between two steps: their memory and their transitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.data import ActorOutput, Array, Bool, Float, Int, Scalar, State, StepBatch
from algorithm.env.base import Observation, StepResult
from algorithm.experience.non_finite import BadNumber, Number, examine, examine_first, refuse, without
from algorithm.roles import Episode, Policy, Recorder
from algorithm.spec import AgentSpec


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Outcome of a step for the agents of one behaviour."""

    episodes: list[Episode]  # that ended with it
    to_reset: list[int]  # agents at the length limit, or in an episode with numbers that are not finite
    asked: int  # agents that acted
    skipped: int  # those of them that took no step


class AgentProcessor:
    """State of one behaviour's agents: row i of every array belongs to agent ``ids[i]``.

    on_bad: called for every number that is not finite; if it returns, the agent's episode ends there

    Raises ValueError if an id stands twice in ``first``, or the policy's ``stored_carry_shape`` is neither
    that of its carry nor (0,).
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
        self.name, self.policy, self.recorder, self._on_bad = name, policy, recorder, on_bad
        self._spec = spec
        n = len(first.ids)
        self.obs, self.action_mask = dict(first.obs), first.action_mask
        self.prev_action = spec.action.padding(n)
        self.carry: Float = policy.initial_carry(n)
        self.step = np.zeros(n, np.int64)
        self.total = np.zeros(n, np.float64)
        self.acted: ActorOutput | None = None
        self._name_rows(first.ids)
        stored, kept = policy.stored_carry_shape, self.carry.shape[1:]
        if stored not in (kept, (0,)):
            raise ValueError(f"stored_carry_shape of {name!r} must be {kept} or (0,), not {stored}")
        self._stored: Callable[[Float], Float] = _all if stored == kept else _none

    def act(self) -> Float:
        """Return flat actions [N, A]; the policy is not called without agents that need an action."""
        action = self._spec.action
        if len(self.ids):
            self.acted = self.policy.act(self.obs, self.prev_action, self.carry, self.action_mask)
        else:
            z, logp = (
                np.zeros((0, action.continuous), np.float32),
                np.zeros((0, action.num_heads), np.float32),
            )
            self.acted = ActorOutput(action=action.padding(0), z=z, behaviour_logp=logp, carry=self.carry)
        return self.acted.action

    def record(self, result: StepResult, length_limit: int) -> Recorded:
        """Pass the step's transitions to the recorder, and continue with the present agents.

        Raises ValueError if ``result`` contradicts itself about the present agents; see
        :class:`~algorithm.env.base.StepResult`.
        """
        acted, asked, appeared = self.acted, len(self.ids), 0
        assert acted is not None
        if result.left is not None or not self._are(result.ids):
            result, acted, appeared = self._rearranged(result, acted)
        unasked = 0 if result.skipped is None else int(np.count_nonzero(result.skipped))
        result, again = self._examined(result, acted)
        skipped = self._nobody if result.skipped is None else result.skipped
        lost = skipped.nonzero()[0]
        if len(lost):
            self.close(lost)
        ended = result.terminated | result.truncated
        self.step += ~skipped
        self.total += result.reward
        over_limit = (self.step == length_limit) & ~ended
        if self.recorder:
            after = _seen_after(result, ended)
            rows = (~skipped).nonzero()[0]
            if len(rows):
                self._store(self.recorder, rows, acted, result, after, over_limit)
        self.obs, self.action_mask = dict(result.obs), result.action_mask
        self.prev_action, self.carry = acted.action, acted.carry
        finished = (ended | over_limit).nonzero()[0]
        recorded = Recorded(
            episodes=[self._episode(i) for i in finished],
            to_reset=self.ids[over_limit].tolist() + again,
            asked=asked,
            skipped=unasked - appeared,
        )
        self._begin(finished)
        self._begin(lost)
        if result.left is not None:
            self._move(self.ids[~result.left])
        return recorded

    def _episode(self, i: int) -> Episode:
        return Episode(self.name, int(self.ids[i]), float(self.total[i]), int(self.step[i]))

    def _are(self, ids: Int) -> bool:
        return ids is self.ids or np.array_equal(ids, self.ids)

    def _rearranged(self, result: StepResult, acted: ActorOutput) -> tuple[StepResult, ActorOutput, int]:
        """Move every agent to its row in ``result``; close the episodes of agents that are not in it.

        Returns the result, the last output in the same rows, and the number of agents that appeared. In the
        result these are skipped, and agents that left have their final observation.
        """
        self._refuse_incomplete_ends(result)
        self.close((~np.isin(self.ids, result.ids)).nonzero()[0])
        source = self._move(result.ids)
        acted = ActorOutput(**{name: _moved(value, source) for name, value in vars(acted).items()})
        appeared = source < 0
        obs = result.obs
        if result.left is not None and result.final is not None:
            obs = {name: _mixed(result.left, result.final.obs[name], value) for name, value in obs.items()}
        result = replace(
            result,
            obs=obs,
            reward=np.where(appeared, np.float32(0.0), result.reward),
            terminated=result.terminated & ~appeared,
            truncated=result.truncated & ~appeared,
            skipped=appeared if result.skipped is None else appeared | result.skipped,
        )
        return result, acted, int(np.count_nonzero(appeared))

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

    def _name_rows(self, ids: Int) -> None:
        """Set the agent of each row: ``ids[i]`` of row i."""
        named = ids.tolist()
        if len(set(named)) != len(named):
            raise ValueError(f"an id of {self.name!r} stands twice in {named}")
        self.ids: Int = ids
        self.agents = frozenset((self.name, agent) for agent in named)
        self._nobody: Bool = np.zeros(len(named), np.bool_)

    def _rows(self, ids: Int) -> Int:
        """Return the row of each of ``ids`` [n], −1 for one that has none."""
        place = {agent: row for row, agent in enumerate(self.ids.tolist())}
        return np.array([place.get(agent, -1) for agent in ids.tolist()], np.int64)

    def _move(self, ids: Int) -> Int:
        """Make ``ids`` [n] the rows; those of new agents are zeros until their episodes begin.

        Returns the former row of each, −1 for a new one.
        """
        source = self._rows(ids)
        self._name_rows(ids)
        self.obs = {name: _moved(value, source) for name, value in self.obs.items()}
        self.action_mask = _moved(self.action_mask, source)
        self.prev_action, self.carry = _moved(self.prev_action, source), _moved(self.carry, source)
        self.step, self.total = _moved(self.step, source), _moved(self.total, source)
        return source

    def _examined(self, result: StepResult, acted: ActorOutput) -> tuple[StepResult, list[int]]:
        """Detect NaN and infinity where they enter; from the replay they would surface much later.

        Returns the result, in which affected agents are skipped, and the agents that need a new episode.
        """
        found = examine(result, acted)
        if found is None:
            return result, []
        self._report(found.numbers, self.ids, np.where(found.begins, 0, self.step + 1), acted.action)
        return without(result, found.lost), result.ids[found.again].tolist()

    def unusable(self, first: Observation) -> list[int]:
        """Return the agents whose first observation in ``first`` is not finite."""
        numbers, n = examine_first(first), len(first.ids)
        self._report(numbers, first.ids, np.zeros(n, np.int64), self._spec.action.padding(n))
        return [int(first.ids[i]) for i in numbers]

    def _report(self, numbers: Mapping[int, Number], ids: Int, steps: Int, action: Float) -> None:
        """Report ``numbers`` with agent, step in the episode and last action; ``ids`` etc. are by row."""
        for i, number in numbers.items():
            bad = BadNumber(
                number=number, behaviour=self.name, agent=int(ids[i]), step=int(steps[i]), action=action[i]
            )
            self._on_bad(bad)

    def close(self, rows: Int) -> None:
        """End the unfinished episodes among ``rows`` as truncated."""
        if self.recorder:
            for stream in self.ids[rows[self.step[rows] > 0]].tolist():  # others have stored nothing yet
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
        steps = StepBatch(
            streams=self.ids,
            start_steps=self.step - 1,
            obs=self.obs,
            action_mask=self.action_mask,
            carry=self._stored(self.carry),
            next_obs=dict(after.obs),
            next_action_mask=after.action_mask,
            next_carry=self._stored(acted.carry),
            action=acted.action,
            z=acted.z,
            behaviour_logp=acted.behaviour_logp,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated | over_limit,
        )
        recorder.add_steps(steps if len(rows) == len(steps) else steps.rows(rows))

    def restart(self, named: Collection[int], first: Observation) -> None:
        """Begin episodes of the agents in ``first``, after a reset; open ones end as truncated.

        Open episodes of ``named`` agents also end. A named agent that is missing in ``first`` keeps its row
        until the next step, whose result does not contain it either. A new one gets a row behind the others.
        """
        new = first.ids[~np.isin(first.ids, self.ids)]
        if len(new):
            self._move(np.concatenate((self.ids, new)))
        seen = self._rows(first.ids)
        begin = np.isin(self.ids, list(named))
        begin[seen] = True
        self.close(begin.nonzero()[0])
        for name, value in first.obs.items():
            self.obs[name] = self.obs[name].copy()
            self.obs[name][seen] = value
        self.action_mask = self.action_mask.copy()
        self.action_mask[seen] = first.action_mask
        self._begin(begin.nonzero()[0])

    def state(self) -> State:
        """Return the rows' state, between two steps."""
        arrays: dict[str, Array] = {
            "ids": self.ids,
            "action_mask": self.action_mask,
            "prev_action": self.prev_action,
            "carry": self.carry,
            "step": self.step,
            "total": self.total,
        }
        return State(arrays | {f"obs/{name}": value for name, value in self.obs.items()})

    def load_state(self, state: State) -> None:
        """Continue from ``state``, with other agents if need be; ValueError if spaces or memory differ."""
        if why := self.unlike(state):
            raise ValueError(f"the state of {self.name!r} does not fit: {why}")
        own: dict[str, Any] = {name: np.array(value) for name, value in state.arrays.items()}
        self._name_rows(own["ids"])
        self.obs = {name: own[f"obs/{name}"] for name in self.obs}
        self.action_mask, self.prev_action, self.carry = own["action_mask"], own["prev_action"], own["carry"]
        self.step, self.total = own["step"], own["total"]

    def unlike(self, state: State) -> str:
        """Return the differences between the state's agents and the present ones; empty if there is none."""
        before, now = _kinds(state), _kinds(self.state())
        changed = [name for name in sorted(before | now) if before.get(name) != now.get(name)]
        return ", ".join(f"{name} was {before.get(name)} and is {now.get(name)}" for name in changed)

    def abandon(self, state: State) -> None:
        """End the episodes that were open in ``state`` as truncated: they are not continued."""
        if self.recorder:
            begun = state.arrays["step"].astype(np.int64) > 0
            for stream in state.arrays["ids"][begun].tolist():
                self.recorder.close(stream)

    def _begin(self, rows: Int) -> None:
        if len(rows) == 0:
            return
        self.prev_action, self.carry = self.prev_action.copy(), self.carry.copy()
        self.prev_action[rows] = 0.0
        self.carry[rows] = self.policy.initial_carry(len(rows))
        self.step[rows] = 0
        self.total[rows] = 0.0


def _kinds(state: State) -> dict[str, str]:
    """Return dtype and shape of one agent's part of each array."""
    return {name: f"{value.dtype} {value.shape[1:]}" for name, value in state.arrays.items()}


def _all(carry: Float) -> Float:
    """Return the carries [N, *C], which the replay stores."""
    return carry


def _none(carry: Float) -> Float:
    """Return [N, 0] in place of carries that the replay does not store."""
    return np.empty((len(carry), 0), np.float32)


def _moved(rows: NDArray[Scalar], source: Int) -> NDArray[Scalar]:
    """Return rows: row i of the result is row ``source[i]``, or zeros where that is −1."""
    moved = np.zeros((len(source), *rows.shape[1:]), rows.dtype)
    known = source >= 0
    moved[known] = rows[source[known]]
    return moved


def _mixed(where: Bool, one: NDArray[Scalar], other: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the rows of ``one`` where ``where`` is true, else those of ``other``."""
    mixed = other.copy()
    mixed[where] = one[where]
    return mixed


def _seen_after(result: StepResult, ended: Bool) -> Observation:
    """Return each action's next observation: the final one where the episode ended."""
    final = result.final
    if final is None:
        return result
    obs = {name: _mixed(ended, final.obs[name], value) for name, value in result.obs.items()}
    mask = _mixed(ended, final.action_mask, result.action_mask)
    return Observation(ids=result.ids, obs=obs, action_mask=mask)
