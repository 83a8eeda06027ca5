"""Learners and actors with scripted players: the learner's saved replay equals the actors' ledgers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extras.unity import testing
from algorithm.extras.unity.testing import ROOT
from algorithm.extras.unity.testing.selfcheck import KEYS, player_number
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import PrioritizedSampler
from algorithm.store.checkpoints.checkpoint import load_replay
from algorithm.store.checkpoints.folders import checkpoint_of, checkpoint_steps
from tests.ds import processes
from tests.extras.unity.ledgers import REMEMBERING, compare, read_ledgers, transitions
from tests.extras.unity.test_link import free_port
from tests.extras.unity.test_training import BOTH, REMEMBER, write_task

ACTIONS = {"Echo": ActionSpec((), 2), "EchoChoice": ActionSpec((3, 2), 1)}
GIVEN_UP = 10
"""Messages that an actor may hold when it ends: two for each channel."""

QUIET_S = 2.0
"""Seconds without a line of metrics or of a ledger after which a learner has stored all that was sent."""


class Scene(processes.Scene):
    """A learner, and what its players and those of its actors keep."""

    def __init__(self, folder: Path, base: dict[str, Any], **args: Any) -> None:
        more = {
            "base_config": {"max_step": -1, **base},
            "sac_config": {**REMEMBER, "replay_ratio": 0.005, "write_summary_per_step": 100},
            "eval_config": {"per_step": 1000, "episodes": 2},
            "ma_config": BOTH,
        }
        self.ledger = write_task(folder, "echoes", more=more, **args)
        super().__init__(folder, (folder / "envs" / "own" / "task" / "config.yaml").read_text())
        (folder / "task" / "nn.py").write_text(REMEMBERING)
        self.port = self.learner("learner", "--seed=1")

    def starts(self) -> list[dict[str, Any]]:
        """Return the first line of each ledger."""
        return [lines[0] for lines in read_ledgers(self.ledger) if lines]

    def finish(self, leavers: int) -> None:
        """Wait until so many actors have left, and nothing happens any more; then end the learner."""
        self.until(lambda: self.said("learner").count("has left") == leavers, "they leave")
        before, now = -1, self._size()
        while before != now:  # it still stores, or evaluates
            time.sleep(QUIET_S)
            before, now = now, self._size()
        assert self.end("learner", signal.SIGINT) == 130, self.said("learner")

    def _size(self) -> int:
        return sum(file.stat().st_size for file in (self.run / "metrics.jsonl", *self.ledger.iterdir()))

    def replay(self, behaviour: str) -> ReplayBuffer:
        """Return the replay of the newest checkpoint."""
        action = ACTIONS[behaviour]
        size = len(KEYS) + action.continuous + len(action.branches)
        replay = ReplayBuffer(
            AgentSpec(ObsSpec(("echo",), ((size,),), ("float32",)), action),
            capacity=200_000,
            batch_size=8,
            burn_in=REMEMBER["burn_in_step"],
            carry_shape=(len(KEYS) + action.size,),
            sampler=PrioritizedSampler(),
        )
        checkpoints = self.run / "checkpoints"
        newest = checkpoint_of(checkpoints, max(checkpoint_steps(checkpoints)))
        assert load_replay(newest, self.run / "replay", behaviour, replay)
        return replay


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    with ExitStack() as stack:

        def make(base: dict[str, Any], **args: Any) -> Scene:
            scene = Scene(tmp_path, base, **args)
            stack.callback(scene.close)
            return scene

        yield make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "args"),
    [
        ({}, {"agents": 3, "period": 1}),
        ({"n_envs": 2}, {"agents": 3, "period": 5, "offsets": True, "destroy": 0.01}),
        ({"max_episode_length": 7}, {"agents": 4, "period": 4, "offsets": True, "respawn": True}),
        ({"max_step_each_iter": 50, "reset_on_iteration": True}, {"agents": 2, "period": 4, "offsets": True}),
        (
            {"n_envs": 2, "env_restarts": 50},
            {"agents": 2, "period": 2, "destroy": 0.01, "fault": "crash@step:700"},
        ),
    ],
)
def test_thousands_of_steps_of_two_actors(
    base: dict[str, Any], args: dict[str, Any], begin: Callable[..., Scene]
) -> None:
    """At most the last part of each agent's steps is missing, and no player is left."""
    scene, names = begin(base, **args), ("actor_0", "actor_1")
    for name in names:
        scene.begin(name, "actor", f"--learner_port={scene.port}")
    scene.until(lambda: scene.metric("step") >= 2 * 1500, "too few steps")
    for name in names:
        assert scene.end(name, signal.SIGINT) == 130, scene.said(name)
    scene.finish(2)
    starts, stored, missing = scene.starts(), 0, 0
    actors = {player_number(each["seed"]) for each in starts if "/actors/" in " ".join(each["argv"])}
    for behaviour in ACTIONS:
        result = compare(scene.replay(behaviour), scene.ledger, behaviour, remembering=True)
        assert result.wrong == [], f"{behaviour}: {len(result.wrong)} of {result.stored}: {result.wrong[:5]}"
        assert result.players == actors, "those of the actors, and no other"
        ended = set[tuple[int, ...]]()  # agents of which a transition is missing
        for key in transitions(scene.ledger, behaviour):
            if key in result.missing:
                ended.add(key[:2])
            else:
                assert key[:2] not in ended, f"{behaviour}: {key}, but not those before it"
        stored, missing = stored + result.stored, missing + len(result.missing)
    assert stored >= 2 * 1500
    assert missing <= 8 * len(starts) + 2 * GIVEN_UP * 20, "last messages of players and actors"
    pids = [each["pid"] for each in starts]
    processes.wait_for(
        lambda: not any(map(psutil.pid_exists, pids)), "a player is left", scene.folder, limit=5
    )


@pytest.mark.slow
def test_an_editor_that_stops_ends_its_actor_like_a_signal(begin: Callable[..., Scene]) -> None:
    scene, port = begin({}, agents=2, period=4), free_port()
    actor = scene.begin("actor_0", "actor", f"--learner_port={scene.port}", "--editor", f"-p={port}")
    words = ["--task=echoes", "--agents=2", "--period=4", "--fault=quit@step:400", "--wait=60"]
    command = [sys.executable, "-m", testing.__name__, *words, f"--mlagents-port={port}"]
    with subprocess.Popen(command, cwd=ROOT) as player:
        assert processes.finish(actor) == 130, scene.said("actor_0")
        assert player.wait(10) == 0
    scene.finish(1)
    stored = sum(scene.replay(name).num_transitions for name in ACTIONS)
    assert stored >= 350, "2 behaviours, 2 agents, 400 steps, a decision in every fourth"
