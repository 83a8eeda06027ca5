"""What goes wrong with a learner and its actors, all of them real processes."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from socket import AF_INET

import psutil
import pytest
from msgspec.structs import replace

from algorithm.config.loader import load_config
from algorithm.config.schema import NetConfig
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.runs.logs.metrics import read_metrics
from ds import certificates
from ds.client import Client
from ds.compatibility import agreed, digest
from ds.protocol import PROTOCOL, Hello, Join, LearnerRefused, TrajectoryChunk, TrajectoryMessage
from ds.security import actor_security, is_loopback
from tests.ds.processes import finish
from tests.ds.samples import trajectory, transitions
from tests.ds.scene import LENGTH, Scene, missing, whole

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
SIGINT, SIGTERM, SIGKILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.mark.fault("F03")
@pytest.mark.fault("F04")
@pytest.mark.fault("F23")
@pytest.mark.fault("F38")
def test_what_is_killed_or_cannot_print_takes_nothing_from_the_others(scene):
    """A learner whose output is full, an actor that is killed in an episode, then the learner itself."""
    learner = scene.learner()
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    first = scene.actor("first")  # of which the learner tells
    output = Path(f"/proc/{learner.pid}/fd/1")
    scene.until(lambda: str(output.readlink()) == os.devnull, "the learner could write")
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    killed = scene.actor("killed", "-o", "base_config.workers=1")
    scene.until_said("killed", "actor 1 of task/a")  # its environments are there
    children = psutil.Process(killed.pid).children(recursive=True)
    (worker, *others) = [child for child in children if _is_worker(child)]
    scene.until_stored(first.pid, worker.pid)
    assert scene.end(killed, SIGKILL) == -SIGKILL
    assert not psutil.wait_procs([worker, *others], timeout=10)[1]
    scene.until(lambda: scene.metric("ds/actors") == 1, "it still counts")
    third = scene.actor("third")
    scene.until_stored(first.pid, third.pid)
    assert whole(scene.stored()[worker.pid]) and not missing(scene.stored()[worker.pid])
    assert scene.metric("ds/lost") == scene.metric("ds/dropped") == 0
    assert scene.end(learner, SIGKILL) == -SIGKILL
    limit = int(scene.metric("step")) + 50 * LENGTH  # enough that each actor is heard of once more
    learner = scene.learner("--resume", "-o", f"base_config.max_step={limit}", name="resumed")
    assert [finish(each) for each in (learner, first, third)] == [0] * 3
    for name in ("first", "third"):
        assert scene.lines(name, "the learner was started anew")
        assert "the training is complete" in scene.said(name)
    assert scene.lines("resumed", f"pid {third.pid}) is back, in slot 1")
    stored, gone = scene.stored(), scene.metric("ds/lost") + scene.metric("ds/dropped")
    assert stored.keys() == {first.pid, worker.pid, third.pid}
    assert all(whole(made) for made in stored.values())
    assert sum(missing(made) for made in stored.values()) * LENGTH == gone
    lost = [int(line.split(": ")[1].split()[0]) for line in scene.lines("resumed", "are lost")]
    assert sum(lost) == scene.metric("ds/lost")


def _is_worker(process: psutil.Process) -> bool:
    return "resource_tracker" not in " ".join(process.cmdline())


@pytest.mark.fault("F22")
@pytest.mark.slow
def test_signals_end_actors_and_a_learner_that_goes_on_later(scene):
    learner = scene.learner()
    stays, leaves = scene.actor("stays"), scene.actor("leaves")
    impatient = scene.actor("impatient", "-o", "net_config.patience=1")
    scene.until_stored(stays.pid, leaves.pid, impatient.pid)
    assert scene.end(leaves, SIGINT) == 130
    scene.until_said("learner", "has left: its user ended it")
    scene.until_steps(2 * LENGTH)
    assert scene.end(learner, SIGTERM) == 143
    assert finish(impatient) == 3 and "error: no learner answered for" in scene.said("impatient")
    limit = int(scene.metric("step")) + 10 * LENGTH
    resumed = scene.learner("--resume", "-o", f"base_config.max_step={limit}", name="resumed")
    assert [finish(resumed), finish(stays)] == [0, 0]
    assert "the training is complete" in scene.said("stays")
    # what ended in the middle ended as truncated, and both sides know where
    made = scene.stored()[leaves.pid]
    last = max(episode for episode, _ in made)
    assert whole([one for one in made if one[0] < last]) and len(set(made)) == len(made)


@pytest.mark.fault("F05")
@pytest.mark.slow
def test_an_actor_that_stood_still_comes_back_and_its_late_episodes_are_counted(scene):
    learner = scene.learner("-o", "net_config.max_lag=10")
    awake, asleep = scene.actor("awake"), scene.actor("asleep")
    scene.until_stored(awake.pid, asleep.pid)
    os.kill(asleep.pid, signal.SIGSTOP)
    scene.until_said("learner", f"pid {asleep.pid}) has been silent for 3 heartbeats: its slot is free")
    scene.until_steps(14 * LENGTH)  # 14 versions
    os.kill(asleep.pid, signal.SIGCONT)
    scene.until_said("learner", f"pid {asleep.pid}) is back, in slot")
    scene.until_said("asleep", "too old")
    scene.until(lambda: scene.metric("ds/stale") >= LENGTH, "nothing stale is counted")
    before = len(scene.stored()[asleep.pid])
    scene.until(lambda: len(scene.stored()[asleep.pid]) > before, "its new episodes are not taken")
    assert scene.end(learner, SIGINT) == 130
    stored = scene.stored()
    assert all(whole(made) for made in stored.values())
    late = {pid: missing(made) for pid, made in stored.items()}
    assert late[asleep.pid] > 0 and sum(late.values()) * LENGTH == scene.metric("ds/stale")


@pytest.mark.slow
def test_actors_wait_for_a_learner_that_has_made_its_evaluations(scene):
    learner = scene.learner("--evaluations=1", "-o", "eval_config.per_step=60")
    actor = scene.actor("actor")
    assert finish(learner) == 0
    assert scene.metric("eval/return_mean") != -1 and actor.is_alive()
    again = scene.learner("--resume", "--evaluations=2", name="again")
    assert finish(again) == 0
    assert actor.is_alive(), scene.said("actor")
    assert scene.end(actor, SIGINT) == 130


@pytest.mark.fault("F34")
@pytest.mark.slow
def test_a_learner_and_an_actor_that_were_stopped_go_on(scene):
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


@pytest.mark.fault("F06")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_stays_as_it_is_while_actors_wait_for_their_learner(scene):
    flags = ("-c", "slow_learner", "-o", "sac_config.replay_ratio=8")
    learner = scene.learner(*flags)
    actors = [scene.actor(name, *flags) for name in ("first", "second")]
    watched, samples = [psutil.Process(process.pid) for process in (learner, *actors)], list[list[float]]()
    while all(process.is_alive() for process in (learner, *actors)):
        with suppress(psutil.NoSuchProcess):
            samples.append([one.memory_info().rss / 2**20 for one in watched])
        time.sleep(0.5)
    samples.pop()  # they may have been ending
    assert [finish(each, limit=600.0) for each in (learner, *actors)] == [0, 0, 0]
    assert all(whole(made) and not missing(made) for made in scene.stored().values())
    assert max(read_metrics(scene.run / "metrics.jsonl")["ds/waiting"]) == 5
    half = [column[len(samples) // 2 :] for column in zip(*samples, strict=True)]
    spread = [max(column) - min(column) for column in half]  # MiB
    assert max(spread[1:]) < 8.0 and spread[0] < 32.0, spread  # the learner draws its curve at the end


@pytest.mark.fault("F16")
@pytest.mark.fault("F17")
@pytest.mark.fault("F18")
@pytest.mark.fault("F19")
@pytest.mark.fault("F20")
def test_whoever_does_not_fit_is_told_why_and_the_learner_goes_on(scene, monkeypatch):
    """Beyond loopback, at an address of this machine's own, with TLS and a token."""
    host = next(iter(own_addresses()), None)
    if host is None:
        pytest.skip("this machine has no address beyond loopback")
    secrets, at = scene.folder / ".secrets", f"--learner_host={host}"
    certificates.make(secrets, [host], days=1)
    learner = scene.learner(at)
    second = scene.begin("second", "learner", "-n", "b", at, f"--learner_port={scene.port}")
    other = scene.actor("other", at, "-o", "nn_config.policy={dense_n: 32}")
    nobody = scene.begin("nobody", "actor", "--learner_port=1", "-o", "net_config.patience=1")
    assert [finish(second), finish(other), finish(nobody)] == [2, 3, 3], scene.said("second")
    assert f"process {learner.pid} listens there" in scene.said("second")
    assert not (scene.run.parent / "b").exists()
    networks = 'nn_config.policy: the learner has {"dense_n": 16}, the actor {"dense_n": 32}'
    assert networks in scene.said("other")
    assert "no learner answered for" in scene.said("nobody") and "nobody listens" in scene.said("nobody")
    (secrets / "token").rename(scene.folder / "right")
    (secrets / "token").write_text("wrong\n")
    (secrets / "token").chmod(0o600)
    wrong = scene.actor("wrong", at)
    assert finish(wrong) == 3 and "wrong token or none" in scene.said("wrong")
    scene.until_said("learner", f"unauthenticated: {host}:", "wrong token or none")
    (scene.folder / "right").rename(secrets / "token")
    (scene.folder / "task" / "nn.py").write_text("from algorithm.nn import ModelPolicy, ModelQ, ModelRep\n")
    own_nn = scene.actor("own_nn", at)
    assert finish(own_nn) == 3 and "nn_file.default" in scene.said("own_nn")
    (scene.folder / "task" / "nn.py").unlink()
    with closing(by_hand(scene, host, monkeypatch)) as client:
        rejected = client.deliver(one_of(length=101, number=1))
        assert rejected.state == "rejected" and "base_config.max_episode_length" in rejected.reason
        with pytest.raises(LearnerRefused, match=r"larger than max [\s\S]*max_episode_length"):
            client.deliver(one_of(length=60_000, number=2))
    with socket.create_connection((host, scene.port)) as plain:
        plain.sendall(random.Random(1).randbytes(10_000))
    actor = scene.actor("actor", at)
    scene.until_stored(actor.pid)
    assert scene.metric("ds/rejected") >= 2
    assert [scene.end(learner, SIGINT), scene.end(actor, SIGINT)] == [130, 130]
    said = scene.said("learner")
    assert "Traceback" not in said and "internal error" not in said
    assert scene.lines("learner", "rejected: ") and scene.lines("learner", "incomplete: ")


def by_hand(scene: Scene, host: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A connection of somebody who has joined and may send what no actor would."""
    monkeypatch.chdir(scene.folder)
    terms = agreed(load_config("./task"), {"default": SPEC}, {"default": None})
    client = Client(host, scene.port, security=actor_security(NetConfig(), host), timeout=20)
    client.hello(Hello(protocol=PROTOCOL, actor="by hand", host="here", pid=1, versions={}))
    join = {"actor": "by hand", "agreed": json.dumps(terms), "digest": digest(terms), "version": 0}
    client.join(Join(**join, channels=(0,), taken_steps=0))
    return client


def one_of(*, length: int, number: int) -> TrajectoryMessage:
    """A trajectory with one episode."""
    chunk = TrajectoryChunk("default", 0, transitions(SPEC, length, (0,)))
    return replace(trajectory(chunk, number=number), actor="by hand")


def own_addresses() -> list[str]:
    """IPv4 addresses of this machine that are not loopback."""
    found = [one.address for many in psutil.net_if_addrs().values() for one in many if one.family == AF_INET]
    return [address for address in found if not is_loopback(address)]
