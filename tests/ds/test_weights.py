"""Weights arrive as they were sent, in as many pieces as they need, and say when they are newer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ds.service import ParameterStore
from ds.weights import CHUNK, WeightPublisher, assembled, chunks, load, packed, unpack


def net(seed, width=4):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 41, CHUNK - 40, CHUNK - 39, 5 * CHUNK + 7])
def test_pieces_are_small_and_make_the_whole_again(size):
    payload = np.random.default_rng(size).bytes(size)
    pieces = chunks(7, payload)
    assert max(map(len, pieces)) <= CHUNK
    assert len(pieces) == -(-(size + 40) // CHUNK), "version and digest are 40 bytes"
    assert assembled(pieces) == (7, payload)


@pytest.mark.parametrize("damage", ["a piece is missing", "a byte is another", "nothing came"])
def test_what_arrives_damaged_is_refused(damage):
    pieces = chunks(7, b"x" * (2 * CHUNK))
    if damage == "a piece is missing":
        del pieces[1]
    elif damage == "a byte is another":
        pieces[1] = b"y" + pieces[1][1:]
    else:
        pieces.clear()
    with pytest.raises(ValueError, match="arrived damaged"):
        assembled(pieces)


def test_modules_become_equal_with_buffers_and_counters():
    source, copy = net(1), net(2)
    source(torch.randn(8, 3))  # moves the batch statistics
    before = packed({"a/b": {"policy": source}})
    unpack(before, {"a/b": {"policy": copy}})
    assert all(
        torch.equal(x, y)
        for x, y in zip(source.state_dict().values(), copy.state_dict().values(), strict=True)
    )
    assert packed({"a/b": {"policy": copy}}) == before


def test_what_was_packed_does_not_follow_the_networks():
    """The learner goes on while the bytes wait: views of one storage of all parameters, as SAC has them."""
    flat = torch.arange(6.0)
    module = torch.nn.Linear(2, 2)
    module.weight.data, module.bias.data = flat[:4].view(2, 2), flat[4:]
    payload = packed({"x": {"rep": module}})
    flat.zero_()
    other = torch.nn.Linear(2, 2)
    unpack(payload, {"x": {"rep": other}})
    assert other.weight.flatten().tolist() + other.bias.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("sent", "owned", "said"),
    [
        ({"x": {"rep": net(1)}}, {"x": {"rep": net(1, width=5)}}, "weights do not fit x/rep"),
        ({"x": {"rep": net(1)}}, {"x": {"rep": net(1), "policy": net(1)}}, "weights do not fit x/policy"),
        (
            {"x": {"rep": net(1), "policy": net(1)}},
            {"x": {"rep": net(1)}},
            r"x/policy/.*, which is unknown",
        ),
    ],
    ids=["other shapes", "something missing", "something more"],
)
def test_other_networks_are_refused(sent, owned, said):
    with pytest.raises(ValueError, match=said):
        unpack(packed(sent), owned)


def test_a_payload_that_is_no_safetensors_file_is_refused():
    with pytest.raises(ValueError, match="no safetensors file"):
        unpack(b"\x80\x04pickle", {})


def test_what_is_loaded_says_its_version():
    parts = {"x": {"rep": net(2)}}
    assert load(chunks(12, packed({"x": {"rep": net(1)}})), parts) == 12
    assert torch.equal(parts["x"]["rep"][0].weight, net(1)[0].weight)


def agent(warming_up=True):
    """As much of an agent as a publisher asks for."""
    parts = {"normaliser": net(0), "rep": net(1), "policy": net(2)}
    return SimpleNamespace(
        weights_version=0, acting_parts=lambda: parts, policy=SimpleNamespace(warming_up=warming_up)
    )


def test_weights_are_published_first_and_then_with_every_version_of_an_agent():
    one, other, parameters = agent(), agent(), ParameterStore({})
    publisher = WeightPublisher(parameters, {"one": one, "other": other}, always=False)
    versions = []
    for own, others in ((0, 0), (0, 0), (1, 0), (1, 0), (1, 1), (3, 1), (3, 1)):
        one.weights_version, other.weights_version = own, others
        publisher.publish_if_due()
        versions.append(parameters.newest)
    assert versions == [1, 1, 2, 2, 3, 4, 4]
    other.policy.warming_up = False
    publisher.publish_if_due()
    assert parameters.warming_up == {"one": True, "other": False}, "told at once, published or not"


def test_whoever_waits_gets_weights_after_each_step_above_those_of_an_earlier_learner():
    parameters = ParameterStore({})
    publisher = WeightPublisher(parameters, {"one": agent()}, always=True)
    parameters.seen(41)  # by an actor that comes back
    for _ in range(3):
        publisher.publish_if_due()
    assert parameters.newest == 44


def test_weights_of_a_learner_before_this_one_are_never_current():
    parameters = ParameterStore({})
    parameters.publish(1, [b"w"])
    assert (parameters.lag(0), parameters.lag(1)) == (1, 0)
    parameters.seen(7)  # by an actor of a learner that was killed before its first checkpoint
    assert (parameters.lag(7), parameters.next_version) == (1, 8)
    parameters.publish(8, [b"w"])
    assert (parameters.lag(7), parameters.lag(8)) == (1, 0)
