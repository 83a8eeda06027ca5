"""Worker: Stable-Baselines3 on pixels. Its SAC has no discrete actions, so what trains is its DQN."""

from __future__ import annotations

import resource
from argparse import Namespace
from time import perf_counter

import numpy as np
import psutil
import stable_baselines3
import torch
from pixel_setting import BATCH_SIZE, EPISODE, STEPS_PER_UPDATE, build, pixel_arguments
from setting import report
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import configure
from steps_sb3 import watch


def train(arguments: Namespace) -> None:
    """DQN with the network of Nature, as often updated as ours."""
    torch.set_num_threads(arguments.threads)
    model = DQN(
        "CnnPolicy",
        build(arguments.env),
        buffer_size=arguments.capacity,
        learning_starts=arguments.start_step,
        batch_size=BATCH_SIZE,
        train_freq=STEPS_PER_UPDATE,
        gradient_steps=1,
        seed=arguments.seed,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    stopwatch = watch(model)
    begin = perf_counter()
    model.learn(arguments.steps)
    seconds = perf_counter() - begin
    report(
        "stable-baselines3",
        stable_baselines3.__version__,
        threads=torch.get_num_threads(),
        parameters=sum(p.numel() for p in model.q_net.parameters()),
        updates=model._n_updates,
        steps=model.num_timesteps,
        seconds=seconds,
        time=stopwatch.divide(seconds),
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def memory(arguments: Namespace) -> None:
    """Fill a replay with whole episodes and answer with what its transitions take."""
    env = build(arguments.env)
    observation, action = np.asarray(env.reset(seed=0)[0])[None], np.zeros((1, 1), np.int64)
    sparing = arguments.kind == "optimize_memory_usage"
    before = psutil.Process().memory_info().rss
    replay = ReplayBuffer(
        arguments.capacity,
        env.observation_space,
        env.action_space,
        device="cpu",
        optimize_memory_usage=sparing,
        handle_timeout_termination=not sparing,  # the two exclude each other
    )
    for step in range(arguments.capacity):
        done = np.array([step % EPISODE == EPISODE - 1])
        replay.add(observation, observation, action, np.zeros(1), done, [{}])
    grown = psutil.Process().memory_info().rss - before
    arrays = [value for value in vars(replay).values() if isinstance(value, np.ndarray)]
    report(
        "stable-baselines3",
        stable_baselines3.__version__,
        transitions=replay.size(),
        computed_bytes=sum(array.nbytes for array in arrays) / arguments.capacity,
        measured_bytes=grown / arguments.capacity,
    )


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = pixel_arguments(__doc__).parse_args()
    if arguments.what == "memory":
        memory(arguments)
    else:
        train(arguments)


if __name__ == "__main__":
    main()
