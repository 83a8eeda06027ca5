"""Encoders take observations as the replay stores them, with any leading dimensions."""

from __future__ import annotations

import pytest
import torch

from algorithm.core.errors import ModelError
from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.encode import ImageEncoder, VectorEncoder

OBS = ObsSpec(
    names=("front", "speed", "gear", "doors", "ram", "scalar", "cards", "rear"),
    shapes=((12, 10, 3), (2, 2), (), (2,), (3,), (), (2,), (1, 36, 36)),
    dtypes=("uint8", "float32", "uint8", "int8", "uint8", "int32", "int16", "float32"),
    categories=((), (), (3,), (), (), (), (2, 4), ()),
)
ONE = {
    "front": torch.randint(0, 256, (12, 10, 3), dtype=torch.uint8),
    "speed": torch.tensor([[1.5, -2.0], [0.0, 3.0]]),
    "gear": torch.tensor(1, dtype=torch.uint8),
    "doors": torch.tensor([1, 0], dtype=torch.int8),
    "ram": torch.tensor([0, 51, 255], dtype=torch.uint8),
    "scalar": torch.tensor(-7, dtype=torch.int32),
    "cards": torch.tensor([1, 2], dtype=torch.int16),
    "rear": torch.rand(1, 36, 36),
}
VECTOR = [1.5, -2.0, 0.0, 3.0, 0, 1, 0, 1, 0, 0.0, 0.2, 1.0, -7.0, 0, 1, 0, 0, 1, 0]


def test_vectors_by_hand():
    encoder = VectorEncoder(OBS)
    assert encoder.names == ("speed", "gear", "doors", "ram", "scalar", "cards")
    result = encoder(ONE)
    assert encoder.out_size == len(VECTOR)
    assert result.dtype == torch.float32
    assert result.tolist() == pytest.approx(VECTOR)
    assert list(encoder.parameters()) == [] and encoder.state_dict() == {}


def test_names_choose_and_order_vectors():
    encoder = VectorEncoder(OBS, ["cards", "gear"])
    assert encoder(ONE).tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0]


def test_bytes_that_are_numbers_already_are_not_divided_again():
    """A normaliser in front hands out floats."""
    assert VectorEncoder(OBS, ["ram"])({"ram": torch.tensor([0.0, 51.0, 255.0])}).tolist() == [0, 51, 255]


def test_a_small_image_may_be_a_vector_on_request():
    assert VectorEncoder(OBS, ["front"])(ONE).tolist() == pytest.approx(
        (ONE["front"] / 255).flatten().tolist()
    )


def test_vectors_take_any_leading_dimensions():
    encoder = VectorEncoder(OBS)
    many = {name: value.expand(4, 0, *value.shape) for name, value in ONE.items()}
    assert encoder(many).shape == (4, 0, encoder.out_size)
    many = {name: value.expand(4, 3, *value.shape) for name, value in ONE.items()}
    assert torch.equal(encoder(many), encoder(ONE).expand(4, 3, -1))


def test_a_single_float_vector_is_not_copied():
    speed = torch.rand(5, 2, 2)
    assert VectorEncoder(OBS, ["speed"])({"speed": speed}).data_ptr() == speed.data_ptr()


def test_no_vectors_have_no_encoding():
    with pytest.raises(ValueError, match="no observation"):
        VectorEncoder(OBS, [])({})


@pytest.mark.parametrize(("name", "kind"), [("front", "simple"), ("front", "resnet"), ("rear", "nature")])
@pytest.mark.parametrize("out", [None, 7])
def test_an_image_encoder_takes_any_leading_dimensions(name, kind, out):
    encoder = ImageEncoder(OBS, name, kind, out).eval()
    images = torch.stack([ONE[name], ONE[name] / 2 if ONE[name].is_floating_point() else ONE[name] // 2])
    one, other = (encoder(image) for image in images)
    assert one.shape == (encoder.out_size,) and (out is None or encoder.out_size == out)
    assert not torch.allclose(one, other)
    several = encoder(images[None].expand(3, 2, *images.shape[1:]))
    torch.testing.assert_close(several, torch.stack([one, other]).expand(3, 2, -1), rtol=1e-4, atol=1e-5)
    assert encoder(images[:0]).shape == (0, encoder.out_size)


def test_a_dense_layer_is_normalised_and_bounded():
    encoder = ImageEncoder(OBS, "front", out=50)
    features = encoder(ONE["front"][None].expand(2, -1, -1, -1)).atanh()
    torch.testing.assert_close(features.mean(-1), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(features.square().mean(-1), torch.ones(2), atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", ["front", "rear"])
def test_a_gradient_reaches_every_parameter_of_an_encoder(name):
    encoder = ImageEncoder(OBS, name, out=8)
    image = ONE[name]
    noise = torch.randint(0, 256, (6, *image.shape), dtype=torch.uint8).to(image.dtype)
    (encoder(noise) * torch.arange(8.0)).square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if not p.grad.any()] == []


def test_images_move_in_training_only():
    encoder = ImageEncoder(OBS, "front", out=8, random_shift=3)
    image = ONE["front"][None].expand(4, -1, -1, -1)
    trained, again = encoder(image), encoder(image)
    assert not torch.equal(trained, again)
    assert not torch.equal(trained[0], trained[1]), "each image moves on its own"
    encoder.eval()
    assert torch.equal(encoder(image), encoder(image))


def test_a_camera_moves_by_its_size_where_nothing_is_said():
    obs = ObsSpec(("camera", "grid"), ((84, 84, 3), (10, 10, 4)), ("uint8", "uint8"))
    assert ImageEncoder(obs, "camera").shift.pad == 4
    assert isinstance(ImageEncoder(obs, "grid").shift, torch.nn.Identity)


def test_without_a_shift_training_changes_nothing():
    encoder = ImageEncoder(OBS, "front", out=8, random_shift=0)
    assert torch.equal(encoder.train()(ONE["front"]), encoder.eval()(ONE["front"]))


@pytest.mark.parametrize(("make", "fragments"), [
    (lambda: ImageEncoder(OBS, "fron"), ["no observation 'fron'", "did you mean 'front'?"]),
    (lambda: VectorEncoder(OBS, ["speed", "rain"]), ["no observation 'rain'", "front, speed, gear"]),
    (lambda: ImageEncoder(OBS, "ram"), ["'ram' is no image", "uint8 of shape (3,)", "Images: front, rear."]),
    (
        lambda: ImageEncoder(OBS, "front", "nature"),
        ["12 × 10 pixels are too small", "observation 'front'", "take simple or resnet"],
    ),
])  # fmt: skip
def test_mistakes_are_explained(make, fragments):
    with pytest.raises(ModelError) as caught:
        make()
    for fragment in fragments:
        assert fragment in str(caught.value)
