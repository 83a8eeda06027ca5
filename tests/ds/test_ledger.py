"""Every stored transition is one that an environment made, however often the learner is killed."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from algorithm.core.data import PERSON_LOGP
from algorithm.replay.storage import FLAG_BITS, NEXT, PREV, STEP, TRUNCATED
from tests.ds.marked import FIRM
from tests.ds.processes import Scene, made

LENGTH, CHUNK, KILLS, TRANSITIONS = 30, 10, 10, 100_000
"""Steps of an episode and of a message, so that the next one of another episode fits by its step."""

EVERY = 2000
"""Steps between two checkpoints: what comes after the last one is lost with the learner."""

TASK = f"""\
default:
  base_config:
    preset: plain
    env_type: GYM
    env_name: "tests.ds.marked:Counted-v0"
    env_args: {{length: {LENGTH}, pause: 0.002, person: 0.3}}
    n_envs: 8
    max_step: -1
    max_episode_length: {CHUNK}
    reset_on_iteration: false
  net_config: {{heartbeat: 1}}
  nn_config: {{q: {{dense_n: 8}}, policy: {{dense_n: 8}}}}
  replay_config: {{capacity: 500000}} # nothing is overwritten
  sac_config:
    batch_size: 16
    start_step: 40
    write_summary_per_step: 500
    save_model_per_step: {EVERY}
    replay_ratio: 0.005
    compile: off
  eval_config: {{per_step: 1000000, episodes: 1}}
"""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, TASK)
    yield scene
    scene.close()


@pytest.mark.slow
@pytest.mark.fault("F04")
@pytest.mark.fault("F27")
@pytest.mark.timeout(0)
def test_of_a_hundred_thousand_transitions_none_is_wrong(scene: Scene) -> None:
    rng, port = random.Random(1), scene.learner("learner_0")
    actors = {"forgets": 8, "remembers": 5000}  # name -> messages that it keeps while the learner is away
    for actor, size in actors.items():
        scene.begin(actor, "actor", f"--learner_port={port}", "-o", f"net_config.spool_size={size}")
    for kill in range(1, KILLS + 1):
        until_step(scene, kill * TRANSITIONS // KILLS)
        time.sleep(rng.uniform(0.0, 1.0))
        assert scene.end(f"learner_{kill - 1}", signal.SIGKILL) == -signal.SIGKILL
        scene.learner(f"learner_{kill}", "--resume", port=port)
    until_step(scene, TRANSITIONS + EVERY)
    lost = scene.metric("ds/lost") + scene.metric("ds/dropped")
    assert [scene.end(name, signal.SIGINT) for name in (*actors, f"learner_{KILLS}")] == [130] * 3
    rows = scene.rows()
    taken = [row for row in rows.values() if row["links"][NEXT]]
    cut = [row for row in taken if row["links"][NEXT] & TRUNCATED and (made(row)[2] + 1) % LENGTH]
    wrong = [made(row) for row in taken if not happened(row, rows)]
    print(f"{len(taken):,} transitions, {KILLS} kills, {lost:,.0f} lost, {len(cut)} cut, {len(wrong)} wrong")
    assert len(taken) >= TRANSITIONS and lost and cut, "there was something to go wrong"
    assert wrong == [] and len({made(row) for row in taken}) == len(taken), "each once"
    assert 0.25 < np.mean([row["acted"][1] == PERSON_LOGP for row in taken]) < 0.35


def until_step(scene: Scene, step: int) -> None:
    scene.until(lambda: scene.metric("step") >= step, f"step {step:,} is not reached")


def happened(row: np.void, rows: dict[int, np.void]) -> bool:
    """Return whether an environment made this transition: its two observations, action, reward and end."""
    ahead, flags = divmod(int(row["links"][NEXT]), 1 << FLAG_BITS)
    after = rows.get(int(row["id"]) + ahead)
    if after is None or after["links"][PREV] != ahead:
        return False
    (pid, episode, step), action = made(row), after["obs_float32"][3]
    z, reward = row["acted"][0], row["acted"][-1]
    return (
        made(after) == (pid, episode, step + 1)
        and row["links"][STEP] == step
        and abs(np.tanh(z) - action) < 1e-5
        and (row["acted"][1] == PERSON_LOGP) == (abs(action) == FIRM)
        and reward == -(action**2)
        and flags in ((TRUNCATED,) if step + 1 == LENGTH else (0, TRUNCATED))
    )
