"""Recurrent layers with padding against torch's single cells, one step after the other."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.nn import GRU, LSTM
from algorithm.nn.learning.flat import FlatParameters
from tests.oracles import step_by_step

BLOCKS = [GRU, LSTM]


def runs(batch: int, steps: int, seed: int) -> torch.Tensor:
    """Masks [B, T] of one run each, some empty, some full."""
    g = torch.Generator().manual_seed(seed)
    first = torch.randint(0, steps + 1, (batch, 1), generator=g)
    length = torch.randint(0, steps + 1, (batch, 1), generator=g)
    time = torch.arange(steps)
    return (time >= first) & (time < first + length)


@settings(max_examples=40, deadline=None)
@given(
    block=st.sampled_from(BLOCKS),
    depth=st.integers(1, 3),
    batch=st.integers(1, 5),
    steps=st.integers(1, 7),
    seed=st.integers(0, 10_000),
)
def test_a_window_is_step_by_step_with_the_carry_passing_by_padding(block, depth, batch, steps, seed):
    torch.manual_seed(seed)
    memory = block(3, 4, depth).double()
    x = torch.randn(batch, steps, 3, dtype=torch.float64, requires_grad=True)
    carry, valid = torch.randn(batch, *memory.carry_shape, dtype=torch.float64), runs(batch, steps, seed)
    out, after = memory(x, carry, valid)
    expected, expected_after = step_by_step(memory, x, carry, valid)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(after, expected_after)
    assert after.shape == (batch, steps, *memory.carry_shape) and not after.requires_grad
    weight = torch.randn_like(out)
    parameters = [x, *memory.parameters()]
    found = torch.autograd.grad((out * weight).sum(), parameters, allow_unused=True)
    anchored = (expected * weight).sum() + 0.0 * x.sum()  # where nothing is valid there is no graph
    wanted = torch.autograd.grad(anchored, parameters, allow_unused=True)
    for own, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(own, torch.zeros_like(own) if other is None else other)


@pytest.mark.parametrize("block", BLOCKS)
def test_what_stands_in_padding_has_no_effect_at_all(block):
    torch.manual_seed(0)
    memory = block(3, 4, 2)
    valid = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0] * 6]).bool()
    x, carry = torch.randn(3, 6, 3), torch.randn(3, *memory.carry_shape)
    other = torch.where(valid.unsqueeze(-1), x, torch.full_like(x, 1e30)).requires_grad_()
    out, after = memory(x, carry, valid)
    same, same_after = memory(other, carry, valid)
    assert torch.equal(out, same) and torch.equal(after, same_after)
    assert not out[~valid].any()
    same.sum().backward()
    assert not other.grad[~valid].any() and other.grad[valid].all()


@pytest.mark.parametrize("block", BLOCKS)
def test_the_carry_after_a_token_goes_on_as_the_whole(block):
    torch.manual_seed(0)
    memory = block(3, 4)
    x, valid = torch.randn(2, 6, 3), torch.ones(2, 6, dtype=torch.bool)
    carry = torch.zeros(2, *memory.carry_shape)
    whole, after = memory(x, carry, valid)
    for cut in range(1, 6):
        rest, rest_after = memory(x[:, cut:], after[:, cut - 1], valid[:, cut:])
        torch.testing.assert_close(rest, whole[:, cut:])
        torch.testing.assert_close(rest_after, after[:, cut:])


@pytest.mark.parametrize("block", BLOCKS)
def test_flat_parameters_and_copies_are_what_is_computed_with(block):
    memory = block(3, 4)
    flat, copied = FlatParameters([memory]), copy.deepcopy(memory)
    x, valid = torch.ones(1, 2, 3), torch.ones(1, 2, dtype=torch.bool)
    carry = torch.zeros(1, *memory.carry_shape)
    before, _ = memory(x, carry, valid)
    flat.data.mul_(2.0)
    assert not torch.equal(memory(x, carry, valid)[0], before)
    assert torch.equal(copied(x, carry, valid)[0], before)


def test_recurrent_weights_begin_orthogonal_and_the_forget_gate_open():
    for block, gates in ((GRU, 3), (LSTM, 4)):
        memory = block(3, 4, 2)
        for layer in memory.layers:
            assert layer.weight_hh_l0.shape == (4 * gates, 4)
            for gate in layer.weight_hh_l0.split(4):
                torch.testing.assert_close(gate @ gate.t(), torch.eye(4), atol=1e-5, rtol=1e-5)
            biases = layer.bias_ih_l0 + layer.bias_hh_l0
            expected = torch.zeros(4 * gates)
            if block is LSTM:
                expected[4:8] = 1.0
            assert torch.equal(biases, expected)


@pytest.mark.parametrize("sizes", [(0, 4, 1), (3, 0, 1), (3, 4, 0)])
def test_sizes_below_one_are_refused(sizes):
    with pytest.raises(ValueError, match="GRU: sizes must be at least 1"):
        GRU(*sizes)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    ("x", "carry", "valid", "message"),
    [
        ((2, 5, 4), None, (2, 5), "x must be"),
        ((2, 3), None, (2,), "x must be"),
        ((2, 5, 3), None, (2, 4), "x must be"),
        ((2, 5, 3), (2, 0), (2, 5), "carry must be"),
        ((2, 5, 3), (3, 1, 4), (2, 5), "carry must be"),
    ],
)
def test_other_shapes_are_named(block, x, carry, valid, message):
    memory = block(3, 4)
    given_carry = torch.zeros(carry or (2, *memory.carry_shape))
    with pytest.raises(ValueError, match=message):
        memory(torch.zeros(x), given_carry, torch.ones(valid, dtype=torch.bool))


@pytest.mark.parametrize("block", BLOCKS)
def test_kernels_get_contiguous_states(block, monkeypatch):
    """CUDA's refuse others; a carry that was cut out of a longer window is one."""
    seen = []
    kernel, gates = block.cell
    monkeypatch.setattr(block, "cell", (lambda x, h, *rest: seen.append(h) or kernel(x, h, *rest), gates))
    memory = block(3, 4, 2)
    carry = torch.zeros(2, 5, *memory.carry_shape)[:, -1]
    memory(torch.zeros(2, 3, 3), carry, torch.ones(2, 3, dtype=torch.bool))
    states = [state for h in seen for state in (h if isinstance(h, list) else (h,))]
    assert states and all(state.is_contiguous() for state in states)
