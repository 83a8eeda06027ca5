"""Worker: this project's agent, on the networks and settings of ``benchmarks/pendulum``."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from setting import Setting, measure, report, worker_arguments

from algorithm.config import load_config
from algorithm.data import Segment
from algorithm.run.agent import Agent
from algorithm.run.provenance import git_state
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

ROOT = Path(__file__).resolve().parents[1]
TASK = ROOT / "benchmarks" / "pendulum"


def build(setting: Setting, seed: int) -> Agent:
    """The agent that ``main.py`` would train, for the sizes of the setting."""
    spec = AgentSpec(
        ObsSpec(("obs",), ((setting.obs_size,),), ("float32",)), ActionSpec(continuous=setting.action_size)
    )
    config = load_config(str(TASK)).config
    return Agent(
        spec, config, nn_file=TASK / "nn.py", behaviour="default", seed=seed, device=torch.device("cpu")
    )


def fill(agent: Agent, setting: Setting, rng: np.random.Generator) -> None:
    """Random episodes, each ended by a terminal step."""
    length = setting.episode_length
    for stream in range(setting.transitions // length):
        action, z, logp = agent.spec.action.random(rng, length)
        last = np.arange(length) == length - 1
        segment = Segment(
            stream=stream,
            start_step=0,
            obs={"obs": rng.standard_normal((length + 1, setting.obs_size), np.float32)},
            action_mask=np.ones((length + 1, 0), bool),
            carry=agent.initial_carry(length + 1),
            action=action,
            z=z,
            behaviour_logp=logp,
            reward=rng.standard_normal(length, np.float32),
            terminated=last,
            truncated=np.zeros(length, bool),
        )
        agent.add(segment)


def train(arguments: Namespace) -> dict[str, float]:
    """Run the command line on the task in a folder of its own; returns what it wrote into ``result.json``."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "main.py"), str(TASK), "--quiet", "--device=cpu", "--name=run"]
        command += [f"--seed={arguments.seed}", "-o", f"base_config.max_step={arguments.steps}"]
        command += ["-o", f"sac_config.threads={arguments.threads}"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (result,) = Path(folder).glob("models/*/run/result.json")
        written: dict[str, float] = json.loads(result.read_text())
        return written


def commit() -> str:
    """Which state of the project was measured."""
    state = git_state()
    return "unknown" if state is None else f"{state['commit']}{' and changes' if state['changed'] else ''}"


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = worker_arguments(__doc__ or "").parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.task == "updates":
        setting = Setting()
        agent = build(setting, arguments.seed)
        fill(agent, setting, np.random.default_rng(arguments.seed))
        now = count(setting.start_step + 1)  # one update is owed for every step from here on
        updates, seconds = measure(lambda: agent.learn(next(now)), arguments.seconds, arguments.warm_up)
        steps = 0
    else:
        agent = build(Setting.pendulum(), arguments.seed)  # only to count its weights
        result = train(arguments)
        updates, steps, seconds = int(result["updates"]), int(result["steps"]), result["seconds"]
    report(
        "advanced-soft-actor-critic",
        commit(),
        threads=torch.get_num_threads(),
        parameters=sum(agent.num_parameters().values()),
        updates=updates,
        steps=steps,
        seconds=seconds,
        replay_bytes=agent.replay.nbytes / agent.replay.capacity,
    )


if __name__ == "__main__":
    main()
