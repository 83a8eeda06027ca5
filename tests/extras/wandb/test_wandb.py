"""W&B gets the rows of a run: each once, and nothing else."""

import csv
import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from PIL import Image

from algorithm.extras.wandb.sink import WandbSink
from algorithm.keys.checkpoints import WandbConfig
from algorithm.run.evaluation.video import video_path
from algorithm.store.logs.metrics import MetricsLogger
from algorithm.store.logs.upload import require_upload
from algorithm.store.rundir import RunDir
from tests.lib.sessions import run

ROOT = Path(__file__).resolve().parents[3]
OFFLINE = ("-o", "wandb_config.project=toys", "-o", "wandb_config.mode=offline")
HOMES = {"WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"}


def table(folder):
    """The same of ``metrics.csv``."""
    with (folder / "metrics.csv").open() as file:
        return {
            int(row.pop("step")): {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        }


def test_the_real_package_gets_rows_films_and_plots_and_nothing_of_the_machine(log, tmp_path, monkeypatch):
    """Offline each start writes all rows so far, under the same id."""
    for name in HOMES:
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "xyzzy-plugh")
    film = video_path(tmp_path / "videos", 25)
    film.parent.mkdir()
    film.write_bytes(b"film")
    (tmp_path / "plots").mkdir()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "plots" / "return.png")
    state = None
    for steps in ((25, 50), (75,)):
        metrics, warned, _ = log(state, mode="offline", tags=("a", "b"))
        write(metrics, *steps)
        state = metrics.state()
        metrics.close()
        assert warned == []
    files = [*(tmp_path / "wandb").glob("offline-run-*/run-*.wandb")]
    assert len({file.name for file in files}) == 1 and len(files) == 2, "the same id"
    nobodys = (socket.gethostname(), sys.executable, str(ROOT), "main.py", "xyzzy-plugh")
    for file in files:
        content = file.read_bytes()
        # A short name, such as "vm", is in any file of bytes.
        assert b"loss/q" in content and not [x for x in nobodys if len(x) > 5 and x.encode() in content]
        media = [path.relative_to(file.parent).parts[:3] for path in file.parent.glob("files/**/*.*")]
        assert sorted(media) == [("files", "media", "images"), ("files", "media", "videos")], "no code"
    assert [child.name() for child in psutil.Process().children() if "wandb" in child.name()] == []


class Package:
    """The package of W&B, as far as it is used: a run that keeps its rows, and fails when it is told to."""

    def __init__(self, *, fails="", key=True, has=-1):
        self.fails, self.key, self.starting_step = fails, key, has + 1
        self.rows, self.given, self.ended = {}, {}, 0
        self.url, self.summary = "https://wandb.test/run", {}

    Settings = staticmethod(dict)

    def setup(self, settings):
        self.settings = settings

    def login(self, *, prompt, verify):
        assert not prompt and not verify
        return self.key

    def init(self, **given):
        self._may_fail("init")
        self.given = given
        return self

    def log(self, row, *, step, commit):
        self._may_fail("log")
        self.rows[step] = row

    def finish(self):
        self._may_fail("finish")

    def teardown(self):
        self.ended += 1

    def _may_fail(self, what):
        if self.fails == what:
            raise ConnectionError(f"no {what}\ntoday")


@pytest.fixture
def log(tmp_path):
    """Makes a log of metrics with a sink, returns it and lists of what is warned of and said."""

    def make(state=None, **config):
        warned, said = [], []
        console = SimpleNamespace(message=said.append, warn=warned.append)
        wandb = WandbConfig(**{"project": "toys", **config})
        sink = WandbSink(wandb, RunDir("task", "a", tmp_path, "task"), {"seed": 1}, console)
        files = (tmp_path / "log", tmp_path / "metrics.csv", tmp_path / "metrics.jsonl")
        return MetricsLogger(*files, warn=warned.append, state=state, upload=sink), warned, said

    return make


@pytest.fixture
def opened(log, monkeypatch):
    """The same, with such a package in the place of the real one."""

    def make(package, state=None, **config):
        monkeypatch.setitem(sys.modules, "wandb", package)
        return log(state, **config)

    return make


def write(metrics, *steps):
    for step in steps:
        metrics.write(step, {"loss/q": float(step)})
        metrics.flush()


def test_the_variable_of_wandb_goes_before_the_configuration(log, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setitem(sys.modules, "wandb", package := Package())
    log(mode="offline")[0].close()
    assert package.given["mode"] == "disabled"


@pytest.mark.parametrize(
    ("package", "says"),
    [
        (Package(fails="init"), "W&B has not started · no init today"),
        (Package(key=False), "W&B has not started · no API key: run `wandb login`"),
        (Package(fails="log"), "W&B no longer accepts rows · no log today"),
        (Package(fails="finish"), "W&B has not received everything · no finish today"),
    ],
)
def test_a_failure_is_warned_of_once_and_the_run_goes_on(opened, tmp_path, package, says):
    metrics, warned, _ = opened(package)
    write(metrics, 1, 2, 3)
    metrics.close()
    metrics.close()
    assert [line[: len(says)] for line in warned] == [says] and "\n" not in warned[0]
    assert list(table(tmp_path)) == [1, 2, 3] and package.ended == 1


@pytest.mark.parametrize(
    ("has", "entity", "sent"),
    [(2, "us", [3, 4, 5]), (7, "us", [8]), (-1, "us", [1, 2, 3, 4, 5]), (-1, "them", [1, 2, 3, 4, 5])],
)
def test_the_server_gets_what_it_lacks(opened, has, entity, sent):
    """It has fewer rows than the run, more than the checkpoint, or none; another project has none of them."""
    metrics, *_ = opened(Package(fails="log"), entity="us", group="seeds")
    write(metrics, 1, 2, 3, 4)
    state = json.loads(json.dumps(metrics.state()))
    metrics.close()
    package = Package(has=has)
    metrics, warned, _ = opened(package, state, entity=entity, group="seeds")
    write(metrics, 5, *([6, 7, 8] if has > 5 else []))
    assert list(package.rows) == sent and warned == []
    quiet = {"program": "", "disable_git": True, "disable_code": True, "save_code": False, "console": "off"}
    assert quiet.items() <= package.settings.items(), "files of an offline run do not show these"
    asked = {"resume": "allow", "mode": "online", "entity": entity, "group": "seeds", "config": {"seed": 1}}
    assert asked.items() <= package.given.items()
    assert (package.given["id"] == state["wandb"]["id"]) == (entity == "us")


def test_an_id_that_is_no_id_is_refused(opened):
    state = opened(Package())[0].state()
    state["wandb"]["id"] = "../../elsewhere"
    with pytest.raises(ValueError, match="not a W&B run id"):
        opened(Package(), state)


def test_a_run_hands_over_its_rows_and_no_addresses(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", package := Package())
    assert run("-n", "a", "--max_step=20", "-o", "wandb_config.project=toys", "--quiet") == 0
    assert package.rows.keys() == table(task / "a").keys() != set()
    assert "sac_config" in package.given["config"] and "net_config" not in package.given["config"]


def test_without_the_package_nothing_begins(task, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    require_upload(WandbConfig())
    assert run("-n", "b", *OFFLINE) == 2
    assert '".[wandb]"' in capsys.readouterr().err and not task.exists()
