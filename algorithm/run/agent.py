"""One agent, assembled: the only place where networks, learner, actor and replay meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from algorithm.config.schema import Config
from algorithm.data import Segment, State, UpdateResult
from algorithm.errors import UsageError
from algorithm.extensions import make_extensions
from algorithm.extensions.base import Extension
from algorithm.extensions.options import Build
from algorithm.nn.augment import Augmentation
from algorithm.nn.loader import Networks, load_networks
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.memory import largest_capacity, replay_bytes
from algorithm.replay.samplers import FreshSampler, PrioritizedSampler, Sampler, UniformSampler
from algorithm.run.guard import Guard
from algorithm.run.insertion import LargestPriority, OwnTdError
from algorithm.run.memory import MemoryBudget
from algorithm.run.pace import FreshPace, Pace, UpdatePace
from algorithm.run.player import BehaviourPolicy
from algorithm.run.recalled import NothingRecalled, Recall, Recalled
from algorithm.run.recent import Recent
from algorithm.run.seeding import stream, stream_seed
from algorithm.run.timing import Stopwatch
from algorithm.sac.actor import Actor
from algorithm.sac.learner import Sac
from algorithm.spec import AgentSpec


def pick_device(name: str) -> torch.device:
    """``cpu``, ``cuda``, ``cuda:1``, ``gpu`` (= cuda) or ``auto``; UsageError for one that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name.replace("gpu", "cuda"))
    except RuntimeError as error:
        raise UsageError(
            f"there is no device {name!r}", fix="use --device cpu, cuda, cuda:1, gpu or auto"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"--device {name} was asked for, but there is no such GPU",
            why=f"torch {torch.__version__} sees {torch.cuda.device_count()} GPUs",
            fix="use --device cpu, or --device auto to take a GPU only where there is one",
        )
    return device


MakeReplay = Callable[..., ReplayBuffer]
"""A :class:`ReplayBuffer` from that class's arguments, or one that does the same in another way."""


class Agent:
    """Learner, actor and replay of one behaviour; the trainer's view of them.

    spec:      what it sees and does
    config:    its own merged configuration
    nn_file:   the task's networks; None for the defaults
    behaviour: its name; every random stream is derived from the seed and this name
    memory:    what its replay is taken from
    greedy:    act with the policy's mode while training
    make_replay: what the replay is made by

    Raises UsageError if the replay does not fit into the memory.
    """

    def __init__(
        self,
        spec: AgentSpec,
        config: Config,
        *,
        nn_file: Path | None,
        behaviour: str,
        seed: int,
        device: torch.device,
        memory: MemoryBudget,
        greedy: bool = False,
        make_replay: MakeReplay = ReplayBuffer,
    ) -> None:
        self.spec, self.config = spec, config
        self._reward_scale = np.float32(config.base_config.reward_scale)
        sac = config.sac_config
        self.networks = make_networks(spec, config, nn_file, seed, behaviour)
        _reserve(memory, behaviour, spec, config, self.networks.rep.stored_carry_shape)
        self.sac = Sac(
            spec,
            self.networks,
            config.sac_config,
            device=device,
            seed=stream_seed(seed, "learner", behaviour),
            extensions=extensions_of(spec, config, self.networks, seed, behaviour),
        )
        self.guard = Guard(self.sac)
        self._device = device
        self._seed = seed
        self._behaviour = behaviour
        self.player = BehaviourPolicy(
            spec,
            self.new_actor("acting", exploring=not greedy),
            stream(seed, "warm-up", behaviour),
            warming_up=sac.start_step > 0,
            repeat_c=sac.start_repeat_c,
            repeat_d=sac.start_repeat_d,
            greedy=greedy,
        )
        prioritised = sac.use_priority and sac.use_replay_buffer
        self._recent = Recent(config.replay_config.td_error_max if prioritised else None)
        self.replay = _make_replay(
            make_replay, spec, config, self.networks, stream_seed(seed, "replay", behaviour)
        )
        self.pace = _make_pace(config, self.replay)
        self._memory: Recall = NothingRecalled()
        if sac.seq_encoder == "RNN":
            self._memory = Recalled(self.replay, self.sac, config.sac_config)
        self._insertion: LargestPriority | OwnTdError = LargestPriority()
        if config.sac_config.use_add_with_td:
            self._insertion = OwnTdError(self.replay, self.sac)
        linear = config.sac_config.learning_rate_schedule == "linear"
        self._falls_until = config.base_config.max_step if linear else None
        self._anneals_until = _end_of_annealing(config)

    def new_actor(self, purpose: str, *, exploring: bool = False) -> Actor:
        """An actor on this agent's networks with random numbers of its own.

        exploring: with the noise that the configuration adds to actions while training
        """
        return Actor(
            self.spec,
            self.sac.model,
            self.config.sac_config,
            device=self._device,
            exploring=exploring,
            seed=stream_seed(self._seed, purpose, self._behaviour),
            extensions=tuple(self.sac.extensions),
        )

    def add(self, segment: Segment) -> None:
        """Store a transition; it is learned from with the reward times ``base_config.reward_scale``."""
        if self._reward_scale != 1.0:
            segment = replace(segment, reward=segment.reward * self._reward_scale)
        self._insertion.added(self.replay.add(segment))
        self.sac.observe(segment)

    def close(self, stream: int) -> None:
        """End an agent's unfinished episode as truncated."""
        self.replay.close(stream)
        self.sac.close(stream)

    def learn(self, step: int, watch: Stopwatch | None = None) -> None:
        """All updates owed now that ``step`` environment steps have been taken.

        watch: told when sampling and updating end
        """
        watch = watch or Stopwatch()
        self.player.warming_up = step < self.config.sac_config.start_step
        self._set_learning_rate(step)
        if self._anneals_until is not None:
            self.replay.anneal(step / self._anneals_until)
        try:
            self._insertion.settle(learning=self.sac.updates > 0)
        except FloatingPointError:  # they keep the largest priority
            self.guard.not_settled(step)
        self._update(step, self.pace.owed(step), watch)

    def _update(self, step: int, owed: int, watch: Stopwatch) -> None:
        for done in range(owed):
            batch = self.replay.sample()
            watch.lap("sample")
            if batch is None:
                self._wait_for_a_batch(step, owed - done)
                return
            result = self.sac.update(batch)
            finite = self._take_back(result)
            if self.guard.passes(batch, step, finite=finite):
                self._memory.updated(result)
                self._recent.add(batch, result)
            watch.lap("update")  # priorities included: fetching them is what waits for the device

    def _take_back(self, result: UpdateResult) -> bool:
        """New priorities; False, and the old ones stay, if a TD error is not finite."""
        try:
            self.replay.feedback(result)
        except FloatingPointError:
            return False
        return True

    def _set_learning_rate(self, step: int) -> None:
        if self._falls_until is not None:
            self.sac.scale_learning_rate(max(0.0, 1.0 - step / self._falls_until))

    def _wait_for_a_batch(self, step: int, owed: int) -> None:
        """With start_step 0 learning begins as soon as there is a batch, unless there will never be one."""
        replay = self.replay
        if self.sac.updates:  # many short episodes have pushed transitions out for a while
            self.pace.carry_over(owed)
            return
        if len(replay) == replay.capacity:
            raise UsageError(
                f"the replay is full and holds only {replay.num_transitions} transitions, "
                f"fewer than a batch of {replay.batch_size}",
                where="replay_config.capacity",
                why=f"each episode takes one of the {replay.capacity} rows more than it has transitions",
                fix="raise replay_config.capacity or lower sac_config.batch_size",
            )
        self.pace.defer(step)

    def metrics(self, step: int) -> dict[str, float]:
        """Values to log, each the mean over the last updates. The only place that waits for the device."""
        values = {"replay/size": float(len(self.replay)), "optim/skipped": float(self.guard.skipped)}
        recent = self._recent.metrics(self.replay.next_id)
        if recent:
            values |= recent | self._memory.metrics()
            values["time/replay_ratio"] = self.pace.achieved(step, self.sac.updates)
        return values

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """What extensions show of the last update, uint8 [H, W, C] by name. Waits for the device."""
        shown = [one for x in self.sac.extensions for one in x.pictures().items()]
        return {name: picture.cpu().numpy() for name, picture in shown}

    @property
    def notices(self) -> list[str]:
        """Keys that are set and have no effect, or less than one might think."""
        sac = self.config.sac_config
        found = []
        if sac.discrete_dqn_like and not self.spec.action.branches:
            found.append("sac_config.discrete_dqn_like has no effect: there is no discrete action")
        if sac.seq_encoder == "RNN" and sac.learn_step == 1:
            found.append("sac_config.learn_step is 1: no gradient goes through time, so little is remembered")
        if sac.seq_encoder == "ATTN" and sac.burn_in_step < sac.learn_step - 1:
            found.append(
                f"sac_config.burn_in_step is {sac.burn_in_step}: attention sees the last "
                f"{sac.burn_in_step + 1} observations only (burn_in_step + 1), fewer than the "
                f"{sac.learn_step} steps of learn_step; raise burn_in_step where what matters lies further "
                "back"
            )
        return [*found, *self._notices_of_extensions()]

    def _notices_of_extensions(self) -> list[str]:
        """Extensions that cannot do anything for this encoder."""
        sac, has_encoder = self.config.sac_config, any(True for _ in self.networks.rep.parameters())
        nothing = "has no effect: the encoder has nothing to learn (nn_config.rep.dense_depth is 0)"
        found = []
        if sac.siamese and not has_encoder:
            trains = "trains only the critics: the encoder has nothing to learn"
            found.append(f"sac_config.siamese {trains if sac.siamese_use_q else nothing}")
        looks = Augmentation(self.spec.obs)
        if sac.siamese == "BYOL" and not looks.changes_anything(normalised=sac.use_normalization):
            found.append(
                "sac_config.siamese: BYOL compares two looks that are the same, for no observation is an "
                "image or a vector of real numbers; ATC compares with what was seen later"
            )
        if sac.use_prediction and not has_encoder:
            found.append(f"sac_config.use_prediction {nothing}")
        return found

    def state(self) -> State:
        """All but networks, optimisers and replay; between two steps, when nothing waits to be settled."""
        own = State(meta={"updates": self.sac.updates, "pace": self.pace.state()})
        recent = self._recent.state(self.replay.next_id)
        return State.joined(
            {"own": own, "player": self.player.state(), "recent": recent, "guard": self.guard.state()}
        )

    def load_state(self, state: State) -> None:
        """Go on from what :meth:`state` gave. The learner and the replay have been loaded before."""
        self.player.load_state(state.part("player"))
        self.pace.load_state(state.part("own").meta["pace"])
        self._recent.load_state(state.part("recent"), self.replay.next_id)
        self.guard.load_state(state.part("guard"))

    def num_parameters(self) -> dict[str, int]:
        """Trained parameters: encoder, all critics, policy."""
        model = self.sac.model
        parts = {"encoder": model.rep, "critics": model.q, "policy": model.policy}
        return {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}


def extensions_of(
    spec: AgentSpec, config: Config, networks: Networks, seed: int, behaviour: str
) -> tuple[Extension, ...]:
    """Drawn from a stream of their own: with or without extensions the critics begin alike."""
    build = Build(
        spec=spec,
        state_size=networks.state_size,
        options=config.sac_config,
        make_network=networks.make,
    )
    with torch.random.fork_rng():
        torch.manual_seed(stream_seed(seed, "extensions", behaviour))
        return make_extensions(build)


def make_networks(
    spec: AgentSpec, config: Config, nn_file: Path | None, seed: int, behaviour: str
) -> Networks:
    """The single networks of a behaviour; nn_file: the task's own, None for the defaults."""
    torch.manual_seed(stream_seed(seed, "networks", behaviour))
    nn, sac = config.nn_config, config.sac_config
    return load_networks(
        spec,
        nn_file,
        rep=nn.rep,
        q=nn.q,
        policy=nn.policy,
        seq_encoder=sac.seq_encoder,
        context=sac.burn_in_step + 1,
    )


def _make_replay(
    make: MakeReplay, spec: AgentSpec, config: Config, networks: Networks, seed: int
) -> ReplayBuffer:
    replay, sac = config.replay_config, config.sac_config
    sampler: Sampler = UniformSampler()
    if not sac.use_replay_buffer:
        sampler = FreshSampler()
    elif sac.use_priority:
        sampler = PrioritizedSampler(
            alpha=replay.alpha,
            beta=replay.beta,
            beta_increment=replay.beta_increment_per_sampling or 0.0,
            td_error_min=replay.td_error_min,
            td_error_max=replay.td_error_max,
        )
    return make(
        spec,
        capacity=replay.capacity,
        batch_size=sac.batch_size,
        burn_in=sac.burn_in_step,
        learn=sac.learn_step,
        n_step=sac.n_step,
        carry_shape=networks.rep.stored_carry_shape,
        sampler=sampler,
        seed=seed,
    )


def _end_of_annealing(config: Config) -> int | None:
    """The step at which beta is 1; None where it grows with each batch or, without an end, not at all."""
    base, by_batch = config.base_config, config.replay_config.beta_increment_per_sampling is not None
    return None if by_batch or base.max_step < 0 else base.max_step


def _reserve(
    memory: MemoryBudget, behaviour: str, spec: AgentSpec, config: Config, carry_shape: tuple[int, ...]
) -> None:
    capacity, sac = config.replay_config.capacity, config.sac_config
    prioritised = sac.use_priority and sac.use_replay_buffer
    memory.reserve(
        behaviour,
        capacity=capacity,
        needed=replay_bytes(spec, capacity, carry_shape, prioritised=prioritised),
        largest_capacity=lambda n: largest_capacity(spec, n, carry_shape, prioritised=prioritised),
    )


def _make_pace(config: Config, replay: ReplayBuffer) -> Pace:
    sac = config.sac_config
    if sac.use_replay_buffer:
        return UpdatePace(sac.replay_ratio, sac.start_step)
    return FreshPace(lambda: replay.ready, sac.batch_size, sac.start_step)
