"""Optimisers, each over one flat storage of all parameters that a loss trains."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from typing_extensions import override

from algorithm.nn.learning.flat import FlatParameters, weight_matrices

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class FlatOptimiser(ABC):
    """Optimiser over the flat storage of ``modules``, or over the storage of another optimiser.

    A step is skipped if the gradient is not finite: parameters, moments and step count stay the same, bit for
    bit. It is skipped, too, if the square of its norm overflows, in single precision from 1.8e19 on: in the
    second moment that would be a permanent infinity, which stops a parameter for ever.

    modules:       trained modules, or a storage that exists
    learning_rate: multiplied by ``factor``, which may be changed between steps
    max_norm:      longer gradients are scaled to this norm (arXiv 1211.5063, algorithm 1); infinity: never
    skipped:       [] counter of skipped steps, which may be shared; None: a new one
    """

    def __init__(
        self,
        modules: Sequence[nn.Module] | FlatParameters,
        learning_rate: float,
        *,
        max_norm: float = math.inf,
        skipped: Tensor | None = None,
    ) -> None:
        self.flat = modules if isinstance(modules, FlatParameters) else FlatParameters(modules)
        assert self.flat.grad is not None, "only targets have none"
        self.gradient = self.flat.grad  # [P] sum of the backward passes since it was zeroed
        self.learning_rate, self._factor = learning_rate, 1.0
        # Read by compiled steps. Of shape [1]: for a changed scalar tensor dynamo would compile again.
        self._rate = torch.tensor([learning_rate], dtype=torch.float64)
        self._max_norm = max_norm
        device, dtype = self.flat.data.device, self.flat.data.dtype
        self._longest = torch.tensor(math.sqrt(torch.finfo(dtype).max), dtype=dtype, device=device)
        self._unusable = torch.zeros((), device=device)  # 1: skip the step, else 0, as the fused kernel reads
        self.skipped = torch.zeros((), device=device) if skipped is None else skipped

    @property
    def factor(self) -> float:
        """Factor on ``learning_rate`` in the next step."""
        return self._factor

    @factor.setter
    def factor(self, factor: float) -> None:
        self._factor = factor
        self._rate.fill_(self.learning_rate * factor)

    @abstractmethod
    def _move(self, gradient: Tensor) -> None:
        """Change the parameters, unless ``_unusable`` is 1; decided on the device, without waiting for it."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state, such as moments, by name."""

    def written(self) -> list[Tensor]:
        """Return all tensors that a step changes, except for the parameters."""
        return [self._unusable, self.skipped, *self.tensors().values()]

    def step(self, loss: Tensor) -> Tensor:
        """Compute the gradient of ``loss`` and take a step along it; return its norm, [] on the device."""
        self.gradient.zero_()
        loss.backward()
        return self.step_along(self.gradient)

    @property
    def usable(self) -> Tensor:
        """Success of the last step, [] bool, on the device; false if it was skipped."""
        return self._unusable == 0.0

    def step_along(self, gradient: Tensor) -> Tensor:
        """Take a step along a gradient [P], unless it is not finite; the tensor may be changed.

        Returns the gradient's norm before clipping, [] on the device.
        """
        norm: Tensor = torch.linalg.vector_norm(gradient)
        torch.logical_not(norm < self._longest, out=self._unusable)  # also true for NaN
        self.skipped.add_(self._unusable)
        if math.isfinite(self._max_norm):  # clipped by a factor on the device, without waiting for it
            gradient.mul_((self._max_norm / norm.clamp(min=1e-12)).clamp(max=1.0))
        self._move(gradient)
        return norm

    def reset(self) -> None:
        """Reset the whole state to zero."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of :meth:`tensors`. Raises ``ValueError`` if names or sizes differ."""
        state = self.tensors()
        if state.keys() != tensors.keys():
            raise ValueError(f"optimiser state has {sorted(tensors)}, expected {sorted(state)}")
        for name, value in tensors.items():
            if value.shape != state[name].shape:
                raise ValueError(f"optimiser state {name} has {value.numel()} values, not {len(self.flat)}")
            state[name].copy_(value)


class FlatAdam(FlatOptimiser):
    """Adam (arXiv 1412.6980) by torch's fused kernel.

    The kernel is called directly: for one tensor the bookkeeping of ``torch.optim.Adam`` costs more than it.

    epsilon:      added to the root of the second moment
    beta_1:       decay of the mean of gradients
    weight_decay: λ of ``θ ← θ (1 − rate · λ)`` before a step, on weight matrices alone (arXiv 1711.05101)
    """

    def __init__(
        self,
        modules: Sequence[nn.Module] | FlatParameters,
        learning_rate: float,
        *,
        max_norm: float = math.inf,
        skipped: Tensor | None = None,
        epsilon: float = EPSILON,
        beta_1: float = BETA_1,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(modules, learning_rate, max_norm=max_norm, skipped=skipped)
        self._moments = torch.zeros_like(self.flat.data), torch.zeros_like(self.flat.data)
        self._count = torch.zeros((), device=self.flat.data.device)
        self._epsilon, self._beta_1 = epsilon, beta_1
        self._state = [self._moments[0]], [self._moments[1]], list[Tensor](), [self._count]
        self._kernel: dict[str, Any] = {"beta1": beta_1, "beta2": BETA_2, "eps": epsilon, "weight_decay": 0.0}
        self._kernel |= {"fused": True, "amsgrad": False, "maximize": False}
        self._decays: Tensor | None = None
        if weight_decay:
            assert not isinstance(modules, FlatParameters), "decay needs to know the modules"
            self._decays = weight_matrices(modules) * weight_decay

    @override
    @torch.no_grad()
    def _move(self, gradient: Tensor) -> None:
        if self._decays is not None:
            usable = self._decays * (1.0 - self._unusable)
            if torch.compiler.is_compiling():  # which would take the number as one that stays
                self.flat.data.addcmul_(self.flat.data, usable * -self._rate.float())
            else:
                self.flat.data.addcmul_(self.flat.data, usable, value=-self.learning_rate * self.factor)
        rate = self._rate[0]
        if torch.compiler.is_compiling():
            self._move_in_graph(gradient, rate)
            return
        adam([self.flat.data], [gradient], *self._state, lr=rate, found_inf=self._unusable, **self._kernel)

    def _move_in_graph(self, gradient: Tensor, rate: Tensor) -> None:
        """Take the same step as the kernel, in operations that a compiler can fuse."""
        usable = self._unusable == 0.0
        self._count.add_(usable)
        count = self._count.double()
        size = _computed_once((rate / (1.0 - self._beta_1**count)).float())
        root = _computed_once((1.0 - BETA_2**count).sqrt().float())
        old_mean, old_square = self._moments
        mean = old_mean + (gradient - old_mean) * (1.0 - self._beta_1)
        square = old_square * BETA_2 + gradient * gradient * (1.0 - BETA_2)
        parameters = self.flat.data
        moved = parameters - size * mean / (square.sqrt() / root + self._epsilon)
        for old, new in ((parameters, moved), (old_mean, mean), (old_square, square)):
            old.copy_(torch.where(usable, new, old))

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Return Adam's state by name: both moments and the step count."""
        return {"exp_avg": self._moments[0], "exp_avg_sq": self._moments[1], "step": self._count}


def _computed_once(number: Tensor) -> Tensor:
    """Return ``number``, such that compiled code computes it once, not at each place where it is used."""
    return number.as_strided((), ())


class FlatRms(FlatOptimiser):
    """RMSprop (Hinton's lecture 6e): g / (√E[g²] + ε), or g / √(E[g²] + ε) as in TensorFlow.

    decay:   of the running mean of g²
    epsilon: ε
    inside:  ε is inside the root, and the running mean begins at 1
    """

    def __init__(
        self,
        modules: Sequence[nn.Module] | FlatParameters,
        learning_rate: float,
        *,
        max_norm: float = math.inf,
        skipped: Tensor | None = None,
        decay: float = 0.99,
        epsilon: float = 1e-5,
        inside: bool = False,
    ) -> None:
        super().__init__(modules, learning_rate, max_norm=max_norm, skipped=skipped)
        self._decay, self._epsilon, self._inside = decay, epsilon, inside
        self._square = torch.full_like(self.flat.data, float(inside))
        self._moved = self.flat.data

    def share(self, data: Tensor, square: Tensor) -> None:
        """Apply steps to the parameters ``data`` [P] from now on, and keep the mean of g² [P] in ``square``.

        Both may be in memory that other processes change concurrently: nothing is locked, and an addition may
        be lost (arXiv 1106.5730). The modules' own parameters are not changed any more.
        """
        self._moved = data
        self._square = square

    @override
    @torch.no_grad()
    def _move(self, gradient: Tensor) -> None:
        skips = self._unusable.bool()
        square = self._square.lerp(gradient.square(), 1.0 - self._decay)
        self._square.copy_(torch.where(skips, self._square, square))
        if self._inside:
            divisor = (self._square + self._epsilon).sqrt_()
        else:
            divisor = self._square.sqrt().add_(self._epsilon)
        step = gradient / divisor * (self.learning_rate * self.factor)
        self._moved.sub_(torch.where(skips, torch.zeros_like(step), step))

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Return the running mean of g² as ``square_avg``."""
        return {"square_avg": self._square}

    @override
    def reset(self) -> None:
        """Reset the running mean of g²."""
        self._square.fill_(float(self._inside))


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, by names without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def optimiser_if_any(
    make: Callable[[Sequence[nn.Module]], FlatAdam], modules: Sequence[nn.Module]
) -> FlatAdam | None:
    """Return an optimiser of the modules' parameters, from ``make``; None if there are no parameters."""
    return make(modules) if any(True for module in modules for _ in module.parameters()) else None
