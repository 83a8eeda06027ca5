"""The keys of ``base_config`` that define the environment. Imports no torch and no simulator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Strict

from algorithm.core.fields import (
    Block,
    Finite,
    Limit,
    NamedEntry,
    Whole,
    block,
    installed_name,
    name_schema,
    option,
    required,
)
from algorithm.env.kinds import ENVS, EnvKind, kind_of

KindName = Annotated[str, installed_name(ENVS), name_schema(ENVS)]
"""A kind of environments: built in, or of an installed package."""

_OTHER_TASK = "fixed: what is learned and stored belongs to this environment; reset_config may change"


class BuildPath(Block):
    """Paths of the Unity executable per operating system.

    A relative path starts in the task's folder, or else in the current one. The extension may be left out.
    """

    win32: str = option("path_win32", "Executable on Windows.")
    linux: str = option("path_linux", "Executable on Linux.")
    darwin: str = option("path_darwin", "Executable or .app on macOS.")


class UnityArgs(Block):
    """Start options of a Unity executable. Without effect on other environments."""

    no_graphics: bool | Literal["auto"] = option(
        "auto",
        "Start without a window. auto: no window, unless camera images are black without one.",
    )
    build_path: BuildPath = block(BuildPath, "Path of the executable.")
    port: Whole = option(5005, "First port to try.", ge=1, le=65535)
    fixed_port: bool = option(False, "Try no other port for the first player. -p sets this and port.")
    listen: Literal["loopback", "all"] = option(
        "loopback",
        "loopback: players on this machine only. all: other machines and containers too, without "
        "password or encryption.",
    )
    editor: bool = option(
        False,
        "Train in the Unity Editor (port 5004 unless fixed_port): one player, no evaluations. --editor "
        "sets it.",
    )
    num_areas: Whole = option(1, "Copies of the training area in one player, if the scene supports it.", ge=1)
    time_scale: Finite = option(
        20.0,
        "Simulation speed as a multiple of real time. With --run and --render: 1.",
        gt=0,
        le=100,
    )
    width: Whole = option(84, "Window width in pixels. With --run and --render: 1280.", ge=1)
    height: Whole = option(84, "Window height in pixels. With --run and --render: 720.", ge=1)
    quality_level: Whole = option(5, "Unity's rendering quality level; 0 is the first.", ge=0)
    target_frame_rate: Limit = option(-1, "Target frames per second. -1: no limit.")
    capture_frame_rate: Whole = option(
        60, "Frames per simulated second, regardless of real time. 0: not fixed.", ge=0
    )
    side_channels: Annotated[tuple[str, ...], Strict(False)] = option(
        (),
        "Your own SideChannel subclasses as module:Class. The module may be in the task's folder.",
        examples=[["channels:Weather"]],
    )


class EnvConfig(Block):
    """The part of ``base_config`` that defines the environment."""

    env_type: KindName = required(
        "Simulator. A plug-in's: docs/plugins.md, or module:Recipe. Only Python sets OBJECT.",
        resume=_OTHER_TASK,
        shared=True,
        names="kind",
    )
    env_name: str = required(
        "GYM: an id such as Pendulum-v1, module:Id or file.py:Id. DM_CONTROL: domain/task, such as "
        "cartpole/swingup.",
        resume=_OTHER_TASK,
        min_length=1,
        shared=True,
        names="environment",
    )
    env_args: dict[str, Any] | None = option(
        None,
        "Arguments of gymnasium.make, or of DM_CONTROL's task, plus render_mode, height, width, camera_id.",
        resume=_OTHER_TASK,
        shared=True,
        names="arguments",
    )
    unity_args: UnityArgs = block(UnityArgs, "Only for Unity environments.")
    wrappers: Annotated[tuple[NamedEntry, ...], Strict(False)] = option(
        (),
        "Gymnasium wrappers, innermost first: a name, module:Class or file.py:Class, or {Name: {kwargs}}.",
        resume=_OTHER_TASK,
        examples=[["Name", "module:Class", {"Name": {"argument": "value"}}]],
        shared=True,
        names="wrappers",
    )
    info_keys: Annotated[tuple[str, ...], Strict(False)] = option(
        ("is_success",),
        "Numbers in infos to log. Per episode: the last value, or the sum if the key begins with reward. "
        "Not for Unity.",
        examples=[["is_success", "reward_forward"]],
        names="infos",
    )
    reward_scale: Finite = option(
        1.0,
        "Multiplies the rewards that are learned from. Reported returns stay unscaled.",
        resume="fixed: what is stored and what the critics have learned is in the old scale",
        gt=0,
    )
    workers: Whole = option(
        0,
        "Worker processes for training environments. 0: step them in the main process. Results do not "
        "change.",
        ge=0,
    )
    env_timeout: Limit = option(
        120,
        "Seconds until a step or reset counts as hung. Then its worker restarts; without workers the run "
        "ends. -1: no limit.",
    )
    env_restarts: Whole = option(
        10,
        "Environment failures that a run survives by restarting. A resumed run counts from 0.",
        ge=0,
    )
    on_non_finite: Literal["stop", "drop"] = option(
        "stop",
        "On NaN or infinity in an observation or reward: stop the run, or drop the episode.",
    )

    @property
    def kind(self) -> EnvKind:
        """The kind of its simulators; of a plug-in nothing is imported."""
        return kind_of(self.env_type)

    @property
    def in_editor(self) -> bool:
        """True for a single player in an editor, beside which there is no other environment."""
        return self.kind.player and self.unity_args.editor


def without_team(behaviour: str) -> str:
    """Return ``Name`` of ``Name?team=0``, as Unity calls a team's behaviour, and any other name as it is."""
    return behaviour.partition("?team=")[0]
