"""``--export FILE.onnx``: which files there are afterwards, from a run and from an export of one."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import asac
from algorithm.core.errors import UsageError
from algorithm.extras.onnx import files, play
from algorithm.extras.onnx.errors import ExportError
from main import main
from tests.extras.short_run import KEYS, SHORT
from tests.lib.callbacks import EachStep


@pytest.fixture
def words(run: asac.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command for the run, whose folder is another one."""
    monkeypatch.chdir(tmp_path)
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
    """Of the policy in torch, the scores have another sign."""
    monkeypatch.setattr(
        "algorithm.extras.onnx.reference.Reference._scores", lambda *given: -given[1].logits.numpy()
    )
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
        assert _code([*words, "--export", "q.onnx", "-o", wrong]) == 2
    assert not Path("q.onnx").exists()


def _code(words: list[str]) -> int | str | None:
    """The exit code of a command; argparse raises its own."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


def test_the_check_needs_its_library(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main([*words, "--export", "p.onnx"]) == 2
    assert main([*words, "--export", "p.onnx", "-o", "export_config.check=false"]) == 0


def test_the_runner_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["CartPole-v1", "--export", "p.onnx", "--card"]) == 0
    assert capsys.readouterr().out == Path(play.__file__).read_text("utf-8")


def test_each_checkpoint_has_its_graph_and_the_training_is_the_same(
    run: asac.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One graph fails, as those of networks that cannot be drawn do."""
    monkeypatch.setattr("algorithm.app.summaries.write_report", lambda *_, **__: None)
    drawn = files.draw_graphs

    def draw_graphs(*given: Any, **named: Any) -> Any:
        if given[3].step == 60:
            raise ExportError("the policy cannot be written", why="it is a test")
        return drawn(*given, **named)

    monkeypatch.setattr(files, "draw_graphs", draw_graphs)
    more = {**SHORT, "overrides": {**KEYS, "export_config.per_checkpoint": True}, "quiet": False}
    states: set[bytes] = set()
    own = asac.train(
        "CartPole-v1",
        name="graphs",
        directory=tmp_path,
        callbacks=EachStep(lambda _: states.add(torch.get_rng_state().numpy().tobytes())),
        **more,
    )
    assert len(states) == 1, "torch's random numbers, which a user's networks may draw"
    found = {path.relative_to(own.folder / "checkpoints") for path in own.folder.rglob("*.onnx")}
    steps = [path.name for path in sorted((own.folder / "checkpoints").glob("step_*"))]
    assert found == {Path(step, "onnx", "default.onnx") for step in steps if step != "step_000000060"}
    assert len(steps) > len(found) and "the policy cannot be written" in capsys.readouterr().out
    assert (own.folder / "checkpoints" / steps[-1] / "onnx" / "default.onnx").read_bytes() == (
        run.export(tmp_path / "q.onnx", "latest").read_bytes()
    )
    weights = [one.folder / "checkpoints" / steps[-1] / "model.safetensors" for one in (own, run)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
