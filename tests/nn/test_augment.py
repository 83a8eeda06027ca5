"""A random shift is a crop from an image padded with its own border; a look shifts and adds noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.augment import Augmentation, RandomShift, default_shift, shift_images
from algorithm.nn.layers.images import image_layout, image_layouts


def shift_by_cropping(images: np.ndarray, down: list[int], right: list[int]) -> np.ndarray:
    """The same, image by image: pad with the border, then cut out."""
    pad = max(map(abs, [*down, *right, 1]))
    height, width = images.shape[1:3]
    result = []
    for image, y, x in zip(images, down, right, strict=True):
        padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="edge")
        result.append(padded[pad + y : pad + y + height, pad + x : pad + x + width])
    return np.stack(result)


@given(st.data())
def test_shifting_equals_cropping_from_a_padded_image(data):
    shape = data.draw(st.tuples(*[st.integers(1, n) for n in (4, 9, 9, 3)]))
    dtype = data.draw(st.sampled_from(["uint8", "float32"]))
    shifts = st.lists(st.integers(-5, 5), min_size=shape[0], max_size=shape[0])
    down, right = data.draw(shifts), data.draw(shifts)
    images = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    got = shift_images(torch.from_numpy(images), torch.tensor(down), torch.tensor(right)).numpy()
    assert got.dtype == images.dtype
    np.testing.assert_array_equal(got, shift_by_cropping(images, down, right))


def test_a_shift_by_hand():
    """One down and one to the left: the bottom row and the left column are repeated."""
    image = torch.tensor([[1, 2], [3, 4]])[None, :, :, None]
    assert shift_images(image, torch.tensor([1]), torch.tensor([-1]))[0, :, :, 0].tolist() == [[3, 3], [3, 3]]
    assert shift_images(image, torch.tensor([-1]), torch.tensor([0]))[0, :, :, 0].tolist() == [[1, 2], [1, 2]]


def test_every_shift_happens_to_each_image_on_its_own_and_none_is_larger():
    """The value of a pixel tells where it was; the middle one is never lost."""
    image = (10 * torch.arange(9)[:, None] + torch.arange(9)).view(1, 9, 9, 1)
    shift = RandomShift(pad=2)
    seen = shift(image.expand(500, 9, 9, 1))[:, 4, 4, 0] - image[0, 4, 4, 0]
    assert set(seen.tolist()) == {10 * y + x for y in range(-2, 3) for x in range(-2, 3)}


def test_nothing_moves_outside_training():
    images = torch.rand(3, 9, 9, 1)
    assert RandomShift(4).eval()(images) is images


def test_a_shift_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1 pixel"):
        RandomShift(0)


LOOKS = ObsSpec(
    ("image", "stack", "planes", "vector", "history", "choice", "switch"),
    ((9, 40, 3), (3, 16, 16), (2, 64, 64), (2,), (3, 2), (), (2,)),
    ("uint8", "uint8", "float32", "float32", "float32", "int64", "int8"),
    ((), (), (), (), (), (4,), ()),
    (1, 3, 1, 1, 3, 1, 1),
)


def windows(batch: int = 6, time: int = 4) -> dict[str, torch.Tensor]:
    """Observations that are the same at all tokens of all windows, but for what vectors need a spread for."""
    g = torch.Generator().manual_seed(1)
    found = {}
    for name, shape, dtype in LOOKS.items():
        one = torch.randint(0, 200, shape, generator=g).to(getattr(torch, dtype))
        found[name] = one.expand(batch, time, *shape).clone()
    found["vector"] += torch.randn(batch, time, 2, generator=g) * torch.tensor([10.0, 0.0])
    found["history"] += torch.randn(batch, time, 3, 2, generator=g)
    return found


def look(obs: dict[str, torch.Tensor], exists: torch.Tensor | None = None, seed: int = 0):
    exists = torch.ones(obs["choice"].shape, dtype=torch.bool) if exists is None else exists
    augment = Augmentation(LOOKS, normalised=False)
    return augment(obs, exists, augment.draw(obs, torch.Generator().manual_seed(seed)))


def test_a_look_keeps_names_shapes_dtypes_and_choices():
    obs = windows()
    before = {name: value.clone() for name, value in obs.items()}
    seen = look(obs)
    assert list(seen) == list(obs)
    for name, value in seen.items():
        assert (value.shape, value.dtype) == (obs[name].shape, obs[name].dtype)
        assert torch.equal(obs[name], before[name])  # what was given is not written to
        assert torch.equal(value, obs[name]) == (name in ("choice", "switch"))


def test_looks_are_drawn_from_their_generator_alone():
    obs, state = windows(), torch.get_rng_state()
    one, same, other = look(obs), look(obs), look(obs, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    for name in ("image", "stack", "planes", "vector", "history"):
        assert torch.equal(one[name], same[name])
        assert not torch.equal(one[name], other[name])


@pytest.mark.parametrize(
    ("shape", "pad"), [((15, 40, 3), 0), ((16, 40, 3), 1), ((3, 40, 32), 2), ((84, 84, 1), 4)]
)
def test_the_default_shift_goes_by_the_shorter_side(shape, pad):
    """A cell of a grid is never moved; DrQ's 4 pixels are the most."""
    layout = image_layout(shape, "uint8")
    assert layout is not None
    assert default_shift(layout) == pad


@pytest.mark.parametrize("name", ["image", "stack", "planes"])
def test_all_tokens_and_frames_of_a_window_are_shifted_alike_and_windows_apart(name):
    obs = windows(batch=40)
    layout = image_layouts(LOOKS)[name]
    pad = {"image": 1, "stack": 1, "planes": 4}[name]
    assert max(1, default_shift(layout)) == pad
    moved = look(obs)[name]
    assert torch.equal(moved, moved[:, :1].expand_as(moved))
    original = layout.arrange(obs[name][:1, :1])
    possible = {}
    for y in range(-pad, pad + 1):
        for x in range(-pad, pad + 1):
            shifted = shift_images(original, torch.tensor([y]), torch.tensor([x]))
            possible[shifted.numpy().tobytes()] = (y, x)
    found = {possible[layout.arrange(one[:1]).numpy().tobytes()] for one in moved}
    assert len(found) > (2 * pad + 1) ** 2 // 4


def test_the_noise_of_a_vector_is_a_tenth_of_its_spread_and_one_per_window():
    obs = windows(batch=500)
    noise = look(obs)["vector"] - obs["vector"]
    assert noise[..., 0].std().item() == pytest.approx(1.0, rel=0.1)  # a tenth of 10
    assert not noise[..., 1].any()  # what never changes stays as it is
    torch.testing.assert_close(noise, noise[:, :1].expand_as(noise), rtol=0, atol=2e-4)
    frames = look(obs)["history"] - obs["history"]
    torch.testing.assert_close(frames, frames[:, :1, :1].expand_as(frames), rtol=0, atol=2e-4)


def test_the_content_of_missing_tokens_changes_no_other():
    exists = torch.tensor([[False, True, True, False]] * 6)
    results = []
    for fill in (0, 100):
        obs = windows()
        for value in obs.values():
            value[~exists] = 1 if value is obs["choice"] else fill
        results.append(look(obs, exists))
    for name in LOOKS.names:
        assert torch.equal(*(result[name][exists] for result in results))


def test_without_images_and_vectors_there_is_nothing_to_augment():
    def changes(shape, dtype, categories=(), *, normalised=False):
        obs = ObsSpec(("at",), (shape,), (dtype,), (categories,))
        return Augmentation(obs, normalised=normalised).changes_anything()

    assert changes((3,), "float32") and changes((9, 9, 3), "uint8")
    assert not changes((), "int64", (4,), normalised=True)
    assert not changes((3,), "int8", normalised=True)
    assert not changes((3,), "int32") and changes((3,), "int32", normalised=True)
