"""Densities of action distributions."""

from __future__ import annotations

import math
from types import SimpleNamespace

from torch import Tensor

from algorithm.ops import library
from algorithm.ops.shapes import check_shapes

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_4 = math.log(4.0)


def log_tanh_jacobian(z: Tensor, lib: SimpleNamespace = library.TORCH) -> Tensor:
    """Return ``log |d tanh(z)/dz| = 2 (log 2 − z − softplus(−2z))``, exact also where tanh saturates.

    The identity log(1 − tanh² z) of arXiv 1812.05905, appendix C, without cancellation.

    z: any shape; lib: library that computes with it. Returns the same shape.
    """
    w = -2.0 * z
    jacobian: Tensor = lib.add(w, lib.softplus(w), alpha=-2.0) + LOG_4
    return jacobian


def tanh_normal_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return z = mean + exp(log_std) · noise, reparameterised, and the log-density of u = tanh(z).

    arXiv 1812.05905, appendix C. The Gaussian part is written in the noise itself, whose gradient under
    reparameterisation is zero.

    mean, log_std, noise: [..., A_c]
    Returns z [..., A_c] and log π(u) [...].
    """
    z = mean + log_std.exp() * noise
    logp = -0.5 * noise.square() - HALF_LOG_2PI - (log_std + log_tanh_jacobian(z))
    return z, logp.sum(-1)


def normal_logp(z: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-density ``Σ_i log N(z_i)`` of z ~ N(mean, exp(log_std)²).

    z, mean, log_std: [..., A_c]
    Returns [...].
    """
    check_shapes("normal_logp", z.shape, {"mean": mean, "log_std": log_std})
    lib = library.of(z)
    standard = (z - mean) * lib.exp(-log_std)
    logp: Tensor = (-0.5 * lib.square(standard) - log_std - HALF_LOG_2PI).sum(-1)
    return logp


def normal_entropy(log_std: Tensor) -> Tensor:
    """Return the entropy ``Σ_i (log σ_i + ½ log 2πe)`` of a normal, log_std [..., A_c] → [...]."""
    return (log_std + (HALF_LOG_2PI + 0.5)).sum(-1)


def tanh_normal_logp(z: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-density of u = tanh(z), z ~ N(mean, exp(log_std)²) (arXiv 1812.05905, appendix C).

    ``Σ_i log N(z_i) − log |du_i/dz_i|``: the density of u, so it integrates to one over (−1, 1).

    z, mean, log_std: [..., A_c]
    Returns [...].
    """
    check_shapes("tanh_normal_logp", z.shape, {"mean": mean, "log_std": log_std})
    lib = library.of(z)
    standard = (z - mean) * lib.exp(-log_std)
    logp: Tensor = (-0.5 * lib.square(standard) - log_std - HALF_LOG_2PI - log_tanh_jacobian(z, lib)).sum(-1)
    return logp
