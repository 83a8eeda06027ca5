"""Networks of a generation against a plain loop, whatever their number, shape and order."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from algorithm.core.errors import NumericalError, StorageError
from algorithm.core.seeding import stream
from algorithm.store.checkpoints.checkpoint import Snapshot, load_checkpoint, save_checkpoint
from ds.evolver.networks import FLOOR, LARGEST_STD, draw_networks
from tests.lib.batches import small_sac


def drawn_network(elites, noise, *, floor, largest):
    """A drawn tensor from those of the elites, flat lists each, and its noise ε; one number at a time."""
    means = [sum(values) / len(elites) for values in zip(*elites, strict=True)]
    smallest = floor * (sum(mean**2 for mean in means) / len(means)) ** 0.5
    drawn = []
    for mean, values, eps in zip(means, zip(*elites, strict=True), noise, strict=True):
        std = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        drawn.append(mean + min(max(std, smallest), largest) * eps)
    return drawn


def noise(name: str) -> np.random.Generator:
    return stream(1, "networks", 3, 2, name)


def write(path: Path, tensors: dict[str, torch.Tensor], trained: list[str] | None = None) -> Path:
    save_file(tensors, path, {"trained": json.dumps(list(tensors) if trained is None else trained)})
    return path


def drawn(folder: Path, *elites: dict[str, torch.Tensor], trained: list[str] | None = None):
    paths = [write(folder / f"{i}.safetensors", elite, trained) for i, elite in enumerate(elites)]
    draw_networks(paths, folder / "out.safetensors", noise)
    return load_file(folder / "out.safetensors")


@given(
    elites=st.integers(1, 5),
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    seed=st.integers(0, 2**31),
)
def test_a_draw_is_that_of_a_plain_loop(tmp_path_factory, elites, shapes, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    made = [
        {f"w{i}": scale * torch.randn(shape, generator=generator) for i, shape in enumerate(shapes)}
        for _ in range(elites)
    ]
    found = drawn(tmp_path_factory.mktemp("networks"), *made)
    for name, value in made[0].items():
        assert found[name].shape == value.shape and found[name].dtype == torch.float32
        if value.numel():
            flat = [elite[name].flatten().tolist() for elite in made]
            expected = drawn_network(
                flat, noise(name).standard_normal(value.numel()), floor=FLOOR, largest=LARGEST_STD
            )
            assert found[name].flatten().tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9 * scale)


def test_what_is_not_trained_is_the_best_elites(tmp_path):
    def elite(value: int) -> dict[str, torch.Tensor]:
        of = torch.full((3,), float(value))
        return {
            "w": of.clone(),
            "mean": of.double(),
            "count": torch.tensor(value),
            "on": torch.tensor(value > 1),
        }

    found = drawn(tmp_path, elite(2), elite(1), trained=["w"])
    for name in ("mean", "count", "on"):
        assert torch.equal(found[name], elite(2)[name]) and found[name].dtype == elite(2)[name].dtype
    assert not torch.equal(found["w"], elite(2)["w"])


def test_the_file_is_one_of_a_checkpoint_again(tmp_path):
    """All of a learner, as a checkpoint writes it; a draw of draws is possible, since the header goes on."""
    paths = []
    for seed in (1, 2):
        sac = small_sac(seed=seed, use_normalization=True, use_auto_alpha=True)
        snapshot = Snapshot(step=1, tensors=sac.tensors(), state={}, trained={"model": sac.trained()})
        paths.append(save_checkpoint(tmp_path / str(seed), tmp_path, snapshot).path / "model.safetensors")
    out = tmp_path / "out.safetensors"
    entry = draw_networks(paths, out, noise)
    assert entry.sha256 == hashlib.sha256(out.read_bytes()).hexdigest()
    found, best = load_file(out), load_checkpoint(paths[0].parent).tensors["model"]
    assert found.keys() == best.keys()
    same = {name for name in best if torch.equal(found[name], best[name])}
    assert best.keys() - sac.trained() <= same and len(same) < len(best)
    draw_networks([out, *paths], tmp_path / "next.safetensors", noise)


def flip(text: str, into: str):
    return lambda data: data.replace(text.encode(), into.encode())


DAMAGES = {
    "No such file": None,
    "file not fully covered": lambda data: data[:-1],
    "header too large": lambda data: struct.pack("<Q", 2**40) + data[8:],
    "does not state which of its tensors are trained": flip('"trained"', '"trainad"'),
    "missing field": flip('"dtype"', '"dtipe"'),
    "invalid shape": flip("[4,2]", "[4,9]"),
    "invalid offset": flip("[0,32]", "[4,36]"),
}


@pytest.mark.parametrize("said", DAMAGES)
def test_a_damaged_file_is_named_and_nothing_is_written(tmp_path, said):
    good = write(tmp_path / "good.safetensors", {"w": torch.ones(4, 2)})
    bad = tmp_path / "bad.safetensors"
    if damage := DAMAGES[said]:
        bad.write_bytes(damage(good.read_bytes()))
    out = tmp_path / "out.safetensors"
    out.write_bytes(b"before")
    with pytest.raises(StorageError, match=said) as caught:
        draw_networks([good, bad], out, noise)
    assert caught.value.where == str(bad)
    assert out.read_bytes() == b"before" and {*tmp_path.iterdir()} <= {good, bad, out}


def test_a_mean_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(NumericalError) as caught:
        drawn(tmp_path, {"w": torch.tensor([1.0, float("nan")])})
    assert "w of" in caught.value.where
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.safetensors"]
