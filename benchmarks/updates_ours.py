"""Worker: updates of this project's agent, on the networks and the algorithm of ``benchmarks/equal``."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import torch
from harness import our_version
from setting import Setting, measure, report, update_arguments

from algorithm.config import load_config
from algorithm.data import Segment
from algorithm.run.agent import Agent
from algorithm.run.memory import MemoryBudget
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

TASK = Path(__file__).resolve().parent / "equal"


def build(setting: Setting, seed: int) -> Agent:
    """The agent that ``main.py`` would train, for the sizes of the setting."""
    spec = AgentSpec(
        ObsSpec(("obs",), ((setting.obs_size,),), ("float32",)), ActionSpec(continuous=setting.action_size)
    )
    keys = ("gamma", "tau", "learning_rate", "start_step", "batch_size")
    changes = [f"sac_config.{key}={getattr(setting, key)}" for key in keys]
    config = load_config(str(TASK), "half_cheetah", changes).config
    return Agent(
        spec,
        config,
        nn_file=TASK / "nn.py",
        behaviour="default",
        seed=seed,
        device=torch.device("cpu"),
        memory=MemoryBudget(),
    )


def fill(agent: Agent, setting: Setting, rng: np.random.Generator) -> None:
    """Random episodes, each ended by a terminal step."""
    length = setting.episode_length
    for stream in range(setting.transitions // length):
        action, z, logp = agent.spec.action.random(rng, agent.spec.action.all_allowed(length))
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


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = update_arguments(__doc__).parse_args()
    torch.set_num_threads(arguments.threads)
    setting = Setting()
    agent = build(setting, arguments.seed)
    fill(agent, setting, np.random.default_rng(arguments.seed))
    now = count(setting.start_step + 1)  # one update is owed for every step from here on
    updates, seconds = measure(lambda: agent.learn(next(now)), arguments.seconds, arguments.warm_up)
    report(
        "advanced-soft-actor-critic",
        our_version(),
        threads=torch.get_num_threads(),
        parameters=sum(agent.num_parameters().values()),
        updates=updates,
        seconds=seconds,
        replay_bytes=agent.replay.nbytes / agent.replay.capacity,
    )


if __name__ == "__main__":
    main()
