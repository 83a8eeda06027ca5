"""A Soft Actor-Critic agent: the only place that joins networks, learner, policy and replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algorithm.actions.actor import Actor
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.demonstrations import DemoStore, signal_rows, unused
from algorithm.agents.divergence import DivergenceMonitor
from algorithm.agents.metrics_window import MetricsWindow
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.roles import (
    BehaviourConfig,
    DivergenceReport,
    ExploringPolicy,
    MakeReplay,
    Tensors,
)
from algorithm.agents.sac.acting import acting_parts, new_actor
from algorithm.agents.sac.compiled_update import reason_against
from algorithm.agents.sac.description import describe, encoder_work, notices, on_device_notices, update_cost
from algorithm.agents.sac.initial_priority import LargestPriority, OwnTdError
from algorithm.agents.sac.learner import Sac
from algorithm.agents.sac.model import NETWORKS
from algorithm.agents.sac.rules import EAGER_FIRST
from algorithm.agents.sac.stored_states import NoStoredStates, StoredStateRefresher, StoredStates
from algorithm.agents.sac.values import with_values
from algorithm.agents.schedules import FifoUpdates, RatioUpdates, UpdateSchedule
from algorithm.core.data import Demonstrations, Segment, State, StepBatch, UpdateResult
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.nn.loader import Networks, NnFile
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import make_sampler
from algorithm.replay.sizing import largest_capacity, replay_bytes


class SacAgent:
    """Learner, exploring policy and replay of one behaviour. Raises UsageError if the replay does not fit."""

    def __init__(
        self,
        spec: AgentSpec,
        config: BehaviourConfig,
        *,
        nn_file: NnFile | None,
        behaviour: str,
        seed: int,
        device: torch.device,
        memory: MemoryBudget,
        greedy: bool = False,
        make_replay: MakeReplay = ReplayBuffer,
        demonstrations: Demonstrations | None = None,
    ) -> None:
        self.spec, self.config = spec, config
        self._reward_scale = np.float32(config.base_config.reward_scale)
        sac = config.sac_config
        networks = make_networks(with_values(spec, sac), config, nn_file, NETWORKS, seed, behaviour)
        self._rep, self._sources, self._state_size = networks.rep, networks.sources, networks.state_size
        self._encoder_work = encoder_work(networks.rep, spec)
        _reserve(memory, behaviour, spec, config, networks.rep.stored_carry_shape)
        make_store = partial(
            DemoStore,
            spec=spec,
            burn_in=sac.burn_in_step,
            learn=sac.learn_step,
            carry_shape=networks.rep.stored_carry_shape,
            memory=memory,
            behaviour=behaviour,
        )
        self._demonstrations = make_store(demonstrations) if demonstrations is not None else None
        extensions = extensions_of(spec, config, networks, seed, behaviour, self._demonstrations)
        images, last = any(len(shape) == 3 for shape in spec.obs.shapes), config.base_config.max_step
        self._not_compiled = reason_against(sac, device, extensions=extensions, max_step=last, images=images)
        self.sac = Sac(
            spec,
            networks,
            sac,
            device=device,
            seed=stream_seed(seed, "learner", behaviour),
            extensions=extensions,
            compiled=self._not_compiled is None,
            eager_first=EAGER_FIRST if sac.compile == "auto" else 0,
        )
        if self._demonstrations:
            self._demonstrations.show(self.sac.model.normaliser)
        self._guard = DivergenceMonitor(self.sac, "sac_config")
        self._device, self._seed, self._behaviour = device, seed, behaviour
        self.policy: ExploringPolicy = BehaviourPolicy(
            spec,
            self._new_actor("acting", exploring=not greedy),
            stream(seed, "warm-up", behaviour),
            warming_up=sac.start_step > 0,
            repeat_c=sac.start_repeat_c,
            repeat_d=sac.start_repeat_d,
            greedy=greedy,
        )
        prioritised = sac.use_priority and sac.use_replay_buffer
        self._recent = MetricsWindow(config.replay_config.td_error_max if prioritised else None)
        self.replay = _make_replay(
            make_replay, spec, config, networks, stream_seed(seed, "replay", behaviour), device
        )
        self._schedule = _make_schedule(config, self.replay)
        self._memory: StoredStates = NoStoredStates()
        if sac.seq_encoder == "RNN":
            self._memory = StoredStateRefresher(self.replay, self.sac, sac)
        self._insertion: LargestPriority | OwnTdError = LargestPriority()
        if sac.use_add_with_td:
            self._insertion = OwnTdError(self.replay, self.sac)
        self._falls_until = config.base_config.max_step if sac.learning_rate_schedule == "linear" else None
        self._anneals_until = _end_of_annealing(config)

    @property
    def updates(self) -> int:
        """Gradient updates so far."""
        return self.sac.updates

    @property
    def warm_up_steps(self) -> int:
        """Environment steps before the first update."""
        return int(self.config.sac_config.start_step)

    @property
    def weights_version(self) -> int:
        """Number of times that ``base_config.update_sac_bak_per_step`` updates have been made."""
        return self.updates // int(self.config.base_config.update_sac_bak_per_step)

    @property
    def updates_per_step(self) -> float:
        """Gradient updates due for an environment step; without a replay every window is used once."""
        sac = self.config.sac_config
        return float(sac.replay_ratio if sac.use_replay_buffer else 1 / sac.batch_size)

    def update_ratio(self, step: int) -> float:
        """Return the achieved updates per environment step."""
        return self._schedule.achieved(step, self.sac.updates)

    def stores(self) -> Mapping[str, ReplayBuffer]:
        """Return the replay."""
        return {"": self.replay}

    def acting_parts(self) -> Mapping[str, nn.Module]:
        """Return the modules that an exploring remote policy needs."""
        return acting_parts(self.sac.model, self.sac.extensions, self.spec.action, self.config.sac_config)

    def new_policy(self, purpose: str) -> Actor:
        """Return a policy without exploration, with random numbers of its own."""
        return self._new_actor(purpose, exploring=False)

    def tensors(self) -> Tensors:
        """Return networks, optimisers and random state; see :meth:`Sac.tensors`."""
        return self.sac.tensors()

    def trained(self) -> frozenset[str]:
        """Return the names of the trained tensors; see :meth:`Sac.trained`."""
        return self.sac.trained()

    def load_tensors(self, tensors: Tensors, updates: int) -> bool:
        """Take over what :meth:`tensors` returned; see :meth:`Sac.load_tensors`."""
        return self.sac.load_tensors(tensors, updates)

    def load_model(self, model: Mapping[str, Tensor]) -> None:
        """Load networks alone."""
        self.sac.load_model(model)

    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks; see :meth:`Sac.begin_with`."""
        self.sac.begin_with(model, optim)

    def attach(self, *, restore: Callable[[], Tensors | None], report: DivergenceReport) -> None:
        """Go back to what ``restore`` returns when training diverges."""
        self._guard.attach(restore=restore, report=report)
        self.sac.tell(report.told)

    def rows(self) -> Rows:
        """Return lines for the start screen."""
        rows = describe(self.spec, self.config, self._sources, self.num_parameters(), self.replay)
        model, sac = self.sac.model, self.config.sac_config
        critic, encoder = model.q.members[0], self._encoder_work
        cost = update_cost(self.spec, sac, self._state_size, critic, model.policy, encoder=encoder)
        shown = self._demonstrations.rows() if self._demonstrations else []
        acting = self._new_actor("acting", exploring=True).way(self.spec, self.config.base_config.n_envs)
        return [*rows, *cost, ("acting", acting), *self._way(), *shown, *signal_rows(self.config)]

    def _way(self) -> Rows:
        """Return a row on whether updates are compiled; none where that is off."""
        if self.config.sac_config.compile == "off":
            return []
        if self._not_compiled is not None:
            return [("updates", f"not compiled: {self._not_compiled}")]
        late = f", behind the first {EAGER_FIRST:,}" if self.config.sac_config.compile == "auto" else ""
        return [("updates", f"compiled{late}")]

    def _new_actor(self, purpose: str, *, exploring: bool) -> Actor:
        return new_actor(
            self.spec,
            self.sac.model,
            self.config.sac_config,
            device=self._device,
            exploring=exploring,
            seed=stream_seed(self._seed, purpose, self._behaviour),
            extensions=self.sac.extensions,
        )

    def add_steps(self, steps: StepBatch) -> None:
        """Store a step of several agents, with the rewards times ``base_config.reward_scale``."""
        if self._reward_scale != 1.0:
            steps = replace(steps, reward=steps.reward * self._reward_scale)
        self._insertion.added(self.replay.add_steps(steps))
        self.sac.observe(steps)

    def add(self, segment: Segment) -> None:
        """Store transitions of one agent, with the rewards times ``base_config.reward_scale``."""
        if self._reward_scale != 1.0:
            segment = replace(segment, reward=segment.reward * self._reward_scale)
        self._insertion.added(self.replay.add(segment))
        self.sac.observe(segment)

    def close(self, stream: int) -> None:
        """End an agent's unfinished episode as truncated."""
        self.replay.close(stream)
        self.sac.close(stream)

    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Make all updates due after ``step`` steps of the behaviour.

        watch:    charged with the time of sampling and of updating
        run_step: steps of all behaviours, for schedules over the run; by default ``step``
        """
        watch, run_step = watch or Stopwatch(), step if run_step is None else run_step
        self.policy.warming_up = step < self.config.sac_config.start_step
        self._set_learning_rate(run_step)
        if self._anneals_until is not None:
            self.replay.anneal(run_step / self._anneals_until)
        try:
            self._insertion.settle(learning=self.sac.updates > 0)
        except FloatingPointError:  # the new rows keep the largest priority
            self._guard.not_settled(step)
        self._update(step, self._schedule.due(step), watch)

    def pretrain(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Do nothing: the first updates need a replay."""
        return {}

    def _update(self, step: int, owed: int, watch: Stopwatch) -> None:
        for done in range(owed):
            batch = self.replay.sample()
            watch.lap("sample")
            if batch is None:
                self._wait_for_a_batch(step, owed - done)
                return
            result = self.sac.update(batch)
            finite = self._take_back(result)
            if self._guard.passes(batch, step, finite=finite):
                self._memory.updated(result)
                self._recent.add(batch, result)
            # Priorities included: fetching them is what waits for the device.
            watch.lap("compile" if self.sac.compiled else "update")

    def _take_back(self, result: UpdateResult) -> bool:
        """Store new priorities; return False, and keep the old ones, if a TD error is not finite."""
        try:
            self.replay.feedback(result)
        except FloatingPointError:
            return False
        return True

    def _set_learning_rate(self, step: int) -> None:
        if self._falls_until is not None:
            self.sac.scale_learning_rate(max(0.0, 1.0 - step / self._falls_until))

    def _wait_for_a_batch(self, step: int, owed: int) -> None:
        """Defer the updates until there is a batch; raise UsageError if the replay can never hold one."""
        replay = self.replay
        if self.sac.updates:  # many short episodes have pushed transitions out for a while
            self._schedule.carry_over(owed)
            return
        if len(replay) == replay.capacity:
            raise UsageError(
                f"the replay is full and holds only {replay.num_transitions} transitions, "
                f"fewer than a batch of {replay.batch_size}",
                where="replay_config.capacity",
                why=f"each episode takes one of the {replay.capacity} rows more than it has transitions",
                fix="raise replay_config.capacity or lower sac_config.batch_size",
            )
        self._schedule.defer(step)

    def metrics(self, step: int) -> dict[str, float]:
        """Return values to log, means over the last updates. Only this method waits for the device."""
        values = {"replay/size": float(len(self.replay)), "optim/skipped": float(self._guard.skipped)}
        recent = self._recent.metrics(self.replay.next_id)
        if recent:
            values |= recent | self._memory.metrics()
            values["time/replay_ratio"] = self._schedule.achieved(step, self.sac.updates)
        return values

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """Return pictures of the last update, uint8 [H, W, C] by name. Waits for the device."""
        shown = [(x.prefix + name, one) for x in self.sac.extensions for name, one in x.pictures().items()]
        return {name: picture.cpu().numpy() for name, picture in shown}

    @property
    def notices(self) -> list[str]:
        """Lines on keys that are set and have no effect, or less than expected."""
        has_encoder = any(True for _ in self._rep.parameters())
        max_step = self.config.base_config.max_step
        own = notices(self.spec, self.config.sac_config, has_encoder=has_encoder, max_step=max_step)
        own += on_device_notices(self.spec, self.config.replay_config, self._device)
        if self.config.sac_config.compile == "on" and self._not_compiled is not None:
            own.append(f"sac_config.compile has no effect: {self._not_compiled}")
        return [*own, *unused(self.config)]

    def state(self) -> State:
        """Return all but networks, optimisers and replay, between two steps with no priority pending."""
        shown = self._demonstrations.state() if self._demonstrations else {}
        own = State(meta={"updates": self.sac.updates, "pace": self._schedule.state(), **shown})
        recent = self._recent.state(self.replay.next_id)
        return State.joined(
            {"own": own, "player": self.policy.state(), "recent": recent, "guard": self._guard.state()}
        )

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned. The learner and the replay have been loaded before."""
        if self._demonstrations:
            self._demonstrations.check(state.part("own").meta)
        self.policy.load_state(state.part("player"))
        self._schedule.load_state(state.part("own").meta["pace"])
        self._recent.load_state(state.part("recent"), self.replay.next_id)
        self._guard.load_state(state.part("guard"))

    def num_parameters(self) -> dict[str, int]:
        """Return the numbers of trained parameters: encoder, all critics, policy."""
        model = self.sac.model
        parts = {"encoder": model.rep, "critics": model.q, "policy": model.policy}
        return {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}


def _make_replay(
    make: MakeReplay,
    spec: AgentSpec,
    config: BehaviourConfig,
    networks: Networks,
    seed: int,
    device: torch.device,
) -> ReplayBuffer:
    replay, sac = config.replay_config, config.sac_config
    return make(
        spec,
        capacity=replay.capacity,
        batch_size=sac.batch_size,
        burn_in=sac.burn_in_step,
        learn=sac.learn_step,
        n_step=sac.n_step,
        carry_shape=networks.rep.stored_carry_shape,
        sampler=make_sampler(replay, prioritised=sac.use_priority, fresh=not sac.use_replay_buffer),
        seed=seed,
        device=device if replay.on_device and device.type != "cpu" else None,
    )


def _end_of_annealing(config: BehaviourConfig) -> int | None:
    """Return the step at which beta is 1; None where it grows with each batch or, without an end, never."""
    base, by_batch = config.base_config, config.replay_config.beta_increment_per_sampling is not None
    return None if by_batch or base.max_step < 0 else base.max_step


def _reserve(
    memory: MemoryBudget,
    behaviour: str,
    spec: AgentSpec,
    config: BehaviourConfig,
    carry_shape: tuple[int, ...],
) -> None:
    capacity, sac = config.replay_config.capacity, config.sac_config
    prioritised = sac.use_priority and sac.use_replay_buffer
    memory.reserve(
        behaviour,
        capacity=capacity,
        needed=replay_bytes(spec, capacity, carry_shape, prioritised=prioritised),
        largest_capacity=lambda n: largest_capacity(spec, n, carry_shape, prioritised=prioritised),
    )


def _make_schedule(config: BehaviourConfig, replay: ReplayBuffer) -> UpdateSchedule:
    sac = config.sac_config
    if sac.use_replay_buffer:
        return RatioUpdates(sac.replay_ratio, sac.start_step)
    return FifoUpdates(lambda: replay.ready, sac.batch_size, sac.start_step)
