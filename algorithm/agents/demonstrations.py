"""Demonstrations, stored so that they are read in windows like those of an agent's replay."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from algorithm.core.data import UNKNOWN_LOGP, DemoEpisode, Demonstrations, Segment, SequenceBatch
from algorithm.core.errors import StorageError
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows, counted, short
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.replay.budget import MemoryBudget, replay_bytes
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler


class DemoStore:
    """Replay of demonstrations, read at random and never written to.

    A batch is drawn by the generator of the update that uses it, so the store has no state but its
    episodes. Recordings have no memory of the demonstrator: carries are 0. Where an episode has no
    log-probabilities, as a person's, ratios π/μ are 1.

    demos:        at least one episode
    spec:         of the agent
    burn_in:      K, tokens before the learned ones; learn: T, learned steps; n_step: n, steps of a target
    carry_shape:  of one stored carry
    reward_scale: factor on all rewards, ``base_config.reward_scale``
    memory:       the budget; raises UsageError if the episodes do not fit
    behaviour:    name of the behaviour, for messages
    """

    def __init__(
        self,
        demos: Demonstrations,
        spec: AgentSpec,
        *,
        burn_in: int,
        learn: int,
        n_step: int = 1,
        carry_shape: tuple[int, ...],
        reward_scale: float = 1.0,
        memory: MemoryBudget,
        behaviour: str,
    ) -> None:
        self._demos, self._learn, self._reward_scale = demos, learn, np.float32(reward_scale)
        self.notices = demos.notices
        self.learned = slice(burn_in, burn_in + learn)
        steps = sum(episode.length for episode in demos.episodes)
        rows = steps + len(demos.episodes)
        needed = replay_bytes(spec, rows, carry_shape, prioritised=False)
        memory.reserve_demonstrations(behaviour, steps=steps, needed=needed)
        self._replay = ReplayBuffer(
            spec,
            capacity=rows,
            batch_size=1,
            burn_in=burn_in,
            learn=learn,
            n_step=n_step,
            carry_shape=carry_shape,
            sampler=UniformSampler(),
        )
        for stream, episode in enumerate(demos.episodes):
            self._replay.add(_segment(stream, episode, spec, carry_shape, self._reward_scale))
        self._ids = self._replay.spread(steps)

    def draw(self, n: int, generator: torch.Generator) -> SequenceBatch:
        """Return n windows on the CPU, drawn in proportion to their learned transitions.

        Their ids are −1, since they are no rows of an agent's replay.
        """
        device = generator.device
        chosen = torch.randint(len(self._ids), (n,), generator=generator, device=device).cpu().numpy()
        places = None
        if self._learn > 1:
            places = torch.randint(self._learn, (n,), generator=generator, device=device).cpu().numpy()
        batch = self._replay.windows(self._ids[chosen], places)
        return replace(batch, ids=torch.full_like(batch.ids, -1))

    @property
    def num_steps(self) -> int:
        """Number of recorded transitions."""
        return len(self._ids)

    def add_observations(self, normaliser: Normaliser | NoNormaliser) -> None:
        """Add all observations to the running statistics of ``normaliser``."""
        for episode in self._demos.episodes:
            normaliser.observe(episode.obs)

    def rewards(self) -> Iterator[tuple[int, int, list[float], bool]]:
        """Yield the rewards of each episode; see :class:`~algorithm.core.data.Rewarded`."""
        for stream, episode in enumerate(self._demos.episodes):
            yield stream, 0, (episode.reward * self._reward_scale).tolist(), True

    def rows(self) -> Rows:
        """Return a line for the start screen: episodes, steps, returns, memory and digest."""
        episodes = self._demos.episodes
        totals = [episode.total for episode in episodes]
        text = (
            f"{counted(len(episodes), 'episode')}, {len(self._ids):,} steps, return "
            f"{short(float(np.mean(totals)))} (from {short(min(totals))} to {short(max(totals))}); "
            f"{self._replay.nbytes / 2**20:,.1f} MB, digest {self.digest[:8]}"
        )
        return [("demonstrations", text)]

    @property
    def digest(self) -> str:
        """SHA-256 of the episodes of a single file; for several files, of their digests in sorted order."""
        first, *more = sorted(self._demos.digests.values())
        return hashlib.sha256(" ".join([first, *more]).encode()).hexdigest() if more else first

    def state(self) -> dict[str, Any]:
        """Return the digests of the files for a checkpoint; :meth:`check` compares them."""
        return {"demonstrations": dict(self._demos.digests)}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Raise StorageError unless ``saved``, a result of :meth:`state`, is of the same episodes."""
        before, now = saved.get("demonstrations", {}), self._demos.digests
        if sorted(before.values()) == sorted(now.values()):  # files may have other names
            return
        differ = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
        raise StorageError(
            "the demonstrations differ from those that the run was trained with",
            where="demonstrations.path",
            why=f"changed, new or gone: {', '.join(differ)}",
            fix="put the files back as they were, or train a new run",
        )


def _segment(
    stream: int, episode: DemoEpisode, spec: AgentSpec, carry_shape: tuple[int, ...], reward_scale: np.float32
) -> Segment:
    length, ends = episode.length, np.arange(episode.length) == episode.length - 1
    action, z, logp = episode.action.copy(), episode.z, episode.behaviour_logp
    if z is None or logp is None or logp.shape != (length, spec.action.record_size):
        z = spec.action.unsquashed(action[:, spec.action.discrete :])
        logp = np.full((length, spec.action.record_size), UNKNOWN_LOGP, np.float32)
    action[:, spec.action.discrete :] = spec.action.squashed(z)
    return Segment(
        stream=stream,
        start_step=0,
        obs=episode.obs,
        action_mask=episode.action_mask,
        carry=np.zeros((length + 1, *(carry_shape or (0,))), np.float32),
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=episode.reward * reward_scale,
        terminated=ends & episode.terminated,
        truncated=ends & (not episode.terminated),
    )
