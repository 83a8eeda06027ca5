"""The program around a training: its threads, its signals, the state of torch that it and its code change."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import asac
from tests.app.test_env_objects import SHORT, assert_same, networks
from tests.lib.callbacks import EachStep
from tests.lib.toys_objects import Walk

pytestmark = pytest.mark.usefixtures("cwd")


def modes() -> tuple[object, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device().type,
    )


_INFERENCE = torch.inference_mode()
CHANGES: dict[str, Callable[[], object]] = {
    "gradients": lambda: torch.set_grad_enabled(False),
    "precision": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "inference": _INFERENCE.__enter__,
}


@pytest.fixture
def usual_modes():
    yield (usual := modes())
    if torch.is_inference_mode_enabled():
        _INFERENCE.__exit__(None, None, None)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    assert modes() == usual


class Changing(Walk):
    """Changes torch's state in its first reset, and wants it so in each step."""

    change: Callable[[], object]

    def reset(self, **keys):
        cls = type(self)
        if cls.wanted is None:
            cls.change()
            cls.wanted = modes()
        return super().reset(**keys)

    def step(self, action):
        assert modes() == self.wanted
        return super().step(action)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return networks(asac.train(Walk, **SHORT, directory=tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize("what", CHANGES)
def test_code_that_changes_torch_s_state_has_it_so_and_nobody_else(what, usual_modes, undisturbed):
    env, seen = type("Env", (Changing,), {"change": staticmethod(CHANGES[what]), "wanted": None}), []
    run = asac.train(env, callbacks=EachStep(lambda training: seen.append(modes())), **SHORT)
    assert {*seen} == {env.wanted, modes()} != {usual_modes}, "the program has it as its code left it"
    assert_same(networks(run), undisturbed)
    run.policy("latest").act(env().observation_space.sample())
    assert run.evaluate(1, "latest").lengths == (10,) and modes() == env.wanted


def test_threads_train_as_the_main_one_does(undisturbed):
    """Two at a time share torch's generator, which the first networks are drawn from."""
    names = ("a", "b", "alone")
    threads = [threading.Thread(target=asac.train, args=[Walk], kwargs={**SHORT, "name": n}) for n in names]
    for together in (threads[:2], threads[2:]):
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
    runs = [asac.Run(Path("models/object/Walk", name), env=Walk) for name in names]
    assert_same(networks(runs[-1]), undisturbed)
    for run in runs:
        log = (run.folder / "train.log").read_text()
        assert log.count("checkpoint of step 40") == log.count("eval step=60") == 1, "its own lines alone"


@pytest.mark.parametrize(
    ("number", "raised", "code"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143)],
)
def test_a_signal_reaches_the_program_once_the_run_is_saved(number, raised, code):
    def send(training):
        if training.step == 30:
            os.kill(os.getpid(), number)

    with pytest.raises(raised) as caught:
        asac.train(Walk, name="a", callbacks=EachStep(send), **SHORT)
    assert code is None or caught.value.code == code
    run = asac.Run(Path("models/object/Walk/a"), env=Walk)
    assert run.result["ended"] == {"by": "signal", "why": number.name} and run.result["steps"] == 30
    heard = []
    former = signal.signal(number, lambda *args: heard.append(args[0]))
    try:
        agent = asac.Agent.load(run.folder, Walk, quiet=True)
        strike = EachStep(lambda training: training.step == 50 and os.kill(os.getpid(), number))
        agent.learn(30, callbacks=strike)
    finally:
        signal.signal(number, former)
    assert heard == [number] and agent.step == 50, "a handler of the program's own is called"
