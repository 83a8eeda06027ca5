"""Torch functions as numpy programs: what they follow, and what makes a function torch's."""

from __future__ import annotations

import functools
import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.nn.acting import tracing
from algorithm.nn.acting.programs import NumpyPrograms
from algorithm.nn.acting.tracing import Tape
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.noisy import NoisyLinear
from tests.batches import CPU

GENERATOR = torch.Generator()


def programs(function):
    """Programs of a function of tensors, and the list of its calls."""
    calls = []
    return NumpyPrograms(partial(counted, function, calls.append), CPU), calls


def counted(function, note, tensors):
    note(1)
    results = function(*tensors)
    return results if isinstance(results, list | tuple) else [results]


def policy():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), NoisyLinear(8, 2))


ROWS = torch.linspace(-1.0, 1.0, 12).view(3, 4)


@torch.no_grad()
def test_what_is_written_into_parameters_is_seen():
    net, plain = policy(), torch.ones(2)
    made, calls = programs(lambda x: net(x) * plain + plain.view(1, 2))
    for _ in range(4):
        expected = net(ROWS) * plain + plain
        np.testing.assert_allclose(made(3, [ROWS.numpy()])[0], expected.numpy(), rtol=1e-5)
        net[0].weight.mul_(1.5)
        plain.add_(0.5)
        net[2].resample_noise(GENERATOR)
        net.load_state_dict({name: value + 0.1 for name, value in net.state_dict().items()})
    assert len(calls) == 3


def test_a_number_from_elsewhere_is_read_anew_when_programs_are_renewed():
    factor = [1.0]
    made, calls = programs(lambda x: x * factor[0])
    found = []
    for n in range(6):
        factor[0] = 1.0 + n
        if n == 3:
            made.renew()
        found.append(made(0, [np.ones((1, 1), np.float32)])[0].item())
    assert found == [1, 1, 1, 4, 4, 4] and len(calls) == 6


BUFFER = torch.zeros(4)
OTHER = torch.Generator()
COUNT = iter(range(99))


class Counting(nn.Module):
    """A module that keeps something of each call, in ``kept``."""

    def __init__(self, kept, keep):
        super().__init__()
        self.kept, self.keep = kept, keep

    def forward(self, x):
        self.keep(self, x)
        return x * 2


def swallowing(x):
    try:
        return x * 2 if x.sum() > 0 else x
    except Exception:
        return x


TORCH = {
    "uses conv2d": nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 1)),
    "uses bool": lambda x: x * 2 if x.sum() > 0 else x,
    "uses bool, and catches that": swallowing,
    "uses tolist": lambda x: x + torch.tensor(x.tolist()),
    "uses numpy": lambda x: x + torch.from_numpy(x.numpy() * 2),
    "uses array": lambda x: x * float(np.asarray(x).sum()),
    "uses item": lambda x: x * x[0, 0].item(),
    "uses numpy of a buffer": lambda x: x + torch.from_numpy(BUFFER.numpy() + 0.0),
    "uses index in another way than numpy": lambda x: x[x > 0],
    "uses where in another way than numpy": lambda x: x * len(torch.where(x > 0)[0]),
    "uses linspace": lambda x: x + torch.linspace(x[0, 0], x[0, 1], 4),
    "uses view in another way than numpy": lambda x: x + x.view(torch.int32),
    "uses unsqueeze": lambda x: (x * 1).unsqueeze_(0),
    "uses equal": lambda x: x * 2 if torch.equal(x, ROWS) else x,
    "uses rand": lambda x: x + torch.rand(4) * 0,
    "uses rand, of a generator of its own": lambda x: x + torch.rand(4, generator=OTHER),
    "draws its own random numbers": lambda x: x * (1 + 0 * random.random()),
    "draws its own random numbers, numpy's": lambda x: x * (1 + 0 * np.random.random()),
    "Got unsupported ScalarType BFloat16": lambda x: x.to(torch.bfloat16).to(torch.float32),
    "writes into what others see (add_)": lambda x: x + BUFFER.add_(1),
    "writes into what others see (mul_)": lambda x: x.mul_(2),
    "writes into what others see (mul_), a view": lambda x: [y := x * 1, y[:, :2].mul_(2), y][2],
    "uses set": lambda x: [setattr(BUFFER, "data", BUFFER + 1), x + BUFFER][1],
    "changes an attribute, a number": Counting(0, lambda self, x: vars(self).update(kept=self.kept + 1)),
    "changes an attribute, a list": Counting([], lambda self, x: self.kept.append(len(x))),
    "changes an attribute, a tensor": Counting(None, lambda self, x: vars(self).update(kept=x)),
    "changes an attribute, a generator": Counting(
        np.random.default_rng(0), lambda self, x: self.kept.random()
    ),
    "does not do the same each time": lambda x: x * next(COUNT),
}


def world(function) -> str:
    """All that the functions above may change."""
    numbers = BUFFER, OTHER.get_state(), torch.get_rng_state(), ROWS
    kept = getattr(function, "kept", None)
    drawn = getattr(getattr(kept, "bit_generator", None), "state", kept)
    return str((drawn, random.getstate(), np.random.get_state()[1].tolist(), [x.tolist() for x in numbers]))


@pytest.mark.parametrize("why", TORCH)
@torch.no_grad()
def test_anything_else_is_torch_s(why):
    """A look at it changes nothing."""
    function = TORCH[why]
    before = world(function)
    made, calls = programs(function)
    seen = made.decide([ROWS.numpy()])
    assert why.partition(",")[0].removesuffix(" of a buffer") == seen.removeprefix("forward ")
    assert world(function) == before
    made(3, [ROWS.numpy().copy()])
    called = len(calls)
    made(3, [ROWS.numpy().copy()])
    assert len(calls) == called + 1, "torch has computed it"


def test_what_a_cache_keeps_of_a_trace_is_usable():
    """A table that is made once while nobody may read values; read, and used, later."""

    @functools.lru_cache
    def table():
        return torch.linspace(0.0, 1.0, 4)

    made, _ = programs(lambda x: x * table())
    for _ in range(3):
        np.testing.assert_array_equal(
            made(3, [ROWS.numpy()])[0], (ROWS * torch.linspace(0.0, 1.0, 4)).numpy()
        )
    assert table().tolist() == torch.linspace(0.0, 1.0, 4).tolist() and float(table().sum()) == 2.0


def test_members_of_an_ensemble_are_not_changed_by_a_look():
    """They are hidden from torch, and one of them counts."""
    made, _ = programs(Ensemble(lambda: Counting([], lambda self, x: self.kept.append(1)), 2))
    assert made.decide([ROWS.numpy()]) == "forward changes an attribute"


def test_results_that_are_the_same_each_time_may_be_written_into():
    made, _ = programs(lambda x: (x.new_zeros(3), BUFFER.view(2, 2)))
    before = BUFFER.tolist()
    for _ in range(3):
        zeros, buffer = made(0, [ROWS.numpy()])
        assert zeros.tolist() == [0, 0, 0] and buffer.flatten().tolist() == BUFFER.tolist() == before
        zeros += 1
        buffer += 1


def test_arrays_that_may_not_be_written_into_are_read():
    made, calls = programs(policy())
    rows = ROWS.numpy().copy()
    rows.flags.writeable = False
    for _ in range(2):
        assert made(3, [rows])[0].shape == (3, 2)
    assert len(calls) == 3


@pytest.mark.filterwarnings("error")
def test_the_logarithm_of_0_is_no_warning():
    made, calls = programs(lambda x: x.log())
    for _ in range(3):
        assert made(0, [np.zeros(2, np.float32)])[0].tolist() == [-math.inf] * 2
    assert len(calls) == 3


def test_recording_does_not_import_torch_s_compiler():
    """Which takes two seconds; torch wraps the method in what imports it."""
    assert Tape.__torch_dispatch__.__code__.co_filename == tracing.__file__
