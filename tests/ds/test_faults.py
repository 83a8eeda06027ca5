"""What goes wrong with a learner and its actors, all of them real processes."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.ds.processes import finish
from tests.ds.scene import LENGTH, Scene, missing, whole

SIGINT, SIGTERM, SIGKILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.mark.fault("F03")
@pytest.mark.fault("F23")
def test_an_actor_killed_in_the_middle_of_an_episode_leaves_nothing_of_it(scene):
    learner = scene.learner()
    first = scene.actor("first")
    scene.until_said("learner", "actor 0", "slot 0")
    killed = scene.actor("killed", "-o", "base_config.workers=1")
    scene.until_said("killed", "actor 1 of task/a")  # its environments are there
    (worker, *others) = [
        child for child in psutil.Process(killed.pid).children(recursive=True) if _is_worker(child)
    ]
    scene.until_stored(first.pid, worker.pid)
    assert scene.end(killed, SIGKILL) == -SIGKILL
    scene.until_said("learner", "has been silent for 3 heartbeats: its slot is free")
    assert not psutil.wait_procs([worker, *others], timeout=10)[1]
    scene.until(lambda: scene.metric("ds/actors") == 1, "it still counts")
    third = scene.actor("third")
    scene.until_stored(first.pid, third.pid)
    assert len(scene.lines("learner", "in slot 1")) == 2
    assert scene.end(learner, SIGINT) == 130
    assert [scene.end(first, SIGTERM), scene.end(third, SIGINT)] == [143, 130]
    stored = scene.stored()
    assert stored.keys() == {first.pid, worker.pid, third.pid}
    assert all(whole(made) and not missing(made) for made in stored.values())
    assert scene.metric("ds/lost") == scene.metric("ds/dropped") == 0


def _is_worker(process: psutil.Process) -> bool:
    return "resource_tracker" not in " ".join(process.cmdline())


@pytest.mark.fault("F04")
def test_a_killed_learner_goes_on_with_its_four_actors(scene):
    learner = scene.learner()
    names = [f"actor_{number}" for number in range(4)]
    actors = [scene.actor(name) for name in names]
    scene.until_stored(*(actor.pid for actor in actors))
    assert scene.end(learner, SIGKILL) == -SIGKILL
    for name in names:
        scene.until_said(name, "does not answer")
    limit = int(scene.metric("step")) + 40 * LENGTH
    learner = scene.learner("--resume", "-o", f"base_config.max_step={limit}", name="resumed")
    assert [finish(each) for each in (learner, *actors)] == [0] * 5
    for name in names:
        assert scene.lines(name, "the learner was started anew") and "the training is complete" in scene.said(name)
    assert len(scene.lines("resumed", "is back")) == 4
    stored, gone = scene.stored(), scene.metric("ds/lost") + scene.metric("ds/dropped")
    assert all(whole(made) for made in stored.values())
    assert sum(missing(made) for made in stored.values()) * LENGTH == gone
    lost = [int(line.split(": ")[1].split()[0]) for line in scene.lines("resumed", "are lost")]
    assert sum(lost) == scene.metric("ds/lost")
