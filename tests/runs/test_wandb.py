"""W&B gets the rows of a run: each once, and nothing else."""

import csv
import importlib.machinery
import importlib.util
import json
import socket
import struct
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

import main_ds
from algorithm.core.errors import UsageError
from algorithm.runs.config import WandbConfig
from algorithm.runs.logs.metrics import MetricsLogger
from algorithm.runs.logs.wandb_sink import WandbSink, require_wandb
from tests.run.agreement import timeless
from tests.run.sessions import run

ROOT = Path(__file__).resolve().parents[2]
QUICK = (
    *("-o", "base_config.env_name=CartPole-v1", "-o", "sac_config.replay_ratio=0.05"),
    *("-o", "sac_config.write_summary_per_step=25", "-o", "sac_config.save_model_per_step=50"),
    *("-o", "eval_config.per_step=50", "-o", "eval_config.episodes=1", "-o", "sac_config.start_step=20"),
)
OFFLINE = (
    "-o",
    "wandb_config.project=toys",
    "-o",
    "wandb_config.mode=offline",
    "-o",
    "wandb_config.tags=[a, b]",
)
HOMES = {"WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"}


def records(file):
    """What a ``.wandb`` file holds."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, text, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        if at + 7 + size > len(content):
            break
        text += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in {1, 4}:
            found.append(Record.FromString(text))
            text = b""
    return found


def uploaded(file):
    """Step → values of its row, with those that are no numbers."""
    rows = {}
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            step, items = record.history.step.num, record.history.item
            assert step not in rows
            named = {tuple(item.nested_key): json.loads(item.value_json) for item in items}
            assert named["_step",] == step
            shown = {key: value for key, value in named.items() if not key[0].startswith("_")}
            rows[step] = {" ".join(key): value for key, value in shown.items()}
    return rows


def table(folder):
    """The same of ``metrics.csv``."""
    with (folder / "metrics.csv").open() as file:
        return {
            int(row.pop("step")): {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        }


def without_times(rows):
    return {step: {name: row[name] for name in row if timeless(name)} for step, row in rows.items()}


def newest(folder):
    return max((folder / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime_ns)


def test_a_run_that_is_resumed_is_one_run_of_w_and_b(task, tmp_path, monkeypatch):
    for name in HOMES:
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "xyzzy-plugh")
    folder, limit = task / "a", "--max_step={}".format
    assert (
        run("--seed=1", "-n", "a", limit(150), *QUICK, *OFFLINE, "-o", "net_config.learner_host=h.host") == 0
    )
    first = newest(folder)
    assert uploaded(first) == table(folder) and list(table(folder)) == [25, 50, 75, 100, 125, 150]
    (head,) = (record.run for record in records(first) if record.WhichOneof("record_type") == "run")
    assert (head.project, head.display_name, list(head.tags), head.host) == ("toys", "a", ["a", "b"], "")
    config = {entry.key: json.loads(entry.value_json) for entry in head.config.update}
    assert config["sac_config"]["replay_ratio"] == 0.05 and config["sac_config"]["seed"] == 1
    nobodys = (
        socket.gethostname(),
        sys.executable,
        str(ROOT),
        "main.py",
        "xyzzy-plugh",
        "h.host",
        "learner_host",
    )
    assert [text for text in nobodys if text.encode() in first.read_bytes()] == []
    files = [file for file in first.parent.glob("files/**/*") if file.is_file()]
    assert files == [], "no code, packages, or description of the machine"

    # From an older checkpoint, as after a kill; with a video and a plot, which other parts of a run write.
    (folder / "videos").mkdir()
    (folder / "videos" / "step_000000175_episode_1.mp4").write_bytes(b"film")
    (folder / "plots").mkdir(exist_ok=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / "plots" / "return.png")
    assert run("-n", "a", "--resume", "--ckpt=100", limit(225)) == 0
    second = newest(folder)
    assert second != first and second.name == first.name, "the same id"
    rows = uploaded(second)
    film = {name: rows[175].pop(name) for name in list(rows[175]) if name.startswith("eval/video")}
    assert (second.parent / "files" / film["eval/video path"]).read_bytes() == b"film"
    assert list(second.parent.glob("files/media/images/plots/return*.png"))
    assert rows == table(folder), "each start writes all rows so far"
    assert without_times(uploaded(first)) == without_times({k: v for k, v in rows.items() if k <= 150})
    assert [child.name() for child in psutil.Process().children() if "wandb" in child.name()] == []


class Package:
    """The package of W&B, as far as it is used: a run that keeps its rows, and fails when it is told to."""

    def __init__(self, *, fails="", key=True, has=-1):
        self.fails, self.key, self.starting_step = fails, key, has + 1
        self.rows, self.given, self.logger, self.ended = {}, {}, None, 0
        self.url, self.summary = "https://wandb.test/run", {}

    Settings = staticmethod(dict)

    def setup(self, settings):
        self.settings = settings

    def termsetup(self, settings, logger):
        self.logger = logger

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
def opened(tmp_path, monkeypatch):
    """Makes a log of metrics with such a package, returns all of them."""

    def make(package, state=None, **config):
        monkeypatch.setitem(sys.modules, "wandb", package)
        warned, said = [], []
        sink = WandbSink(
            WandbConfig(**{"project": "toys", **config}),
            folder=tmp_path / "wandb",
            name="a",
            settings={"seed": 1},
            film=lambda step: tmp_path / f"{step}.mp4",
            plots=tmp_path / "plots",
            say=said.append,
            warn=warned.append,
        )
        files = (tmp_path / "log", tmp_path / "metrics.csv", tmp_path / "metrics.jsonl")
        return MetricsLogger(*files, warn=warned.append, state=state, upload=sink), warned, said

    return make


def write(metrics, *steps):
    for step in steps:
        metrics.write(step, {"loss/q": float(step)})
        metrics.flush()


def logged(tmp_path):
    return [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("package", "says"),
    [
        (Package(fails="init"), "W&B has not started · no init today"),
        (Package(key=False), "W&B has not started · no API key: run `wandb login`"),
        (Package(fails="log"), "W&B takes no rows any more · no log today"),
        (Package(fails="finish"), "W&B has not got everything · no finish today"),
    ],
)
def test_a_failure_is_warned_of_once_and_the_run_goes_on(opened, tmp_path, package, says):
    metrics, warned, _ = opened(package)
    write(metrics, 1, 2, 3)
    metrics.close()
    metrics.close()
    assert [line[: len(says)] for line in warned] == [says] and "\n" not in warned[0]
    assert logged(tmp_path) == [1, 2, 3] and package.ended == 1


def test_what_the_package_would_print_is_one_warning(opened):
    package = Package()
    metrics, warned, said = opened(package)
    package.logger.info("wandb: 500 encountered, retrying request")
    for _ in range(2):
        package.logger.warning("wandb: WARNING Fatal error while uploading data.\nwandb: Use `wandb sync`.")
        write(metrics, len(package.rows))
    assert said == ["W&B: https://wandb.test/run"]
    assert [line.partition(" · ")[0] for line in warned] == [
        "W&B: Fatal error while uploading data. Use `wandb sync`."
    ]


def test_a_warning_of_the_last_moment_is_heard(opened):
    package = Package()
    package.finish = lambda: package.logger.error("wandb: too late")
    metrics, warned, _ = opened(package)
    metrics.close()
    assert [line.partition(" · ")[0] for line in warned] == ["W&B: too late"]


def test_the_server_gets_what_it_lacks(opened):
    """It has fewer rows than the run, more than the checkpoint, or none."""
    metrics, _, _ = opened(Package(fails="log"), entity="us", group="seeds")
    write(metrics, 1, 2, 3, 4)
    state = json.loads(json.dumps(metrics.state()))
    metrics.close()
    package = Package(has=2)
    metrics, warned, _ = opened(package, state, entity="us", group="seeds")
    write(metrics, 5)
    assert package.rows == {step: {"loss/q": float(step)} for step in (3, 4, 5)} and warned == []
    quiet = {"program": "", "disable_git": True, "disable_code": True, "save_code": False, "console": "off"}
    assert quiet.items() <= package.settings.items(), "files of an offline run do not show these"
    asked = {name: package.given[name] for name in ("id", "resume", "mode", "entity", "group", "config")}
    assert asked == {
        "id": state["wandb"]["id"],
        "resume": "allow",
        "mode": "online",
        "entity": "us",
        "group": "seeds",
        "config": {"seed": 1},
    }
    metrics.close()

    ahead = Package(has=7)
    metrics, _, _ = opened(ahead, state, entity="us")
    write(metrics, 5, 6, 7, 8)
    assert list(ahead.rows) == [8], "nothing twice"
    metrics.close()

    elsewhere = Package()
    opened(elsewhere, state, entity="them")
    assert list(elsewhere.rows) == [1, 2, 3, 4], "another project has none of them"
    assert elsewhere.given["id"] != state["wandb"]["id"]


def test_an_id_that_is_no_id_is_refused(opened):
    metrics, _, _ = opened(Package())
    state = metrics.state()
    metrics.close()
    state["wandb"]["id"] = "../../elsewhere"
    with pytest.raises(ValueError, match="no id of a run of W&B"):
        opened(Package(), state)


def test_without_the_package_nothing_begins(task, monkeypatch, capsys):
    assert run("-n", "a", "--max_step=100", *QUICK) == 0, "off by default"
    there = importlib.util.find_spec
    for found in (None, importlib.machinery.ModuleSpec("wandb", None)):  # nothing, or a folder of that name
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *_, found=found: found if name == "wandb" else there(name),
        )
        capsys.readouterr()
        assert run("-n", "b", *OFFLINE) == 2
        assert run("-n", "a", "--resume", "--max_step=200", *OFFLINE) == 2
        assert main_ds.main(["./task", "learner", *OFFLINE]) == 2
        assert main_ds.main(["./task", "evolver", "--num_learners=2", *OFFLINE]) == 2
        says = capsys.readouterr().err
        assert says.count('-m pip install -e ".[wandb]"') == 4
        assert [path.name for path in task.iterdir()] == ["a"]
        with pytest.raises(UsageError, match="W&B is not installed"):
            require_wandb(WandbConfig(project="toys"))
        require_wandb(WandbConfig())
