"""Completion: words that fit, in one process for many lines; and in a shell, as somebody presses TAB."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import argcomplete
import pytest

from algorithm.agents.registry import FAMILIES
from algorithm.app.cli.ds import distributed_parser
from algorithm.app.cli.parsing import parse_args, train_parser
from algorithm.config.schema import fields
from algorithm.extras.completion.completers import with_completers
from algorithm.store.names import report_names, run_names

EVERY_KEY = {f"{'.'.join(path)}=" for path, _ in fields()}
SHIPPED = {
    *("seed", "raw", "memory", "continuous", "discrete", "images", "images_discrete"),
    *("lean", "cross", "tqc", "simba", "droq", "flash", "flash64", "lanes"),
}
OWN = """\
default:
  base_config: {env_type: GYM, env_name: CartPole-v1}
quick:
slow:
"""

EXACTLY = {
    "asac gym/pen": {"gym/pendulum"},
    "asac ": {"own/task", "mine/", "gym/pendulum", "toy/identity"},
    "asac mi": {"mine/"},
    "asac my": {"my_env.py:"},
    "asac Pendulum": {"Pendulum-v1"},
    "asac tab": {"tabular/Blackjack-v0", "tabular/CliffWalking-v0"},
    "asac mine --re": {"--record", "--render", "--repeat", "--replace", "--report", "--resume"},
    "asac mine ": set(),
    "asac mine -c ": {"default", "quick", "slow", "other"},
    "asac mine -c q": {"quick"},
    "asac mine -c dr": {"droq"},
    "asac mine -c other:": {"default", "large"},  # bash has split the word at the colon
    "asac CartPole-v1 -c ": SHIPPED,
    "asac broken -c ": SHIPPED,
    "asac mine -n ": {"base1", "tuned"},
    "asac mine --directory elsewhere -n ": {"there"},
    "asac mine --report base1 ": {"base1", "tuned", "people"},
    "asac mine -o ": EVERY_KEY,
    "asac mine -o sac_config.seq": {"sac_config.seq_encoder="},
    "asac mine -o sac_config.seq_encoder=": {"RNN", "ATTN", "null"},
    "asac mine --override=sac_config.use_priority=t": {"true"},
    "asac mine -o sac_config.n_step=": set(),
    "asac mine -o algorithm=": {*FAMILIES},
    "asac mine --algorithm P": {"PPO"},
    "asac mine -o no.key=": set(),
    "asac mine -o eval_config.per_step=": {"-1", "null"},
    "asac mine --preset ": SHIPPED - {"seed", "raw", "memory"} | {"auto", "plain"},
    "asac mine --agents no_number --preset dr": set(),
    "asac mine --schema --preset dr": {"droq"},
    "asac mine --nn ": {"nn", "wide"},
    "asac mine --ckpt b": {"best"},
    "asac toy/parking -c lessons --run --lesson ": {"distance=near", "distance=middle", "distance=far"},
    "asac mine --device cu": {"cuda"},
    "asac mine --directory else": {"elsewhere/"},
    "asac mine --run --record ep": {"episode.npz"},
    "asac mine --demos ep": {"episode.npz"},
    'asac "gym/pen': {"gym/pendulum"},
    "asac --completion ": {"bash", "zsh", "fish"},
    "asac-ds mine ": {"learner", "actor", "cluster", "evolver"},
    "asac-ds mine learner -n t": {"tuned"},
    "asac-ds mine actor --learner": {"--learner_host", "--learner_port", "--learner_cpus"},
}
"""Line -> all words that fit; of those for ``asac `` some."""


FILES = {
    "mine/config.yaml": OWN,
    "mine/other.yaml": "default:\nlarge:\n",
    "mine/nn.py": "",
    "mine/wide.py": "",
    "broken/config.yaml": "default: [\n",
    "envs/own/task/config.yaml": OWN,
    "my_env.py": "raise SystemExit('was imported')\n",
    "episode.npz": "",
    "models/mine/base1/config.yaml": "",
    "models/mine/tuned/config.yaml": "",
    "models/mine/people/lineage.jsonl": "",
    "elsewhere/mine/there/config.yaml": "",
}
PARSERS = {
    "asac": lambda: with_completers(train_parser(), {"name": run_names, "report": report_names}),
    "asac-ds": lambda: with_completers(distributed_parser(), {"name": run_names}),
}


@pytest.mark.parametrize("line", EXACTLY)
def test_what_fits_is_offered(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_ARGCOMPLETE_COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    quote, prefix, _, words, colon = argcomplete.split_line(line)
    if prefix.startswith("-") and "=" in prefix:  # as argcomplete does before it completes
        words.append(prefix.partition("=")[0])
    finder = argcomplete.CompletionFinder(
        PARSERS[words[0]](), always_complete_options=False, append_space=False
    )
    found = finder._get_completions(words, prefix, quote, colon)
    assert len({*found}) == len(found)
    assert {*found} == EXACTLY[line] or (line == "asac " and {*found} >= EXACTLY[line])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_for_a_shell_is_printed(shell, capsys):
    with pytest.raises(SystemExit) as left:
        parse_args(["--completion", shell])
    code = capsys.readouterr().out
    assert left.value.code == 0 and "asac-ds" in code and "_ARGCOMPLETE" in code


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "true"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D"),
}
TYPED = {
    "asac gym/pend": "gym/pendulum ",
    "asac gym/pendulum -o sac_config.seq": "seq_encoder=",
    "python main_ds.py gym/pendulum lea": "learner ",
}
"""Typed words, and their completion."""


@pytest.mark.parametrize("shell", SHELLS)
def test_somebody_presses_tab(shell, root, tmp_path):
    """An X is typed behind the completed word, which shows whether there is a space."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "asac").write_text(f'#!/bin/sh\nexec {sys.executable} -m asac "$@"\n')
    (tmp_path / "asac").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "PYTHONPATH": str(root), "HOME": str(tmp_path), "TERM": "dumb", "PS1": "> "}
    command, prepare = SHELLS[shell]
    codes = (f"asac --completion {shell}", "activate-global-python-argcomplete --dest=-")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        lines = [prepare, *(f'eval "$({code})"' for code in codes), 'echo re""ady\n']
        os.write(ours, "; ".join(lines).encode())
        assert "ready" in shown_until(ours, "ready")
        for typed, completed in TYPED.items():
            os.write(ours, f"{typed}\tX".encode())
            assert f"{completed}X" in shown_until(ours, f"{completed}X")
            os.write(ours, b"\x15")  # which clears the line
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def shown_until(terminal: int, text: str) -> str:
    """Return what a terminal shows until it shows ``text``, or for 30 seconds."""
    shown, end = "", time.monotonic() + 30
    while text not in shown and select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
        shown += os.read(terminal, 4096).decode("utf-8", "replace")
        shown = re.sub(r".\x08|\x07", "", shown)  # zsh goes back a step to write on, bash rings
    return shown
