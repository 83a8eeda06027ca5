"""A run's folder: names, refusals with commands, atomic files."""

import multiprocessing
import os
import re
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from algorithm.app.report.facts import Facts
from algorithm.app.report.report import command_list
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.reading import read_json
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.store import names, provenance, rundir
from algorithm.store.lock import Holder
from algorithm.store.names import (
    POPULATION,
    behaviour_level,
    expand_name,
    run_names,
)
from algorithm.store.provenance import describe_start
from algorithm.store.rundir import RunDir


@pytest.fixture(autouse=True)
def here(cwd):
    return cwd


def made(name, env="gym/pendulum"):
    run = RunDir.create(env, name)
    run.write_config("base_config: {}\n")
    return run


def test_a_new_run_lies_below_models_and_what_is_written_can_be_read(here):
    run = RunDir.create("gym/pendulum", "first", argument="../my tasks/mine")
    assert run.path == here / "models/gym/pendulum/first" and run.path.is_dir()
    assert run.command("--run", "-n", "a b") == "python main.py '../my tasks/mine' --run -n 'a b'"
    run.write_overrides(["sac_config.seed=1", "a.b=2"])
    assert run.overrides.read_text() == "sac_config.seed=1\na.b=2\n"
    run.write_manifest(describe_start(["main.py", "e"]), seeds={"run": 7})
    manifest = read_json(run.manifest)
    assert manifest["arguments"] == ["main.py", "e"] and manifest["seeds"] == {"run": 7}
    run.write_result({"last_eval": {"mean": float("nan"), "ci95": float("inf"), "returns": (1.0,)}})
    assert run.read_result() == {"last_eval": {"mean": None, "ci95": None, "returns": [1.0]}}
    source = here / "nn.py"
    source.write_bytes(b"# \xff latin\r\n")
    run.copy_nn(source, source.name)
    assert (run.path / source.name).read_bytes() == source.read_bytes()


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
    RunDir.create("gym/pendulum", "first", **other).remove_failed_start()
    assert list(here.iterdir()) == [here / "all runs"], "the user's own folder stays"
    run = RunDir.create("gym/pendulum", "first", **other)
    run.write_config("{}")
    with pytest.raises(UsageError) as taken:
        RunDir.create("gym/pendulum", "first", **other)
    assert taken.value.fix.count("python main.py gym/pendulum --directory 'all runs' -n first") == 3
    run.endpoint.touch()
    learner = "python main_ds.py gym/pendulum learner --directory 'all runs' --resume"
    assert run.training_command("--resume") == learner
    assert RunDir.newest("gym/pendulum", **other).path == run.path


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("train.log", "move it away"),
        (POPULATION, "--num_learners=1 "),
        ("checkpoints/step_000000200/manifest.json", "--init_from models/e/x/checkpoints/step_000000200"),
        ("run.lock", "process {pid} on"),
    ],
)
def test_a_folder_that_is_no_run_is_not_called_one_and_stays(here, file, told):
    for name, inside in (("x", file), ("x_1", "config.yaml")):
        (here / "models/e" / name / inside).parent.mkdir(parents=True)
        (here / "models/e" / name / inside).write_text(Holder.me().text if file == "run.lock" else "")
    for find in (RunDir.create, RunDir.open):
        with pytest.raises(UsageError) as caught:
            find("e", "x")
        message = str(caught.value)
        assert told.format(pid=os.getpid()) in message and "-n x_2" in message and "--run" not in message
        assert "rm " not in message and ("move it away" in message) == (file == "train.log")


def test_a_name_that_a_player_left_goes_to_one_of_two_that_begin_at_once(here, monkeypatch):
    (here / "models/e/x/players").mkdir(parents=True)
    monkeypatch.setattr(rundir, "is_taken", lambda path: False)  # as both of them see it
    RunDir.create("e", "x")
    with pytest.raises(UsageError):
        RunDir.create("e", "x")


def begin(barrier, name):
    barrier.wait()
    with suppress(UsageError):
        RunDir.create("e", name)
        os._exit(7)


@pytest.mark.fault("F24")
@pytest.mark.parametrize("left", ["", "players"])
def test_of_four_processes_that_begin_at_once_under_one_name_one_gets_it(here, left):
    fork = multiprocessing.get_context("fork")
    for number in range(20):
        name, barrier = f"{left}{number}", fork.Barrier(4)
        if left:
            (here / "models/e" / name / left).mkdir(parents=True)
        starts = [fork.Process(target=begin, args=(barrier, name)) for _ in range(4)]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        assert sorted(start.exitcode for start in starts) == [0, 0, 0, 7]


@pytest.mark.fault("F39")
def test_a_failed_start_removes_what_it_made_by_name_and_nothing_else(here):
    run, networks = RunDir.create("a/b", "x"), here / "nn.py"
    networks.write_text("")
    run.copy_nn(networks, "sub/nn.py")
    run.write_overrides(["a.b=1"])
    run.write_manifest(describe_start(["main.py", "e"]), seeds={"run": 7})
    (run.path / "notes.txt").write_text("somebody else's")
    run.remove_failed_start()
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]
    (run.path / "notes.txt").unlink()
    run.remove_failed_start()
    assert not (here / "models").exists()
    kept = made("kept")
    kept.remove_failed_start()
    assert kept.config.exists(), "it had begun"


def test_the_log_of_a_player_that_did_not_start_stays_and_takes_no_name(here):
    run = RunDir.create("a/c", "x")
    run.players.mkdir()
    (run.players / "train-0.log").write_text("why")
    run.remove_failed_start()
    assert (run.players / "train-0.log").exists()
    RunDir.check_free("a/c", "x")


STEERING = ("a\x1b[2J", "a\x7f", "a\x85b", "a\x9b31m", "a\u202eb", "a\u200bb", "a\u2028b", "a\udcff", "a\nb")
OUTSIDE = ("", ".", "..", "../x", "a/b", "/x", "a\\b", "-x", ".x", "a\0", "a" * 201, "x}", "{tiem}")
OF_WINDOWS = ("con", "NUL", "com1", "Lpt9.old", "aux.tar.gz", "prn .x", "a.", "a ", "a:b")


@pytest.mark.fault("F43")
@pytest.mark.parametrize("name", [*STEERING, *OUTSIDE, *OF_WINDOWS])
def test_names_that_steer_a_terminal_or_leave_their_folder_are_refused(here, name):
    with pytest.raises(UsageError) as caught:
        RunDir.create("e", name)
    assert all(sign.isprintable() or sign == "\n" for sign in str(caught.value))


@pytest.mark.fault("F43")
@pytest.mark.parametrize("name", STEERING)
def test_folders_with_names_that_steer_a_terminal_are_not_listed(here, name):
    made("good", "e")
    (here / "models/e" / name).mkdir()
    (here / "models/e" / name / "config.yaml").touch()
    assert run_names("e") == ["good"]


def test_names_may_have_any_script_and_placeholders(here):
    for name in ("ähnlich", "实验 2", "تجربة", "a b&c;$(d)'", "console", "com", "com10", "a.con", "a.b"):
        assert RunDir.create("e", name).path.is_dir()
    name = expand_name("test_{time}_{hostname}", here)
    assert re.fullmatch(rf"test_\d{{14}}_{re.escape(socket.gethostname())}", name)
    for env in ("../e", "a//b", "/a", "a/../b", ""):
        with pytest.raises(UsageError):
            RunDir.create(env, "x")


@pytest.mark.parametrize(
    ("behaviour", "level"),
    [
        (DEFAULT_BEHAVIOUR, ""),
        ("Roller?team=0", "Roller%3Fteam=0"),
        ("a/../b", "a%2F..%2Fb"),
        ("con", "%63on"),
        ("a.", "a%2E"),
        ("a ", "a%20"),
        ("a. ", "a.%20"),
        ("nula", "nula"),
    ],
)
def test_the_level_of_a_behaviour_is_a_name_of_any_system(behaviour, level):
    assert behaviour_level(behaviour) == level


def test_runs_of_one_second_get_names_of_their_own(monkeypatch):
    monkeypatch.setattr(names, "datetime", SimpleNamespace(now=lambda: datetime(2030, 1, 2, 3, 4, 5)))
    runs = [RunDir.create("e", "{time}").name for _ in range(3)]
    assert runs == ["20300102030405", "20300102030405-2", "20300102030405-3"]


@pytest.mark.fault("F43")
def test_every_command_that_is_printed_can_be_pasted(here):
    run = made("a b;$(touch x)", "e")
    with pytest.raises(UsageError) as taken:
        RunDir.create("e", run.name)
    purposes = [line.split("    (")[0] for line in taken.value.fix.split("\n")]
    for line in (run.training_command("-n", run.name, "--resume"), *purposes):
        assert {run.name, f"{run.name}_2"} & {*shlex.split(line)}, line
    commands = dict(command_list(Facts.gather(run)))
    assert shlex.split(commands["All curves"])[-1] == run.shown(run.path.parent)


def test_a_path_too_long_for_a_checkpoint_is_refused_at_the_start(here):
    with pytest.raises(StorageError, match="choose a shorter name"):
        RunDir.create("e", "x", models=here.joinpath(*["d" * 200] * 19))


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


def test_runs_are_found_and_what_is_not_found_names_what_is_there(here):
    with pytest.raises(StorageError) as caught:
        RunDir.newest("gym/pendulum")
    assert caught.value.fix == "train first: python main.py gym/pendulum"
    for age, name in ((5, "one"), (0, "two"), (9, "three")):
        os.utime(made(name).config, ns=(10**18 - age, 10**18 - age))
    RunDir.create("gym/pendulum", "half")  # no config.yaml, no run
    assert run_names("gym/pendulum") == ["two", "one", "three"]
    assert RunDir.newest("gym/pendulum").name == "two"
    for name, fix in (("thre", "did you mean -n three?"), ("zzz", "choose one: -n two")):
        with pytest.raises(StorageError, match=re.escape(fix)):
            RunDir.open("gym/pendulum", name)


@pytest.mark.skipif(provenance.shutil.which("git") is None, reason="needs git")
def test_git_state_has_the_commit_and_whether_files_changed(here, monkeypatch):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=here, check=True, capture_output=True)

    assert provenance.git_state(here) is None, "no repository"
    git("init", "-q")
    git("commit", "-q", "-m", "a", "--no-gpg-sign", "--allow-empty")
    state = provenance.git_state(here)
    assert re.fullmatch(r"[0-9a-f]{40}", state["commit"]) and state["changed"] is False
    (here / "sub").mkdir()
    assert provenance.git_state(here / "sub") is None, "installed inside somebody else's repository"
    (here / "a").write_text("2")
    assert provenance.git_state(here)["changed"] is True
    monkeypatch.setenv("PATH", "")
    assert provenance.git_state(here) is None, "no git"
