"""Worker: one training run of Stable-Baselines3's SAC, in an environment of its own."""

from __future__ import annotations

from argparse import ArgumentParser
from time import perf_counter

import gymnasium as gym
import stable_baselines3
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from tasks import TASKS, Learned, Task


class Evaluation(BaseCallback):
    """Evaluates the deterministic policy on an environment of its own; ``seconds`` is the time it took."""

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        self._task = task
        self._env = Monitor(gym.make(task.env_id))
        self._env.reset(seed=seed + 1000)
        self.curve: list[tuple[int, tuple[float, ...]]] = []
        self.seconds = 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps % self._task.eval_every == 0:
            self.evaluate()
        return True

    def evaluate(self) -> None:
        """Add a point to the curve."""
        begin = perf_counter()
        returns, _ = evaluate_policy(
            self.model, self._env, self._task.eval_episodes, return_episode_rewards=True
        )
        self.curve.append((self.num_timesteps, tuple(float(value) for value in returns)))
        self.seconds += perf_counter() - begin


def build(task: Task, seed: int) -> SAC:
    """SAC as the task says, one update of everything per environment step."""
    model = SAC(
        "MlpPolicy",
        task.env_id,
        learning_rate=task.learning_rate,
        buffer_size=max(task.steps, 50_000),
        learning_starts=task.start_step,
        batch_size=task.batch_size,
        tau=task.tau,
        gamma=task.gamma,
        train_freq=1,
        gradient_steps=1,
        ent_coef="auto",
        policy_kwargs={"net_arch": list(task.hidden)},
        seed=seed,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    return model


def count_parameters(model: SAC) -> int:
    """Trainable weights of critics and policy, without the targets."""
    parts = (model.critic, model.actor)
    return sum(p.numel() for part in parts for p in part.parameters() if p.requires_grad)


def main() -> None:
    """Train as the command line asks and print what was learned."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[arguments.task]
    model = build(task, arguments.seed)
    evaluation = Evaluation(task, arguments.seed)
    begin = perf_counter()
    model.learn(task.steps, callback=evaluation)
    seconds = perf_counter() - begin - evaluation.seconds
    if not evaluation.curve or evaluation.curve[-1][0] != task.steps:  # the last update follows the callback
        evaluation.evaluate()
    Learned(
        library="stable-baselines3",
        version=stable_baselines3.__version__,
        task=arguments.task,
        seed=arguments.seed,
        seconds=seconds,
        parameters=count_parameters(model),
        curve=tuple(evaluation.curve),
    ).print()


if __name__ == "__main__":
    main()
