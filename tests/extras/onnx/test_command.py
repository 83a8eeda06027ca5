"""``--export FILE.onnx``: which files there are afterwards, from a run and from an export of one."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

import asac
from algorithm.core.errors import UsageError
from algorithm.extras.onnx.graph import PolicyGraph
from main import main
from tests.extras.short_run import exit_code


@pytest.fixture
def words(run: asac.Run, cwd: Path) -> list[str]:
    """The words of a command for the run, whose folder is another one."""
    return ["CartPole-v1", "--directory", str(run.folder.parents[1]), "--quiet", "-n", run.folder.name]


def test_a_policy_and_its_card(run: asac.Run, words: list[str]) -> None:
    assert main([*words, "--export", "p.onnx", "--ckpt=120"]) == 0
    first, card = Path("p.onnx").read_bytes(), json.loads(Path("p.json").read_text())
    assert (card["step"], card["run"], card["environment"]) == (120, "first", "CartPole-v1")
    assert card["branches"] == [2] and card["opset"] == 15 and len(card["config_sha256"]) == 64
    assert card["normalised_observations"] > 100 and card["largest_difference"] < 1e-5
    assert main([*words, "--export", "p.onnx", "--ckpt=120"]) == 2, "there is one of that name"
    assert main([*words, "--export", "p.onnx", "--ckpt=120", "--replace"]) == 0
    assert Path("p.onnx").read_bytes() == first, "the same run, the same bytes"
    assert run.export("python.onnx", 120).read_bytes() == first
    with pytest.raises(UsageError):
        run.export("python.onnx", 120)


def test_a_policy_of_an_export(run: asac.Run, words: list[str]) -> None:
    zipped = run.export("run.zip", 120)
    assert main(["CartPole-v1", "-n", str(zipped), "--export", "p.onnx", "--quiet"]) == 0
    assert asac.Run(zipped).export("q.onnx").read_bytes() == Path("p.onnx").read_bytes()
    assert run.export("own.onnx", 120).read_bytes() == Path("p.onnx").read_bytes()


def test_a_wrong_graph_leaves_no_file(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the other choice."""
    monkeypatch.setattr(PolicyGraph, "_indices", lambda _, onehot: onehot[:, :1].long())
    assert main([*words, "--export", "p.onnx"]) == 5
    assert list(Path().iterdir()) == []


def test_a_full_disk_leaves_the_old_pair(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*words, "--export", "p.onnx", "--ckpt=60"]) == 0
    before = {path: path.read_bytes() for path in Path().iterdir()}

    def full(file: Any, data: bytes) -> None:
        """Write a graph, and no card."""
        if data.startswith(b"{"):
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write(data)

    monkeypatch.setattr("algorithm.extras.onnx.files.put", full)
    assert main([*words, "--export", "p.onnx", "--ckpt=120", "--replace"]) == 6
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_settings_of_the_export_alone_can_be_changed(words: list[str]) -> None:
    assert (
        main([*words, "--export", "p.onnx", "-o", "export_config.check=false", "-o", "export_config.opset=9"])
        == 0
    )
    card = json.loads(Path("p.json").read_text())
    assert card["largest_difference"] is None and card["target"]["name"] == "Barracuda"
    for wrong in ("export_config.opset=8", "export_config.opset=21", "sac_config.gamma=0.5"):
        assert exit_code([*words, "--export", "q.onnx", "-o", wrong]) == 2
    assert not Path("q.onnx").exists()
