"""The way through the maze of ``toy/maze``, and the episodes that are demonstrated there.

``python -m tests.demos.maze`` writes ``envs/toy/maze/expert.npz``; with ``FILE EPISODES NOISE``, another one.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from algorithm.core.data import ActorOutput
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.npz import NpzWriter
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.env.toys.exploration import MAZE, SPEED
from algorithm.ops.densities import tanh_normal_logp
from algorithm.run.evaluation.callbacks import Recording
from algorithm.run.evaluation.evaluate import evaluate
from tests.lib.episodes import Scripted

CORNERS = ((4.5, 0.5), (4.5, 2.5), (0.5, 2.5), (0.5, 4.5), (4.5, 4.5))
"""Middle of the cells where the way turns, in cells from the bottom left, and of the goal."""


def velocity(position: np.ndarray) -> np.ndarray:
    """Return the action [2] that leads from an observation [2] towards the next corner."""
    x, y = (position + 1.0) / 2.0 * (len(MAZE[0]), len(MAZE))
    if y < 2.0:
        corner = 0 if y < 1.0 and x < 4.2 else 1
    elif y < 4.0:
        corner = 2 if y < 3.0 and x > 0.8 else 3
    else:
        corner = 4
    return ((CORNERS[corner] - np.array([x, y])) / SPEED).clip(-1.0, 1.0).astype(np.float32)


class Guide(Scripted):
    """Player of tanh(N(m, σ²)) around nine tenths of the way's velocity, m = atanh(0.9 · velocity)."""

    def __init__(self, spec, sigma: float):
        super().__init__(spec)
        self.sigma = sigma

    def act(self, obs, prev_action, carry, action_mask):
        mean = np.arctanh(0.9 * np.array([velocity(one) for one in obs["position"]]))
        z = (mean + self.sigma * self.rng.standard_normal(mean.shape)).astype(np.float32)
        log_sigma = torch.full(z.shape, float(np.log(self.sigma)))
        logp = tanh_normal_logp(torch.from_numpy(z), torch.from_numpy(mean), log_sigma)
        return ActorOutput(
            action=np.tanh(z), z=z, behaviour_logp=logp.numpy()[:, None].astype(np.float32), carry=carry
        )


def write(path: Path, episodes: int = 10, sigma: float = 0.3) -> None:
    """Record the guide in its first episodes, as ``--record`` would."""
    env = make_vec_env(
        EnvRequest("GYM", "algorithm.env.toys:ToyMaze-v0", seed_of=episode_seeds(0, "evaluate"))
    )
    guide = Guide(env.specs[DEFAULT_BEHAVIOUR], sigma)
    evaluate(env, {DEFAULT_BEHAVIOUR: guide}, episodes, callback=Recording(NpzWriter(path)))
    env.close()


if __name__ == "__main__":
    where, count, noise = sys.argv[1:] or ("envs/toy/maze/expert.npz", 10, 0.3)
    write(Path(where), int(count), float(noise))
