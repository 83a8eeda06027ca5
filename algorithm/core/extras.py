"""Extras, which only some runs need: our code in ``algorithm/extras``, and the libraries it uses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithm.core.errors import UsageError, described


@dataclass(frozen=True)
class Place:
    """Module of ``algorithm.extras`` that defines a name, and the pip extra with the libraries it needs."""

    module: str
    pip: str = ""


PLACES: Mapping[str, Place] = {
    "AsyncRuntime": Place("algorithm.extras.a3c.runtime"),
    "check_object": Place("algorithm.extras.check.command"),
    "check_task": Place("algorithm.extras.check.command"),
    "DmControlRecipe": Place("algorithm.extras.dmc.suite", pip="dmc"),
    "read_minari": Place("algorithm.extras.minari.reading", pip="offline"),
    "read_demo": Place("algorithm.extras.mlagents.demo_reading", pip="unity"),
    "trainer_rows": Place("algorithm.extras.mlagents.table"),
    "translate": Place("algorithm.extras.mlagents.translate"),
    "share_graphs": Place("algorithm.extras.onnx.command", pip="export"),
    "write_policy": Place("algorithm.extras.onnx.command", pip="export"),
    "train_reward": Place("algorithm.extras.robots.command"),
    "share": Place("algorithm.extras.sharing.export"),
    "write_export": Place("algorithm.extras.sharing.export"),
    "named_export": Place("algorithm.extras.sharing.opening"),
    "playable_export": Place("algorithm.extras.sharing.opening"),
    "make_envpool": Place("algorithm.extras.simulators.envpool", pip="envpool"),
    "play_against": Place("algorithm.extras.league.matches"),
    "begin_self_play": Place("algorithm.extras.league.self_play"),
    "PettingZooVecEnv": Place("algorithm.extras.pettingzoo.vec", pip="pettingzoo"),
    "make_brax": Place("algorithm.extras.simulators.jax_envs", pip="brax"),
    "make_playground": Place("algorithm.extras.simulators.jax_envs", pip="playground"),
    "write_comparison": Place("algorithm.extras.standings.comparison"),
    "tune": Place("algorithm.extras.tune.command", pip="tune"),
    "UnityVecEnv": Place("algorithm.extras.unity.vec", pip="unity"),
    "open_wandb": Place("algorithm.extras.wandb.sink", pip="wandb"),
    "require_wandb": Place("algorithm.extras.wandb.sink", pip="wandb"),
}
"""Name -> its place; the rest of the program reaches extras by these names alone."""

BUILT_ON: Mapping[str, tuple[str, ...]] = {
    "mlagents": ("unity",),
}
"""Folder of ``algorithm/extras`` -> the others that it imports."""

_PROJECT = "advanced-soft-actor-critic"
_CHECKOUT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, of a checkout or of the installed package."""
    if _CHECKOUT.is_file():
        return f'in the project\'s folder: {sys.executable} -m pip install -e ".[{extra}]"'
    # It is installed, so pip adds what the extra lists, and asks no index for the package itself.
    return f'{sys.executable} -m pip install "{_PROJECT}[{extra}]"'


def extra(name: str) -> Any:  # noqa: ANN401 - annotate what takes it
    """Import the module that :data:`PLACES` has for a name, and return its class or function of that name."""
    return getattr(importlib.import_module(PLACES[name].module), name)


@contextmanager
def needs(extra: str, what: str, *, where: object = "") -> Iterator[None]:
    """Raise a failed import as a UsageError with the command that installs the extra.

    what: task that requires the extra; the subject of a sentence with a verb in the singular
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{what} needs the extra {extra}, which is not installed",
            where=where,
            why=described(error),
            fix=install_command(extra),
        ) from error
