"""The policy in torch, for comparison with its graph, and random situations for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from algorithm.actions.choice import ActionChoice
from algorithm.actions.continuous import logits_of
from algorithm.core.data import Array, Bool, Double, Float
from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.names import MASKS, MEMORY_IN, Ports, from_unit
from algorithm.nn.distributions import HybridAction
from algorithm.nn.layers.images import image_layouts
from algorithm.nn.normalise import TOLD_APART, Normaliser


@dataclass(frozen=True)
class Situation:
    """Observations of N agents, and the choices allowed to them.

    obs:  name -> [N, *shape], as the replay stores it
    mask: [N, ΣN]
    """

    obs: Mapping[str, Array]
    mask: Bool

    @property
    def size(self) -> int:
        """Number of agents, N."""
        return len(self.mask)


@dataclass(frozen=True)
class Answer:
    """Actions of the policy in a situation, and its memory after them.

    u:      [N, A_c], of the mode
    scores: [N, ΣN]; the mode of a branch is the allowed choice with the largest score
    carry:  [N, *C]
    """

    u: Float
    scores: Float
    carry: Float


class Reference:
    """A policy without exploration, computed by the trained modules."""

    def __init__(self, choice: ActionChoice, spec: AgentSpec) -> None:
        self._choice, self.spec = choice, spec
        self.greedy = choice.parts.discrete.asks_critics
        self._layouts = image_layouts(spec.obs)

    def situation(self, n: int, rng: np.random.Generator) -> Situation:
        """Return a random situation: observations near those that were seen, some choices forbidden."""
        obs = {name: self._random(name, n, rng) for name in self.spec.obs.names}
        mask = rng.random((n, self.spec.action.discrete)) < 0.6
        for where in self.spec.action.branch_slices:
            kept = rng.integers(where.start, where.stop, n)
            mask[np.arange(n), kept] = True
        return Situation(obs, mask)

    def _random(self, name: str, n: int, rng: np.random.Generator) -> Array:
        """Return n random observations of a name."""
        place = self.spec.obs.names.index(name)
        shape, dtype = (n, *self.spec.obs.shapes[place]), np.dtype(self.spec.obs.dtypes[place])
        normaliser, span = self._choice.model.normaliser, self.spec.obs.ranges[place]
        if categories := self.spec.obs.categories[place]:
            return rng.integers(np.reshape(categories, shape[1:]), size=shape).astype(dtype)
        if isinstance(normaliser, Normaliser) and name in normaliser.names:
            return self._near(normaliser, name, rng.normal(size=shape)).astype(dtype)
        if span or dtype.kind != "f":
            low, high = span or (0.0, 1.0)
            return rng.integers(int(low), int(high) + 1, size=shape).astype(dtype)
        values = rng.random(shape) if name in self._layouts else rng.normal(size=shape)
        return values.astype(dtype)

    def _near(self, normaliser: Normaliser, name: str, off: Double) -> Double:
        """Return numbers that lie ``off`` standard deviations from the mean, rounded as a graph's input."""
        shift, scale = (tensor.numpy() for tensor in normaliser.of(name))
        kind = self.spec.obs.dtypes[self.spec.obs.names.index(name)]
        values: Double = off / scale + shift
        if np.dtype(kind).kind in "iu":
            limits = np.iinfo(kind)
            return np.clip(values.round(), limits.min, limits.max)
        if name not in normaliser.beyond_float32():
            rounded = values.astype(np.float32).astype(np.float64)
            values = np.where(np.abs(shift) * scale > TOLD_APART, shift, rounded)  # constants stay
        return values

    def feeds(self, situation: Situation, ports: Ports, memory: Float | None) -> dict[str, Array]:
        """Return a graph's inputs for a situation; memory [N, 1, M]."""
        feeds: dict[str, Array] = {}
        for number, (name, value) in enumerate(situation.obs.items()):
            port, layout = ports.inputs[number], self._layouts.get(name)
            dense: NDArray[Any] = value.astype(port.dtype)
            if layout is not None:
                planes = layout.arrange(torch.from_numpy(dense)).permute(0, 3, 1, 2).contiguous().numpy()
                dense = planes / np.float32(255) if from_unit(value.dtype.name, layout) else planes
            feeds[port.name] = dense.reshape(len(dense), *port.shape)
        optional = {MASKS: situation.mask.astype(np.float32), MEMORY_IN: memory}
        return feeds | {name: value for name, value in optional.items() if value is not None and value.size}

    @torch.inference_mode()
    def initial_carry(self, n: int) -> Float:
        """Return the carry at an episode's start, [n, *C]."""
        return self._choice.model.rep.initial_carry(n).numpy()

    @torch.inference_mode()
    def answer(
        self, situation: Situation, prev_action: Float, carry: Float, taken: Float | None = None
    ) -> Answer:
        """Return the policy's mode, the scores of all choices, and the carry after the step.

        prev_action: [N, A]
        carry:       [N, *C]
        taken:       u [N, A_c] for which critics score the discrete choices; by default the mode
        """
        policy, state, after = self._policy(situation, prev_action, carry)
        parts, mask = self._choice.parts, torch.from_numpy(situation.mask)
        z = parts.continuous.act(policy, None, self._choice.noise)[0]
        u: Float = self.spec.action.squashed(z.numpy())
        scores = self._scores(policy, state, torch.from_numpy(u if taken is None else taken), mask)
        return Answer(u, scores, after[0].numpy() if after else carry)

    def _policy(
        self, situation: Situation, prev_action: Float, carry: Float
    ) -> tuple[HybridAction, Tensor, list[Tensor]]:
        """Return the policy's output, the state and the new carry in a situation."""
        obs = {name: torch.from_numpy(value) for name, value in situation.obs.items()}
        seen, state, after = self._choice.encode(obs, torch.from_numpy(prev_action), torch.from_numpy(carry))
        policy: HybridAction = self._choice.model.policy(state, seen)
        return policy, state, after

    def _scores(self, policy: HybridAction, state: Tensor, u: Tensor, mask: Tensor) -> Float:
        """Return logits, or with greedy branches the critics' values at u."""
        if not mask.shape[1]:
            return np.zeros(mask.shape, np.float32)
        if not self.greedy:
            return logits_of(policy).numpy()
        values = [self._choice.value_of(q.frozen(state, u)).mean(0) for q in self._choice.model.critics]
        return torch.stack(values).sum(0).numpy()
