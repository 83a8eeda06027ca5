"""The faults of ``test_faults.py`` for as long as they last in life, and those of a network."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from algorithm.runs.logs.metrics import read_metrics
from tests.ds import networks
from tests.ds.processes import finish
from tests.ds.scene import LENGTH, Scene, missing, whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.mark.fault("F34")
def test_a_learner_and_an_actor_that_were_stopped_go_on(scene: Scene) -> None:
    """Their time-out is far shorter than the stop, and the learner evaluates nearly all the time."""
    timeout = ("-o", "base_config.env_timeout=1")
    slow = ("-o", f"base_config.env_args={{length: {LENGTH}, pause: 0.02}}")
    often = ("-o", "eval_config.per_step=40", "-o", "base_config.max_step=400")
    learner = scene.learner(*timeout, *slow, *often)
    actor = scene.actor("actor", *timeout, *slow, *often)
    scene.until_said("learner", "in slot 0")
    scene.until_steps(LENGTH)
    for process in (learner, actor):
        os.kill(process.pid, signal.SIGSTOP)
    time.sleep(12.0)
    for process in (learner, actor):
        os.kill(process.pid, signal.SIGCONT)
    assert [finish(learner), finish(actor)] == [0, 0]
    assert "hangs" not in scene.said("learner") + scene.said("actor")


@pytest.mark.fault("F04")
def test_weights_never_become_older_when_a_learner_is_killed(scene):
    learner = scene.learner("-o", "net_config.spool_size=4")
    names = [f"actor_{number}" for number in range(4)]
    actors = [scene.actor(name, "-o", "net_config.spool_size=4") for name in names]
    for name in names:
        scene.until(lambda name=name: len(versions(scene, name)) >= 2, f"{name} tells nothing")
    assert scene.end(learner, signal.SIGKILL) == -signal.SIGKILL
    time.sleep(15)  # the spools are full
    resumed = scene.learner("--resume", name="resumed")
    scene.until(lambda: len(scene.lines("resumed", "is back")) >= 4, "not all are back")
    told = {name: len(versions(scene, name)) for name in names}
    for name in names:
        scene.until(lambda name=name: len(versions(scene, name)) >= told[name] + 2, f"{name} tells nothing")
    limit = int(scene.metric("step"))
    assert scene.end(resumed, signal.SIGINT) == 130
    last = scene.learner("--resume", "-o", f"base_config.max_step={limit + 400}", name="last")
    assert [finish(each) for each in (last, *actors)] == [0] * 5
    for name in names:
        seen = versions(scene, name)
        assert seen == sorted(seen) and seen[-1] > seen[0]
    stored, dropped = scene.stored(), scene.metric("ds/dropped")
    assert dropped > 0
    assert all(whole(made) for made in stored.values())
    assert sum(missing(made) for made in stored.values()) * LENGTH <= dropped + scene.metric("ds/lost")


def versions(scene: Scene, name: str) -> list[int]:
    """Of the weights that an actor acted with, in order."""
    lines = scene.lines(name, " · weights ")
    return [int(line.split(" · weights ")[1].split()[0]) for line in lines]


@pytest.mark.fault("F06")
def test_memory_stays_as_it_is_while_actors_wait_for_their_learner(scene):
    flags = ("-c", "slow_learner", "-o", "sac_config.replay_ratio=8")
    learner = scene.learner(*flags)
    actors = [scene.actor(name, *flags) for name in ("first", "second")]
    watched, samples = [psutil.Process(process.pid) for process in (learner, *actors)], list[list[float]]()
    while all(process.is_alive() for process in (learner, *actors)):
        with contextlib.suppress(psutil.NoSuchProcess):
            samples.append([one.memory_info().rss / 2**20 for one in watched])
        time.sleep(0.5)
    samples.pop()  # they may have been ending
    assert [finish(each, limit=600.0) for each in (learner, *actors)] == [0, 0, 0]
    assert all(whole(made) and not missing(made) for made in scene.stored().values())
    assert max(read_metrics(scene.run / "metrics.jsonl")["ds/waiting"]) == 5
    half = [column[len(samples) // 2 :] for column in zip(*samples, strict=True)]
    spread = [max(column) - min(column) for column in half]  # MiB
    assert max(spread[1:]) < 8.0 and spread[0] < 32.0, spread  # the learner draws its curve at the end


@pytest.mark.fault("F27")
@pytest.mark.skipif(not networks.possible(), reason="no network namespaces and tunnels for this user")
def test_a_network_that_is_late_lossy_and_gone_for_a_while(scene):
    flags = ["-o", "net_config.insecure=true", "-o", "net_config.heartbeat=1", "--learner_host=10.99.7.1"]
    line = networks.Line(delay=0.1, loss=0.05)  # each way
    try:
        learner = scene.learner(*flags, namespace=line.spaces[0])
        names = ["first", "second"]
        actors = [scene.actor(name, *flags, namespace=line.spaces[1]) for name in names]
        scene.until_stored(*(actor.pid for actor in actors))
        line.cut = True
        scene.until(lambda: len(scene.lines("learner", "silent")) >= 2, "the cut is not noticed")
        time.sleep(12.0)
        line.cut = False
        scene.until_said("learner", *(f"pid {actor.pid}) is back" for actor in actors))
        scene.until_steps(40 * LENGTH)
        assert scene.end(learner, signal.SIGINT) == 130
        limit = int(scene.metric("step")) + 10 * LENGTH
        flags += ["--resume", "-o", f"base_config.max_step={limit}"]
        last = scene.learner(*flags, name="last", namespace=line.spaces[0])
        assert [finish(each) for each in (last, *actors)] == [0, 0, 0]
    finally:
        scene.close()
        line.close()
    stored, gone = scene.stored(), scene.metric("ds/lost") + scene.metric("ds/dropped")
    assert all(whole(made) for made in stored.values())
    assert sum(missing(made) for made in stored.values()) * LENGTH <= gone, "the rest was never to come"
