"""One rollout and update of Stable-Baselines3 on what has been recorded. Runs in its own environment.

python sb3_side.py RECORDED.npz SETTINGS.json ANSWER.npz

Its own code collects: from environments that repeat the record, with a policy that draws the recorded
actions. So its bootstrapping of episodes that were cut off, advantages and update are all its own.
"""

import json
import sys
from itertools import count
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv

LAYERS = {
    "actor.0": "mlp_extractor.policy_net.0",
    "actor.2": "mlp_extractor.policy_net.2",
    "actor.4": "action_net",
    "critic.0": "mlp_extractor.value_net.0",
    "critic.2": "mlp_extractor.value_net.2",
    "critic.4": "value_net",
}
"""CleanRL's names of layers -> its own."""


class Repeated(gym.Env):
    """The recorded steps of one environment, whatever is done."""

    def __init__(self, record, i, choices):
        self.record, self.i, self.t = record, i, 0
        width = record["obs"].shape[-1]
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        own = record["action"].shape[2:]
        self.action_space = gym.spaces.Discrete(choices) if not own else gym.spaces.Box(-1.0, 1.0, own)

    def reset(self, *, seed=None, options=None):
        obs = self.record["obs"]
        return obs[min(self.t, len(obs) - 1), self.i], {}

    def step(self, action):
        names = ("after", "reward", "terminated", "truncated")
        after, reward, terminated, truncated = (self.record[name][self.t, self.i] for name in names)
        self.t += 1
        return after, float(reward), bool(terminated), bool(truncated), {}


def ours(name):
    """Its name of a parameter by CleanRL's."""
    layer, _, kind = name.rpartition(".")
    return f"{LAYERS[layer]}.{kind}" if layer else name


def main(recorded, settings, answer):
    """Write advantages, returns [T, N] and the weights after the update."""
    record, chosen = dict(np.load(recorded)), json.loads(Path(settings).read_text())
    steps, n = record["reward"].shape
    weights = {k.removeprefix("w:"): torch.from_numpy(v) for k, v in record.items() if k.startswith("w:")}
    choices = len(weights["actor.4.bias"])
    env = DummyVecEnv([lambda i=i: Repeated(record, i, choices) for i in range(n)])
    policy = {
        "net_arch": [64, 64],
        **({"optimizer_class": RMSpropTFLike} if chosen.pop("tf_rms", False) else {}),
    }
    if "optimizer_class" in policy:
        policy["optimizer_kwargs"] = {"alpha": 0.99, "eps": 1e-5}
    kind = {"PPO": PPO, "A2C": A2C}[chosen.pop("algorithm")]
    model = kind("MlpPolicy", env, n_steps=steps, policy_kwargs=policy, device="cpu", **chosen)
    model.policy.load_state_dict({ours(name): value for name, value in weights.items()})

    times = count()

    def act(obs, deterministic=False):
        action = torch.from_numpy(record["action"][next(times)])
        value, logp, _ = model.policy.evaluate_actions(obs, action)
        return action, value, logp

    model.policy.forward = act
    orders = iter(record["orders"])

    def permutation(m):
        t, i = np.divmod(next(orders, np.arange(m)), n)  # A2C takes all at once
        return i * steps + t  # where its buffer has the transition

    np.random.permutation = permutation
    model.learn(steps * n)
    buffer = model.rollout_buffer  # its advantages lie flat by now, environment after environment
    found = {name: getattr(buffer, name).reshape(n, steps).T for name in ("advantages", "returns")}
    state = model.policy.state_dict()
    np.savez(answer, **found, **{f"w:{name}": state[ours(name)].numpy() for name in weights})


if __name__ == "__main__":
    main(*sys.argv[1:])
