"""An off-policy agent, which joins networks, learner, policy and replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.actor import Actor
from algorithm.agents.base import Agent, Family
from algorithm.agents.health import Rule
from algorithm.agents.imitation.batches import Batches
from algorithm.agents.imitation.cloning import Pretraining
from algorithm.agents.metrics_window import MetricsWindow
from algorithm.agents.networks import make_networks
from algorithm.agents.off_policy.acting import acting_parts, behaviour_policy, make_acting, new_actor
from algorithm.agents.off_policy.compiled_update import CompiledUpdate, compile_steps
from algorithm.agents.off_policy.description import all_notices, describe
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.off_policy.objective import AlgorithmSpec
from algorithm.agents.off_policy.setup import (
    InitialPriorities,
    check_can_grow,
    make_learner,
    make_replay,
    make_schedule,
    make_sources,
    make_store,
    set_priorities,
    use_demonstrations,
)
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.agents.off_policy.values.choice import with_values
from algorithm.agents.roles import AgentInputs, DivergenceReport, Tensors
from algorithm.agents.schedules import rate_factor
from algorithm.core.console import Readout
from algorithm.core.data import Int, State, StepBatch
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.replay.buffer import ReplayBuffer


class OffPolicyAgent(Agent):
    """Learner, exploring policy and replay of one behaviour. Raises UsageError if the replay does not fit."""

    learner: OffPolicyLearner
    replay: ReplayBuffer

    def __init__(self, algorithm: AlgorithmSpec, inputs: AgentInputs) -> None:
        config, spec = inputs.config, inputs.spec
        self._algorithm = algorithm
        self._keys = keys = algorithm.keys(config)
        networks = make_networks(replace(inputs, spec=with_values(spec, keys)), NETWORKS)
        self.replay = make_replay(inputs, keys, networks)
        store = make_store(inputs, keys, networks)
        self._offline = config.demonstrations.offline
        learner = make_learner(algorithm, inputs, keys, networks, store)
        images, last = any(len(shape) == 3 for shape in spec.obs.shapes), config.base_config.max_step
        self._compiled = compile_steps(learner, last, images=images)
        if store:
            use_demonstrations(store, learner, config, keys)
        super().__init__(inputs, learner, sources=networks.sources, demonstrations=store)
        warm_up = stream(inputs.seed, "warm-up", inputs.behaviour)
        actor = self._new_actor("acting", exploring=not inputs.greedy)
        self.policy = behaviour_policy(spec, keys, actor, warm_up, greedy=inputs.greedy)
        self._recent = MetricsWindow()
        self._before, self._batches = make_sources(store, self.replay, learner, config.demonstrations)
        self._pretraining = Pretraining(
            clone=self._clone,
            cloned=partial(learner.move_targets, 1.0),
            update=partial(self._update_once, self._before, 0, Stopwatch()),
            steps=config.behavioral_cloning.pretrain,
            updates=config.demonstrations.pretrain,
        )
        self.warm_up_steps = config.demonstrations.warm_up_policy or keys.start_step
        self._schedule = make_schedule(keys, self.replay, self.warm_up_steps)
        self._priorities = InitialPriorities(self.replay, learner) if keys.use_add_with_td else None
        # Otherwise beta grows with each batch or, without an end, never.
        anneals = config.replay_config.beta_increment_per_sampling is None and last >= 0
        self._anneals_until = last if anneals else None

    @property
    @override
    def updates_per_step(self) -> float:
        """Gradient updates per environment step: ``replay_ratio``, or 1 / batch_size for fresh windows."""
        return self._schedule.ratio

    @override
    def update_ratio(self, step: int) -> float:
        """Return the achieved updates per environment step since learning began."""
        return self._schedule.achieved(step, self.updates - self._pretraining.updates)

    @property
    @override
    def weights_version(self) -> int:
        """Number of new versions of the weights for remote actors: by updates, and by cloning before them."""
        return super().weights_version + (self._pretraining.steps > 0)

    @override
    def acting_parts(self) -> dict[str, nn.Module]:
        """Return the modules that an exploring remote policy needs, by name."""
        parts = self._algorithm.make_parts(self.spec.action, self.config, True)
        return acting_parts(self.learner.model, self.learner.extensions, parts)

    @override
    def new_policy(self, purpose: str) -> Actor:
        """Return a policy without exploration, with random numbers of its own."""
        return self._new_actor(purpose, exploring=False)

    def _new_actor(self, purpose: str, *, exploring: bool) -> Actor:
        return new_actor(
            self.spec,
            self.learner.model,
            self._keys,
            self._algorithm.make_parts(self.spec.action, self.config, exploring),
            device=self.inputs.device,
            exploring=exploring,
            seed=stream_seed(self.inputs.seed, purpose, self.inputs.behaviour),
            extensions=self.learner.extensions,
        )

    @override
    def attach(self, *, restore: Callable[[], Tensors | None], report: DivergenceReport) -> None:
        """Set the source of tensors for a diverged training, and its reports; see :meth:`.Agent.attach`."""
        super().attach(restore=restore, report=report)
        self.learner.return_scale.on_message = report.info
        if isinstance(self._compiled, CompiledUpdate):
            self._compiled.on_message = report.info

    @override
    def added(self, ids: Int, new: StepBatch) -> None:
        """Process transitions that have just been stored in the rows ``ids``."""
        if self._priorities:
            self._priorities.added(ids)
        super().added(ids, new)

    @override
    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Make all updates that are due; see :meth:`.Agent.learn`. watch: times sampling and updating."""
        run_step = step if run_step is None else run_step
        self.learner.model.normaliser.commit_statistics()
        self.policy.warming_up = step < self._keys.start_step
        self.learner.scale_learning_rate(rate_factor(self._keys, run_step, self.config.base_config.max_step))
        if self._anneals_until is not None:
            self.replay.anneal(run_step / self._anneals_until)
        if self._priorities:
            try:
                self._priorities.update(learning=self.updates > 0)
            except FloatingPointError:  # the new rows keep the largest priority
                self._guard.count_new_rows(step)
        if self.learner.cloning:
            until = self.config.behavioral_cloning.steps
            self.learner.cloning.factor = max(0.0, 1.0 - run_step / until) if until else 1.0
        owed = self._schedule.due(step)
        for done in range(owed):
            if self.stop():
                self._schedule.carry_over(owed - done)
                return
            if not self._update_once(self._batches, step, watch or Stopwatch()):
                self._wait_for_a_batch(step, owed - done)
                return

    @property
    @override
    def owes_updates(self) -> bool:
        """True if updates are still due, for example after a signal interrupted them."""
        return self._schedule.owed > 0

    def _update_once(self, batches: Batches, step: int, watch: Stopwatch) -> bool:
        """Make an update and the cloning steps after it; return False if there was no batch.

        The results of an update that diverged are dropped. step: environment steps, for messages
        """
        batch = batches.sample()
        watch.lap("sample")
        if batch is None:
            return False
        graphs = self._graphs
        result = self.learner.update(batch.to(self.learner.device))
        if self.learner.cloning:
            result.metrics.update(self._clone(self.learner.cloning.updates))
        finite = set_priorities(self.replay, result, batches.num_replayed)
        if self._guard.passes(batch, step, finite=finite):
            if result.carry is not None:
                self.replay.refresh_carry(result)
            self._recent.add(batch, result, batches.num_replayed)
        # Priorities included: fetching them is what waits for the device.
        watch.lap("update" if self._graphs == graphs else "compile")
        return True

    @property
    def _graphs(self) -> int:
        """Number of graphs compiled so far."""
        return self._compiled.graphs if isinstance(self._compiled, CompiledUpdate) else 0

    def _clone(self, n: int) -> dict[str, Tensor]:
        assert self.learner.cloning, "the configuration asks for it"
        return self.learner.cloning.update(n, self.learner.generators()["update"])

    @override
    def pretrain(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Clone, then make updates on demonstrations alone; see :meth:`.Agent.pretrain`."""
        before = self._pretraining.updates
        cloned = self._pretraining.run(stop)
        updated = self._pretraining.updates > before
        return {**cloned, **(self._recent.metrics(self.replay.next_id) if updated else {})}

    def _wait_for_a_batch(self, step: int, owed: int) -> None:
        """Defer the updates until there is a batch; raise UsageError if the replay can never hold one."""
        if self.updates > self._pretraining.updates:  # short episodes pushed transitions out for a while
            self._schedule.carry_over(owed)
            return
        check_can_grow(self.replay)
        self._schedule.defer(step)

    @override
    def own_metrics(self, step: int) -> dict[str, float]:
        """Return values to log of the replay and of the last updates. Waits for the device."""
        recent = self._recent.metrics(self.replay.next_id)
        return recent if self._offline else {"replay/size": float(len(self.replay)), **recent}

    @override
    def stores(self) -> dict[str, ReplayBuffer]:
        """Return the replay under the name "", as the only one; none offline, when nothing is stored."""
        return {} if self._offline else {"": self.replay}

    @override
    def own_notices(self) -> list[str]:
        """Return lines on keys that are set and have no effect, or less than expected."""
        return all_notices(self.inputs, self._keys, self.learner, self.replay, self._compiled)

    @override
    def own_state(self) -> dict[str, State]:
        """Return the states of schedule, last metrics and pretraining; no priority may be pending."""
        return {
            "schedule": State(meta=self._schedule.state()),
            "recent": self._recent.state(self.replay.next_id),
            "pretraining": State(meta=self._pretraining.state()),
        }

    @override
    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned. The replay has been loaded before."""
        super().load_state(state)
        self._schedule.load_state(state.part("schedule").meta)
        self._recent.load_state(state.part("recent"), self.replay.next_id)
        self._pretraining.load_state(state.part("pretraining").meta)

    @override
    def num_parameters(self) -> dict[str, int]:
        """Return the numbers of trained parameters: encoder, all critics, policy."""
        return self.learner.model.num_parameters()

    @override
    def own_rows(self) -> Rows:
        """Return lines on memory, replay, algorithm, acting and compilation for the start screen."""
        acting = self._new_actor("acting", exploring=True).way(self.config.base_config.n_envs)
        return describe(
            self.inputs, self._keys, self.learner, self.replay, acting=acting, compiled=self._compiled
        )


def off_policy_family(
    name: str,
    algorithm: AlgorithmSpec,
    *,
    keys: type[Any] = object,
    health_rules: Callable[[BehaviourConfig], Mapping[str, Rule]] = lambda _: {},
    watched: Sequence[str] = (),
    readouts: Sequence[Readout] = (),
) -> Family:
    """Return the family of an off-policy algorithm; arguments are those of :class:`.base.Family`."""
    return Family(
        name=name,
        keys=keys,
        make_agent=partial(OffPolicyAgent, algorithm),
        make_acting=partial(make_acting, algorithm),
        networks=NETWORKS,
        rows=lambda config: algorithm.keys(config).batch_size * algorithm.keys(config).learn_step,
        health_rules=health_rules,
        watched=watched,
        readouts=readouts,
    )
