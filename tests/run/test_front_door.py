"""Every way to name an environment, through every command: an id, modules and files of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from main import main
from tests.ds import processes
from tests.lib import own_env

TASK = """\
default:
  base_config: {env_type: GYM, env_name: "%s", max_step: 120}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000}
  sac_config: {start_step: 50, batch_size: 16, write_summary_per_step: 50, save_model_per_step: 100}
  eval_config: {per_step: 100, episodes: 2}
"""


SMALL = [
    *("base_config.max_step=70", "nn_config.q={dense_n: 8}", "nn_config.policy={dense_n: 8}"),
    *("replay_config.capacity=1000", "sac_config.start_step=50", "sac_config.batch_size=16"),
    *("sac_config.save_model_per_step=50", "eval_config={per_step: 60, episodes: 1}"),
]
OVERRIDES = [word for text in SMALL for word in ("-o", text)]

WAYS = {
    "an id": ("CartPole-v1", "", "CartPole-v1"),
    "a file here": ("own_env.py:Own", "", "own_env/Own"),
    "a module beside the task": ("./task", "own_env:Own-v0", "task"),
    "a file above the task": ("./task", "../own_env.py:Own", "task"),
}

QUICK = ("a file here",)
"""Ways that every run of the suite goes."""


@pytest.fixture
def folder(cwd):
    with own_env.fresh_imports():
        yield cwd


def prepare(folder: Path, env_name: str) -> None:
    own_env.write(folder / "task" if env_name and not env_name.startswith("..") else folder)
    if env_name:
        (folder / "task").mkdir(exist_ok=True)
        (folder / "task" / "config.yaml").write_text(TASK % env_name)


@pytest.mark.parametrize(
    ("argument", "env_name", "label"),
    [
        pytest.param(*way, id=name, marks=[] if name in QUICK else pytest.mark.slow)
        for name, way in WAYS.items()
    ],
)
def test_every_command_takes_it(folder, capsys, argument, env_name, label):
    prepare(folder, env_name)

    def run(*flags: str) -> str:
        assert main([argument, "--device=cpu", *flags]) == 0
        return capsys.readouterr().out

    run("-n", "a", *OVERRIDES)
    assert (folder / "models" / label / "a" / "result.json").is_file()
    assert "resumed exactly" in run("--resume", "-o", "base_config.max_step=80")
    run("--eval=2", "--quiet")
    run("-n", "a", "--run", "--max_iter=1", "--quiet")
    run("-n", "w", "-o", "base_config.workers=1", "--quiet", *OVERRIDES)


@pytest.mark.slow
@pytest.mark.parametrize(("argument", "env_name"), [("own_env.py:Own", ""), ("./task", "own_env:Own-v0")])
def test_it_is_looked_at_before(folder, capsys, argument, env_name):
    prepare(folder, env_name)
    assert main([argument, "--check"]) == 0
    assert "no errors" in capsys.readouterr().out
    assert main([argument, "--dry_run", "--device=cpu", *OVERRIDES]) == 0
    assert not (folder / "models").exists()


def test_a_run_whose_environment_changed_is_not_called_exact(folder, capsys):
    own_env.write(folder)
    call = ["own_env.py:Own", "--device=cpu", *OVERRIDES]
    assert main([*call, "-n", "a"]) == 0
    source = folder / "own_env.py"
    source.write_text(source.read_text() + "# other text\n")
    capsys.readouterr()
    assert main(["own_env.py:Own", "--resume", "-o", "base_config.max_step=75"]) == 0
    out = capsys.readouterr()
    assert "not bit-exact: the environment's file own_env.py has been changed since" in out.out + out.err
    manifest = json.loads((folder / "models" / "own_env" / "Own" / "a" / "manifest.json").read_text())
    assert manifest["env_file"]["path"] == str(source)
    assert manifest["device"] == manifest["resumed"][0]["device"] == "cpu"


@pytest.mark.slow
@pytest.mark.parametrize(("argument", "env_name"), [("own_env.py:Own", ""), ("./task", "own_env:Own-v0")])
def test_learner_and_actor_take_it(tmp_path, argument, env_name):
    prepare(tmp_path, env_name)
    flags = [*OVERRIDES, "-o", "base_config.max_episode_length=50"]
    label = "task" if env_name else "own_env/Own"
    learner = processes.begin(
        tmp_path, "learner", "learner", "-n", "a", "--learner_port=0", *flags, task=argument
    )
    port = processes.port_of(tmp_path, "a", label=label)
    actor = processes.begin(tmp_path, "actor", "actor", f"--learner_port={port}", *flags, task=argument)
    assert (processes.finish(learner), processes.finish(actor)) == (0, 0), processes.said(tmp_path)
