"""Optimisers, each over all parameters of a loss at once."""

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
    """Optimiser over the flat storage of ``modules``, or over one that another optimiser has made.

    A step is skipped where the gradient is not finite: parameters, moments and step count stay as they are,
    bit for bit. The same holds where the square of its norm overflows, in single precision from 1.8e19 on.
    In the second moment that would be a permanent infinity, which stops a parameter for ever.

    learning_rate: of a step, times ``factor``, which may be changed between steps
    max_norm:      a longer gradient is shortened to this norm (arXiv 1211.5063, algorithm 1); infinity: never
    skipped:       [] to which 1 is added for each step that was skipped; its own if it is None
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
        gradient = self.flat.grad
        assert gradient is not None, "only targets have none"
        self.gradient = gradient  # [P] sum of the backward passes since it was zeroed
        self.learning_rate, self._factor = learning_rate, 1.0
        # A compiled step reads it. Of one number without dimensions dynamo would begin its analysis anew.
        self._rate = torch.tensor([learning_rate], dtype=torch.float64)
        self._max_norm = max_norm
        device, dtype = self.flat.data.device, self.flat.data.dtype
        self._longest = torch.tensor(math.sqrt(torch.finfo(dtype).max), dtype=dtype, device=device)
        self._unusable = torch.zeros((), device=device)  # 1 or 0, which is what the fused kernel reads
        self.skipped = torch.zeros((), device=device) if skipped is None else skipped

    @property
    def factor(self) -> float:
        """Share of ``learning_rate`` in the next step."""
        return self._factor

    @factor.setter
    def factor(self, factor: float) -> None:
        self._factor = factor
        self._rate.fill_(self.learning_rate * factor)

    @abstractmethod
    def _move(self, gradient: Tensor) -> None:
        """Step, or skip where ``_unusable`` is 1: decided on the device, so that nothing waits for it."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state by name."""

    def written(self) -> list[Tensor]:
        """Return all tensors besides the parameters that a step writes into."""
        return [self._unusable, self.skipped, *self.tensors().values()]

    def step(self, loss: Tensor) -> Tensor:
        """Compute the gradient of ``loss`` and step along it; see :meth:`move`."""
        self.gradient.zero_()
        loss.backward()
        return self.move()

    @property
    def usable(self) -> Tensor:
        """Success of the last step, [] bool, on the device: false where it was skipped."""
        return self._unusable == 0.0

    def move(self) -> Tensor:
        """Step along the gradient of the backward passes; see :meth:`step_along`."""
        return self.step_along(self.gradient)

    def step_along(self, gradient: Tensor) -> Tensor:
        """Step along a gradient [P], which may be changed, unless it is not finite.

        Returns the gradient's norm, a scalar on the device.
        """
        norm: Tensor = torch.linalg.vector_norm(gradient)
        torch.logical_not(norm < self._longest, out=self._unusable)  # also true for NaN
        self.skipped.add_(self._unusable)
        if math.isfinite(self._max_norm):  # a factor on the device, so that nothing waits for it
            gradient.mul_((self._max_norm / norm.clamp(min=1e-12)).clamp(max=1.0))
        self._move(gradient)
        return norm

    def reset(self) -> None:
        """Begin anew: the whole state is zero."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of :meth:`tensors`. Raises ``ValueError`` if names or sizes differ."""
        own = self.tensors()
        if own.keys() != tensors.keys():
            raise ValueError(f"optimiser state has {sorted(tensors)}, expected {sorted(own)}")
        for name, value in tensors.items():
            if value.shape != own[name].shape:
                raise ValueError(f"optimiser state {name} has {value.numel()} values, not {len(self.flat)}")
            own[name].copy_(value)


class FlatAdam(FlatOptimiser):
    """Adam (arXiv 1412.6980), torch's fused kernel.

    The functional form: for one tensor the bookkeeping of ``torch.optim.Adam`` costs more than the step.

    epsilon:      addend of the root of the second moment
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
        parameters = [self.flat.data]
        adam(parameters, [gradient], *self._state, lr=rate, found_inf=self._unusable, **self._kernel)

    def _move_in_graph(self, gradient: Tensor, rate: Tensor) -> None:
        """Take the kernel's step in operations that a compiler can fuse."""
        usable = self._unusable == 0.0
        self._count.add_(usable)
        count = self._count.double()
        size = _once((rate / (1.0 - self._beta_1**count)).float())
        root = _once((1.0 - BETA_2**count).sqrt().float())
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


def _once(number: Tensor) -> Tensor:
    """Have a number computed once, instead of in each place where the compiler would put its formula."""
    return number.as_strided((), ())


class FlatRms(FlatOptimiser):
    """RMSprop (Hinton's lecture 6e): g / (√E[g²] + ε), or g / √(E[g²] + ε) as TensorFlow has it.

    decay:   of the running mean of g²
    epsilon: ε
    inside:  ε stands inside the root, and the mean begins at 1
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
        """Move other parameters [P] from now on, and keep the mean of g² [P] in ``square``.

        Both may be in memory that other processes change meanwhile: nothing is locked, and an addition may be
        lost (arXiv 1106.5730). The modules' own parameters stay as they are.
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
        """Return the mean of g²."""
        return {"square_avg": self._square}

    @override
    def reset(self) -> None:
        """Begin anew."""
        self._square.fill_(float(self._inside))


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def if_any(make: Callable[[Sequence[nn.Module]], FlatAdam], parts: Sequence[nn.Module]) -> FlatAdam | None:
    """Return an optimiser of the parts' parameters, from ``make``; None if there are none."""
    return make(parts) if any(True for part in parts for _ in part.parameters()) else None
