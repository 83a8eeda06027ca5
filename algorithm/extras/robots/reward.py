"""A reward learned from recordings: a classifier of observations that show success, and its wrapper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils import RecordConstructorArgs
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.data import DemoEpisode
from algorithm.core.errors import UsageError, described
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.core.steps import Array, Bool, Double
from algorithm.env.observations import Observations
from algorithm.nn.models.defaults import ModelRep

UPDATES = 1000
BATCH = 64
HELD_OUT = 0.2
"""Share of the episodes that the classifier is not trained with, at least one with success."""

_UNITS = 128
_RATE = 3e-4
_CHUNK = 256
_NUMBERS = ("threshold", "missed", "mistaken")


class SuccessClassifier(nn.Module):
    """Network from observations to the logit of success: the default encoder, and one hidden layer."""

    def __init__(self, obs: ObsSpec) -> None:
        super().__init__()
        self.rep = ModelRep(AgentSpec(obs, ActionSpec(continuous=1)), dense_n=_UNITS)
        self.head = nn.Sequential(
            nn.BatchNorm1d(self.rep.out_size, affine=False),
            nn.Linear(self.rep.out_size, _UNITS),
            nn.ReLU(),
            nn.Linear(_UNITS, 1),
        )

    @override
    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B] of observations [B, ...]."""
        unused = torch.empty(0)  # the encoder has no memory
        features, _ = self.rep(obs, unused, unused, unused)
        logits: Tensor = self.head(features)[:, 0]
        return logits

    @torch.no_grad()
    def probabilities(self, obs: Mapping[str, Array]) -> Double:
        """Return the probability of success [B] of observations [B, ...]."""
        self.eval()
        n = len(next(iter(obs.values())))
        parts = [self(_tensors(obs, slice(i, i + _CHUNK))) for i in range(0, n, _CHUNK)]
        return torch.cat(parts).double().sigmoid().numpy()


@dataclass(frozen=True)
class LearnedSuccess:
    """A trained classifier, its threshold, and its errors on episodes that it was not trained with.

    missed:   share of the successes below the threshold
    mistaken: share of the episodes with another observation above it
    """

    obs: ObsSpec
    network: SuccessClassifier
    threshold: float
    missed: float
    mistaken: float

    def save(self, file: Path) -> None:
        """Write the classifier. Raises OSError."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        save_file(
            self.network.state_dict(), file, {"success": json.dumps({"obs": asdict(self.obs), **numbers})}
        )

    @classmethod
    def load(cls, file: Path, obs: ObsSpec) -> LearnedSuccess:
        """Read a classifier of these observations. Raises UsageError."""
        try:
            with safe_open(file, "pt") as saved:
                facts = json.loads(saved.metadata()["success"])
                weights = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118 - no mapping
            if facts["obs"] != json.loads(json.dumps(asdict(obs))):
                raise ValueError(f"it is of {facts['obs']}, and the environment has {obs}")
            network = SuccessClassifier(obs)
            network.load_state_dict(weights)
            return cls(obs, network, **{name: float(facts[name]) for name in _NUMBERS})
        except Exception as error:
            raise UsageError(
                "a learned reward cannot be used",
                where=file,
                why=described(error),
                fix="train it with recordings of this task and these wrappers: asac TASK --train_reward FILE",
            ) from error


def learn_success(obs: ObsSpec, episodes: Sequence[DemoEpisode], *, seed: int) -> LearnedSuccess:
    """Train a classifier of the observations that follow a reward above 0.

    Batches hold as many successes as others. The threshold has the fewest errors on held-out episodes;
    where several have, it is the greatest of them, since a mistaken success ends an episode.
    Raises UsageError if there are not two episodes with success.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    with_success = [(episode.reward > 0).any() for episode in episodes]
    trained, held_out = _split(np.array(with_success, np.bool_), rng)
    frames, labels = _frames([episodes[i] for i in trained])
    network = SuccessClassifier(obs)
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE)
    classes = [labels.nonzero()[0], (~labels).nonzero()[0]]
    target = torch.arange(BATCH) < BATCH // 2
    for _ in range(UPDATES):
        rows = np.concatenate([rng.choice(rows, BATCH // 2) for rows in classes])
        loss = nn.functional.binary_cross_entropy_with_logits(
            network(_tensors(frames, rows)), target.to(torch.float32)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tests = [episodes[i] for i in held_out]
    frames, labels = _frames(tests)
    probability = network.probabilities(frames)
    threshold = _threshold(probability, labels)
    above = probability > threshold
    episode = np.repeat(np.arange(len(tests)), [each.length + 1 for each in tests])
    mistaken = len(np.unique(episode[above & ~labels])) / len(tests)
    return LearnedSuccess(obs, network, threshold, missed=float((~above[labels]).mean()), mistaken=mistaken)


def _split(with_success: Bool, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Return the numbers of the episodes to train with, and of those held out."""
    kinds = [with_success.nonzero()[0], (~with_success).nonzero()[0]]
    if len(kinds[0]) < 2:
        raise UsageError(
            "a reward cannot be learned from these recordings",
            where="--train_reward",
            why=f"{len(kinds[0])} of {len(with_success)} episodes have a reward above 0, which marks success",
            fix="record at least two episodes with success, one to train with and one to test with, and some "
            "without",
        )
    held_out = [
        rows[: max(1, round(len(rows) * HELD_OUT))] for rows in map(rng.permutation, kinds) if len(rows)
    ]
    tests = {int(i) for rows in held_out for i in rows}
    return [i for i in range(len(with_success)) if i not in tests], sorted(tests)


def _frames(episodes: Sequence[DemoEpisode]) -> tuple[dict[str, Array], Bool]:
    """Return all observations [N, ...], and whether each follows a reward above 0 [N]."""
    labels = [np.append(False, episode.reward > 0) for episode in episodes]
    names = episodes[0].obs
    return {name: np.concatenate([each.obs[name] for each in episodes]) for name in names}, np.concatenate(
        labels
    )


def _threshold(probability: Double, labels: Bool) -> float:
    """Return the greatest threshold with the fewest errors, midway between two probabilities."""
    values = np.unique(np.append(probability, [0.0, 1.0]))
    candidates = (values[:-1] + values[1:]) / 2
    errors = np.array([((probability > candidate) != labels).sum() for candidate in candidates])
    return float(candidates[errors == errors.min()].max())


def _tensors(obs: Mapping[str, Array], rows: Any) -> dict[str, Tensor]:  # noqa: ANN401 - a slice or indices
    return {name: torch.as_tensor(np.ascontiguousarray(value[rows])) for name, value in obs.items()}


class LearnedReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper that rewards success as a classifier sees it: 1 and the end of the episode, else 0.

    By configuration: ``wrappers: [{"algorithm.extras.robots.reward:LearnedReward": {file: FILE}}]``.

    file:      written by ``--train_reward``; relative to the current folder
    threshold: probability above which an observation is a success; None: the one of the file
    Raises UsageError for a file that is not there, or of other observations.
    """

    def __init__(self, env: gym.Env[Any, Any], file: str, threshold: float | None = None) -> None:
        RecordConstructorArgs.__init__(self, file=file, threshold=threshold)
        super().__init__(env)
        self._observations = Observations(env.observation_space, str(env))
        self._success = LearnedSuccess.load(Path(file), self._observations.spec)
        self.threshold = self._success.threshold if threshold is None else threshold

    @override
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the step, with the classifier's reward and end."""
        obs, _, terminated, truncated, info = self.env.step(action)
        probability = self._success.network.probabilities(self._observations.read_each([obs]))[0]
        success = bool(probability > self.threshold)
        info = {**info, "is_success": success, "success_probability": float(probability)}
        return obs, float(success), terminated or success, truncated, info
