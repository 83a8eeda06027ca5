"""Commands to show after a run: resume, evaluate, watch, film, curves. Imports no torch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from algorithm.store.rundir import RunDir

PAST_SUCCESS = ("-o", "base_config.stop_at_return=null")
"""Flags to resume a training that ``stop_at_return`` has ended."""


PAST_PATIENCE = ("-o", "base_config.stop_without_improvement=-1")
"""Flags to resume a training that ``stop_without_improvement`` has ended."""


def playing_commands(
    run: RunDir, render_modes: Sequence[str], *, display: bool = True, episodes: int = 10, variable: str = ""
) -> dict[str, str]:
    """Return purpose -> command, for the run's best networks: evaluate, and watch and film where possible.

    render_modes: of the environment
    display: whether a window can be opened; episodes: number for the evaluation
    variable: name of the run in Python, for calls instead of commands; runs of objects always have calls
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


def tensorboard_command(run: RunDir) -> str:
    """Return the command that shows the curves of the run, and of all others of its task."""
    return shlex.join(["tensorboard", "--logdir", run.shown(run.path.parent)])


def resume_command(run: RunDir, *flags: str, variable: str = "") -> str:
    """Return the command that resumes a run.

    flags:    that move the end which the run has reached
    variable: as for :func:`playing_commands`
    """
    if variable or run.of_object:
        return f"{variable or run.in_python}.resume({_arguments(flags)})"
    return run.training_command("-n", run.name, "--resume", *flags)


def can_be_watched(render_modes: Sequence[str], *, display: bool) -> bool:
    """Return whether ``--watch`` can show the environment. display: a window can be opened."""
    return display and "human" in render_modes


def _arguments(flags: Sequence[str]) -> str:
    """Convert flags, and keys behind ``-o``, to arguments of ``resume`` in Python."""
    pairs = [flag.removeprefix("--").split("=") for flag in flags if "=" in flag]
    steps = [f"max_step={value}" for key, value in pairs if key == "max_step"]
    others = {key: value for key, value in pairs if key != "max_step"}
    keys = [
        f"{(key if '.' in key else f'base_config.{key}')!r}: {'None' if value == 'null' else value}"
        for key, value in others.items()
    ]
    return ", ".join([*steps, *([f"overrides={{{', '.join(keys)}}}"] if keys else [])])
