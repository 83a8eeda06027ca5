"""Construction of an off-policy agent: learner, replay, demonstrations, batches and their schedule."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.imitation.batches import (
    Batches,
    Corrections,
    DemoBatches,
    Draw,
    MixedBatches,
    ReplayBatches,
)
from algorithm.agents.imitation.cloning import Cloning, Constraint
from algorithm.agents.networks import extensions_of
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.objective import AlgorithmSpec
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.agents.roles import AgentInputs
from algorithm.agents.schedules import FifoUpdates, RatioUpdates
from algorithm.core.data import Int, UpdateResult
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.plugins import SAMPLERS, find
from algorithm.core.seeding import stream_seed
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.keys.demonstrations import DemoConfig
from algorithm.nn.loader import Networks
from algorithm.replay.budget import largest_capacity, replay_bytes
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.config import ReplayConfig
from algorithm.replay.samplers import FifoSampler, PrioritizedSampler, Sampler, UniformSampler


def prioritised(keys: OffPolicyConfig) -> bool:
    """Return whether windows are drawn by priority: ``use_priority``, with a replay buffer."""
    return keys.use_priority and keys.use_replay_buffer


def make_sampler(config: ReplayConfig, *, prioritised: bool, fresh: bool) -> Sampler:
    """Return the sampler of a replay: the configured one, or a built-in one.

    prioritised: draw by priority; fresh: draw each window once, in order
    Raises UsageError if a user's sampler cannot be made.
    """
    for name, kwargs in (config.sampler or {}).items():
        plugin = find(SAMPLERS, name)
        assert plugin is not None, "none of that name is built in"
        return plugin.make(Sampler, **(kwargs or {}))
    if fresh:
        return FifoSampler()
    if not prioritised:
        return UniformSampler()
    return PrioritizedSampler(
        alpha=config.alpha,
        beta=config.beta,
        beta_increment=config.beta_increment_per_sampling or 0.0,
        td_error_min=config.td_error_min,
        td_error_max=config.td_error_max,
    )


def make_replay(inputs: AgentInputs, keys: OffPolicyConfig, networks: Networks) -> ReplayBuffer:
    """Reserve memory for the replay and make it; offline a small one, in which nothing will be stored.

    Raises UsageError if it does not fit.
    """
    replay, make, spec = inputs.config.replay_config, inputs.make_replay or ReplayBuffer, inputs.spec
    capacity, carry_shape, by_priority = replay.capacity, networks.rep.stored_carry_shape, prioritised(keys)
    if inputs.config.demonstrations.offline:
        capacity, make = keys.batch_size + 1, ReplayBuffer
    else:
        inputs.memory.reserve(
            inputs.behaviour,
            capacity=capacity,
            needed=replay_bytes(spec, capacity, carry_shape, prioritised=by_priority),
            largest_capacity=lambda n: largest_capacity(spec, n, carry_shape, prioritised=by_priority),
            key="replay_config.capacity",
        )
    return make(
        spec,
        capacity=capacity,
        batch_size=keys.batch_size,
        burn_in=keys.burn_in_step,
        learn=keys.learn_step,
        n_step=keys.n_step,
        carry_shape=carry_shape,
        sampler=make_sampler(replay, prioritised=keys.use_priority, fresh=not keys.use_replay_buffer),
        relabel=inputs.relabel,
        seed=stream_seed(inputs.seed, "replay", inputs.behaviour),
        device=inputs.device if replay.on_device and inputs.device.type != "cpu" else None,
    )


def make_store(inputs: AgentInputs, keys: OffPolicyConfig, networks: Networks) -> DemoStore | None:
    """Return the store of demonstrations, in windows of the agent's size; None without demonstrations.

    Raises UsageError if they do not fit into the memory.
    """
    if inputs.demonstrations is None:
        return None
    return DemoStore(
        inputs.demonstrations,
        inputs.spec,
        burn_in=keys.burn_in_step,
        learn=keys.learn_step,
        n_step=keys.n_step if inputs.config.demonstrations.learned_from else 1,
        carry_shape=networks.rep.stored_carry_shape,
        reward_scale=inputs.config.base_config.reward_scale,
        memory=inputs.memory,
        behaviour=inputs.behaviour,
    )


def make_learner(
    algorithm: AlgorithmSpec,
    inputs: AgentInputs,
    keys: OffPolicyConfig,
    networks: Networks,
    store: DemoStore | None,
) -> OffPolicyLearner:
    """Return the learner; offline its policy is constrained to be near the demonstrated actions."""
    config, shown = inputs.config, inputs.config.demonstrations
    objective = algorithm.make_objective(inputs.spec.action, config)
    return OffPolicyLearner(
        inputs.spec,
        networks,
        keys,
        objective,
        device=inputs.device,
        seed=stream_seed(inputs.seed, "learner", inputs.behaviour),
        extensions=extensions_of(inputs, networks, store),
        constraint=Constraint(objective.parts.discrete, shown.value_weight) if shown.offline else None,
    )


def use_demonstrations(
    store: DemoStore, learner: OffPolicyLearner, config: BehaviourConfig, keys: OffPolicyConfig
) -> None:
    """Add the demonstrations to the learner's statistics, and set up cloning if its strength is not 0."""
    cloning, model = config.behavioral_cloning, learner.model
    store.add_observations(model.normaliser)
    if config.demonstrations.learned_from:
        learner.return_scale.observe(store)
    if not cloning.strength:
        return
    policy, encoder = learner.optimisers()["policy"], learner.encoder.stop
    flats = {"cloning": policy.flat}
    if encoder:
        flats["cloning_encoder"] = learner.critic_optimiser.flat.first(encoder)
    learner.cloning = Cloning(
        model,
        flats,
        learner.parts.discrete,
        training_mode=model.training_mode,
        store=store,
        batch_size=cloning.batch_size or keys.batch_size,
        updates=cloning.updates,
        learning_rate=cloning.strength * keys.learning_rate,
        skipped=policy.skipped,
        squash=torch.tanh,
    )


def make_sources(
    store: DemoStore | None, replay: ReplayBuffer, learner: OffPolicyLearner, demo_config: DemoConfig
) -> tuple[Batches, Batches]:
    """Return the source of batches before the first environment step, and that from then on."""
    from_replay = ReplayBatches(replay)
    generator = learner.generators()["update"]
    draw: Draw | None = None if store is None else partial(store.draw, generator=generator)
    before = from_replay if draw is None else DemoBatches(draw, replay.batch_size)
    if demo_config.offline:
        return before, before
    if demo_config.interventions:
        draw = Corrections(replay, generator, store).draw
    return before, MixedBatches(
        replay, draw, demo_config.share
    ) if draw and demo_config.share else from_replay


def set_priorities(replay: ReplayBuffer, result: UpdateResult, num_own: int) -> bool:
    """Set new priorities; return False, and keep the old ones, if a TD error is not finite.

    num_own: number of the batch's windows that are of the replay
    """
    if not num_own:  # an empty feedback would reset a sampler's largest priority
        return bool(result.priority.isfinite().all())
    try:
        replay.feedback(result)
    except FloatingPointError:
        return False
    return True


def check_can_grow(replay: ReplayBuffer) -> None:
    """Raise UsageError if a replay that holds less than a batch is full, since it will never hold one."""
    if len(replay) < replay.capacity:
        return
    raise UsageError(
        f"the replay is full and holds only {replay.num_transitions} transitions, "
        f"fewer than a batch of {replay.batch_size}",
        where="replay_config.capacity",
        why=f"each episode takes one row more than it has transitions, of {replay.capacity} in all",
        fix=f"raise replay_config.capacity or lower {COMMON_BLOCK}.batch_size",
    )


def make_schedule(keys: OffPolicyConfig, replay: ReplayBuffer, start_step: int) -> RatioUpdates:
    """Return the schedule of updates from this environment step on."""
    if keys.use_replay_buffer:
        return RatioUpdates(keys.replay_ratio, start_step)
    return FifoUpdates(lambda: replay.ready, keys.batch_size, start_step)


class InitialPriorities:
    """Priorities of new rows by their TD errors (``use_add_with_td``), computed once per step for all rows.

    The steps after the newest row do not exist yet, so its target is shorter and bootstraps there. Before
    learning begins the errors would be those of random networks; new rows keep the largest priority then.
    """

    def __init__(self, replay: ReplayBuffer, learner: OffPolicyLearner) -> None:
        self._replay, self._learner = replay, learner
        self._new: list[Int] = []

    def added(self, ids: Int) -> None:
        """Add ids of rows that have just been stored; the next :meth:`update` sets their priorities."""
        self._new.append(ids)

    def update(self, *, learning: bool) -> None:
        """Set the priorities of rows added since the last call; FloatingPointError if one is not finite.

        learning: learning has begun; before that they keep the largest priority
        """
        new, self._new = self._new, []
        if not (new and learning):
            return
        ids = np.concatenate(new)
        ids = ids[self._replay.alive(ids)]  # in a small ring, many streams overwrite rows of the same step
        if ids.size:
            batch = self._replay.windows(ids)
            error = self._learner.td_error(batch.to(self._learner.device))
            self._replay.feedback(UpdateResult(priority=error, ids=batch.ids, anchor=batch.anchor))
