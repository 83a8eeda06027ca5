"""Functions that change tensors, recorded and compiled. Most tests run the recorded graph as it is."""

from __future__ import annotations

import pytest
import torch

from algorithm.nn.compiled import CompiledFunction, NotCompilableError
from algorithm.nn.optimiser import FlatAdam


class Learner:
    """A small network with an optimiser, a counter, and random numbers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        self.adam = FlatAdam([self.net], 0.01)
        self.noise = torch.zeros(5, 3)
        self.generator = torch.Generator().manual_seed(1)

    def step(self, inputs):
        """Take a step towards the inputs' sums, with noise in the layer's own buffer and with fresh noise."""
        x = inputs[0]
        self.noise.normal_(generator=self.generator)
        drawn = torch.empty(len(x)).uniform_(generator=self.generator)
        found = self.net(x + 0.1 * self.noise + torch.randn(x.shape, generator=self.generator)).squeeze(-1)
        loss = (found - x.sum(-1)).square().mul(drawn).mean()
        self.adam.step(loss)
        return [loss.detach(), found.detach(), x]

    def state(self):
        tensors = [*self.net.state_dict().values(), *self.adam.tensors().values(), self.noise]
        return [x.clone() for x in (*tensors, self.generator.get_state())]


def alike(one, other, exactly=False):
    for x, y in zip(one, other, strict=True):
        assert torch.equal(x, y) if exactly else torch.allclose(x.float(), y.float(), atol=1e-6)


@pytest.fixture
def as_recorded(monkeypatch):
    """Graphs run operation by operation."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def batches(n=6):
    g = torch.Generator().manual_seed(3)
    return [torch.randn(5, 3, generator=g) for _ in range(n)]


def compare(steps=6):
    plain, other = Learner(), Learner()
    compiled = CompiledFunction(other.step, other.generator)
    for x in batches(steps):
        alike(plain.step([x]), compiled(None, [x]))
    alike(plain.state(), other.state())
    assert torch.equal(plain.generator.get_state(), other.generator.get_state())


def test_a_recorded_function_does_what_it_did(as_recorded):
    compare()


class Gradients:
    """A flat gradient whose parts are zeroed and added to, in any order, twice, and with gaps."""

    def __init__(self) -> None:
        self.flat, self.seen = torch.ones(10), torch.zeros(10)

    def __call__(self, inputs):
        x = inputs[0]
        self.flat.zero_()
        self.flat[6:8].add_(x[:2])
        self.flat[0:4].view(2, 2).add_(x.view(2, 2))
        self.flat[6:8].add_(x[2:])
        self.seen.copy_(self.flat)
        self.flat[1:3].add_(x[:2])  # no longer a sum of what it was zeroed to
        self.flat.zero_()
        self.flat[0:4].add_(x)
        self.flat[2:6].add_(x)  # into two parts at once
        self.flat[8:].add_(x[:2], alpha=2.0)
        self.flat.zero_()
        self.flat[0:4].add_(x)
        product = self.flat[0:4].view(4, 1) @ self.flat[0:4].view(1, 4)  # of factors that were just added
        self.flat.zero_()
        self.flat[0:2].add_(x[:2])
        self.flat[4:6].add_(self.flat[0:2])  # what is added lies in the same storage
        return [self.flat.sum(), product]


def test_gradients_are_put_together_as_they_were_added(as_recorded):
    plain, other = Gradients(), Gradients()
    compiled = CompiledFunction(other, torch.Generator())
    for n in range(2):
        x = torch.arange(4.0) + n
        alike(plain([x]), compiled(None, [x]), exactly=True)
        alike([plain.flat, plain.seen], [other.flat, other.seen], exactly=True)


def test_a_storage_that_is_zeroed_alone_is_zero(as_recorded):
    flat = torch.ones(3)
    compiled = CompiledFunction(lambda inputs: [inputs[0] + 1.0, flat.zero_()][:1], torch.Generator())
    compiled(None, [torch.zeros(2)])
    assert not flat.any()


def products(inputs):
    wide, square, column, row = inputs
    return [
        wide @ square,
        torch.addmm(row, wide, square),
        square @ column,
        torch.addmm(row[:1], square, column),
        column @ row[None],
        torch.bmm(square[None], square[None]),
        wide @ square.t(),
    ]


@pytest.mark.parametrize("rounded", [False, True])
def test_products_are_those_of_their_factors(as_recorded, rounded):
    g = torch.Generator().manual_seed(0)
    shapes = ((128, 128), (128, 128), (128, 1), (128,))
    factors = [torch.rand(shape, generator=g) for shape in shapes]
    found = CompiledFunction(products, torch.Generator(), rounded=rounded)(None, factors)
    for index, (x, y) in enumerate(zip(products(factors), found, strict=True)):
        error = float((y / x - 1.0).abs().max())
        assert y.dtype == torch.float32 and y.shape == x.shape
        large = rounded and index in (0, 1, 5, 6)
        assert (1e-4 < error < 1e-2) if large else error < 1e-5, index


@pytest.mark.slow
def test_a_compiled_function_does_what_it_did():
    compare()


def test_what_is_in_the_key_may_change(as_recorded):
    learner, turn = Learner(), {"scale": 1.0}

    def scaled(inputs):
        learner.noise.copy_(inputs[0] * turn["scale"])
        return [learner.noise.sum()]

    compiled, x = CompiledFunction(scaled, learner.generator), batches(1)[0]
    for scale in (1.0, 2.0, 1.0):
        turn["scale"] = scale
        assert torch.allclose(compiled(scale, [x])[0], scale * x.sum())
    wide = torch.randn(5, 6)[:, ::2]  # another layout is another graph
    assert torch.allclose(compiled(1.0, [wide])[0], wide.sum())


def test_a_step_that_is_not_finite_is_skipped(as_recorded):
    learner = Learner()
    compiled = CompiledFunction(learner.step, learner.generator)
    compiled(None, batches(1))
    before = learner.state()
    loss, *_ = compiled(None, [torch.full((5, 3), float("nan"))])
    assert loss.isnan()
    alike(before[:-2], learner.state()[:-2], exactly=True)


def test_the_learning_rate_is_read_by_each_step(as_recorded):
    learner = Learner()
    compiled = CompiledFunction(learner.step, learner.generator)
    compiled(None, batches(1))
    learner.adam.factor = 0.0
    before = learner.state()
    compiled(None, batches(1))
    alike(before[:4], learner.state()[:4], exactly=True)


def test_a_function_of_ever_new_layouts_is_given_up(as_recorded):
    learner = Learner()
    compiled = CompiledFunction(lambda inputs: [inputs[0] * 2.0], learner.generator)
    for n in range(16):
        compiled(None, [torch.ones(n + 1)])
    compiled(None, [torch.ones(3)])
    with pytest.raises(NotCompilableError, match="more than 16 kinds"):
        compiled(None, [torch.ones(17)])


FOREIGN = torch.Generator().manual_seed(9)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (lambda x, g: [x.mul_(2.0)] if float(x.sum()) else [x], "a number of a tensor decides"),
        (lambda x, g: [x + torch.randn(5, 3, generator=FOREIGN)], "not the learner's"),
        (lambda x, g: [torch.nn.functional.dropout(x)], "not the learner's"),
        (lambda x, g: [x.softmax(-1).multinomial(1, generator=g)], "from computed ones"),
        (lambda x, g: [x[torch.randperm(5, generator=g).tolist()]], "a random number decides"),
        (lambda x, g: [x.nonzero()], "a number of a tensor decides"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_nothing_changed(as_recorded, what, reason):
    learner, (x,) = Learner(), batches(1)

    def function(inputs):
        learner.step(inputs)
        return what(inputs[0].exp(), learner.generator)

    before = learner.state()
    with pytest.raises(NotCompilableError, match=reason):
        CompiledFunction(function, learner.generator)(None, [x])
    alike(before, learner.state(), exactly=True)


def test_results_that_differ_are_refused_with_nothing_changed(monkeypatch):
    def wrong(function, **_):
        return lambda *inputs: [one + 1.0 for one in function(*inputs)]

    monkeypatch.setattr(torch, "compile", wrong)
    learner = Learner()
    before = learner.state()
    with pytest.raises(NotCompilableError, match="its results differ"):
        CompiledFunction(learner.step, learner.generator)(None, batches(1))
    alike(before, learner.state(), exactly=True)


def test_what_a_compiler_raises_is_a_reason(monkeypatch):
    def fails(function, **_):
        raise RuntimeError("backend='inductor' raised:\nInvalidCxxCompiler: No working C++ compiler found")

    monkeypatch.setattr(torch, "compile", fails)
    learner = Learner()
    before = learner.state()
    with pytest.raises(NotCompilableError, match=r"^InvalidCxxCompiler: No working C"):
        CompiledFunction(learner.step, learner.generator)(None, batches(1))
    alike(before, learner.state(), exactly=True)
