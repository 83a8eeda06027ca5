"""Functions under the compiler. Its code generator, which takes many seconds, runs in slow tests alone."""

import importlib
import random
from functools import partial

import pytest
import torch
from torch.nn import functional

from algorithm.nn.learning.compiled import CompiledFunction, NotCompilableError


@pytest.fixture
def traced(monkeypatch):
    """Graphs run operation by operation."""
    monkeypatch.setattr(torch._inductor, "compile", lambda module, inputs, options: module.forward)


def products(x, square, column, bias):
    return {
        "square": functional.linear(x, square, bias),
        "column": functional.linear(x, column),
        "biased": functional.linear(x, column, bias[:1]),
        "members": torch.func.vmap(functional.linear)(x[None], square[None], bias[None]),
        "small": functional.linear(x[:4], square),
    }


def test_products_are_those_of_their_factors(traced):
    g = torch.Generator().manual_seed(0)
    factors = [torch.rand(shape, generator=g) for shape in ((128, 128), (128, 128), (1, 128), (128,))]
    expected = products(*factors)
    found = CompiledFunction(products)(None, *factors)
    for name, x in expected.items():
        error = float((found[name] / x - 1.0).abs().max())
        assert found[name].dtype == torch.float32 and found[name].shape == x.shape
        assert error < 1e-5, name


class Scaled:
    """A function of a tensor and of an attribute that may change."""

    scale = 1.0

    def __call__(self, x):
        return {"out": x * self.scale}


def test_a_kind_of_call_has_a_graph_and_a_change_without_a_kind_is_refused(traced):
    function, x = Scaled(), torch.ones(3)
    run = CompiledFunction(function)
    for scale in (1.0, 2.0):
        function.scale = scale
        assert torch.equal(run(scale, x)["out"], scale * x)
    assert torch.equal(run(2.0, x)["out"], 2.0 * x)
    with pytest.raises(NotCompilableError, match="Python values that change from update to update"):
        run(2.0, x.double())


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x, "Data-dependent branching"),
        (lambda x: torch.tensor(x.tolist()), "tolist"),
        (lambda x: x * random.random(), "marked as skipped"),
    ],
)
def test_what_reads_numbers_is_refused_in_a_line_that_says_where(traced, function, reason):
    with pytest.raises(NotCompilableError, match=reason) as caught:
        CompiledFunction(function)(None, torch.ones(3))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_failing_compiler_is_a_reason(monkeypatch):
    def fails(module, inputs, options):
        raise RuntimeError("no compiler\nand more of it")

    monkeypatch.setattr(torch._inductor, "compile", fails)
    with pytest.raises(NotCompilableError, match="no compiler") as caught:
        CompiledFunction(partial(torch.mul, 2.0))(None, torch.ones(3))
    assert "more of it" not in str(caught.value)


def test_a_module_whose_name_merely_begins_with_torch_is_guarded(traced, tmp_path, monkeypatch):
    (tmp_path / "torch_scales.py").write_text("SCALE = 1.0\ndef scaled(x):\n    return SCALE * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    module, x = importlib.import_module("torch_scales"), torch.ones(3)
    run = CompiledFunction(module.scaled, guarded="nothing")
    assert torch.equal(run(None, x), x)
    module.SCALE = 2.0
    with pytest.raises(NotCompilableError, match="Python values"):
        run(None, x)
