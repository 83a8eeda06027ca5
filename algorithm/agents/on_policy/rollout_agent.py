"""The base class of agents that learn from rollouts: their ring, policy and metrics."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.actor import Actor
from algorithm.agents.base import Agent
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.on_policy.acting import acting_parts, new_actor
from algorithm.agents.on_policy.learner import RolloutLearner
from algorithm.agents.on_policy.ring import Ring
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import UNKNOWN_LOGP, Int, SequenceBatch, State, StepBatch
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.replay.buffer import ReplayBuffer


class RolloutAgent(Agent):
    """Learner, policy and rollouts of one behaviour.

    Transitions are stored in a ring. Once ``rollout_step · n_envs`` of them are new, the learner updates from
    these. Those of remote actors may be of older networks.

    inputs: with a spec of clipped actions
    """

    learner: RolloutLearner
    replay: ReplayBuffer

    def __init__(
        self,
        inputs: AgentInputs,
        learner: RolloutLearner,
        ring: Ring,
        *,
        sources: Mapping[str, str],
        demonstrations: DemoStore | None,
        block: str,
    ) -> None:
        self._ring, self._block = ring, block
        super().__init__(inputs, learner, sources=sources, demonstrations=demonstrations, block=block)
        if demonstrations:
            demonstrations.add_observations(learner.model.normaliser)
        self.replay = ring.rows
        self.policy = BehaviourPolicy(
            self.spec,
            self.new_policy("acting"),
            stream(inputs.seed, "warm-up", inputs.behaviour),
            warming_up=False,
            greedy=inputs.greedy,
        )
        self._rollouts = 0
        self._metrics: dict[str, float] = {}
        self.warm_up_steps = ring.size

    @abstractmethod
    def _learn_from(self, batch: SequenceBatch, lag: int, step: int, run_step: int) -> None:
        """Make the updates from a complete rollout.

        lag: age of the oldest networks that acted, in versions; step, run_step: as of :meth:`learn`
        """

    @property
    @override
    def weights_version(self) -> int:
        """Number of rollouts so far: each changes the networks, or the statistics of observations."""
        return self._rollouts

    @override
    def acting_parts(self) -> dict[str, nn.Module]:
        """Return the modules that a remote policy needs, by name."""
        return acting_parts(self.learner.model)

    @override
    def new_policy(self, purpose: str) -> Actor:
        """Return an actor of the policy; purpose: seeds its random numbers."""
        inputs = self.inputs
        seed = stream_seed(inputs.seed, purpose, inputs.behaviour)
        return new_actor(self.spec, self.learner.model, device=inputs.device, seed=seed)

    @override
    def add_steps(self, steps: StepBatch) -> None:
        """Store transitions; see :meth:`.Agent.add_steps`.

        Raises UsageError if there are so many agents that the step overwrites rows of an unfinished rollout,
        and for actions that the policy has not chosen.
        """
        if np.any(steps.behaviour_logp[:, 0] <= UNKNOWN_LOGP):
            raise UsageError(
                f"{self.inputs.config.algorithm} cannot learn from actions that its policy has not chosen",
                where="base_config.interventions",
                why="the environment has executed another action, of which no probability is known",
                fix="set algorithm: SAC or TD3",
            )
        full = self._ring.full
        self._ring.lag = max(self._ring.lag, steps.lag)
        super().add_steps(steps)
        if not full:
            self._ring.check()

    @override
    def added(self, ids: Int, new: StepBatch) -> None:
        """Add transitions to the rollout; see :meth:`.Agent.added`."""
        self._ring.added(ids)
        super().added(ids, new)

    @override
    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Learn from the rollout if it is full; see :meth:`.Agent.learn`."""
        if not self._ring.full or self.stop():
            return
        watch = watch or Stopwatch()
        batch, lag = self._ring.take()
        self._rollouts += 1
        watch.lap("sample")
        first = bool(self.learner.model.normaliser.names) and not self.learner.observations
        if first:
            self._measure(batch)
            lag += 1  # as if older networks had acted: the policy's inputs were not normalised
        self._learn_from(batch, lag, step, step if run_step is None else run_step)
        if not first:
            self._measure(batch)  # after the update: the policy acted with the statistics before
        watch.lap("update")

    @property
    @override
    def owes_updates(self) -> bool:
        """True if the rollout is full."""
        return self._ring.full

    def _measure(self, batch: SequenceBatch) -> None:
        """Add a rollout's observations to the normaliser's statistics, without burn-in steps and padding."""
        normaliser, first = self.learner.model.normaliser, self._ring.burn_in
        if normaliser.names:
            valid = batch.valid[:, first:]
            rows = {name: batch.obs[name][:, first:-1][valid] for name in normaliser.names}
            normaliser.observe({name: value.numpy() for name, value in rows.items()})

    def _share_left(self, step: int) -> float:
        """Return the share of the run that is left at ``step``, from 1 to 0; always 1 without an end."""
        end = self.config.base_config.max_step
        return max(0.0, 1.0 - step / end) if end > 0 else 1.0

    def _passes(self, batch: SequenceBatch, metrics: dict[str, float], step: int) -> None:
        """Report the updates of a rollout to the divergence monitor; keep their metrics if they are good."""
        finite = all(math.isfinite(value) for name, value in metrics.items() if name.startswith("loss/"))
        if self._guard.passes(batch, step, finite=finite):
            self._metrics = metrics

    @override
    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, and with a new rollout."""
        super().begin_with(model, optim)
        self._ring.clear()
        self._ring.lag = 0

    @override
    def own_metrics(self, step: int) -> dict[str, float]:
        """Return values to log of the last rollout."""
        return self._metrics

    @override
    def own_state(self) -> dict[str, State]:
        """Return the states of the unfinished rollout, and the metrics of the last one."""
        finite = {name: value for name, value in self._metrics.items() if math.isfinite(value)}
        last = {"rollouts": self._rollouts, "metrics": finite}
        return {"rollout": self._ring.state(), "last": State(meta=last)}

    @override
    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned; if its rows are lost, a rollout begins anew."""
        super().load_state(state)
        self._ring.load_state(state.part("rollout"))
        last = state.part("last").meta
        self._rollouts = int(last["rollouts"])
        self._metrics = dict(last["metrics"])

    @override
    def num_parameters(self) -> Mapping[str, int]:
        """Return the numbers of trained parameters by network and by extension."""
        return self.learner.num_parameters()

    def _shown(self, rollout: str, words: list[str]) -> Rows:
        """Return lines on memory, rollout, algorithm and acting for the start screen.

        rollout: description of a rollout
        words:   descriptions of the algorithm
        """
        run, ring = self.config.run, self._ring
        rows = [
            ("rollout", f"{rollout}; {self.replay.nbytes / 2**20:,.1f} MB"),
            ("algorithm", f"{self.config.algorithm}, {', '.join(words)}"),
            ("acting", self.new_policy("acting").way(self.config.base_config.n_envs)),
        ]
        if run.seq_encoder is None:
            return rows
        how = "recurrent" if run.seq_encoder == "RNN" else f"attention to the last {ring.burn_in} steps"
        return [("memory", f"{how}, sequences of {ring.sequence} steps"), *rows]
