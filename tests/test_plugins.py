"""Plug-ins: a real package that is installed and trained with, and what can be wrong with one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from algorithm import plugins
from algorithm.config import ConfigError, load_config, reference
from algorithm.config.resume_rules import changes
from algorithm.env.registry import _ADAPTERS, make_vec_env
from algorithm.errors import UsageError
from algorithm.extensions import make_extensions
from algorithm.extensions.options import Build
from algorithm.nn.process import set_up_process
from algorithm.plugins import ENVS, EXTENSIONS, NETWORKS, Plugin, find, installed
from algorithm.replay.budget import MemoryBudget
from algorithm.runs.files import read_json
from algorithm.runs.listing import listing
from algorithm.runs.provenance import made_with
from algorithm.sac.acting import make_acting
from algorithm.sac.config import SacConfig
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.train.assembly import make_agents, nn_file, plugins_of
from main import main
from tests.run.sessions import weights_hash
from tests.test_docs import blocks_of

PACKAGE = Path(__file__).parent / "plugin_package"
SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
CPU = torch.device("cpu")

TASK = """\
default:
  base_config: {env_type: CORRIDOR, env_name: short, max_step: 300, n_envs: 2}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000, beta_increment_per_sampling: 0.001}
  sac_config:
    nn: corridor
    extensions: [{surprise: {strength: 0.5}}]
    batch_size: 16
    start_step: 50
    replay_ratio: 0.25
    save_model_per_step: 100
    write_summary_per_step: 100
  eval_config: {per_step: -1, episodes: 2}
killed:
  base_config: {workers: 2, callbacks: ["kill.py:Kill"]}
ppo:
  algorithm: PPO
  base_config: {max_step: 128}
  nn_config: {q: null, v: {dense_n: 8}}
  ppo_config: {rollout_step: 32, num_epoch: 1, num_minibatch: 2}
"""
KILL = """\
import os, signal
import asac

class Kill(asac.Callback):
    def on_step(self, training):
        if training.step == 150:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder that pip has installed the package into."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, folder / "source")  # nothing is built beside the tests
    words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    words += ["--no-build-isolation", "--target", str(folder / "site"), str(source)]
    subprocess.run(words, check=True, capture_output=True, timeout=100)
    return folder / "site"


@pytest.fixture(autouse=True)
def _forgets():
    """What a test has installed and imported is forgotten behind it."""
    known, path = {*sys.modules}, [*sys.path]
    installed.cache_clear()
    yield
    sys.path[:] = path
    installed.cache_clear()
    for name in {*sys.modules} - known:
        if name.startswith(("asac_corridor", "their_", "own_ext")):
            del sys.modules[name]


def install(folder: Path, source: str, package: str = "theirs", version: str = "1.0", **groups: dict) -> None:
    """Put a package there as pip would: a module, and entry points by group."""
    module = f"their_{package.replace('-', '_')}"
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, names in groups.items():
        lines += [f"[asac.{group}]", *(f"{name} = {value}" for name, value in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    installed.cache_clear()


@pytest.fixture
def there(tmp_path, monkeypatch):
    """The folder to start from, with a task."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(TASK)
    return tmp_path


def test_a_package_trains_is_killed_resumed_and_evaluated(site, there, root, capsys):
    """With workers and a kill the weights become those of a run in one go, which has neither."""
    (there / "task" / "kill.py").write_text(KILL)
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(site)])}

    def command(*flags):
        words = [sys.executable, str(root / "main.py"), "./task", "-n", "a", "--device=cpu", *flags]
        return subprocess.run(words, env=os.environ | paths, capture_output=True, text=True, timeout=100)

    killed = command("-c", "killed", "--seed=1")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = there / "models" / "task" / "a"
    assert [path.name for path in folder.glob("checkpoints/step_*")] == ["step_000000100"]
    resumed = command("--resume", "-o", "base_config.callbacks=[]")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed exactly" in resumed.stdout and "ModelRep asac_corridor.nn" in resumed.stdout

    sys.path.insert(0, str(site))
    assert main(["./task", "-n", "b", "--seed=1", "--device=cpu", "--quiet"]) == 0
    assert weights_hash(folder) == weights_hash(folder.with_name("b"))
    assert "plugin/surprise/loss/surprise" in (folder / "metrics.csv").read_text()
    of = {name: "asac-corridor 0.1.0" for name in ("CORRIDOR", "surprise", "corridor")}
    manifest = read_json(folder / "manifest.json")
    assert manifest["plugins"] == of and manifest["resumed"][0]["plugins"] == of
    assert not (folder / "corridor.py").exists(), "its networks stay in their package"
    assert main(["./task", "-n", "a", "--eval=2"]) == 0
    assert "return" in capsys.readouterr().out
    for name in of:
        assert re.search(rf"^  {name} .*, asac-corridor 0\.1\.0$", listing("", there), re.M)

    other = shutil.copytree(site, there / "site")  # the next version, with other code
    (info,) = other.glob("*.dist-info/METADATA")
    info.write_text(info.read_text().replace("Version: 0.1.0", "Version: 0.2.0"))
    with (other / "asac_corridor" / "env.py").open("a") as file:
        file.write("\n# mended\n")
    sys.path[0] = str(other)
    installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("asac_corridor")]:
        del sys.modules[name]
    assert main(["./task", "-n", "b", "--resume", "--max_step=320"]) == 0
    said = capsys.readouterr().out
    assert "resumed, not bit-exact: the package asac-corridor was 0.1.0 and is 0.2.0" in said
    assert "resumed, not bit-exact: the code of asac_corridor has been changed since" in said


def test_ppo_takes_the_bonus_and_the_loss_and_refuses_what_it_would_not_use(site, there, capsys):
    sys.path.insert(0, str(site))
    assert main(["./task", "-c", "ppo", "-n", "p", "--seed=1", "--device=cpu", "--quiet"]) == 0
    assert "plugin/surprise/loss/surprise" in (there / "models/task/p/metrics.csv").read_text()
    install(there, MAKERS)
    own = ["./task", "-c", "ppo", "--seed=1", "--device=cpu", "--quiet", "-o"]
    assert main([*own, "sac_config.extensions=['their_theirs:shrinking']"]) == 2
    said = capsys.readouterr().err
    assert "the extension Shrink is not for PPO and A2C" in said and "auxiliary_losses" in said
    assert main([*own, "sac_config.extensions=['their_theirs:asking']"]) == 2
    assert "an extension asks for values of actions" in capsys.readouterr().err
    assert not (there / "models/task").exists() or len([*(there / "models/task").iterdir()]) <= 2
