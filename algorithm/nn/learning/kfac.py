"""K-FAC: steps along the natural gradient, for which the Fisher matrix is approximated layer by layer."""

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
"""Damping of a factor as a share of its trace, at least: single precision inverts no wider range."""

LARGEST_PI, TINY = 1e3, 1e-30  # bounds where a factor is as good as 0

EVERY_IMAGE = 8
"""One in so many images gives A of a convolution: it has many places (τ₁ of arXiv 1503.05671, section 8)."""


class FlatKfac(FlatOptimiser):
    """Steps along the natural gradient (K-FAC, arXiv 1503.05671 and 1602.01407) within a trust region.

    The Fisher matrix of a layer's weights and bias is taken to be A ⊗ G: ``A = E[a aᵀ]`` of its inputs, with
    a 1 behind them for the bias, and ``G = E[g gᵀ]`` of the gradients of log-likelihoods by its outputs.
    Where a layer is applied at several places, as a convolution is, A is a sum over them and G a mean. With
    the damping shared by both factors, ``π = √((tr A / n) / (tr G / m))`` (section 6.3), a step is

    * ``v = (G + √damping / π)⁻¹ ∇ (A + π √damping)⁻¹``,
    * ``ν = min(1, √(kl_clip / (rate² v·∇)))``, the trust region (arXiv 1708.05144, section 3.2),
    * ``m ← momentum · m + ν v``, ``θ ← θ − rate (1 − momentum) m``.

    A skipped step leaves A and G as the measurement before it has made them.

    A parameter named ``log_std`` is log σ of a normal distribution, whose Fisher matrix is known.

    modules:       of ``nn.Linear``, ``nn.Conv2d`` and such parameters
    kl_clip:       largest ``δᵀ F δ`` of a step δ, twice the KL divergence that it causes
    stat_decay:    of the running means A and G; while they are few, all measurements count alike
    inverse_every: measurements between two inversions
    Raises ModelError for any other parameter, for one that is frozen and for one of two layers.
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
                own = [parts[p] for p in module.parameters(recurse=False)]
                self._layers.append(_Layer(module, name, slice(own[0].start, own[-1].stop)))
        self._momentum = torch.zeros_like(self.flat.data)
        self._count = torch.zeros((), dtype=torch.int64)
        self.scale = torch.ones((), device=self.flat.data.device)
        """ν of the last step."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the layers' inputs and outputs in a forward pass, for :meth:`measure`.

        Raises ModelError where a layer is used twice.
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
        """Take A and G of the recorded pass into the running means, unless they are not finite.

        sampled: sum of ``−log p`` of n independent outputs that were drawn from the model itself. Its graph
                 stays for a backward pass.
        """
        used = [layer for layer in self._layers if layer.edge is not None]
        edges = [layer.edge for layer in used if layer.edge is not None]
        gradients = torch.autograd.grad(sampled, edges, retain_graph=True, allow_unused=True)
        with torch.no_grad():
            found = [layer.factors(g, n) for layer, g in zip(used, gradients, strict=True)]
            if not all(bool(x.trace().isfinite()) for factors in found for x in factors):
                return
            count = int(self._count)
            share = max(1.0 - self._stat_decay, 1.0 / (count + 1))
            for layer, (a, g) in zip(used, found, strict=True):
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
        natural = gradient / (LOG_STD_FISHER + self._damping)  # what is in no layer is a log_std
        for layer in self._layers:
            natural[layer.where] = layer.natural(gradient[layer.where])
        rate = self.learning_rate * self.factor
        change = rate**2 * natural.dot(gradient).clamp(min=0.0)  # less than 0 by rounding alone
        self.scale = (self._kl_clip / change).sqrt().clamp(max=1.0)
        self._momentum.mul_(self._decay).add_(natural * self.scale)
        self.flat.data.sub_(self._momentum * (rate * (1.0 - self._decay)))

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Return each layer's factors and their inverses, momentum, number of measurements."""
        layers = {f"{i}.{k}": x for i, layer in enumerate(self._layers) for k, x in layer.tensors().items()}
        return {**layers, "momentum": self._momentum, "count": self._count}


class _Layer:
    """Factors of a layer with n inputs, of which a bias is one, and m outputs.

    where: its weights [m, n], then its bias [m], in the flat storage
    edge:  of the graph, behind the layer; an activation in place would change the output itself
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
        """Drop what was recorded."""
        self.edge: GradientEdge | None = None
        self._input: Tensor | None = None

    def record(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep input and output: a forward hook. Raises ModelError at its second call."""
        if self.edge is not None:
            raise _refusal(f"{self.name} is used twice", "the two uses have no common Fisher matrix")
        self.edge = get_gradient_edge(output)
        self._input = inputs[0].detach()

    def factors(self, gradient: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
        """Return A and G of n samples; gradient: of their sum by the output, None where it has no part."""
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
        """Invert both factors with their shares of the damping."""
        ratio = (self.a.trace() / len(self.a)) / (self.g.trace() / len(self.g) + TINY)
        pi = ratio.sqrt().clamp(1.0 / LARGEST_PI, LARGEST_PI)
        self._inverse_a.copy_(_inverse(self.a, pi * damping**0.5))
        self._inverse_g.copy_(_inverse(self.g, damping**0.5 / pi))

    def natural(self, gradient: Tensor) -> Tensor:
        """Return v [m · n] of the gradient [m · n]; 0 before the first measurement."""
        m, n = len(self.g), len(self.a) - self._biased
        matrix = gradient[: m * n].view(m, n)
        if self._biased:
            matrix = torch.cat([matrix, gradient[m * n :, None]], 1)
        v = self._inverse_g @ matrix @ self._inverse_a
        return torch.cat([v[:, :n].flatten(), v[:, n:].flatten()])

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name."""
        inverses = {"inverse_a": self._inverse_a, "inverse_g": self._inverse_g}
        return {"a": self.a, "g": self.g, **inverses}


def _inverse(factor: Tensor, damping: Tensor) -> Tensor:
    """Return the inverse of a damped factor, by Cholesky's decomposition."""
    least = LEAST_DAMPING * factor.trace()
    damped = factor + (damping + least) * torch.eye(len(factor), device=factor.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(damped))


def _owners(modules: Sequence[nn.Module]) -> Mapping[nn.Module, str]:
    """Return the modules that own parameters, with their names. Raises ModelError unless K-FAC knows them."""
    owners = dict[nn.Module, str]()
    seen = dict[nn.Parameter, str]()
    for root in modules:
        for path, module in root.named_modules():
            own = dict(module.named_parameters(recurse=False))
            if module in owners or not own:
                continue
            name = owners[module] = ".".join(filter(None, (type(root).__name__, path)))
            if type(module) not in (nn.Linear, nn.Conv2d) and set(own) != {"log_std"}:
                why = f"it is a {type(module).__name__} with {', '.join(own)}"
                raise _refusal(f"{name} has no Fisher matrix here", why)
            if isinstance(module, nn.Conv2d) and (
                module.groups != 1 or isinstance(module.padding, str) or module.padding_mode != "zeros"
            ):
                why = "a convolution must have one group, and as padding a number of zeros"
                raise _refusal(f"{name} has no Fisher matrix here", why)
            for key, parameter in own.items():
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
