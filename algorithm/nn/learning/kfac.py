"""K-FAC: natural gradient steps with an approximation of the Fisher matrix, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from typing_extensions import override

from algorithm.core.errors import ModelError
from algorithm.nn.learning.optimiser import FlatOptimiser

LOG_STD_FISHER = 2.0
"""Fisher information of a normal distribution about log σ: E[(z² − 1)²] with z ~ N(0, 1)."""

LEAST_DAMPING = 1e-5
"""Smallest damping of a factor as a share of its trace, for which single precision can invert it."""

LARGEST_PI, TINY = 1e3, 1e-30  # bounds of π and of a divisor, for factors near 0

EVERY_IMAGE = 8
"""A of a convolution is measured on every 8th image, which has many places (arXiv 1503.05671, section 8)."""


class FlatKfac(FlatOptimiser):
    """Natural gradient descent (K-FAC, arXiv 1503.05671 and 1602.01407) within a trust region.

    The Fisher matrix of a layer's weights and bias is approximated by A ⊗ G: ``A = E[a aᵀ]`` of its inputs,
    with a 1 appended for the bias, and ``G = E[g gᵀ]`` of the gradients of log-likelihoods by its outputs.
    For a layer that is applied at several places, such as a convolution, A is a sum over them and G a mean.
    With the damping shared by both factors, ``π = √((tr A / n) / (tr G / m))`` (section 6.3), a step is

    * ``v = (G + √damping / π)⁻¹ ∇ (A + π √damping)⁻¹``,
    * ``ν = min(1, √(kl_clip / (rate² v·∇)))``, the trust region (arXiv 1708.05144, section 3.2),
    * ``m ← momentum · m + ν v``, ``θ ← θ − rate (1 − momentum) m``.

    A skipped step does not change A and G.

    A parameter named ``log_std`` is log σ of a normal distribution, whose Fisher matrix has a closed form.

    modules:       networks of ``nn.Linear``, ``nn.Conv2d`` and parameters ``log_std`` alone
    kl_clip:       largest ``δᵀ F δ`` of a step δ, twice the KL divergence that it causes
    stat_decay:    decay of the running means A and G; the first measurements all have the same weight
    inverse_every: measurements between two inversions
    scale:         ν of the last step
    Raises ModelError for any other parameter, for a frozen one, and for one that two layers share.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        learning_rate: float,
        *,
        skipped: Tensor | None = None,
        kl_clip: float,
        damping: float,
        stat_decay: float,
        momentum: float,
        inverse_every: int,
    ) -> None:
        owners = _owners(modules)
        super().__init__(modules, learning_rate, skipped=skipped)
        self._kl_clip = kl_clip
        self._damping = damping
        self._stat_decay = stat_decay
        self._decay = momentum
        self._inverse_every = inverse_every
        parts = dict(zip(nn.ModuleList(modules).parameters(), self.flat.parts, strict=True))
        self._layers = list[_Layer]()
        for module, name in owners.items():
            if isinstance(module, nn.Linear | nn.Conv2d):
                places = [parts[p] for p in module.parameters(recurse=False)]
                self._layers.append(_Layer(module, name, slice(places[0].start, places[-1].stop)))
        self._momentum = torch.zeros_like(self.flat.data)
        self._count = torch.zeros((), dtype=torch.int64)
        self.scale = torch.ones((), device=self.flat.data.device)
        """ν of the last step."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the layers' inputs and outputs in a forward pass, for :meth:`measure`.

        Raises ModelError if a layer is used twice.
        """
        for layer in self._layers:
            layer.forget()
        hooks = [layer.module.register_forward_hook(layer.record) for layer in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def measure(self, sampled: Tensor, n: int) -> None:
        """Add A and G of the recorded pass to the running means, unless they are not finite.

        sampled: sum of ``−log p`` of n independent outputs that were drawn from the model itself; its graph
                 is kept for the backward pass
        """
        used = [layer for layer in self._layers if layer.edge is not None]
        edges = [layer.edge for layer in used if layer.edge is not None]
        gradients = torch.autograd.grad(sampled, edges, retain_graph=True, allow_unused=True)
        with torch.no_grad():
            measured = [layer.factors(g, n) for layer, g in zip(used, gradients, strict=True)]
            if not all(bool(x.trace().isfinite()) for factors in measured for x in factors):
                return
            count = int(self._count)
            share = max(1.0 - self._stat_decay, 1.0 / (count + 1))
            for layer, (a, g) in zip(used, measured, strict=True):
                layer.a.lerp_(a, share)
                layer.g.lerp_(g, share)
            if count % self._inverse_every == 0:
                for layer in self._layers:
                    layer.invert(self._damping)
            self._count += 1

    @override
    @torch.no_grad()
    def _move(self, gradient: Tensor) -> None:
        if self._unusable:
            return
        natural = gradient / (LOG_STD_FISHER + self._damping)  # parameters outside of layers are log_std
        for layer in self._layers:
            natural[layer.where] = layer.natural(gradient[layer.where])
        rate = self.learning_rate * self.factor
        change = rate**2 * natural.dot(gradient).clamp(min=0.0)  # below 0 only by rounding
        self.scale = (self._kl_clip / change).sqrt().clamp(max=1.0)
        self._momentum.mul_(self._decay).add_(natural * self.scale)
        self.flat.data.sub_(self._momentum * (rate * (1.0 - self._decay)))

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name: factors and inverses of layer i as ``i.a``, ``momentum``, and ``count``.

        count: number of measurements of the factors
        """
        layers = {f"{i}.{k}": x for i, layer in enumerate(self._layers) for k, x in layer.tensors().items()}
        return {**layers, "momentum": self._momentum, "count": self._count}


class _Layer:
    """Factors of a layer with n inputs, one of which is the bias's 1, and m outputs.

    where: range of its weights [m, n], then its bias [m], in the flat storage
    edge:  edge of the graph after the layer; the output itself may be changed by an activation in place
    """

    def __init__(self, module: nn.Linear | nn.Conv2d, name: str, where: slice) -> None:
        self.module = module
        self.name = name
        self.where = where
        self._biased = module.bias is not None
        m = len(module.weight)
        n = module.weight[0].numel() + self._biased
        new = module.weight.new_zeros
        self.a, self.g = new(n, n), new(m, m)
        self._inverse_a, self._inverse_g = new(n, n), new(m, m)
        self.forget()

    def forget(self) -> None:
        """Drop the recorded input and output."""
        self.edge: GradientEdge | None = None
        self._input: Tensor | None = None

    def record(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Record input and output, as a forward hook. Raises ModelError at the second call."""
        if self.edge is not None:
            raise _refusal(f"{self.name} is used twice", "the two uses have no common Fisher matrix")
        self.edge = get_gradient_edge(output)
        self._input = inputs[0].detach()

    def factors(self, gradient: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
        """Return A and G of n samples; gradient: of ``sampled`` by the output, None if independent of it."""
        layer, x = self.module, self._input
        assert x is not None
        g = x.new_zeros(1, len(self.g)) if gradient is None else gradient
        if isinstance(layer, nn.Conv2d):
            assert not isinstance(layer.padding, str)
            x = x[::EVERY_IMAGE]
            n = len(x)
            x = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride).movedim(1, -1)
            g = g.movedim(1, -1)
        a, g = x.flatten(0, -2), g.flatten(0, -2)
        if self._biased:
            a = F.pad(a, (0, 1), value=1.0)
        self.forget()
        return a.T @ a / n, g.T @ g / len(g)

    def invert(self, damping: float) -> None:
        """Compute the inverses of both factors, each with its share of the damping."""
        ratio = (self.a.trace() / len(self.a)) / (self.g.trace() / len(self.g) + TINY)
        pi = ratio.sqrt().clamp(1.0 / LARGEST_PI, LARGEST_PI)
        self._inverse_a.copy_(_inverse(self.a, pi * damping**0.5))
        self._inverse_g.copy_(_inverse(self.g, damping**0.5 / pi))

    def natural(self, gradient: Tensor) -> Tensor:
        """Return the natural gradient v [m · n] of a gradient [m · n]; 0 before the first measurement."""
        m, n = len(self.g), len(self.a) - self._biased
        matrix = gradient[: m * n].view(m, n)
        if self._biased:
            matrix = torch.cat([matrix, gradient[m * n :, None]], 1)
        v = self._inverse_g @ matrix @ self._inverse_a
        return torch.cat([v[:, :n].flatten(), v[:, n:].flatten()])

    def tensors(self) -> dict[str, Tensor]:
        """Return both factors and their inverses by name."""
        inverses = {"inverse_a": self._inverse_a, "inverse_g": self._inverse_g}
        return {"a": self.a, "g": self.g, **inverses}


def _inverse(factor: Tensor, damping: Tensor) -> Tensor:
    """Return the inverse of ``factor`` plus a multiple of the identity, by Cholesky's decomposition."""
    least = LEAST_DAMPING * factor.trace()
    damped = factor + (damping + least) * torch.eye(len(factor), device=factor.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(damped))


def _owners(modules: Sequence[nn.Module]) -> Mapping[nn.Module, str]:
    """Return the modules with parameters of their own -> name. Raises ModelError for unsupported ones."""
    owners = dict[nn.Module, str]()
    seen = dict[nn.Parameter, str]()
    for root in modules:
        for path, module in root.named_modules():
            parameters = dict(module.named_parameters(recurse=False))
            if module in owners or not parameters:
                continue
            name = owners[module] = ".".join(filter(None, (type(root).__name__, path)))
            if type(module) not in (nn.Linear, nn.Conv2d) and set(parameters) != {"log_std"}:
                why = f"it is a {type(module).__name__} with {', '.join(parameters)}"
                raise _refusal(f"{name} has no Fisher matrix here", why)
            if isinstance(module, nn.Conv2d) and (
                module.groups != 1 or isinstance(module.padding, str) or module.padding_mode != "zeros"
            ):
                why = "a convolution must have one group, and as padding a number of zeros"
                raise _refusal(f"{name} has no Fisher matrix here", why)
            for key, parameter in parameters.items():
                if not parameter.requires_grad:
                    raise _refusal(f"{name}.{key} is frozen", "all parameters of a layer move together")
                if parameter in seen:
                    raise _refusal(
                        f"{name} shares {key} with {seen[parameter]}", "the two have no common Fisher matrix"
                    )
                seen[parameter] = name
    return owners


def _refusal(what: str, why: str) -> ModelError:
    return ModelError(
        what,
        where="the networks that K-FAC trains (algorithm: ACKTR)",
        why=why,
        fix="build them of nn.Linear, nn.Conv2d and activations, each layer used once (with images: "
        "nn_config.rep.bounded: false), or set algorithm: A2C",
    )
