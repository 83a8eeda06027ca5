"""Learners and actors with scripted players: the learner's saved replay equals the actors' ledgers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
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
from tests.extras.unity.ledgers import REMEMBERING, Comparison, compare, read_ledgers, transitions
from tests.extras.unity.test_training import BOTH, REMEMBER, write_task

ACTIONS = {"Echo": ActionSpec((), 2), "EchoChoice": ActionSpec((3, 2), 1)}
CAPACITY = 200_000
GIVEN_UP = 10
"""Messages that an actor may hold when it ends: two for each channel."""

QUIET_S = 2.0
"""Seconds without a line of metrics or of a ledger after which a learner has stored all that was sent."""


class Training:
    """A learner and its actors on a scripted build, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "models" / "own" / "task" / "run"
        self.begun: dict[str, BaseProcess] = {}

    def begin(self, *, actors: int, **options: Any) -> None:
        """Begin the learner and ``actors`` actors; the options are those of :func:`write_task`."""
        self.ledger = write_task(self.folder, "echoes", **options)
        (self.folder / "envs" / "own" / "task" / "nn.py").write_text(REMEMBERING)
        self.start("learner", "learner", "-n", "run", "--seed=1", "--learner_port=0")
        port = processes.port_of(self.folder, "run", label="own/task")
        for number in range(actors):
            self.start(f"actor_{number}", "actor", f"--learner_port={port}")

    def start(self, name: str, role: str, *flags: str) -> None:
        self.begun[name] = processes.begin(self.folder, name, role, *flags, task="own/task")

    def until_made(self, steps: int) -> None:
        """Wait until each actor's players have ``steps`` transitions in their ledgers."""

        def made() -> bool:
            time.sleep(0.2)  # reading takes time that the players need
            found = self.players()
            return len(found) == len(self.begun) and all(
                sum(player.transitions for player in group) >= steps
                for name, group in found.items()
                if name != "learner"
            )

        processes.wait_for(made, f"not {steps} transitions of each actor", self.folder)

    def until_delivered(self, leavers: int) -> None:
        """Wait until so many actors have left, and nothing happens any more."""
        processes.wait_for(lambda: self.said().count("has left") == leavers, "they leave", self.folder)
        before, since = 0, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            time.sleep(0.1)
            now = sum(file.stat().st_size for file in (self.run / "metrics.jsonl", *self.ledger.iterdir()))
            if now != before:  # it still stores, or evaluates
                before, since = now, time.monotonic()

    def players(self) -> dict[str, list[PlayerProcess]]:
        """Return the players that have been started, by the process that did."""
        found: dict[str, list[PlayerProcess]] = {}
        for start, *lines in filter(None, read_ledgers(self.ledger)):  # a file is empty at first
            log = Path(start["argv"][start["argv"].index("-logFile") + 1])
            parts = log.relative_to(self.run).parts
            name = f"actor_{parts[1]}" if parts[0] == "actors" else "learner"
            count = sum(line["kind"] == "transition" for line in lines)
            found.setdefault(name, []).append(PlayerProcess(start["pid"], start["seed"], count))
        return found

    def signal(self, name: str, number: signal.Signals) -> int | None:
        """Send a signal and return the exit code."""
        process = self.begun[name]
        assert process.pid is not None
        psutil.Process(process.pid).send_signal(number)
        return processes.finish(process)

    def said(self) -> str:
        return processes.said(self.folder)

    def close(self) -> None:
        for process in self.begun.values():
            if process.is_alive():
                process.kill()
                process.join()


@dataclass(frozen=True)
class PlayerProcess:
    """A player as its ledger has it."""

    pid: int
    seed: int
    transitions: int


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path)
    yield training
    training.close()


def saved_replay(run: Path, behaviour: str) -> ReplayBuffer:
    """Return the replay of the newest checkpoint."""
    action = ACTIONS[behaviour]
    size = len(KEYS) + action.continuous + len(action.branches)
    replay = ReplayBuffer(
        AgentSpec(ObsSpec(("echo",), ((size,),), ("float32",)), action),
        capacity=CAPACITY,
        batch_size=8,
        burn_in=REMEMBER["burn_in_step"],
        carry_shape=(len(KEYS) + action.size,),
        sampler=PrioritizedSampler(),
    )
    newest = checkpoint_of(run / "checkpoints", max(checkpoint_steps(run / "checkpoints")))
    assert load_replay(newest, run / "replay", behaviour, replay)
    return replay


def check(training: Training) -> list[Comparison]:
    """Compare; nothing is wrong, of each agent a last part at most is missing, and no player is left."""
    players, results = training.players(), []
    actors = {
        player_number(player.seed) for name, own in players.items() if name != "learner" for player in own
    }
    assert len(players) == len(training.begun), "the learner has a player of its own"
    for behaviour in ACTIONS:
        result = compare(saved_replay(training.run, behaviour), training.ledger, behaviour, remembering=True)
        assert result.wrong == [], f"{behaviour}: {len(result.wrong)} of {result.stored}: {result.wrong[:5]}"
        assert result.players == actors, "those of the actors, and no other"
        missing = set(result.missing)
        last: dict[tuple[int, ...], bool] = {}  # of each agent: whether its last transition is missing
        for key in transitions(training.ledger, behaviour):
            assert key in missing or not last.get(key[:2]), f"{behaviour}: {key}, but not those before it"
            last[key[:2]] = key in missing
        results.append(result)
    pids = [player.pid for own in players.values() for player in own]
    processes.wait_for(
        lambda: not any(map(psutil.pid_exists, pids)),
        "a player outlives its trainer",
        training.folder,
        limit=5,
    )
    stored, missing = sum(r.stored for r in results), sum(len(r.missing) for r in results)
    print(f"{stored} stored, {missing} missing, {len(actors)} players of actors, all equal their ledgers")
    return results


def learn_from(training: Training, steps: int, base: dict[str, Any], **env_args: Any) -> list[Comparison]:
    """Train with two actors for so many steps of each; these leave before the learner ends."""
    more = {
        "base_config": {"max_step": -1, **base},
        "sac_config": {**REMEMBER, "replay_ratio": 0.005, "write_summary_per_step": 100},
        "eval_config": {"per_step": 1000, "episodes": 2},
        "ma_config": BOTH,
    }
    training.begin(actors=2, more=more, **env_args)
    training.until_made(steps)
    for name in ("actor_0", "actor_1"):
        assert training.signal(name, signal.SIGINT) == 130, training.said()
    training.until_delivered(2)
    assert training.signal("learner", signal.SIGINT) == 130, training.said()
    return check(training)


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
    base: dict[str, Any], args: dict[str, Any], training: Training
) -> None:
    results = learn_from(training, 1500, base, **args)
    assert sum(result.stored for result in results) >= 2 * 1500
    starts = sum(len(own) for own in training.players().values())
    lost = 8 * starts + 2 * GIVEN_UP * 20
    assert sum(len(result.missing) for result in results) <= lost, "last messages of players and actors"


@pytest.mark.slow
def test_an_editor_that_stops_ends_its_actor_like_a_signal(training: Training) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sac = {**REMEMBER, "write_summary_per_step": 100}
    more = {"base_config": {"max_step": -1}, "sac_config": sac, "ma_config": BOTH}
    training.begin(actors=0, more=more, agents=2, period=4)
    learner = processes.port_of(training.folder, "run", label="own/task")
    training.start("actor_0", "actor", f"--learner_port={learner}", "--editor", f"-p={port}")
    words = "--task=echoes --agents=2 --period=4 --fault=quit@step:400 --wait=60"
    player = subprocess.Popen(
        [sys.executable, "-m", testing.__name__, *words.split(), f"--mlagents-port={port}"], cwd=ROOT
    )
    try:
        assert processes.finish(training.begun["actor_0"]) == 130, training.said()
        assert player.wait(10) == 0
    finally:
        player.kill()
    training.until_delivered(1)
    assert training.signal("learner", signal.SIGINT) == 130, training.said()
    stored = sum(saved_replay(training.run, name).num_transitions for name in ACTIONS)
    assert stored >= 350, "2 behaviours, 2 agents, 400 steps, a decision in every fourth"
