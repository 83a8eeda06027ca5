"""Worker: updates of Stable-Baselines3's SAC. Runs in an environment of its own, see ``peer.py``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from learning_sb3 import count_parameters
from setting import Setting, measure, report, update_arguments
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import configure


class Spaces(gym.Env):
    """Nothing but the spaces: the measured updates draw from a replay that is already full."""

    def __init__(self, setting: Setting) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (setting.obs_size,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (setting.action_size,), np.float32)


def build(setting: Setting, seed: int) -> SAC:
    """SAC as the setting says."""
    model = SAC(
        "MlpPolicy",
        Spaces(setting),
        learning_rate=setting.learning_rate,
        buffer_size=setting.transitions,
        learning_starts=setting.start_step,
        batch_size=setting.batch_size,
        tau=setting.tau,
        gamma=setting.gamma,
        train_freq=1,
        gradient_steps=1,
        ent_coef="auto",
        target_update_interval=1,
        policy_kwargs={"net_arch": list(setting.hidden), "n_critics": setting.num_critics},
        seed=seed,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    return model


def fill(replay: ReplayBuffer, setting: Setting, rng: np.random.Generator) -> None:
    """Random transitions, every ``episode_length``-th of them terminal."""
    obs = rng.standard_normal((setting.transitions + 1, 1, setting.obs_size), np.float32)
    action = rng.uniform(-1.0, 1.0, (setting.transitions, 1, setting.action_size)).astype(np.float32)
    reward = rng.standard_normal((setting.transitions, 1), np.float32)
    info: list[dict[str, Any]] = [{}]
    for i in range(setting.transitions):
        done = np.array([(i + 1) % setting.episode_length == 0])
        replay.add(obs[i], obs[i + 1], action[i], reward[i], done, info)


def replay_bytes(replay: ReplayBuffer) -> float:
    """Bytes of the buffer's arrays per transition that fits in."""
    arrays = (value for value in vars(replay).values() if isinstance(value, np.ndarray))
    return sum(array.nbytes for array in arrays) / replay.buffer_size


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = update_arguments(__doc__).parse_args()
    torch.set_num_threads(arguments.threads)
    setting = Setting()
    model = build(setting, arguments.seed)
    fill(model.replay_buffer, setting, np.random.default_rng(arguments.seed))
    updates, seconds = measure(
        lambda: model.train(gradient_steps=1, batch_size=setting.batch_size),
        arguments.seconds,
        arguments.warm_up,
    )
    report(
        "stable-baselines3",
        stable_baselines3.__version__,
        threads=torch.get_num_threads(),
        parameters=count_parameters(model),
        updates=updates,
        seconds=seconds,
        replay_bytes=replay_bytes(model.replay_buffer),
    )


if __name__ == "__main__":
    main()
