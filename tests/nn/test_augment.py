"""A random shift is a crop from an image padded with its own border; a look shifts and adds noise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.augment import Augmentation, OneView, RandomShift, default_shift, shift_images
from algorithm.nn.layers.images import image_layout, image_layouts


@given(
    shape=st.tuples(*[st.integers(1, n) for n in (4, 9, 9, 3)]),
    dtype=st.sampled_from(["uint8", "float32"]),
    seed=st.integers(0, 999),
)
def test_shifting_equals_cropping_from_a_padded_image(shape, dtype, seed):
    rng, pad = np.random.default_rng(seed), 5
    images = rng.integers(0, 256, shape).astype(dtype)
    offsets = rng.integers(-pad, pad + 1, (2, shape[0]))
    got = shift_images(torch.from_numpy(images), *torch.from_numpy(offsets))
    for found, image, y, x in zip(got, images, *(offsets + pad), strict=True):
        padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="edge")
        np.testing.assert_array_equal(found, padded[y : y + shape[1], x : x + shape[2]], strict=True)


def test_every_shift_happens_to_each_image_on_its_own_and_none_is_larger():
    """The value of a pixel says where it was; the middle one is never lost."""
    image = (10 * torch.arange(9)[:, None] + torch.arange(9)).view(1, 9, 9, 1)
    shift = RandomShift(pad=2)
    seen = shift(image.expand(500, 9, 9, 1))[:, 4, 4, 0] - image[0, 4, 4, 0]
    assert set(seen.tolist()) == {10 * y + x for y in range(-2, 3) for x in range(-2, 3)}
    assert shift.eval()(image) is image
    with pytest.raises(ValueError, match="at least 1 pixel"):
        RandomShift(0)


def test_under_a_memory_the_images_of_a_window_move_alike_in_all_passes():
    image = (10 * torch.arange(9)[:, None] + torch.arange(9)).view(1, 9, 9, 1)
    shift = RandomShift(pad=2)
    with OneView(shift, 20):
        passes = [shift(image.expand(20 * tokens, 9, 9, 1)).view(20, tokens, -1) for tokens in (1, 3)]
    moved = torch.cat(passes, 1)
    assert torch.equal(moved, moved[:, :1].expand_as(moved))
    assert len(moved[:, 0].unique(dim=0)) > 4 and shift.view is None


@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((15, 40, 3), 0),
        ((16, 40, 3), 1),
        ((3, 80, 64), 2),
        ((84, 84, 1), 2),
        ((128, 200, 1), 4),
        ((200, 200, 1), 4),
    ],
)
def test_the_default_shift_goes_by_the_shorter_side(shape, pad):
    """A cell of a grid is never moved; 4 pixels are the most."""
    assert default_shift(image_layout(shape, "uint8")) == pad


LOOKS = ObsSpec(
    ("image", "stack", "planes", "vector", "history", "choice", "switch"),
    ((9, 40, 3), (3, 16, 16), (2, 64, 64), (2,), (3, 2), (), (2,)),
    ("uint8", "uint8", "float32", "float32", "float32", "int64", "int8"),
    ((), (), (), (), (), (4,), ()),
    (1, 3, 1, 1, 3, 1, 1),
)


def windows(batch: int) -> dict[str, torch.Tensor]:
    """Observations that are the same at all tokens of all windows, but for what vectors need a spread for."""
    g = torch.Generator().manual_seed(1)
    found = {}
    for name, shape, dtype in LOOKS.items():
        one = torch.randint(0, 200, shape, generator=g).to(getattr(torch, dtype))
        found[name] = one.expand(batch, 4, *shape).clone()
    found["vector"] += torch.randn(batch, 4, 2, generator=g) * torch.tensor([10.0, 0.0])
    found["history"] += torch.randn(batch, 4, 3, 2, generator=g)
    return found


def look(obs: dict[str, torch.Tensor], exists: torch.Tensor | None = None, seed: int = 0):
    exists = torch.ones(obs["choice"].shape, dtype=torch.bool) if exists is None else exists
    augment = Augmentation(LOOKS, normalised=False)
    return augment(obs, exists, augment.draw(obs, torch.Generator().manual_seed(seed)))


def test_a_look_depends_on_its_generator_alone_and_changes_images_and_vectors_alone():
    obs, state = windows(6), torch.get_rng_state()
    before = {name: value.clone() for name, value in obs.items()}
    one, same, other = look(obs), look(obs), look(obs, seed=1)
    assert torch.equal(torch.get_rng_state(), state) and list(one) == list(obs)
    for name, value in one.items():
        assert (value.shape, value.dtype) == (obs[name].shape, obs[name].dtype)
        assert torch.equal(obs[name], before[name]), "the argument is left alone"
        assert torch.equal(value, same[name])
        for different in (obs[name], other[name]):
            assert torch.equal(value, different) == (name in ("choice", "switch"))


@pytest.mark.parametrize(("name", "pad"), [("image", 1), ("stack", 1), ("planes", 2)])
def test_all_tokens_and_frames_of_a_window_are_shifted_alike_and_windows_apart(name, pad):
    obs, layout = windows(40), image_layouts(LOOKS)[name]
    moved = look(obs)[name]
    assert torch.equal(moved, moved[:, :1].expand_as(moved))
    size = (2 * pad + 1) ** 2
    offsets = torch.cartesian_prod(*[torch.arange(-pad, pad + 1)] * 2).T
    possible = shift_images(layout.arrange(obs[name][:1, :1]).expand(size, -1, -1, -1), *offsets)
    alike = (layout.arrange(moved[:, 0])[:, None] == possible).flatten(2).all(-1)
    assert alike.any(1).all() and alike.any(0).sum() > size // 4


@pytest.mark.parametrize(
    ("shape", "dtype", "categories", "as_it_is", "normalised"),
    [
        ((3,), "float32", (), True, True),
        ((9, 9, 3), "uint8", (), True, True),
        ((), "int64", (4,), False, False),
        ((3,), "int8", (), False, True),
        ((3,), "bool", (), False, False),
        ((3,), "int32", (), False, True),
    ],
)
def test_images_and_real_numbers_are_augmented(shape, dtype, categories, as_it_is, normalised):
    obs = ObsSpec(("at",), (shape,), (dtype,), (categories,))
    found = [Augmentation(obs, normalised=how).changes_anything() for how in (False, True)]
    assert found == [as_it_is, normalised]


def test_the_noise_of_a_vector_is_a_tenth_of_its_spread_and_one_per_window():
    obs = windows(500)
    found = look(obs)
    noise, frames = (found[name] - obs[name] for name in ("vector", "history"))
    assert noise[..., 0].std().item() == pytest.approx(1.0, rel=0.1)  # a tenth of 10
    assert not noise[..., 1].any()  # what never changes stays as it is
    torch.testing.assert_close(noise, noise[:, :1].expand_as(noise), rtol=0, atol=2e-4)
    torch.testing.assert_close(frames, frames[:, :1, :1].expand_as(frames), rtol=0, atol=2e-4)


def test_the_content_of_missing_tokens_changes_no_other():
    exists = torch.tensor([[False, True, True, False]] * 6)
    results = []
    for fill in (0, 3):
        obs = windows(6)
        for value in obs.values():
            value[~exists] = fill
        results.append(look(obs, exists))
    for name in LOOKS.names:
        assert torch.equal(*(result[name][exists] for result in results))
