"""Compare training with the working tree to training with another commit, bit for bit, on this machine.

``python scripts/golden.py main`` trains every case below with both trees, 300 updates each, and compares
SHA-256 of networks, optimisers, replay and metrics. Hashes differ between kinds of CPU, so none is stored.
A case: arguments of ``main.py``; ``learner:`` before them trains with a synchronous learner and its actor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CASES = {
    "continuous": "toy/identity",
    "pendulum": "gym/pendulum -o sac_config.n_step=3 -o sac_config.reward_scaling=true",
    "one_step": "gym/pendulum -o sac_config.n_step=1 -o sac_config.clip_epsilon=0.2",
    "discrete": "gym/cart_pole",
    "greedy": "gym/cart_pole -c dqn",
    "hybrid": "toy/hybrid -o base_config.n_envs=4",
    "workers": "toy/hybrid -o base_config.n_envs=4 -o base_config.workers=2",
    "images": "toy/two_cameras",
    "gru": "toy/recall -c rnn -o sac_config.refresh_carry=true",
    "attention": "toy/recall -c attn",
    "hidden": "gym/pendulum -c hidden_rnn",
    "curiosity": "gym/mountain_car -c curiosity",
    "rnd": "gym/mountain_car -c rnd",
    "atc": "toy/catch -c atc",
    "byol": "toy/catch -c byol",
    "prediction": "toy/catch -c prediction",
    "normalised": "gym/pendulum -o sac_config.use_normalization=true -o sac_config.use_add_with_td=true"
    " -o base_config.n_envs=3",
    "fresh": "gym/pendulum -o sac_config.use_replay_buffer=false -o sac_config.action_noise=[0.1,0.2]",
    "subset": "toy/hybrid -o sac_config.ensemble_q_num=5 -o sac_config.ensemble_q_sample=2",
    "learner": "learner:gym/pendulum",
}

SHORT = {
    "base_config.max_step": 400,
    "sac_config.start_step": 100,
    "sac_config.replay_ratio": 1,
    "sac_config.batch_size": 16,
    "sac_config.write_summary_per_step": 100,
    "eval_config.per_step": 200,
    "eval_config.episodes": 1,
}

UNSTABLE = ("time/", "sys/", "ds/lag")
"""Metrics that depend on a clock or the system."""


def main() -> int:
    """Compare the cases of the command line; return 0 if all hashes are the same."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), help="these cases alone")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        base = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(base), arguments.base], check=True)
        try:
            with ThreadPoolExecutor(arguments.jobs) as pool:
                pairs = pool.map(
                    lambda name: (name, *(trained(tree, name, Path(folder)) for tree in (base, ROOT))),
                    arguments.only,
                )
                differing = [name for name, was, now in pairs if not same(name, was, now)]
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)
    print(f"{len(arguments.only) - len(differing)} of {len(arguments.only)} cases are the same")
    return 1 if differing else 0


def trained(tree: Path, name: str, folder: Path) -> dict[str, str]:
    """Train a case with a tree; return the hashes of its results, by file or kind."""
    case = CASES[name]
    flags = [f"-o={key}={value}" for key, value in SHORT.items()]
    place = folder / name / ("base" if tree != ROOT else "tree")
    place.mkdir(parents=True)
    env = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(tree)}
    if case.startswith("learner:"):
        task, *rest = case.removeprefix("learner:").split()
        flags += ["-o=net_config.synchronous=true", f"-o=net_config.learner_port={free_port()}"]
        learner = start(
            tree, place, env, "main_ds.py", task, "learner", *rest, *flags, "--seed=1", "-n=golden"
        )
        actor = start(tree, place, env, "main_ds.py", task, "actor", *rest, *flags)
        finish(actor, name)
        finish(learner, name)
    else:
        task, *rest = case.split()
        finish(start(tree, place, env, "main.py", task, *rest, *flags, "--seed=1", "-n=golden"), name)
    hashes = hashes_of(place / "models" / task / "golden")
    shutil.rmtree(place)
    return hashes


def start(tree: Path, place: Path, env: dict[str, str], program: str, *flags: str) -> subprocess.Popen[str]:
    """Start a program of a tree in the folder ``place``; return its process."""
    command = [sys.executable, str(tree / program), *flags]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=place, env=env, text=True, stdout=pipe, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str], name: str) -> None:
    """Wait for a program. Raises SystemExit with its output if it fails."""
    out, _ = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}:\n{out}")


def hashes_of(run: Path) -> dict[str, str]:
    """Return SHA-256 of each tensor file in a run's last checkpoint, of its replay and of its metrics."""
    checkpoint = max((run / "checkpoints").glob("step_*"))
    hashes = {f.name: digest(tensors(f)) for f in sorted(checkpoint.glob("*.safetensors"))}
    replay = hashlib.sha256()
    for file in sorted((run / "replay").rglob("*")):
        if file.is_file():
            replay.update(file.read_bytes())
    hashes["replay"] = replay.hexdigest()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    stable = [{k: v for k, v in row.items() if not k.startswith(UNSTABLE)} for row in rows]
    hashes["metrics"] = digest(json.dumps(stable, sort_keys=True).encode())
    return hashes


def tensors(file: Path) -> bytes:
    """Return the content of a tensor file without the metadata in its header, which differ by version."""
    content = file.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header = {name: entry for name, entry in json.loads(content[8:size]).items() if name != "__metadata__"}
    return json.dumps(header, sort_keys=True).encode() + content[size:]


def digest(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def same(name: str, was: dict[str, str], now: dict[str, str]) -> bool:
    """Print a line on a case; return whether its hashes are equal."""
    differs = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
    print(f"{name:12} {'same' if not differs else 'DIFFERS: ' + ', '.join(differs)}", flush=True)
    return not differs


def free_port() -> int:
    """Return a port that nothing listens on now."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
