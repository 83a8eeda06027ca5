"""Comparison of the replay with plain loops over single environments with the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithm.core.data import ActorOutput, Array, Bool, Float, StepBatch
from algorithm.core.errors import UserError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec
from algorithm.env.base import EpisodeSeed, Fault
from algorithm.env.checks.context import CheckContext, EnvInstance
from algorithm.env.checks.determinism import measure_repeatability
from algorithm.env.checks.finding import Finding, FindingError, error, note, ok
from algorithm.env.gym import GymRecipe
from algorithm.env.pool.executor import Executor, InProcessExecutor
from algorithm.env.pool.pool import EnvPool
from algorithm.env.pool.worker_executor import WorkerExecutor
from algorithm.env.single import SpaceMismatchError
from algorithm.experience.collector import LocalCollector
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from algorithm.replay.layout import Layout

_STEPS = 200  # of each copy
_REPLAY_BYTES = 256 * 2**20  # memory that may go into it

Table = dict[str, Array]
"""Field -> a row for each transition of one copy, in the order of the steps."""


class RandomPolicy:
    """Policy of random actions that can be drawn again: those of copy i come from the seed i."""

    stored_carry_shape: tuple[int, ...] = (0,)

    def __init__(self, spec: ActionSpec, n: int) -> None:
        self._spec = spec
        self._rngs = [np.random.default_rng(i) for i in range(n)]

    def initial_carry(self, n: int) -> Float:
        """Return empty carries."""
        return np.zeros((n, 0), np.float32)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return random allowed actions."""
        drawn = [self._spec.random(rng, action_mask[i : i + 1]) for i, rng in enumerate(self._rngs)]
        action, z, logp = (np.concatenate(part) for part in zip(*drawn, strict=True))
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)


class IdRecorder:
    """Recorder of transitions and of the ids under which the replay stores them."""

    def __init__(self, replay: ReplayBuffer, n: int) -> None:
        self._replay = replay
        self.ids: list[list[int]] = [[] for _ in range(n)]

    def add_steps(self, steps: StepBatch) -> None:
        """Store a step of all agents."""
        for stream, id_ in zip(steps.streams.tolist(), self._replay.add_steps(steps).tolist(), strict=True):
            self.ids[stream].append(id_)

    def close(self, stream: int) -> None:
        """End the chain of rows of an agent."""
        self._replay.close(stream)


@dataclass(frozen=True, kw_only=True)
class ReplayConsistency:
    """Check that a rollout stores what plain loops return: two copies in this process, one in a worker.

    recipe:  makes the copies
    seed_of: (copy, episode) -> seed
    timeout: of the worker
    """

    recipe: GymRecipe
    seed_of: EpisodeSeed
    timeout: float

    def __call__(self, context: CheckContext) -> Iterator[Finding]:
        """Compare; see :class:`~algorithm.env.checks.checker.Check`."""
        if not context.cached(measure_repeatability).exact:
            yield note("not compared: episodes do not repeat", why="two loops cannot return the same then")
            return
        transitions = episodes = 0
        arrangements: dict[str, tuple[int, Callable[[], Executor]]] = {
            "2 copies in one process": (2, lambda: InProcessExecutor(self.recipe, 2, timeout=-1)),
            "a copy in a worker process": (
                1,
                lambda: WorkerExecutor(self.recipe, 1, 1, timeout=self.timeout),
            ),
        }
        for arrangement, (n, executor) in arrangements.items():
            try:
                stored = self._stored(context, n, executor)
            except (UserError, SpaceMismatchError) as failure:
                raise FindingError(_not_run(arrangement, failure)) from failure
            for i, table in enumerate(stored):
                expected = self._plain(context, i, len(table["reward"]))
                if difference := first_difference(table, expected):
                    yield _differs(arrangement, i, difference)
                    return
                transitions += len(table["reward"])
                episodes += int(np.count_nonzero(table["step"] == 0))
        yield ok(f"{transitions:,} transitions of {episodes:,} episodes compared, all equal")

    def _stored(self, context: CheckContext, n: int, executor: Callable[[], Executor]) -> list[Table]:
        limit = context.config.length_limit

        def refuse(fault: Fault) -> None:
            if fault.fix:
                return
            raise AssertionError(f"no failure is survived here: {fault.line}")

        with closing(EnvPool(executor(), seed_of=self.seed_of, restarts=0, on_fault=refuse)) as env:
            spec = env.specs[DEFAULT_BEHAVIOUR]
            capacity = 2 * n * max(2, min(_STEPS, _REPLAY_BYTES // Layout(spec).row_bytes // 2 // n)) + 2
            replay = ReplayBuffer(spec, capacity=capacity, batch_size=1, n_step=2, sampler=UniformSampler())
            recorder = IdRecorder(replay, n)
            over = context.deadline(0.5)
            rollout = LocalCollector(
                env,
                {DEFAULT_BEHAVIOUR: RandomPolicy(spec.action, n)},
                {DEFAULT_BEHAVIOUR: recorder},
                num_envs=n,
                length_limit=limit,
            )
            while len(replay) < capacity - 2 * n and rollout.steps < _STEPS * n:
                rollout.step()
                if over():
                    break
        return [stored_rows(replay, ids, spec) for ids in recorder.ids]

    def _plain(self, context: CheckContext, i: int, count: int) -> Table:
        with context.instance() as instance:
            return plain_rows(
                instance, lambda episode: self.seed_of(i, episode), i, count, context.config.length_limit
            )


def stored_rows(replay: ReplayBuffer, ids: list[int], spec: AgentSpec) -> Table:
    """Return what the learner reads under ``ids``. The replay's windows must have two steps."""
    batch = replay.windows(np.array(ids, np.int64))
    found: Table = {
        "step": batch.step[:, 0].numpy(),
        "action": batch.action[:, 0].numpy(),
        "previous action": batch.prev_action[:, 0].numpy(),
        "reward": batch.reward[:, 0].numpy(),
        "terminated": batch.terminated[:, 0].numpy(),
        "goes on": batch.valid[:, 1].numpy(),
        "mask": batch.action_mask[:, 0].numpy(),
        "next mask": batch.action_mask[:, 1].numpy(),
    }
    for name in spec.obs.names:
        found[f"observation {name}"] = batch.obs[name][:, 0].numpy()
        found[f"next observation {name}"] = batch.obs[name][:, 1].numpy()
    return found


def plain_rows(instance: EnvInstance, seed_of: Callable[[int], int], i: int, count: int, limit: int) -> Table:
    """Return the same of a plain loop over one environment. Raises FindingError.

    seed_of: episode -> seed; i: seed of the actions; limit: steps after which an episode is cut off, -1 never
    """
    rng, action_spec = np.random.default_rng(i), instance.spec.action
    rows: list[dict[str, Any]] = []
    episode = 0
    while len(rows) < count:
        now = instance.reset(seed_of(episode))
        obs, mask = _read(instance, now.obs), now.mask
        step, before, goes_on = 0, action_spec.padding(), True
        while goes_on and len(rows) < count:
            action = action_spec.random(rng, mask[None])[0][0]
            taken = instance.step(action)
            after = _read(instance, taken.obs)
            goes_on = not (taken.terminated or taken.truncated or step + 1 == limit)
            row: dict[str, Any] = {
                "step": step,
                "action": action,
                "previous action": before,
                "reward": np.float32(taken.reward),
                "terminated": taken.terminated,
                "goes on": goes_on and len(rows) + 1 < count,
                "mask": mask,
                "next mask": taken.mask,
            }
            row |= {f"observation {name}": value for name, value in obs.items()}
            row |= {f"next observation {name}": value for name, value in after.items()}
            rows.append(row)
            obs, mask, before, step = after, taken.mask, action, step + 1
        episode += 1
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def first_difference(stored: Table, expected: Table) -> str:
    """Describe the first difference of two tables; empty if there is none."""
    different = [
        (int(rows[0]), name)
        for name, value in expected.items()
        if len(rows := _differing(np.asarray(stored[name]), value))
    ]
    if not different:
        return ""
    row, name = min(different)
    one, other = stored[name][row], expected[name][row]
    at = tuple(np.argwhere(np.not_equal(one, other))[0].tolist()) if np.ndim(one) else ()
    step = int(np.asarray(expected["step"])[row])
    place = f"transition {row + 1}, step {step} of its episode: {name}{list(at) if at else ''}"
    return f"{place} is {one[at]} in the replay and {other[at]} in the plain loop"


def _differing(one: Array, other: Array) -> Any:  # noqa: ANN401 - an array of row numbers
    unequal = np.not_equal(one, other)
    return np.flatnonzero(unequal.reshape(len(other), -1).any(axis=1))


def _read(instance: EnvInstance, obs: Any) -> dict[str, Array]:  # noqa: ANN401 - a space may hold anything
    """Return copies of the observation's arrays in the dtypes of the spec, as a replay stores them."""
    values = instance.adapter.observations.read(obs)
    return {name: np.array(values[name], dtype) for name, _, dtype in instance.spec.obs.items()}


def _differs(arrangement: str, i: int, difference: str) -> Finding:
    return error(
        "the replay holds something else than a plain loop returns",
        where=f"{arrangement}, copy {i}, {difference}",
        why="an episode repeats where the environment is alone, so copies influence each other, "
        "or a new process returns other numbers",
        fix="look for what all copies share, such as attributes of the class, files and modules; until then "
        "set base_config.workers to n_envs: a process for each",
    )


def _not_run(arrangement: str, failure: Exception) -> Finding:
    why = failure.line if isinstance(failure, UserError) else str(failure)
    return error(
        "the environment fails as a training runs it",
        where=arrangement,
        why=why,
        fix="see above for what else was found; a training would end here",
    )
