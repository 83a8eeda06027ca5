"""Commands that go on with a run, evaluate, watch and film it, where they work. Imports no torch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from algorithm.store.rundir import RunDir

PAST_SUCCESS = ("-o", "base_config.stop_at_return=null")
"""Flags with which a training goes on that success has ended."""


PAST_PATIENCE = ("-o", "base_config.stop_without_improvement=-1")
"""The same for one that has ended since evaluations became no better."""


def playing_commands(
    run: RunDir,
    render_modes: Sequence[str],
    *,
    display: bool = True,
    episodes: int = 10,
    variable: str = "",
) -> dict[str, str]:
    """Return purpose -> command: evaluate, watch and film the run's best networks.

    render_modes: of the environment
    display:      a window can be opened
    episodes:     of the evaluation
    variable:     of the run in Python, for calls instead of commands; an object's run has calls alone
    """
    if variable or run.of_object:
        return {"evaluate": f"{variable or run.in_python}.evaluate({episodes})"}
    best = ["--ckpt=best"] if (run.checkpoints / "best.json").exists() else []
    flags = {"evaluate": f"--eval={episodes}"}
    if can_be_watched(render_modes, display=display):
        flags["watch"] = "--watch"
    if "rgb_array" in render_modes:
        flags["film"] = "--video"
    return {purpose: run.command("-n", run.name, flag, *best) for purpose, flag in flags.items()}


def curves_of(run: RunDir) -> str:
    """Return the command that shows curves by the names of their runs, beside those of the same task."""
    return shlex.join(["tensorboard", "--logdir", run.shown(run.path.parent)])


def going_on(run: RunDir, *flags: str, variable: str = "") -> str:
    """Return the command that goes on with a run; flags: beyond the end that it had; variable: as above."""
    if variable or run.of_object:
        return f"{variable or run.in_python}.resume({_arguments(flags)})"
    return run.training_command("-n", run.name, "--resume", *flags)


def can_be_watched(render_modes: Sequence[str], *, display: bool) -> bool:
    """Return whether ``--watch`` would open a window."""
    return display and "human" in render_modes


def _arguments(flags: Sequence[str]) -> str:
    """Return flags, and keys behind ``-o``, as arguments of ``resume`` in Python."""
    pairs = [flag.removeprefix("--").split("=") for flag in flags if "=" in flag]
    steps = [f"max_step={value}" for key, value in pairs if key == "max_step"]
    others = {key: value for key, value in pairs if key != "max_step"}
    keys = [
        f"{(key if '.' in key else f'base_config.{key}')!r}: {'None' if value == 'null' else value}"
        for key, value in others.items()
    ]
    return ", ".join([*steps, *([f"overrides={{{', '.join(keys)}}}"] if keys else [])])
