"""A run's folder: names, refusals with commands, atomic files."""

import html
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from algorithm.app.report.facts import Facts
from algorithm.app.report.report import command_list
from algorithm.core.errors import EnvError, NumericalError, StorageError, UsageError, UserError, visible
from algorithm.core.reading import read_json
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.runs import files, names, provenance
from algorithm.runs.files import write_json
from algorithm.runs.names import (
    POPULATION,
    behaviour_level,
    check_directory,
    check_name,
    expand_name,
    run_names,
)
from algorithm.runs.rundir import RunDir


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(name, env="gym/pendulum"):
    run = RunDir.create(env, name)
    run.write_config("base_config: {}\n")
    return run


def test_a_new_run_lies_below_models_and_what_is_written_can_be_read(here):
    run = RunDir.create("gym/pendulum", "first", argument="../my tasks/mine")
    assert run.path == here / "models/gym/pendulum/first" and run.path.is_dir()
    assert run.shown(run.metrics_csv) == "models/gym/pendulum/first/metrics.csv"
    assert run.command("--run", "-n", "a b") == "python main.py '../my tasks/mine' --run -n 'a b'"
    run.write_overrides(["sac_config.seed=1", "a.b=2"])
    assert run.overrides.read_text() == "sac_config.seed=1\na.b=2\n"
    run.write_manifest(arguments=["main.py", "e"], seeds={"run": 7})
    manifest = read_json(run.manifest)
    assert manifest["arguments"] == ["main.py", "e"] and manifest["seeds"] == {"run": 7}
    assert manifest["versions"]["torch"] and manifest["started"].endswith("+00:00")
    run.write_result({"last_eval": {"mean": float("nan"), "ci95": float("inf"), "returns": (1.0,)}})
    assert run.read_result() == {"last_eval": {"mean": None, "ci95": None, "returns": [1.0]}}
    source = here / "nn.py"
    source.write_bytes(b"# \xff latin\r\n")
    run.copy_nn(source, source.name)
    assert (run.path / source.name).read_bytes() == source.read_bytes()
    with pytest.raises(StorageError, match="networks cannot be read"):
        run.copy_nn(here / "absent.py", "absent.py")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(Path("x.json"), {"a": float("nan")})


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("main.py", "main.py"),
        ("{here}/main.py", "main.py"),
        ("../some where/main_ds.py", "'../some where/main.py'"),
        ("/project/main.py", "/project/main.py"),
    ],
)
def test_commands_work_from_where_the_user_is(here, monkeypatch, typed, shown):
    monkeypatch.setattr(sys, "argv", [typed.format(here=here), "x"])
    assert RunDir.create("mine", "x").command() == f"python {shown} mine"


def test_another_folder_of_all_runs_is_in_every_command(here):
    other = {"models": Path("all runs")}
    (here / "all runs").mkdir()
    run = RunDir.create("gym/pendulum", "first", **other)
    assert run.path == here / "all runs/gym/pendulum/first"
    run.take_back()
    assert list(here.iterdir()) == [here / "all runs"], "the user's own folder stays"
    with pytest.raises(StorageError) as caught:
        RunDir.newest("gym/pendulum", **other)
    assert caught.value.fix == "train first: python main.py gym/pendulum --directory 'all runs'"
    assert caught.value.where == "all runs/gym/pendulum"
    run = RunDir.create("gym/pendulum", "first", **other)
    run.write_config("{}")
    with pytest.raises(UsageError) as taken:
        RunDir.create("gym/pendulum", "first", **other)
    assert taken.value.fix.count("python main.py gym/pendulum --directory 'all runs' -n first") == 3
    run.endpoint.touch()
    assert (
        run.training_command("--resume")
        == "python main_ds.py gym/pendulum learner --directory 'all runs' --resume"
    )
    assert RunDir.newest("gym/pendulum", **other).path == run.path
    assert run_names("gym/pendulum") == []
    assert RunDir.create("e", "x", models=here / "models").command() == "python main.py e"


@pytest.mark.parametrize("below", ["", "/deep/down"])
def test_a_file_is_no_folder_of_runs(here, below):
    (here / "notes").write_text("")
    with pytest.raises(UsageError, match="runs cannot be kept") as caught:
        check_directory(Path(f"notes{below}"))
    assert caught.value.why == "notes is a file"
    assert caught.value.where == f"--directory notes{below}"


@pytest.mark.parametrize("name", ["d" * 300, "a\udc9bb", "a\x1b[31mb", "a\0b"])
def test_a_path_that_no_folder_can_have_is_told(here, name):
    with pytest.raises(UsageError, match="runs cannot be kept") as caught:
        RunDir.create("e", "x", models=here / name)
    assert visible(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    "file, told", [("train.log", "rm -r models/e/x "), (POPULATION, "--num_learners=1 ")]
)
def test_a_folder_that_is_no_run_is_not_called_one(here, file, told):
    for name, inside in (("x", file), ("x_1", "config.yaml")):
        (here / "models/e" / name).mkdir(parents=True)
        (here / "models/e" / name / inside).touch()
    for find in (RunDir.create, RunDir.open):
        with pytest.raises(UsageError) as caught:
            find("e", "x")
        assert told in caught.value.fix and "-n x_2" in caught.value.fix and "--run" not in caught.value.fix


@pytest.mark.fault("F39")
def test_a_failed_start_removes_what_it_made_by_name_and_nothing_else(here):
    run, networks = RunDir.create("a/b", "x"), here / "nn.py"
    networks.write_text("")
    run.copy_nn(networks, "sub/nn.py")
    run.write_overrides(["a.b=1"])
    run.write_manifest(arguments=["main.py", "e"], seeds={"run": 7})
    (run.path / "notes.txt").write_text("somebody else's")
    run.take_back()
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]
    (run.path / "notes.txt").unlink()
    run.take_back()
    assert not (here / "models").exists()
    kept, run = RunDir.create("a/b", "kept"), RunDir.create("a/c", "x")
    kept.write_config("{}")
    run.players.mkdir()
    (run.players / "train-0.log").write_text("why")
    for one in (run, kept):
        one.take_back()
    assert kept.config.exists(), "it had begun"
    assert (run.players / "train-0.log").read_text() == "why", "of a Unity player that did not start"
    RunDir.check_free("a/c", "x")
    RunDir.create("a/c", "x").write_config("{}")
    with pytest.raises(UsageError, match="exists already"):
        RunDir.create("a/c", "x")


NO_NAMES = ("", ".", "..", "../x", "a/b", "/x", "a\\b", "-x", ".x", "a\nb", "a" * 201, "x}", "{tiem}")


def test_names_that_leave_their_folder_are_refused(here):
    for name in NO_NAMES:
        with pytest.raises(UsageError) as caught:
            RunDir.create("e", name)
        assert caught.value.exit_code == 2 and (name != "{tiem}" or "placeholder {tiem}" in caught.value.what)
    for env in ("../e", "a//b", "/a", "a/../b", ""):
        with pytest.raises(UsageError):
            RunDir.create(env, "x")
    for name in ("ähnlich", "实验 2", "تجربة", "a b&c;$(d)'"):
        assert RunDir.create("e", name).path.is_dir()
    name = expand_name("test_{time}_{hostname}", here)
    assert re.fullmatch(rf"test_\d{{14}}_{re.escape(socket.gethostname())}", name)


class StoppedClock:
    """Every moment is the same second."""

    @staticmethod
    def now():
        return StoppedClock

    @staticmethod
    def strftime(_):
        return "20300102030405"


def test_runs_of_one_second_get_names_of_their_own(monkeypatch, here):
    monkeypatch.setattr(names, "datetime", StoppedClock)
    runs = [RunDir.create("e", "{time}").name for _ in range(3)]
    assert runs == ["20300102030405", "20300102030405-2", "20300102030405-3"]
    assert expand_name("{time}", here / "models/e") == "20300102030405-4"
    assert expand_name("fixed", here / "models/e") == "fixed"


@pytest.mark.fault("F43")
@pytest.mark.parametrize(
    "name", ["a\x1b[2J", "a\x7f", "a\x85b", "a\x9b31m", "a\u202eb", "a\u200bb", "a\u2028b", "a\udcff", "a\0"]
)
def test_names_that_steer_a_terminal_are_refused_and_not_listed(here, name):
    with pytest.raises(UsageError) as caught:
        RunDir.create("e", name)
    assert all(sign.isprintable() or sign == "\n" for sign in str(caught.value))
    made("good", "e")
    if "\0" not in name:
        (here / "models/e" / name).mkdir()
        (here / "models/e" / name / "config.yaml").touch()
    assert run_names("e") == ["good"]


@pytest.mark.fault("F43")
def test_every_command_that_is_printed_can_be_pasted(here):
    run = made("a b;$(touch x)", "e")
    said = [run.command("-n", run.name), run.training_command("-n", run.name, "--resume")]
    with pytest.raises(UsageError) as taken:
        RunDir.create("e", run.name)
    with pytest.raises(UserError) as unknown:
        RunDir.open("e", "a b")
    said += [line.split("    (")[0] for line in taken.value.fix.split("\n")]
    for line in said:
        assert run.name in shlex.split(line) or f"{run.name}_2" in shlex.split(line), line
    assert shlex.quote(run.name) in unknown.value.fix
    page = html.unescape(str(command_list(Facts.gather(run))))
    assert f"tensorboard --logdir {shlex.quote(run.shown(run.log))}" in page


@pytest.mark.fault("F09")
@pytest.mark.parametrize("number", [13, 20, 28, 30])
def test_a_refused_folder_says_what_to_do(monkeypatch, number):
    def refuse(self, *args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StorageError) as caught:
        RunDir.create("e", "x")
    message = str(caught.value)
    assert os.strerror(number) in message
    assert re.search(r"to do  .*(permission|disk space|read-only|move it away)", message)


def test_runs_are_found_and_what_is_not_found_names_what_is_there(monkeypatch, here):
    with pytest.raises(StorageError) as caught:
        RunDir.newest("gym/pendulum")
    assert caught.value.fix == "train first: python main.py gym/pendulum"
    for age, name in ((5, "one"), (0, "two"), (9, "three")):
        os.utime(made(name).config, ns=(10**18 - age, 10**18 - age))
    RunDir.create("gym/pendulum", "half")  # no config.yaml, no run
    assert run_names("gym/pendulum") == ["two", "one", "three"]
    assert RunDir.newest("gym/pendulum").name == "two"
    for name, fix in (("thre", "did you mean -n three?"), ("zzz", "choose one: -n two")):
        with pytest.raises(StorageError, match=re.escape(fix)) as caught:
            RunDir.open("gym/pendulum", name)
        assert caught.value.exit_code == 6
    made("one_2")
    with pytest.raises(UsageError) as taken:
        RunDir.create("gym/pendulum", "one")
    for text in ("pendulum -n one --run", "-n one --resume", "pendulum -n one_3", "models/gym/pendulum/one"):
        assert text in str(taken.value)


def test_names_that_windows_reserves_are_refused_and_those_of_behaviours_replaced(here):
    assert behaviour_level(DEFAULT_BEHAVIOUR) == ""
    assert behaviour_level("Roller?team=0") == "Roller%3Fteam=0"
    check_name(behaviour_level("a/../b"))
    with pytest.raises(UsageError):
        behaviour_level("..")
    for name in ("con", "NUL", "com1", "Lpt9.old", "aux.tar.gz", "prn .x", "a.", "a ", "a:b"):
        with pytest.raises(UsageError, match="cannot be the name of a folder"):
            RunDir.create("e", name)
        check_name(behaviour_level(name))
    assert [behaviour_level(name) for name in ("con", "a.", "a ", "a. ")] == [
        "%63on",
        "a%2E",
        "a%20",
        "a.%20",
    ]
    for name in ("console", "com", "com10", "lpt", "nula", "a.con", "a.b"):
        check_name(name)
        assert behaviour_level(name) == name


def test_an_interrupted_write_leaves_the_old_file(monkeypatch, here):
    path = here / "x.json"
    write_json(path, {"old": 1})

    def fail(*args):
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os if step == "fsync" else Path, step, fail)
            with pytest.raises(StorageError, match="free some disk space"):
                write_json(path, {"new": 2})
        assert json.loads(path.read_text()) == {"old": 1}
        assert [entry.name for entry in here.iterdir()] == ["x.json"]


def test_git_state_is_none_where_git_is_missing_or_knows_nothing(monkeypatch, here):
    assert provenance.git_state(here) is None
    monkeypatch.setenv("PATH", "")
    assert provenance.git_state() is None


@pytest.mark.skipif(provenance.shutil.which("git") is None, reason="needs git")
def test_git_state_tells_the_commit_and_whether_files_changed(here):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=here, check=True, capture_output=True)

    git("init", "-q")
    assert provenance.git_state(here) is None  # no commit yet
    (here / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a", "--no-gpg-sign")
    state = provenance.git_state(here)
    assert re.fullmatch(r"[0-9a-f]{40}", state["commit"])
    assert state["changed"] is False
    (here / "a").write_text("2")
    assert provenance.git_state(here)["changed"] is True
    (here / "sub").mkdir()
    assert provenance.git_state(here / "sub") is None  # installed inside somebody else's repository


def test_exit_codes_are_those_of_the_fault_table():
    codes = {UsageError: 2, EnvError: 4, NumericalError: 5, StorageError: 6}
    assert {kind: kind("x").exit_code for kind in codes} == codes
    assert all(issubclass(kind, UserError) for kind in codes)


def test_the_light_modules_do_not_import_torch():
    code = (
        "import algorithm.runs.rundir, algorithm.core.errors, algorithm.app.console.output\n"
        "import algorithm.app.console.live\n"
        "import algorithm.runs.logs.metrics, algorithm.app.report.compare, sys\n"
        "assert not {'torch', 'matplotlib', 'jinja2', 'tensorboard'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
