"""K-FAC: factors and natural gradient against explicit matrices, trust region, momentum, what is refused."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from algorithm.core.errors import ModelError
from algorithm.nn.learning.kfac import EVERY_IMAGE, FlatKfac

UNLIMITED = {"kl_clip": 1e30, "damping": 0.1, "stat_decay": 0.99, "momentum": 0.0, "inverse_every": 1}


class PlainKfac:
    """K-FAC of linear layers and convolutions: sums over samples and places, the whole block inverted."""

    def __init__(self, layers: list[nn.Module], *, decay: float, damping: float) -> None:
        self.layers = layers
        self.decay, self.damping, self.count = decay, damping, 0
        self.factors: list[tuple[Tensor, Tensor]] = []

    @staticmethod
    def places(layer: nn.Module, x: Tensor, g: Tensor):
        """Yield (a, g) of one sample at each place; x, g: the layer's input and its output's gradient."""
        if isinstance(layer, nn.Linear):
            yield torch.cat([x, x.new_ones(1)]), g
            return
        (height, width), (down, right) = layer.kernel_size, layer.stride
        x = nn.functional.pad(x, (layer.padding[1],) * 2 + (layer.padding[0],) * 2)
        for i in range(g.shape[1]):
            for j in range(g.shape[2]):
                patch = x[:, i * down : i * down + height, j * right : j * right + width]
                yield torch.cat([patch.flatten(), x.new_ones(1)]), g[:, i, j]

    def measure(self, inputs: list[Tensor], gradients: list[Tensor]) -> None:
        """Take the inputs [M, …] and per-sample gradients of the outputs [M, …] of each layer."""
        found = []
        for layer, xs, gs in zip(self.layers, inputs, gradients, strict=True):
            pairs = [list(self.places(layer, x, g)) for x, g in zip(xs, gs, strict=True)]
            a = sum(torch.outer(a, a) for places in pairs for a, _ in places) / len(pairs)
            g = sum(torch.outer(g, g) for places in pairs for _, g in places) / sum(map(len, pairs))
            found.append((a, g))
        kept = min(self.decay, self.count / (self.count + 1))
        before = self.factors or [(0.0 * a, 0.0 * g) for a, g in found]
        self.factors = [
            tuple(kept * x + (1 - kept) * y for x, y in zip(old, new, strict=True))
            for old, new in zip(before, found, strict=True)
        ]
        self.count += 1

    def natural(self, gradients: list[Tensor]) -> list[Tensor]:
        """The damped G ⊗ A, inverted as one matrix, times each layer's gradient [out, in + 1]."""
        result, root = [], self.damping**0.5
        for (a, g), gradient in zip(self.factors, gradients, strict=True):
            pi = (a.diag().mean() / g.diag().mean()).sqrt()
            of_a, of_g = (x.trace() * 1e-5 * torch.eye(len(x)) for x in (a, g))
            of_a += root * pi * torch.eye(len(a))
            of_g += root / pi * torch.eye(len(g))
            solved = torch.linalg.solve(torch.kron(g + of_g, a + of_a), gradient.flatten())
            result.append(solved.view_as(gradient))
        return result


def kfac(*modules: nn.Module, rate: float = 1.0, **options: float) -> FlatKfac:
    """An optimiser without trust region and momentum, unless they are among the options."""
    return FlatKfac(modules, rate, **{**UNLIMITED, **options})


def measure(optimiser: FlatKfac, module: nn.Module, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Measure where −log p of a sample has the gradient ``noise`` by the output; return the output."""
    with optimiser.recording():
        y = module(x)
    optimiser.measure((y * noise).sum(), len(x))
    return y


def test_several_steps_of_a_network_are_those_of_the_plain_loop():
    """Activations in place, running means, momentum, inverses that are older than their factors."""
    torch.manual_seed(0)
    conv, first, last = nn.Conv2d(2, 3, 2, stride=2, padding=1), nn.Linear(27, 4), nn.Linear(4, 2)
    network = nn.Sequential(conv, nn.ReLU(inplace=True), nn.Flatten(), first, nn.ReLU(inplace=True), last)
    options = {"rate": 0.3, "stat_decay": 0.6, "momentum": 0.5, "inverse_every": 2, "kl_clip": 1e-4}
    optimiser = kfac(network, **options)
    plain = copy.deepcopy(network)
    oracle = PlainKfac([plain[0], plain[3], plain[5]], decay=0.6, damping=0.1)
    flat, speed, stale = optimiser.flat.data.clone(), 0.0, oracle.factors
    for step in range(5):
        x, noise = torch.randn(6 * EVERY_IMAGE, 2, 4, 4), torch.randn(6 * EVERY_IMAGE, 2)
        x[:] = x[::EVERY_IMAGE].repeat_interleave(EVERY_IMAGE, 0)
        y = measure(optimiser, network, x, noise)
        wanted = torch.randn(y.shape)
        optimiser.step((y - wanted).square().mean())

        nn.utils.vector_to_parameters(flat, plain.parameters())
        one = plain[0](x)
        two = plain[3](one.relu().flatten(1))
        three = plain[5](two.relu())
        parts = torch.autograd.grad((three * noise).sum(), [one, two, three], retain_graph=True)
        oracle.measure([x, one.relu().flatten(1).detach(), two.relu().detach()], parts)
        if step % 2 == 0:
            stale = oracle.factors
        own = torch.autograd.grad((three - wanted).square().mean(), list(plain.parameters()))
        matrices = [
            torch.cat([w.flatten(1), b[:, None]], 1) for w, b in zip(own[::2], own[1::2], strict=True)
        ]
        now, oracle.factors = oracle.factors, stale
        natural = [torch.cat([v[:, :-1].flatten(), v[:, -1]]) for v in oracle.natural(matrices)]
        oracle.factors = now
        v, g = torch.cat(natural), torch.cat([p.flatten() for p in own])
        scale = min(1.0, math.sqrt(1e-4 / (0.3**2 * float(v @ g))))
        assert optimiser.scale.item() == pytest.approx(scale, rel=1e-3) and scale < 1
        speed = 0.5 * speed + scale * v
        flat = flat - 0.3 * 0.5 * speed
        torch.testing.assert_close(optimiser.flat.data, flat, rtol=1e-3, atol=1e-5)


class Spread(nn.Module):
    """Log σ of a normal distribution alone."""

    def __init__(self) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.tensor([0.3, -0.2]))


def test_the_fisher_matrix_of_log_std_is_known():
    """It is 2: a step of the gradient 0.5 is 0.5 / (2 + 0.5)."""
    spread = Spread()
    kfac(spread, damping=0.5).step((0.5 * spread.log_std).sum())
    torch.testing.assert_close(spread.log_std.detach(), torch.tensor([0.1, -0.4]))


@pytest.mark.fault("F11")
def test_what_is_not_finite_leaves_no_trace():
    """A loss that is not finite costs its step, a measurement nothing; both are as if they had not been."""
    torch.manual_seed(0)
    straight = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    disturbed = copy.deepcopy(straight)
    one, other = (kfac(m, inverse_every=2, momentum=0.5) for m in (straight, disturbed))
    for step in range(5):
        x, noise = torch.randn(2, 8, 3)[0], torch.randn(8, 2)
        for bad in (math.nan, 1e30):
            measure(other, disturbed, x * bad, noise)
        y, z = measure(one, straight, x, noise), measure(other, disturbed, x, noise)
        other.step(z.sum() * (math.inf, math.nan, 1e30)[step % 3])
        one.step(y.square().mean())
        other.step(disturbed(x).square().mean())
    found = other.tensors()
    for name, value in one.tensors().items():
        assert torch.equal(value, found[name]), name
    assert torch.equal(one.flat.data, other.flat.data) and other.skipped.item() == 5


def test_a_state_goes_on_between_two_inversions():
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    options = {"inverse_every": 3, "momentum": 0.9, "kl_clip": 0.1}
    straight, first = kfac(module, **options), None
    other = copy.deepcopy(module)
    resumed = kfac(other, **options)
    for step in range(9):
        x, noise = torch.randn(5, 3), torch.randn(5, 2)
        if step == 4:
            resumed.load_tensors(copy.deepcopy(straight.tensors()))
            other.load_state_dict(module.state_dict())
        for optimiser, one in ((straight, module), (resumed, other))[: 1 + (step >= 4)]:
            optimiser.step(measure(optimiser, one, x, noise).square().mean())
        first = first or copy.deepcopy(straight.tensors())
    assert torch.equal(straight.flat.data, resumed.flat.data)
    straight.reset()
    assert not any(value.any() for value in straight.tensors().values())
    assert set(first) == set(straight.tensors())


class Twice(nn.Module):
    """One layer, applied twice in a pass, or two layers with one weight."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.two = nn.Linear(2, 2) if tied else self.one
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x))


@pytest.mark.parametrize(
    ("network", "named"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), "Sequential.1 has no Fisher matrix"),
        (nn.Conv2d(2, 2, 3, groups=2), "Conv2d has no Fisher matrix"),
        (nn.Conv2d(2, 2, 3, padding="same"), "Conv2d has no Fisher matrix"),
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), "Conv2d has no Fisher matrix"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)), r"1\.weight is frozen"),
        (Twice(tied=True), "Twice.two shares weight with Twice.one"),
    ],
)
def test_what_has_no_factors_is_named(network: nn.Module, named: str):
    with pytest.raises(ModelError, match=named):
        kfac(network)


def test_a_layer_that_is_used_twice_is_named_and_no_hook_stays():
    network = Twice(tied=False)
    optimiser = kfac(network)
    with pytest.raises(ModelError, match=r"Twice\.one is used twice"), optimiser.recording():
        network(torch.ones(1, 2))
    assert not network.one._forward_hooks
    network(torch.ones(1, 2))
