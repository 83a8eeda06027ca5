"""Specs: the flat action's layout and the warm-up's densities."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.actions.parts import make_parts
from algorithm.core.spec import ActionSpec, ObsSpec


def test_random_actions_are_uniform_and_carry_their_density(rng):
    spec = ActionSpec(continuous=2)
    action, z, logp = spec.random(rng, spec.all_allowed(20_000))
    assert np.array_equal(action, np.tanh(z))
    counts = np.histogram(action, bins=10, range=(-1, 1))[0]
    # 40,000 draws in 10 bins, chi-square with 9 degrees of freedom: below 27.9 with probability 0.999
    assert ((counts - 4000) ** 2 / 4000).sum() < 27.9
    np.testing.assert_allclose(logp, -2 * np.log(2.0), rtol=1e-6)


def test_random_branches_are_one_hot_and_come_first(rng):
    spec = ActionSpec(branches=(3, 2), continuous=1)
    action, z, logp = spec.random(rng, spec.all_allowed(100))
    assert action.shape == (100, 6) and z.shape == (100, 1) and logp.shape == (100, 2)
    assert (action[:, :3].sum(-1) == 1).all() and (action[:, 3:5].sum(-1) == 1).all()
    np.testing.assert_allclose(logp[0], [-np.log(6), -np.log(2)], rtol=1e-6)


def test_random_branches_keep_to_the_mask(rng):
    spec = ActionSpec(branches=(3, 2))
    mask = np.array([[True, False, True, False, True]]).repeat(30_000, 0)
    mask[::2] = True
    action, _, logp = spec.random(rng, mask)
    assert not action[~mask].any()
    assert (action[:, :3].sum(-1) == 1).all() and (action[:, 3:].sum(-1) == 1).all()
    # half the rows choose one of three, the others one of the two that are allowed: 5,000 of the second kind
    np.testing.assert_allclose(action[:, :3].sum(0), [12_500, 5_000, 12_500], rtol=0.05)
    np.testing.assert_allclose(logp[:2, 0], [-np.log(6), -np.log(2)], rtol=1e-6)


def test_branches_lie_one_after_the_other():
    assert ActionSpec(branches=(3, 2), continuous=1).branch_slices == (slice(0, 3), slice(3, 5))


@pytest.mark.parametrize(
    ("field", "match"),
    [
        ({"categories": ((4, 4), ())}, "1 elements and 2 categories"),
        ({"stacks": (2, 1)}, "cannot hold a stack of 2"),
        ({"stacks": (1,)}, "same length"),
        ({"axes": ("", "HWC")}, "b of shape .* cannot have the axes 'HWC'"),
        ({"axes": ("", "WHC")}, "cannot have the axes 'WHC'"),
    ],
)
def test_kinds_of_observations_fit_their_shapes(field, match):
    with pytest.raises(ValueError, match=match):
        ObsSpec(("a", "b"), ((), (3,)), ("int32", "float32"), **field)


@pytest.mark.parametrize("bad", [{}, {"continuous": -1}, {"branches": (0,)}])
def test_an_action_needs_a_size(bad):
    with pytest.raises(ValueError, match="ActionSpec"):
        ActionSpec(**bad)


def test_observations_need_unique_names():
    with pytest.raises(ValueError, match="unique"):
        ObsSpec(("a", "a"), ((1,), (1,)), ("float32", "float32"))
    assert ObsSpec(("a", "b"), ((2, 3), ()), ("float32", "uint8")).flat_size == 7


def test_the_continuous_part_is_squashed_by_tanh_or_cut_off(rng):
    z = rng.normal(size=(50, 3)).astype(np.float32) * 3
    for squash, plain in (("tanh", np.tanh(z)), ("clip", z.clip(-1, 1))):
        spec = ActionSpec(continuous=3, squash=squash)
        np.testing.assert_array_equal(spec.squashed(z), plain)
        np.testing.assert_array_equal(make_parts(spec).continuous.squash(z), plain)
        out = np.empty_like(z)
        assert spec.squashed(z, out=out) is out and np.array_equal(out, plain)
