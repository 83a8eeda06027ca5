"""The names of ``import asac``, as a script uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import asac
from algorithm.core.wording import plus_minus
from algorithm.run.callbacks import Callbacks, load_callbacks

KEYS = {
    "sac_config.save_model_per_step": 60,
    "sac_config.start_step": np.int64(40),  # a program may have computed it
    "sac_config.batch_size": 16,
    "nn_config.q.dense_n": 8,
    "nn_config.policy.dense_n": 8,
    "eval_config.per_step": 80,
    "eval_config.episodes": 2,
}
RESOLVED = "# CartPole-v1: every key, resolved from the defaults, no file\n"
SHORT = {"overrides": KEYS, "max_step": 120, "seed": 1, "device": "cpu", "quiet": True}


pytestmark = pytest.mark.usefixtures("cwd")


class MuteError(Exception):
    def __str__(self) -> str:
        raise LookupError("it has no text")


class Notes(asac.Callback):
    """A record of the calls, in order."""

    on_gpu = False  # an attribute may have any name

    def __init__(self, stop_at: int = 0, fails_at: str = "", error: type = ZeroDivisionError) -> None:
        self.seen: list[tuple] = []
        self._stop_at, self._fails_at, self._error = stop_at, fails_at, error

    def _note(self, point, training, *more):
        self.seen.append((point, training.step, *more))
        if point == self._fails_at:
            raise self._error("a plot without points")

    def on_start(self, training):
        self._note("start", training)

    def on_step(self, training):
        if training.step == self._stop_at:
            training.stop("it is good enough")

    def on_episode(self, training, episode):
        self._note("episode", training, episode.total)

    def on_evaluation(self, training, evaluation):
        self._note("evaluation", training, evaluation.mean)

    def on_checkpoint(self, training):
        assert (training.folder / "checkpoints" / f"step_{training.step:09d}").is_dir()
        self._note("checkpoint", training)

    def on_end(self, training):
        self._note("end", training)


def points(notes):
    return [entry[:2] for entry in notes.seen if entry[0] != "episode"]


def shown(run):
    means = (
        plus_minus(run.result[f"{one}_eval"]["mean"], run.result[f"{one}_eval"]["ci95"])
        for one in ("last", "best")
    )
    return "task=CartPole-v1, algorithm=SAC, steps=120, last={}, best={}".format(*means)


def test_train_play_evaluate_and_go_on(tmp_path):
    notes = Notes()
    run = asac.train("CartPole-v1", callbacks=[notes], **SHORT)
    assert points(notes) == [
        ("start", 0),
        ("checkpoint", 60),
        ("evaluation", 80),
        ("evaluation", 120),
        ("checkpoint", 120),
        ("end", 120),
    ]
    totals = [total for point, _, total in (e for e in notes.seen if e[0] == "episode")]
    assert len(totals) > 1 and sum(totals) <= 120
    assert (run.result["steps"], run.result["updates"]) == (120, 80)
    assert run.metrics["step"] and run.folder.parent.name == "CartPole-v1"
    assert (run.folder / "config.yaml").read_text().startswith(RESOLVED)
    assert "sac_config.start_step=40\n" in (run.folder / "overrides.txt").read_text()
    evaluations = dict(e[1:] for e in notes.seen if e[0] == "evaluation")
    assert run.evaluate(2, 120).mean == evaluations[120], "the episodes of the training"

    policy, env = asac.load(run, "latest"), asac.make_env("CartPole-v1")
    assert policy.step == 120 and policy.observation_space == env.observation_space
    assert repr(run) == f"Run({str(run.folder.relative_to(tmp_path))!r}, {shown(run)})"
    (run.folder / "plots").mkdir(exist_ok=True)
    (run.folder / "plots" / "return.png").write_bytes(b"abc")
    assert run._repr_html_().count("<th>") == 6 and "image/png;base64,YWJj" in run._repr_html_()
    assert repr(policy).startswith("Policy(step=120, Box(")
    assert env.action_space.contains(policy.act(env.reset(seed=0)[0])[0])

    again, keys = Notes(stop_at=150), {"sac_config.learning_rate": np.float64(1e-3)}
    later = run.resume(max_step=np.int64(180), overrides=keys, callbacks=[again], quiet=True, device="cpu")
    assert later is run and run.result["steps"] == 150
    assert run.result["ended"] == {"by": "callback", "why": "it is good enough"}, "which is no failure"
    assert points(again)[0] == ("start", 120)
    assert (run.folder / "overrides.txt").read_text().splitlines()[len(KEYS) :] == [
        "sac_config.learning_rate=0.001",
        "base_config.max_step=180",
    ]


def test_a_policy_with_a_memory_remembers():
    short = {**SHORT, "overrides": {**KEYS, "sac_config.batch_size": 2}, "max_step": 20}
    run = asac.train("toy/recall", config="rnn", **short)
    policy, env = run.policy("latest"), asac.make_env("toy/recall", config="rnn")
    obs, _ = env.reset(seed=0)
    _, first = policy.act(obs)
    assert first.carry.shape[1] > 0 and first.carry.any()
    _, again = policy.act(obs, first)
    assert not np.array_equal(first.carry, again.carry)
    both = np.stack([obs, obs])
    _, two = policy.act(both)
    _, mixed = policy.act(both, two, episode_start=[True, False])
    assert np.allclose(mixed.carry[0], first.carry[0], atol=1e-6)
    assert np.allclose(mixed.carry[1], again.carry[0], atol=1e-6)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit, MuteError]
)
def test_whatever_a_callback_raises_is_an_error_of_the_callback(error):
    callbacks = Callbacks([Notes(fails_at="evaluation", error=error)])
    callbacks.attach(SimpleNamespace(step=80))
    with pytest.raises(asac.CallbackError, match=r"Notes\.on_evaluation raised") as caught:
        callbacks.call("on_evaluation", SimpleNamespace(mean=0.0))
    assert isinstance(caught.value.__cause__, error)
    assert "test_api.py" in caught.value.where and error.__name__ in caught.value.why


def test_what_a_callback_raises_ends_the_training_with_everything_saved():
    failing = Notes(fails_at="evaluation", error=SystemExit)
    with pytest.raises(asac.CallbackError):
        asac.train("CartPole-v1", name="mine", callbacks=[failing], **SHORT)
    run = asac.Run("models/CartPole-v1/mine")
    assert asac.load(run, "latest").step == 80
    assert "SystemExit" in (run.folder / "train.log").read_text()
    with pytest.raises(asac.StorageError):
        _ = run.result


CALLBACK = """
import asac

class Count(asac.Callback):
    def __init__(self, path): self.path = path
    def on_end(self, training): open(self.path, "w").write(str(training.step))
"""


def test_callbacks_may_stand_in_the_configuration(tmp_path):
    (tmp_path / "mine.py").write_text(CALLBACK)
    keys = {**KEYS, "base_config.callbacks": [{"mine.py:Count": {"path": str(tmp_path / "count.txt")}}]}
    asac.train("CartPole-v1", **{**SHORT, "overrides": keys, "max_step": 20})
    assert (tmp_path / "count.txt").read_text() == "20"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"nothing.py:Count": {}}, "there is no file nothing.py"),
        ({"json:JSONDecoder": {}}, "is not a Callback"),
        ({"json:Nothing": None}, "has no attribute"),
        ({"Count": {}}, "does not name a module"),
        ({"nowhere:Count": {}}, "No module named"),
        ({"math:sqrt": {"x": 0}}, "takes no keyword"),
        ({"leave.py:Leave": {}}, "SystemExit"),
    ],
)
def test_what_is_no_callback_is_told(tmp_path, entry, why):
    Path("leave.py").write_text("def Leave(): raise SystemExit(0)")
    with pytest.raises((asac.UsageError, asac.EnvError), match=why):
        load_callbacks([entry], tmp_path)


class Misspelt(asac.Callback):
    def on_evalutaion(self, training, evaluation):
        """Never called."""


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (object(), "derive it from asac.Callback"),
        (Notes, "pass an instance"),
        (Misspelt(), "rename Misspelt.on_evalutaion; did you mean on_evaluation?"),
    ],
)
def test_a_callback_that_would_not_be_called_is_told(callback, told):
    with pytest.raises(asac.UsageError) as caught:
        asac.train("CartPole-v1", name="mine", callbacks=[callback], **SHORT)
    assert told in caught.value.fix
    assert not Path("models/CartPole-v1/mine").exists(), "the name stays free"


def test_a_folder_that_is_no_run_is_told(tmp_path):
    with pytest.raises(asac.UsageError, match="is not a run"):
        asac.load(tmp_path)


def test_an_environment_is_checked_from_a_script(monkeypatch):
    started = []
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: started.append(words) or SimpleNamespace(returncode=1)
    )
    assert not asac.check("bad.py:Bad", config="short", quiet=True)
    assert started == [[*started[0][:3], "bad.py:Bad", "--check", "-c", "short", "--quiet"]]


def test_what_to_do_next_is_a_call_and_not_a_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mine.py"])
    asac.train("CartPole-v1", **{**SHORT, "quiet": False, "max_step": 20})
    said = capsys.readouterr().out.partition("\nnext\n")[2]
    assert (
        all(call in said for call in ("run.resume(max_step=40)", "run.evaluate(10)", "run.metrics"))
        and "--" not in said
    )
    asac.Agent("SAC", "CartPole-v1", overrides=KEYS, device="cpu").learn(20)
    assert "agent.learn(1_000)" in capsys.readouterr().out.partition("\nnext\n")[2]
