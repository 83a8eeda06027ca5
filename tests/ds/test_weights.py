"""Weights arrive as they were sent, in as many pieces as they need, and say when they are newer."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ds.service import ParameterStore
from ds.weights import CHUNK, WeightPublisher, chunks, load, packed, unpack


def net(seed, width=4):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 9, CHUNK - 8, CHUNK - 7, 5 * CHUNK + 7])
def test_pieces_are_small_and_make_the_whole_again(size):
    payload = np.random.default_rng(size).bytes(size)
    pieces = chunks(7, payload)
    assert max(map(len, pieces)) <= CHUNK
    assert len(pieces) == -(-(size + 8) // CHUNK), "the version is 8 bytes"
    assert b"".join(pieces) == (7).to_bytes(8, "big") + payload


def test_modules_become_equal_with_buffers_and_counters_as_they_were_when_packed():
    """The learner goes on while the bytes wait: views of one storage of all parameters, as SAC has them."""
    source, copy = net(1), net(2)
    flat = torch.arange(16.0)
    source[0].weight.data, source[0].bias.data = flat[:12].view(4, 3), flat[12:]
    source(torch.randn(8, 3))  # moves the batch statistics
    payload = packed({"a/b": {"policy": source}})
    flat.zero_()
    assert load(chunks(12, payload), {"a/b": {"policy": copy}}) == 12
    assert copy[0].weight.flatten().tolist() + copy[0].bias.tolist() == [*range(16)]
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(getattr(copy[1], name), getattr(source[1], name))
    assert packed({"a/b": {"policy": copy}}) == payload


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
    for damaged in ([], [b"\x80\x04pickle"], chunks(1, packed(sent))[:-1], chunks(1, packed(sent)[:-1])):
        with pytest.raises(ValueError, match="not a safetensors file"):
            load(damaged, owned)


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


def test_weights_of_a_learner_before_this_one_are_never_current():
    parameters = ParameterStore({})
    publisher = WeightPublisher(parameters, {"one": agent()}, always=True)
    publisher.publish_if_due()
    assert (parameters.lag(0), parameters.lag(1)) == (1, 0)
    parameters.seen(7)  # by an actor of a learner that was killed before its first checkpoint
    assert parameters.lag(7) == 1
    for _ in range(2):  # whoever waits gets weights after each step
        publisher.publish_if_due()
    assert parameters.newest == 9 and (parameters.lag(7), parameters.lag(8)) == (2, 1)
