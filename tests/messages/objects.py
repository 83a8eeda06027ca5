"""Environments that are objects: what they cannot do, what is none, and what callbacks log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import SyncVectorEnv

from algorithm.app.agent import LearningAgent
from algorithm.app.env_arguments import env_for_run, passed_env, with_keys
from algorithm.app.policy import TrainedPolicy, refuse_non_finite
from algorithm.config.schema import BaseConfig
from algorithm.core.system.processes import refuse_unguarded
from algorithm.env.adapter import Adapter
from algorithm.env.base import checked
from algorithm.env.objects import EnvObject, source_of
from algorithm.env.registry import missing_object
from algorithm.run.callbacks import Training, _checked
from algorithm.run.counters import Counters
from algorithm.run.signals import StopRequest
from algorithm.store.follow_up_commands import playing_commands, resume_command
from algorithm.store.rundir import RunDir
from tests.extras.onnx.policies import agent_of
from tests.lib.toys_agents import Both
from tests.lib.toys_objects import Handle, Several, Shared, Walk
from tests.messages import refusal


def refusals() -> dict[str, Callable[[], object]]:
    """Name -> what raises the error."""
    one, lanes = source_of(Walk()), source_of(SyncVectorEnv([Walk] * 2))
    policy = TrainedPolicy(agent_of(action="discrete"), _adapter(-1), 3, masked=True)
    training = Training(Path(), None, {}, Counters(()), StopRequest())  # type: ignore[arg-type]
    return {
        "n_envs": partial(one.check, 2, 0, ()),
        "arguments": partial(one, size=2.0),
        "workers": partial(source_of(partial(Walk, threading.Lock())).check, 1, 1, ()),
        "n_envs of a vector environment": partial(lanes.check, 3, 0, ()),
        "a wrapped vector environment": partial(lanes.check, 2, 0, ["wrappers", "film"]),
        "one of a vector environment": lanes,
        "a number": partial(source_of, 3),
        "several agents": partial(source_of, Several()),
        "a space for each agent": partial(source_of, type("Team", (), {"observation_space": [Discrete(2)]})),
        "nothing made": source_of(dict),
        "a shared simulator": partial(EnvObject.of, gym.wrappers.TimeLimit(Shared(), 5)),
        "no copy": partial(EnvObject.of, gym.wrappers.TimeLimit(Handle(), 5)),
        "eval_env": partial(passed_env, "Pendulum-v1", "CartPole-v1"),
        "eval_env alone": partial(env_for_run, None, Walk),
        "a method's result": partial(checked, Both(), "state", {"step": 3}),
        "a command line": lambda: (_ for _ in ()).throw(missing_object("my.Walk")),
        "the environment first": partial(LearningAgent, "Pendulum-v1", "SAC"),
        "a schedule": partial(with_keys, None, {"learning_rate": lambda left: left}),
        "arguments of another library": partial(with_keys, None, {"policy_kwargs": {"activation_fn": type}}),
        "overrides": partial(with_keys, ["batch_size"], {}),
        "a function for a callback": partial(_checked, print),
        "no guard": partial(refuse_unguarded, 96, ", or set base_config.workers: 0"),
        "NaN": partial(refuse_non_finite, {"obs": np.array([[0.0, np.nan]])}),
        "no mask": partial(policy.act, np.ones(30)),
        "other rows": partial(policy.act, np.ones(30), info={"action_mask": None}, episode_start=[True] * 2),
        "log of a text": partial(training.log, "loss", "much"),  # type: ignore[arg-type]
        "log by a wrong name": partial(training.log, "a b", 1.0),
    }


def _adapter(low: int) -> Adapter:
    speed = gym.spaces.Box(np.array([low] * 30, np.float32), np.arange(30, dtype=np.float32))
    return Adapter(speed, gym.spaces.Discrete(3, start=low), "Turns")


def messages() -> Iterator[tuple[str, str]]:
    for name, refused in refusals().items():
        with patch.object(sys.modules["__main__"], "__file__", "train.py", create=True):
            yield name, refusal(refused)
    run = RunDir("object/Walk", "a", Path("models/object/Walk/a").absolute(), "object/Walk")
    further = ("--max_step=200", "--max_iter=8", "-o", "base_config.stop_at_return=null")
    commands = [
        resume_command(run, *further[:1]),
        resume_command(run, *further),
        *playing_commands(run, ["rgb_array"]).values(),
    ]
    yield "commands", "\n".join(commands)
    counters = Counters(())
    counters.no_better = 3
    for why, flags in counters.ends(BaseConfig(stop_without_improvement=3), None).values():
        yield "without improvement", f"{why}\n{' '.join(flags)}"
