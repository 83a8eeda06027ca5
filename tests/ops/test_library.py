"""Functions of torch and of numpy by one name: the same numbers, types and shapes."""

import numpy as np
import pytest
import torch

from algorithm.ops import library
from algorithm.ops.library import NUMPY, TORCH

X, Y = (torch.randn(3, 5, generator=torch.Generator().manual_seed(seed)) * 3 for seed in range(2))
MASK, WEIGHT, BIAS = X > 0, torch.linspace(-1.0, 1.0, 10).view(2, 5), torch.tensor([0.5, -2.0])
CASES = {
    "exp": (X,),
    "log": (X.abs(),),
    "log1p": (X.abs(),),
    "tanh": (X,),
    "square": (X,),
    "rsqrt": (X.abs(),),
    "softplus": (10 * X,),
    "log_softmax": (X,),
    "linear": (X, WEIGHT, BIAS),
    "add": (X, Y),
    "addcmul": (X, Y, X[0]),
    "lerp": (X, Y, 0.3),
    "clip": (X, -1.0, 2.0),
    "at_least": (X, -1.0),
    "where": (MASK, X, 0.0),
    "fill": (X, MASK, -torch.inf),
    "cat": ([X, Y], -1),
    "split": (X, [2, 3], -1),
    "expand": (BIAS[:1], X),
    "floats": (MASK,),
    "true": (X,),
    "one_hot": (torch.cat([X, X[:, :1]], -1),),
}


def in_numpy(x):
    if isinstance(x, torch.Tensor):
        return x.numpy()
    return [in_numpy(one) for one in x] if isinstance(x, list | tuple) else x


@pytest.mark.parametrize("name", sorted(vars(TORCH).keys() - {"some", "to"}))
def test_numpy_is_torch(name):
    expected = in_numpy(getattr(TORCH, name)(*CASES[name]))
    found = getattr(NUMPY, name)(*in_numpy(CASES[name]))
    for one, other in zip(*([x] if isinstance(x, np.ndarray) else x for x in (found, expected)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_names_are_the_same_and_the_library_is_that_of_the_numbers():
    assert vars(TORCH).keys() == vars(NUMPY).keys()
    assert library.of(X) is TORCH and library.of(X.numpy()) is NUMPY
    assert NUMPY.to(MASK.numpy(), np.float32).dtype == np.float32
    assert TORCH.some(MASK) is MASK and NUMPY.some(MASK.numpy()).tolist() == MASK.tolist()
    assert NUMPY.some(np.ones((2, 3), np.bool_)) is None
    with pytest.raises(ValueError, match="read-only"):  # all actors have the same
        NUMPY.true(X.numpy())[0] = False
