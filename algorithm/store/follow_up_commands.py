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
    run: RunDir,
    render_modes: Sequence[str],
    *,
    display: bool = True,
    episodes: int = 10,
) -> dict[str, str]:
    """Return purpose -> command, for the run's best networks: evaluate, and watch and film where possible.

    render_modes: of the environment
    display:      whether a window can be opened
    episodes:     number for the evaluation
    """
    if run.in_program:
        return {"evaluate": f"{run.in_python}.evaluate({episodes})"}
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


def resume_command(run: RunDir, *flags: str) -> str:
    """Return the command that resumes a run. flags: that move the end which the run has reached."""
    if run.in_program:
        keys = [flag.removeprefix("--") for flag in flags if "=" in flag]
        return f"{run.in_python}.resume({f'overrides={keys}' if keys else ''})"
    return run.training_command("-n", run.name, "--resume", *flags)


def can_be_watched(render_modes: Sequence[str], *, display: bool) -> bool:
    """Return whether ``--watch`` can show the environment. display: a window can be opened."""
    return display and "human" in render_modes
