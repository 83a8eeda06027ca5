"""Worker: training by Stable-Baselines3's SAC, its time divided by wrapping the methods it calls."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import stable_baselines3
import torch
from learning_sb3 import build, count_parameters
from setting import report
from stable_baselines3 import SAC
from stopwatch import Stopwatch
from tasks import TASKS, step_arguments


def watch(model: SAC) -> Stopwatch:
    """A stopwatch on everything a step consists of."""
    stopwatch = Stopwatch()
    stopwatch.watch(model, "_sample_action", "act")
    stopwatch.watch(model.env, "step", "step")
    stopwatch.watch(model, "_store_transition", "store")
    stopwatch.watch(model.replay_buffer, "sample", "sample")
    stopwatch.watch(model, "train", "update")
    return stopwatch


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = step_arguments(__doc__).parse_args()
    torch.set_num_threads(arguments.threads)
    model = build(replace(TASKS[arguments.task], start_step=arguments.start_step), arguments.seed)
    stopwatch = watch(model)
    begin = perf_counter()
    model.learn(arguments.steps)
    seconds = perf_counter() - begin
    report(
        "stable-baselines3",
        stable_baselines3.__version__,
        threads=torch.get_num_threads(),
        parameters=count_parameters(model),
        updates=model._n_updates,
        steps=model.num_timesteps,
        seconds=seconds,
        time=stopwatch.divide(seconds),
    )


if __name__ == "__main__":
    main()
