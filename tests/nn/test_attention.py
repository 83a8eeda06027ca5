"""Attention: equal to plain loops, acting equal to a window, and padding that changes nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from algorithm.nn.layers.attention import Attention, SelfAttention


def make(size: int = 8, context: int = 4, **options) -> Attention:
    """A block in float64 whose weights all differ from their initial ones, biases and norms too."""
    block = Attention(size, context, **options).double()
    with torch.no_grad():
        for p in block.parameters():
            p += 0.3 * torch.randn_like(p)
    return block


def window(block: Attention, x: Tensor, valid: Tensor | None = None) -> Tensor:
    carry = x.new_zeros(len(x), 0)
    valid = x.new_ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    out, after = block(x, carry, valid)
    assert after is carry
    return out


def act(block: Attention, x: Tensor, valid: Tensor) -> Tensor:
    """The same tokens one by one, from an empty cache."""
    carry, outs = x.new_zeros(len(x), *block.carry_shape), []
    for t in range(x.shape[1]):
        out, after = block(x[:, t : t + 1], carry, valid[:, t : t + 1])
        carry = after[:, 0]
        outs.append(out)
    return torch.cat(outs, 1)


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def spans(length: int, *parts: tuple[int, int]) -> Tensor:
    """valid [B, T], true from first to last (exclusive) of each part."""
    slot = torch.arange(length)
    return torch.stack([(slot >= first) & (slot < last) for first, last in parts])


def attended(part: SelfAttention, x: Tensor, context: int) -> Tensor:
    """Attention over tokens that all exist [T, size], one query and one head at a time."""
    q, k, v = part.qkv(x).chunk(3, -1)
    found = torch.zeros_like(x)
    for t in range(len(x)):
        keys = range(max(0, t - context + 1), t + 1)
        for head, own in enumerate(torch.arange(x.shape[1]).chunk(part.heads)):
            scores = torch.stack([rotary_score(part, q[t], k[s], t - s, head) for s in keys])
            found[t, own] = (scores / len(own) ** 0.5).softmax(0) @ v[keys.start : keys.stop, own]
    return part.out(found)


def rotary_score(part: SelfAttention, q: Tensor, k: Tensor, distance: int, head: int) -> Tensor:
    """Re Σ q k* exp(i · distance · frequency) over the head's pairs, as complex numbers."""
    q, k = (torch.complex(*x.chunk(2)).view(part.heads, -1)[head] for x in (q, k))
    angle = distance * 10000.0 ** (-torch.arange(len(q)) / len(q))
    return (q * k.conj() * torch.polar(torch.ones(len(q)), angle)).real.sum()


@given(
    sizes=st.sampled_from([(8, 1), (8, 4), (6, 3)]),
    context=st.sampled_from([2, 4, 20]),
    depth=st.integers(1, 2),
    length=st.sampled_from([1, 4, 7, 24]),
    ends=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), min_size=1, max_size=2),
)
def test_a_window_equals_plain_loops(sizes, context, depth, length, ends):
    """Tokens that do not exist are left out altogether; slots only matter by their differences."""
    size, heads = sizes
    block = make(size, context, depth=depth, heads=heads)
    valid = spans(length, *ends)
    x = randn(len(valid), length, size)
    expected = torch.zeros_like(x)
    for row, exists in enumerate(valid):
        stream = x[row, exists]
        for layer in block.layers:
            stream = stream + attended(layer.attention, layer.norm_attention(stream), context)
            stream = stream + layer.dense_out(F.gelu(layer.dense_in(layer.norm_dense(stream))))
        expected[row, exists] = block.norm(stream)
    torch.testing.assert_close(window(block, x, valid), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("context", [2, 5])
@pytest.mark.parametrize("depth", [1, 3])
def test_acting_equals_the_window_of_the_tokens_that_exist(context, depth):
    """Of each agent by itself, far longer than the context and than what reaches through all layers."""
    block = make(8, context, depth=depth)
    valid = torch.rand(3, 30) < 0.7
    x = randn(3, 30, 8).masked_fill(~valid.unsqueeze(-1), torch.nan)
    out = act(block, x, valid)
    assert not out[~valid].any()
    for of_agent, seen, exists in zip(out, x, valid, strict=True):
        expected = window(block, seen[None, exists])[0]
        torch.testing.assert_close(of_agent[exists], expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("content", [1e6, torch.nan])
def test_padding_has_exactly_no_effect(content):
    """On the left, on the right, on both sides and everywhere: outputs, gradients of inputs and weights."""
    block = make(8, 3, depth=2)
    valid = spans(7, (0, 4), (3, 7), (2, 5), (0, 0))
    tokens, results = randn(4, 7, 8), []
    for value in (0.0, content):
        x = tokens.masked_fill(~valid[..., None], value).requires_grad_()
        block.zero_grad()
        out = window(block, x, valid)
        (out * torch.arange(1.0, 9.0)).square().sum().backward()
        results.append([out, x.grad, *[p.grad.clone() for p in block.parameters()]])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    assert not out[~valid].any() and not x.grad[~valid].any() and x.grad[valid].any(-1).all()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"heads": 3}, "multiple of 2 · heads, 6"),
        ({"heads": 8}, "multiple of 2 · heads, 16"),
    ],
)
def test_choices_that_cannot_be(arguments, named):
    with pytest.raises(ValueError, match=named):
        Attention(**{"size": 8, "context": 4, **arguments})


def test_all_of_it_follows_to_another_device():
    """The device without memory refuses a tensor of any other."""
    block = Attention(8, 4).to("meta")
    x, valid = torch.empty(2, 5, 8, device="meta"), torch.ones(2, 5, dtype=torch.bool, device="meta")
    assert window(block, x, valid).is_meta and act(block, x, valid).is_meta
