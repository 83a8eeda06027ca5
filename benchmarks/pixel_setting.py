"""What learning from pixels is, for both libraries: the environment, the update and the command line.

Imports the standard library and gymnasium only: the workers run in two environments.
"""

from __future__ import annotations

import importlib
import json
from argparse import ArgumentParser
from typing import Any

import gymnasium as gym
from setting import worker_arguments

BATCH_SIZE = 64
STEPS_PER_UPDATE = 10
EPISODE = 1000
"""Transitions of an episode where memory is measured; about what a random policy's game of Pong takes."""


def pixel_arguments(description: str | None) -> ArgumentParser:
    """The command line of the workers of ``pixels.py``."""
    parser = worker_arguments(description)
    parser.add_argument("what", choices=["train", "memory"])
    parser.add_argument("--env", type=json.loads, required=True, help="JSON: name, args, wrappers")
    parser.add_argument("--steps", type=int, help="train: environment steps")
    parser.add_argument("--start-step", type=int, help="train: random steps before learning")
    parser.add_argument("--capacity", type=int, required=True, help="transitions or rows of the replay")
    parser.add_argument("--kind", help="memory: which replay")
    return parser


def build(description: dict[str, Any]) -> gym.Env:
    """The environment: ``name`` and ``args`` of gymnasium.make, then ``wrappers``, the first one innermost.

    A wrapper is ``{name: keyword arguments}``, a class of gymnasium.wrappers or ``module:Class``.
    """
    env: gym.Env = gym.make(description["name"], **description["args"])
    for entry in description["wrappers"]:
        ((name, arguments),) = entry.items()
        module, _, kind = name.rpartition(":")
        env = getattr(importlib.import_module(module or "gymnasium.wrappers"), kind)(env, **(arguments or {}))
    return env
