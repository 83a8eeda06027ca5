"""Specs: the flat action's layout and the warm-up's densities."""

import numpy as np
import pytest

from algorithm.actions.parts import make_parts
from algorithm.core.spec import ActionSpec, ObsSpec


def test_random_actions_are_uniform_among_those_that_are_allowed_and_carry_their_density(rng):
    """One-hots of the branches come first, one after the other."""
    spec, mask = ActionSpec(branches=(3, 2), continuous=2), np.ones((30_000, 5), bool)
    mask[1::2] = [True, False, True, False, True]
    action, z, logp = spec.random(rng, mask)
    assert spec.branch_slices == (slice(0, 3), slice(3, 5)) and spec.size == 7
    assert not action[:, :5][~mask].any()
    assert (action[:, :3].sum(-1) == 1).all() and (action[:, 3:5].sum(-1) == 1).all()
    # half the rows choose one of three, the others one of the two that are allowed: 5,000 of the second kind
    np.testing.assert_allclose(action[:, :3].sum(0), [12_500, 5_000, 12_500], rtol=0.05)
    np.testing.assert_allclose(
        logp[:2], [[-np.log(6), -2 * np.log(2)], [-np.log(2), -2 * np.log(2)]], rtol=1e-6
    )
    assert np.array_equal(action[:, 5:], np.tanh(z))
    counts = np.histogram(action[:, 5:], bins=10, range=(-1, 1))[0]
    # 60,000 draws in 10 bins, chi-square with 9 degrees of freedom: below 27.9 with probability 0.999
    assert ((counts - 6000) ** 2 / 6000).sum() < 27.9


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ({"categories": ((4, 4), ())}, "1 elements and 2 categories"),
        ({"stacks": (2, 1)}, "stack of 2"),
        ({"stacks": (1,)}, "same length"),
        ({"axes": ("", "HWC")}, "the axes 'HWC'"),
        ({"axes": ("", "WHC")}, "the axes 'WHC'"),
        ({"names": ("a", "a")}, "unique"),
    ],
)
def test_kinds_of_observations_fit_their_shapes(field, named):
    fields = {"names": ("a", "b"), "shapes": ((), (3,)), "dtypes": ("int32", "float32"), **field}
    with pytest.raises(ValueError, match=named):
        ObsSpec(**fields)


@pytest.mark.parametrize("bad", [{}, {"continuous": -1}, {"branches": (0,)}])
def test_an_action_needs_a_size(bad):
    with pytest.raises(ValueError, match="ActionSpec"):
        ActionSpec(**bad)


@pytest.mark.parametrize(("squash", "plain"), [("tanh", np.tanh), ("clip", lambda z: z.clip(-1, 1))])
def test_the_continuous_part_is_squashed_by_tanh_or_cut_off(rng, squash, plain):
    spec, z = ActionSpec(continuous=3, squash=squash), rng.normal(size=(50, 3)).astype(np.float32) * 3
    out = np.empty_like(z)
    assert spec.squashed(z, out=out) is out and np.array_equal(out, plain(z))
    assert np.array_equal(make_parts(spec).continuous.squash(z), out)
