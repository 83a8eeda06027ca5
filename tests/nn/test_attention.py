"""Attention: equal to plain loops, acting equal to a window, padding that changes nothing, and the band."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from algorithm.nn.layers.attention import Attention, Gate
from algorithm.nn.learning.flat import FlatParameters
from tests.oracles import attention_block

KINDS = ("rotary", "sinusoidal")


def make(size: int = 8, context: int = 4, *, change: float = 0.3, **options) -> Attention:
    """A block all of whose weights differ from their initial ones, biases and norms too."""
    block = Attention(size, context, **options)
    with torch.no_grad():
        for p in block.parameters():
            p += change * torch.randn_like(p)
    return block


def window(block: Attention, x: Tensor, valid: Tensor | None = None) -> Tensor:
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    return block(x, x.new_zeros(len(x), 0), valid)[0]


def act(block: Attention, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """The same tokens one by one, from an empty cache."""
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    carry, outs = x.new_zeros(len(x), *block.carry_shape), []
    for t in range(x.shape[1]):
        out, after = block(x[:, t : t + 1], carry, valid[:, t : t + 1])
        assert out.shape == (len(x), 1, block.out_size) and after.shape == (len(x), 1, *block.carry_shape)
        carry = after[:, 0]
        outs.append(out)
    return torch.cat(outs, 1)


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def spans(length: int, *parts: tuple[int, int]) -> Tensor:
    """valid [B, T], true from first to last (exclusive) of each part."""
    slot = torch.arange(length)
    return torch.stack([(slot >= first) & (slot < last) for first, last in parts])


# --- equal to plain loops


@settings(max_examples=40)
@given(st.data())
def test_a_window_equals_plain_loops(data):
    heads = data.draw(st.sampled_from([1, 2, 4]), "heads")
    length = data.draw(st.integers(1, 8), "T")
    bounds = st.tuples(st.integers(0, length), st.integers(0, length))
    valid = spans(length, *data.draw(st.lists(bounds, min_size=1, max_size=3), "valid"))
    kind = {"positions": data.draw(st.sampled_from(KINDS)), "gated": data.draw(st.booleans(), "gated")}
    torch.manual_seed(data.draw(st.integers(0, 99), "seed"))
    block = make(8, data.draw(st.integers(2, 6)), depth=data.draw(st.integers(1, 2)), heads=heads, **kind)
    x = torch.randn(len(valid), length, 8)
    expected = attention_block(block, x, valid, **kind)
    out = window(block.double(), x.double(), valid)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)  # frequencies are float32


@pytest.mark.parametrize("positions", KINDS)
def test_a_width_that_is_odd_or_long_equals_plain_loops(positions):
    """Sines and cosines of an odd width, and distances far beyond a few slots."""
    size, heads = (9, 3) if positions == "sinusoidal" else (6, 3)
    block = make(size, 25, heads=heads, positions=positions).double()
    x, valid = torch.randn(1, 30, size).double(), spans(30, (0, 30))
    expected = attention_block(block, x, valid, positions=positions, gated=False)
    torch.testing.assert_close(window(block, x), expected, atol=1e-6, rtol=1e-6)


# --- acting


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("gated", [False, True])
def test_acting_equals_the_window_of_the_whole_episode(heads, depth, positions, gated):
    """Far longer than the context, and than what reaches through all layers."""
    options = {"depth": depth, "heads": heads, "positions": positions, "gated": gated}
    block = make(8, 5, change=0.1, **options)
    x = torch.randn(3, 30, 8)
    torch.testing.assert_close(act(block, x), window(block, x), atol=1e-5, rtol=1e-5)
    block, x = make(8, 5, **options).double(), x.double()
    torch.testing.assert_close(act(block, x), window(block, x), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("positions", KINDS)
def test_the_smallest_context_is_one_token_back(positions):
    block = make(8, 2, depth=2, positions=positions).double()
    x = randn(2, 6, 8)
    torch.testing.assert_close(act(block, x), window(block, x), atol=1e-10, rtol=0)


@pytest.mark.parametrize("positions", KINDS)
def test_precision_does_not_depend_on_the_length_of_the_episode(positions):
    """In one layer, the last ``context`` tokens alone must give the last output."""
    block = make(8, 6, positions=positions)
    x = torch.randn(1, 400, 8)
    with torch.inference_mode():
        torch.testing.assert_close(act(block, x)[:, -1], window(block, x[:, -6:])[:, -1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", KINDS)
def test_steps_that_do_not_exist_leave_the_cache_as_it_is(positions):
    block = make(8, 4, depth=2, positions=positions).double()
    x = randn(1, 9, 8)
    valid = torch.tensor([[False, True, True, False, True, True, True, False, True]])
    out = act(block, x, valid)
    assert (out[~valid] == 0).all()
    torch.testing.assert_close(out[valid], act(block, x[valid][None])[0], atol=1e-10, rtol=0)
    carry = randn(1, *block.carry_shape)
    assert torch.equal(block(x[:, :1], carry, valid[:, :1])[1][:, 0], carry)
    after = block(torch.full((1, 1, 8), torch.nan, dtype=torch.float64), carry, valid[:, :1])[1]
    assert torch.equal(after[:, 0], carry)


def test_agents_do_not_see_each_other():
    block = make(8, 4, depth=2).double()
    x = randn(3, 7, 8)
    torch.testing.assert_close(act(block, x)[1:2], act(block, x[1:2]), atol=1e-10, rtol=0)


@pytest.mark.parametrize("positions", KINDS)
def test_what_the_cache_holds(positions):
    """A one, the key before its position and the value of each layer; the newest token last."""
    block = make(4, 3, depth=2, heads=2, positions=positions)
    assert block.carry_shape == (2, 1 + 2 * 2 * 4) and block.out_size == 4
    x, valid = torch.randn(1, 3, 4), torch.ones(1, 1, dtype=torch.bool)
    first = block.layers[0]
    kv = first.attention.qkv(first.norm_attention(x))[0, :, 4:]
    carry = torch.zeros(1, *block.carry_shape)
    for t in range(3):
        carry = block(x[:, t : t + 1], carry, valid)[1][:, 0]
        assert carry[0, :, 0].tolist() == [float(t > 0), 1.0]
        torch.testing.assert_close(carry[0, 1, 1:9], kv[t])
        if t:
            torch.testing.assert_close(carry[0, 0, 1:9], kv[t - 1])
    deep = carry[0, :, 9:]
    assert (deep != 0).all() and not torch.allclose(deep, carry[0, :, 1:9])


def test_a_window_hands_its_empty_carry_back():
    carry = torch.zeros(2, 0)
    assert make()(torch.randn(2, 3, 8), carry, torch.ones(2, 3, dtype=torch.bool))[1] is carry


# --- padding


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("content", [1e6, torch.nan, torch.inf])
def test_padding_has_exactly_no_effect(heads, positions, gated, content):
    """On the left, on the right, on both sides and everywhere: outputs, gradients of inputs and weights."""
    block = make(8, 3, depth=2, heads=heads, positions=positions, gated=gated)
    valid = spans(7, (0, 4), (3, 7), (2, 5), (0, 0))
    tokens, results = torch.randn(4, 7, 8), []
    for value in (0.0, content):
        x = tokens.masked_fill(~valid[..., None], value).requires_grad_()
        block.zero_grad()
        out = window(block, x, valid)
        (out * torch.arange(1.0, 9.0)).square().sum().backward()
        results.append([out, x.grad, *[p.grad.clone() for p in block.parameters()]])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    out, grad = results[1][:2]
    assert (out[~valid] == 0).all() and (grad[~valid] == 0).all()
    assert (out[valid] != 0).any() and (grad[valid] != 0).any(-1).all()
    assert all(value.isfinite().all() for value in results[1])


@pytest.mark.parametrize("positions", KINDS)
def test_the_place_in_the_window_does_not_matter(positions):
    block = make(8, 4, depth=2, positions=positions).double()
    x = randn(1, 6, 8)
    alone = window(block, x)
    for left, right in ((5, 0), (0, 5), (2, 3)):
        padded = torch.cat([randn(1, left, 8), x, randn(1, right, 8)], 1)
        out = window(block, padded, spans(left + 6 + right, (left, left + 6)))
        torch.testing.assert_close(out[:, left : left + 6], alone, atol=1e-10, rtol=0)


# --- the band


def reach(block: Attention, length: int) -> list[list[int]]:
    """For each token, how far back the tokens stand that change its output."""
    x = torch.randn(1, length, block.out_size, dtype=torch.float64, requires_grad=True)
    out = window(block.double(), x)
    distances = []
    for t in range(length):
        (grad,) = torch.autograd.grad((out[0, t] * torch.randn(block.out_size)).sum(), x, retain_graph=True)
        distances.append([t - s for s in range(length) if (grad[0, s] != 0).any()])
    return distances


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("gated", [False, True])
def test_one_layer_reaches_to_the_end_of_the_context(positions, gated):
    distances = reach(make(8, 3, positions=positions, gated=gated), 6)
    assert distances == [[0], [1, 0], [2, 1, 0], [2, 1, 0], [2, 1, 0], [2, 1, 0]]


@pytest.mark.parametrize("positions", KINDS)
def test_each_further_layer_reaches_as_far_again(positions):
    distances = reach(make(8, 3, depth=3, positions=positions), 10)
    assert distances[8] == distances[9] == [6, 5, 4, 3, 2, 1, 0] and distances[5] == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("positions", KINDS)
def test_the_order_of_what_was_seen_matters(positions):
    block = make(8, 4, positions=positions)
    x = torch.randn(1, 3, 8)
    swapped = window(block, x[:, [1, 0, 2]])[:, 2]
    assert not torch.allclose(swapped, window(block, x)[:, 2], atol=1e-3)


# --- gradients and weights


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("gated", [False, True])
def test_gradients_are_those_of_finite_differences(positions, gated):
    block = make(4, 3, heads=2, positions=positions, gated=gated).double()
    valid = spans(4, (0, 4), (1, 3))
    x = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: window(block, x, valid), (x,), fast_mode=True)
    carry = act_carry(block, x.detach()).requires_grad_()
    one = torch.ones(2, 1, dtype=torch.bool)

    def step(x: Tensor, kv: Tensor) -> tuple[Tensor, ...]:
        return block(x, torch.cat([carry.detach()[..., :1], kv], -1), one)

    assert torch.autograd.gradcheck(step, (x[:, :1], carry[..., 1:]), fast_mode=True)


def act_carry(block: Attention, x: Tensor) -> Tensor:
    carry = x.new_zeros(len(x), *block.carry_shape)
    for t in range(x.shape[1]):
        carry = block(x[:, t : t + 1], carry, torch.ones(len(x), 1, dtype=torch.bool))[1][:, 0].detach()
    return carry


def test_a_gate_by_hand():
    """y = −3 counts as 0. Weights 0: z = σ(−2) = 0.1192 and ĥ = 0, so x = 2 becomes 2 · 0.8808."""
    gate = Gate(1)
    for p in (gate.from_y.weight, gate.from_x.weight, gate.from_reset.weight):
        torch.nn.init.zeros_(p)
    x = torch.tensor([2.0])
    assert gate(x, torch.tensor([-3.0])).item() == pytest.approx(2 * 0.880797, abs=1e-5)
    with torch.no_grad():
        gate.from_y.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
        gate.from_x.weight.copy_(torch.tensor([[0.5], [-1.0]]))
        gate.from_reset.weight.fill_(-1.0)
    # y = 1: r = σ(1 + 1) = 0.880797, z = σ(2 − 2 − 2) = 0.119203, ĥ = tanh(3 − 0.880797 · 2) = 0.844921
    expected = 0.880797 * 2 + 0.119203 * 0.844921
    assert gate(x, torch.tensor([1.0])).item() == pytest.approx(expected, abs=1e-5)


def test_a_new_gated_block_nearly_hands_its_input_through():
    """Each of two gates keeps about 88 % of the stream and adds at most 12 % of numbers in ±1."""
    x = torch.randn(4, 10, 32)
    expected = torch.nn.functional.layer_norm(x, (32,))
    same = torch.cosine_similarity(window(Attention(32, 5, gated=True), x), expected, dim=-1)
    changed = torch.cosine_similarity(window(Attention(32, 5), x), expected, dim=-1)
    assert same.mean() > 0.95 and changed.mean() < 0.9


@pytest.mark.parametrize("gated", [False, True])
def test_initial_weights(gated):
    """Variance 1 / inputs; what writes to the stream 1 / (2 depth) of that; biases zero, gates 2."""
    block = Attention(64, 4, depth=2, positions="sinusoidal", gated=gated)
    for name, p in block.named_parameters():
        if name.endswith((".out.weight", "dense_out.weight")):
            assert p.std().item() == pytest.approx((1 / p.shape[1] / 4) ** 0.5, rel=0.05)
        elif p.dim() == 2:
            assert p.std().item() == pytest.approx((1 / p.shape[1]) ** 0.5, rel=0.05)
        elif "norm" in name and name.endswith("weight"):
            assert (p == 1).all()
        else:
            assert (p == (2 if name.endswith(("add_attention.bias", "add_dense.bias")) else 0)).all()


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("gated", [False, True])
def test_copies_flat_storage_and_checkpoints(positions, gated):
    options = {"depth": 2, "positions": positions, "gated": gated}
    block, x = make(**options), torch.randn(2, 6, 8)
    expected = window(block, x)
    twin = copy.deepcopy(block)
    FlatParameters([block])
    other = make(**options)
    other.load_state_dict(block.state_dict(), strict=True)
    with torch.inference_mode():
        for module in (block, block.eval(), twin, other, block.train()):
            assert torch.equal(window(module, x), expected)
    window(block, x).sum().backward()  # after inference: nothing of it was kept
    assert set(block.state_dict()) == dict(block.named_parameters()).keys()


@pytest.mark.parametrize("positions", KINDS)
def test_all_of_it_follows_to_another_device(positions):
    """The device without memory refuses a tensor of any other."""
    block = make(positions=positions, gated=True).to("meta")
    x = torch.empty(2, 5, 8, device="meta")
    valid = torch.ones(2, 5, dtype=torch.bool, device="meta")
    assert window(block, x, valid).device.type == "meta" == act(block, x, valid).device.type


# --- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"positions": "absolute"}, "rotary, sinusoidal.*'absolute'"),
        ({"heads": 3}, "3 heads.*size of 8.*multiple"),
        ({"heads": 0}, "multiple of heads"),
        ({"size": 0}, "positive multiple"),
        ({"heads": 8}, "each head has 1 channels.*size=16.*sinusoidal"),
        ({"context": 1}, "context of 1.*at least 2"),
        ({"depth": 0}, "depth must be at least 1"),
    ],
)
def test_choices_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        Attention(**{"size": 8, "context": 4, **arguments})


@pytest.mark.parametrize(
    ("x", "carry", "valid", "message"),
    [
        ((2, 3, 7), (2, 0), (2, 3), r"x must be \[B, T, 8\].*\[2, 3, 7\]"),
        ((2, 8), (2, 0), (2,), "x must be"),
        ((2, 3, 8), (2, 0), (2, 4), r"valid.*\[2, 4\]"),
        ((2, 3, 8), (2, 3, 17), (2, 3), "one token at a time.*for 3 tokens"),
        ((2, 1, 8), (2, 4, 17), (2, 1), r"\[2, 3, 17\]; got \[2, 4, 17\]"),
        ((2, 1, 8), (1, 3, 17), (2, 1), r"got \[1, 3, 17\]"),
        ((2, 3, 8), (2, 1), (2, 3), r"got \[2, 1\]"),
    ],
)
def test_shapes_that_do_not_fit(x, carry, valid, message):
    with pytest.raises(ValueError, match=message):
        make()(torch.zeros(x), torch.zeros(carry), torch.ones(valid, dtype=torch.bool))
