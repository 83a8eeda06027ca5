"""Recurrent layers with padding against torch's single cells, one step after the other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from algorithm.nn import GRU, LSTM
from algorithm.nn.learning.flat import FlatParameters

BLOCKS = [GRU, LSTM]


def step_by_step(memory: GRU | LSTM, x: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and carries by torch's cells; a step that does not exist leaves a row as it is."""
    now, outs, after = carry, [], []
    for t in range(x.shape[1]):
        value, layers = x[:, t], []
        for depth, layer in enumerate(memory.layers):
            weights = list(layer.parameters())
            if isinstance(memory, GRU):
                value = torch.gru_cell(value, now[:, depth], *weights)
                layers.append(value)
            else:
                value, cell = torch.lstm_cell(value, now[:, :, depth].unbind(1), *weights)
                layers.append(torch.stack([value, cell], 1))
        exists = valid[:, t].view(-1, *[1] * (carry.dim() - 1))
        now = torch.where(exists, torch.stack(layers, -2), now)
        outs.append(torch.where(valid[:, t, None], value, 0.0))
        after.append(now.detach())
    return torch.stack(outs, 1), torch.stack(after, 1)


@given(
    block=st.sampled_from(BLOCKS),
    depth=st.integers(1, 3),
    steps=st.integers(1, 7),
    ends=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=5),
)
def test_a_window_is_step_by_step_with_the_carry_passing_by_padding(block, depth, steps, ends):
    memory, time = block(3, 4, depth).double(), torch.arange(steps)
    valid = torch.stack([(time >= first) & (time < last) for first, last in ends])
    x = torch.randn(len(valid), steps, 3, dtype=torch.float64, requires_grad=True)
    carry = torch.randn(len(valid), *memory.carry_shape, dtype=torch.float64)
    out, after = memory(x, carry, valid)
    expected, expected_after = step_by_step(memory, x, carry, valid)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(after, expected_after)
    assert not after.requires_grad
    weight = torch.randn_like(out)
    found, wanted = (
        torch.autograd.grad((y * weight).sum(), [x, *memory.parameters()]) for y in (out, expected)
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("block", BLOCKS)
def test_kernels_get_contiguous_states_and_the_weights_of_the_flat_storage(block, monkeypatch):
    """CUDA's refuse others; a carry that was cut out of a longer window is one."""
    states: list[Tensor] = []
    kernel, gates = block.cell

    def noted(x, before, *rest):
        states.extend(before if isinstance(before, list) else [before])
        return kernel(x, before, *rest)

    monkeypatch.setattr(block, "cell", (noted, gates))
    memory = block(3, 4, 2)
    carry, valid = torch.zeros(2, 5, *memory.carry_shape)[:, -1], torch.ones(2, 3, dtype=torch.bool)
    FlatParameters([memory]).data.zero_()
    assert not memory(torch.ones(2, 3, 3), carry, valid)[0].any()
    assert states and all(state.is_contiguous() for state in states)


@pytest.mark.parametrize(("block", "gates"), [(GRU, 3), (LSTM, 4)])
def test_recurrent_weights_begin_orthogonal_and_the_forget_gate_open(block, gates):
    for layer in block(3, 4, 2).layers:
        for gate in layer.weight_hh_l0.split(4):
            torch.testing.assert_close(gate @ gate.t(), torch.eye(4), atol=1e-5, rtol=1e-5)
        expected = torch.zeros(4 * gates)
        expected[4:8] = float(block is LSTM)
        assert torch.equal(layer.bias_ih_l0 + layer.bias_hh_l0, expected)
