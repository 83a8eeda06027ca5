"""A small task, and runs of it from the command line."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from main import main

TASK = """\
default:
  base_config: {preset: plain, env_type: GYM, env_name: Pendulum-v1, max_step: 260, reset_on_iteration: false}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000, beta_increment_per_sampling: 0.001} # not annealed to max_step, which grows
  sac_config:
    batch_size: 16
    start_step: 100
    write_summary_per_step: 100
    save_model_per_step: 200
    replay_ratio: 0.25
    compile: "off" # a run without an end would compile
  eval_config: {per_step: 200, episodes: 2}
endless:
  base_config: {env_name: "tests.lib.toys:Endless-v0", max_step_each_iter: 50}
counting:
  base_config: {env_name: "tests.lib.toys:Counting-v0", n_envs: 3}
broken:
  base_config: {env_name: "tests.lib.toys:Broken-v0", env_args: {fails: nan}}
"""


def run(*flags: str) -> int:
    return main(["./task", "--device=cpu", *flags])


_CACHE = Path(tempfile.mkdtemp(prefix="trained-"))
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)


def trained(name: str, *flags: str) -> Path:
    """``run("-n", name, "--quiet", *flags)`` without an error; what was trained before alike is a copy.

    Returns the run's folder.
    """
    words = ("-n", name, "--quiet", *flags)
    key = hashlib.sha256(repr((Path("task/config.yaml").read_text(), words)).encode()).hexdigest()
    folder = Path("models/task", name)
    if (_CACHE / key).exists():
        shutil.copytree(_CACHE / key, folder)
    else:
        assert run(*words) == 0
        shutil.copytree(folder, _CACHE / key)
    return folder.absolute()


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def weights_hash(folder: Path) -> str:
    (last,) = sorted(folder.glob("checkpoints/step_*"))[-1:]
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()
