"""The policy in torch, for comparison with its graph, and random situations for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithm.actions.choice import MODE, ActionChoice
from algorithm.core.data import Array, Bool, Double, Float
from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.names import MASKS, MEMORY_IN, Ports, from_unit
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


class Reference:
    """A policy without exploration, computed by the trained modules."""

    def __init__(self, choice: ActionChoice, spec: AgentSpec) -> None:
        self._choice, self.spec = choice, spec
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
            return self._at_deviations(normaliser, name, rng.normal(size=shape)).astype(dtype)
        if span or dtype.kind != "f":
            low, high = span or (0.0, 1.0)
            return rng.integers(int(low), int(high) + 1, size=shape).astype(dtype)
        values = rng.random(shape) if name in self._layouts else rng.normal(size=shape)
        return values.astype(dtype)

    def _at_deviations(self, normaliser: Normaliser, name: str, deviations: Double) -> Double:
        """Return numbers ``deviations`` standard deviations from the mean, rounded as a graph's input."""
        shift, scale = (tensor.numpy() for tensor in normaliser.of(name))
        kind = self.spec.obs.dtypes[self.spec.obs.names.index(name)]
        values: Double = deviations / scale + shift
        if np.dtype(kind).kind in "iu":
            limits = np.iinfo(kind)
            return np.clip(values.round(), limits.min, limits.max)
        if name not in normaliser.beyond_float32():
            rounded = values.astype(np.float32).astype(np.float64)
            values = np.where(np.abs(shift) * scale > TOLD_APART, shift, rounded)  # a constant keeps its mean
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
    def act(self, situation: Situation, prev_action: Float, carry: Float) -> tuple[Float, Float]:
        """Return the mode of the policy, flat actions [N, A], and the carry after the step, [N, *C].

        prev_action: [N, A]
        carry:       [N, *C]
        """
        obs = {name: torch.from_numpy(value) for name, value in situation.obs.items()}
        before = torch.from_numpy(prev_action), torch.from_numpy(carry), torch.from_numpy(situation.mask)
        drawn, after = self._choice(obs, *before, [MODE])
        u = self.spec.action.squashed(drawn.z.numpy())
        return np.concatenate([drawn.onehot.numpy(), u], 1), after[0].numpy() if after else carry
