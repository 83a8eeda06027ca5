"""The commands that a screen ends with: each works, and each is one line that can be copied."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from algorithm.app.cli.ds import parse_distributed
from algorithm.app.cli.parsing import parse_args
from algorithm.app.command import show_error
from algorithm.core.errors import EnvError, UsageError, visible
from algorithm.store.follow_up_commands import playing_commands
from algorithm.store.rundir import RunDir
from main import main
from tests.app.test_api import MuteError

TASK = """\
default:
  base_config: {env_type: GYM, env_name: CartPole-v1, max_step: 40, max_step_each_iter: 20}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000}
  sac_config: {batch_size: 8, start_step: 20, replay_ratio: 0.1}
  eval_config: {per_step: 20, episodes: 1}
"""


@pytest.fixture
def runs(cwd):
    """A folder with the task, and the flag for its runs in another folder."""
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    return ["--directory", "all runs"]


def shown(capsys) -> dict[str, str]:
    """Purpose -> command of the last block of commands that was printed."""
    _, there, block = capsys.readouterr().out.rpartition("\nnext\n")
    if not there:
        return {}
    return dict(re.findall(r"^  (\w[\w ]*?)  +(.+)$", block, re.M))


@pytest.mark.pages
def test_the_commands_that_a_screen_offers_work(runs, capsys, monkeypatch):
    for place in ("summaries", "play"):
        monkeypatch.setattr(f"algorithm.app.{place}.has_display", lambda: True)
    assert main(["./task", *runs, "-n", "a", "--seed=1", "--device=cpu"]) == 0
    commands = shown(capsys)
    assert commands.keys() == {"resume", "evaluate", "curves", "report", "watch", "film"}
    for purpose in commands.keys() - {"curves", "report"}:
        assert shlex.split(commands[purpose])[3:5] == runs
    page = Path("all runs/task/a/report.html")
    assert "--video" in page.read_text() and "--watch" in page.read_text()
    assert main(shlex.split(commands["evaluate"])[2:]) == 0
    assert shown(capsys).keys() == {"watch"}
    assert main([*shlex.split(commands["resume"])[2:], "--quiet"]) == 0
    assert "step 80" in capsys.readouterr().out
    assert main(["./task", *runs, "--report", "a"]) == main(["./task", *runs, "--report", "*"]) == 0
    pages = [page, page.parents[1] / "compare_a.html"]
    assert capsys.readouterr().out.splitlines() == list(map(str, pages))
    assert not Path("models").exists()
    monkeypatch.setattr("algorithm.app.play.has_display", lambda: False)
    assert main(["./task", *runs, "--watch", "--max_iter=1", "--quiet"]) == 0
    assert "no display" in "".join(capsys.readouterr())


def test_films_and_windows_are_offered_where_they_can_be_seen():
    run = RunDir("task", "a", Path("models/task/a"), "task")
    for modes, display, offered in (
        (("human", "rgb_array"), True, {"watch", "film"}),
        (("human", "rgb_array"), False, {"film"}),
        ((), True, set()),
    ):
        assert playing_commands(run, modes, display=display).keys() - {"evaluate"} == offered


def test_a_file_is_no_folder_of_runs(runs, capsys):
    assert main(["./task", "--directory=task/config.yaml"]) == 6
    assert "there is a file where a folder is needed" in capsys.readouterr().err
    for words, main_of in ((["./task"], parse_args), (["./task", "actor"], parse_distributed)):
        with pytest.raises(SystemExit) as left:
            main_of([*words, "--directory="])
        assert left.value.code == 2 and "it is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(36, "File name too long", "x" * 300), 6, "a file or folder cannot be used"),
        (OSError(28, "No space left on device"), 6, "free some disk space"),
        (ConnectionResetError(104, "reset by peer"), 1, "ConnectionResetError: [Errno 104] reset by peer"),
        (MuteError(), 1, "MuteError: its text is not available, __str__ raised LookupError"),
        (ValueError("\x1b[2Jred\x9b"), 1, r"ValueError: \x1b[2Jred\x9b"),
        (EnvError("\x1b[2Jred", why="\udc9b"), 4, r"\x1b[2Jred"),
        (UsageError("twice"), 2, "twice"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(3), 1, "SystemExit(3) in the middle of a command"),
    ],
)
def test_what_a_command_raises_is_told_without_codes_of_a_terminal(capsys, error, code, told):
    assert show_error(error, debug=False) == code
    said = capsys.readouterr().err
    assert told in said and visible(said) == said


def test_networks_that_raise_in_a_training_are_named_with_their_line(task, capsys):
    source = (
        "import torch\nimport algorithm.nn as m\n\n\nclass ModelQ(m.ModelQ):\n"
        "    def forward(self, state, action):\n"
        "        if torch.is_grad_enabled() and len(state) > 10:\n"
        "            raise KeyError('mine')\n"
        "        return super().forward(state, action)\n"
    )
    Path("task/nn.py").write_text(source)
    assert main(["task", "--device=cpu"]) == 2
    said = capsys.readouterr().err
    assert "the task's networks have raised an error" in said and "KeyError: 'mine'" in said
    assert "nn.py:8: raise KeyError('mine')" in said
