"""Encoders take observations as the replay stores them, with any leading dimensions."""

import pytest
import torch

from algorithm.core.errors import ModelError
from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.encode import ImageEncoder, VectorEncoder

OBS = ObsSpec(
    names=("front", "speed", "gear", "doors", "ram", "scalar", "cards", "rear"),
    shapes=((16, 20, 3), (2, 2), (), (2,), (3,), (), (2,), (1, 36, 36)),
    dtypes=("uint8", "float32", "uint8", "int8", "uint8", "int32", "int16", "float32"),
    categories=((), (), (3,), (), (), (), (2, 4), ()),
)
ONE = {
    "front": torch.randint(0, 256, (16, 20, 3), dtype=torch.uint8),
    "speed": torch.tensor([[1.5, -2.0], [0.0, 3.0]]),
    "gear": torch.tensor(1, dtype=torch.uint8),
    "doors": torch.tensor([1, 0], dtype=torch.int8),
    "ram": torch.tensor([0, 51, 255], dtype=torch.uint8),
    "scalar": torch.tensor(-7, dtype=torch.int32),
    "cards": torch.tensor([1, 2], dtype=torch.int16),
    "rear": torch.rand(1, 36, 36),
}


@pytest.mark.parametrize(("names", "expected"), [
    (None, [1.5, -2.0, 0.0, 3.0, 0, 1, 0, 1, 0, 0.0, 0.2, 1.0, -7.0, 0, 1, 0, 0, 1, 0]),
    (["cards", "gear"], [0, 1, 0, 0, 1, 0, 0, 1, 0]),
    (["front"], (ONE["front"] / 255).flatten().tolist()),
    (["speed"], [1.5, -2.0, 0.0, 3.0]),
])  # fmt: skip
def test_vectors_by_hand(names, expected):
    encoder = VectorEncoder(OBS, names)
    assert encoder(ONE).tolist() == pytest.approx(expected) and encoder.out_size == len(expected)
    assert not encoder.state_dict()
    for lead in ((4, 0), (4, 3)):
        many = encoder({name: value.expand(*lead, *value.shape) for name, value in ONE.items()})
        assert many.dtype == torch.float32 and torch.equal(many, encoder(ONE).expand(*lead, -1))


@pytest.mark.parametrize(("dtype", "span"), [
    ("uint8", (0, 1)), ("uint8", (0, 9)), ("uint8", (0, 255)), ("bool", (0, 1)), ("int8", (-4, 4)),
    ("int64", (100, 300)), ("float32", (-2.0, 2.0)),
])  # fmt: skip
@pytest.mark.parametrize("bounded", [True, False])
def test_an_image_is_what_its_share_of_its_range_is(dtype, span, bounded):
    """Of any type, as the same picture as floats from 0 to 1 is; bytes among vectors, too."""
    shares = torch.rand(5, 9, 8, 3).round()
    pixels = (span[0] + shares * (span[1] - span[0])).to(getattr(torch, dtype))
    kinds = ((dtype, span), ("float32", (0.0, 1.0)))
    encoders = []
    for kind, ends in kinds:
        torch.manual_seed(0)
        obs = ObsSpec(("i",), ((9, 8, 3),), (kind,), ranges=(ends,))
        encoders.append(ImageEncoder(obs, "i", bounded=bounded))
    torch.testing.assert_close(encoders[0](pixels), encoders[1](shares))
    if dtype == "uint8":
        vector = VectorEncoder(ObsSpec(("i",), ((2,),), (dtype,), ranges=(span,)))
        torch.testing.assert_close(vector({"i": pixels[0, 0, :2, 0]}), shares[0, 0, :2, 0])


def test_bytes_that_are_numbers_already_are_not_divided_again():
    """A normaliser in front hands out floats."""
    assert VectorEncoder(OBS, ["ram"])({"ram": torch.tensor([0.0, 51.0, 255.0])}).tolist() == [0, 51, 255]


@pytest.mark.parametrize(("name", "kind"), [("front", "simple"), ("front", "resnet"), ("rear", "nature")])
@pytest.mark.parametrize("out", [None, 7])
def test_an_image_encoder_takes_any_leading_dimensions(name, kind, out):
    encoder = ImageEncoder(OBS, name, kind, out).eval()
    images = torch.stack([ONE[name], ONE[name] // 2])
    one, other = (encoder(image) for image in images)
    assert one.shape == (out or encoder.conv.out_size,) and not torch.allclose(one, other)
    several = encoder(images[None].expand(3, 2, *images.shape[1:]))
    torch.testing.assert_close(several, torch.stack([one, other]).expand(3, 2, -1), rtol=1e-4, atol=1e-5)
    assert encoder(images[:0]).shape == (0, encoder.out_size)


@pytest.mark.parametrize(("shift", "moves"), [(3, True), (None, True), (0, False)])
def test_each_image_moves_on_its_own_in_training(shift, moves):
    encoder = ImageEncoder(OBS, "front", out=8, random_shift=shift)
    image = ONE["front"].expand(20, -1, -1, -1)
    trained = encoder(image)
    assert torch.equal(trained, trained[:1].expand_as(trained)) is not moves
    assert torch.equal(trained, encoder(image)) is not moves
    encoder.eval()
    assert torch.equal(encoder(image), encoder(image))


@pytest.mark.parametrize(("make", "error", "named"), [
    (lambda: ImageEncoder(OBS, "fron"), ModelError, "did you mean 'front'?"),
    (lambda: VectorEncoder(OBS, ["speed", "rain"]), ModelError, "no observation 'rain'"),
    (lambda: ImageEncoder(OBS, "ram"), ModelError, "Images: front, rear."),
    (lambda: ImageEncoder(OBS, "front", "nature"), ModelError, "observation 'front'"),
    (lambda: VectorEncoder(OBS, [])({}), ValueError, "no observation"),
])  # fmt: skip
def test_mistakes_are_explained(make, error, named):
    with pytest.raises(error) as caught:
        make()
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("name", "bounded", "lowest"), [("front", True, -0.5), ("front", False, 0.0), ("rear", True, 0.0)]
)
def test_bytes_are_centred_where_features_are_bounded(monkeypatch, name, bounded, lowest):
    encoder = ImageEncoder(OBS, name, bounded=bounded)
    monkeypatch.setattr(encoder.conv, "forward", lambda planes: planes.flatten(1)[:, : encoder.out_size])
    assert encoder(torch.zeros_like(ONE[name])).unique().tolist() == [lowest]
