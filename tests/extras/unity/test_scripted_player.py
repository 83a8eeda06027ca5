"""The scripted player against the package's own client code, which was written for real builds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.extras.unity import package
from algorithm.extras.unity.testing import make_build
from algorithm.extras.unity.testing.sensors import Camera
from algorithm.extras.unity.testing.tasks import LEARNABLE
from tests.extras.unity.recorder import record
from tests.extras.unity.test_link import free_port

package.load()

from mlagents_envs import rpc_utils  # noqa: E402
from mlagents_envs.environment import UnityEnvironment  # noqa: E402


@contextmanager
def opened(folder: Path, *args: str, **more: Any) -> Iterator[UnityEnvironment]:
    build = make_build(folder, "--ledger", str(folder / "ledger"), *args)
    port, log = free_port(), str(folder)
    env = UnityEnvironment(str(build), base_port=port, log_folder=log, timeout_wait=20, **more)
    try:
        env.reset()
        yield env
    finally:
        env.close()


def act(env: UnityEnvironment, rng: np.random.Generator) -> dict[str, Any]:
    """Give every agent that asks a random action that is allowed, and step; return the actions."""
    taken = {}
    for name, spec in env.behavior_specs.items():
        asking, _ = env.get_steps(name)
        action = spec.action_spec.empty_action(len(asking))
        action.continuous[:] = np.tanh(rng.normal(size=action.continuous.shape))
        for branch, mask in enumerate(asking.action_mask or []):
            for row in range(len(asking)):
                action.discrete[row, branch] = rng.choice(np.flatnonzero(~mask[row]))
        env.set_actions(name, action)
        taken[name] = action
    env.step()
    return taken


@pytest.mark.parametrize("as_png", [True, False])
@pytest.mark.parametrize(("channels", "stack"), [(3, 1), (1, 1), (1, 3), (5, 1), (4, 3)])
def test_the_package_reads_each_kind_of_camera(channels: int, stack: int, as_png: bool, rng: Any) -> None:
    """A stack begins with zeros and has the oldest image first."""
    camera = Camera("c", 8, 9, channels, png=as_png, stack=stack)
    images = [np.zeros((8, 9, channels)), *rng.integers(256, size=(2, 8, 9, channels)).astype(np.uint8)]
    for image in images[1:]:
        message = camera.observe(image)
    read = np.asarray(rpc_utils._observation_to_np_array(message))
    assert np.allclose(read, np.concatenate(images[-stack:], axis=2) / 255, atol=1e-6)


def test_agents_of_another_offset_are_in_other_messages_and_a_destroyed_one_gets_a_new_id(
    tmp_path: Path, rng: Any
) -> None:
    with opened(tmp_path, "--task=echo", "--agents=4", "--period=4", "--offsets", "--respawn") as env:
        asked, ended = [], []
        for _ in range(100):
            questions, ends = env.get_steps("Echo?team=0")
            asked.append(questions.agent_id.tolist())
            ended += ends.agent_id.tolist()
            act(env, rng)
        assert max(map(len, asked)) < 4
        assert len(ended) > 5 and len(set(ended)) == len(ended), "each object ends once"
        env.reset()
        asking, _ = env.get_steps("Echo?team=0")
        assert (asking.obs[0][:, 3:] == 0).all(), "all episodes begin, and no action of the last one is left"


@pytest.mark.parametrize("task", ["two", "camera"])
def test_the_best_policy_gets_the_optimum(task: str, tmp_path: Path) -> None:
    _, optima = LEARNABLE[task]
    assert record(tmp_path, task, 600) == pytest.approx(optima, abs=0.05)
