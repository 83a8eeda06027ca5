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
    darwin: str = option("path_darwin", "Executable, or the .app, on macOS.")


class UnityArgs(Block):
    """Start options of a Unity executable. Without effect on other environments."""

    no_graphics: bool | Literal["auto"] = option(
        "auto",
        "Start without a window. auto: with one where images are black without; true: also then.",
    )
    build_path: BuildPath = block(BuildPath, "Path of the executable.")
    port: Whole = option(5005, "First port to try for talking to the executable.", ge=1, le=65535)
    fixed_port: bool = option(False, "Try no other port than that of the first player; -p sets both keys.")
    listen: Literal["loopback", "all"] = option(
        "loopback",
        "Interfaces that players may connect through: this machine's own, or all of them, for a player in "
        "another container. There is neither a password nor encryption.",
    )
    editor: bool = option(
        False,
        "Wait for the Unity Editor instead of starting an executable, on port 5004 unless fixed_port is set. "
        "There is one player then, and no evaluation. --editor sets it.",
    )
    num_areas: Whole = option(
        1, "Copies of the training area in one player, where the scene allows it.", ge=1
    )
    time_scale: Finite = option(
        20.0,
        "Speed of the simulation, a multiple of real time; 1 with --run and --render.",
        gt=0,
        le=100,
    )
    width: Whole = option(84, "Width of the window in pixels; 1280 with --run and --render.", ge=1)
    height: Whole = option(84, "Height of the window in pixels; 720 with --run and --render.", ge=1)
    quality_level: Whole = option(5, "Quality level of the rendering, from 0 on.", ge=0)
    target_frame_rate: Limit = option(-1, "Frames per second that the player aims at. -1: no limit.")
    capture_frame_rate: Whole = option(
        60, "Frames per simulated second, whatever time they take; 0: not fixed.", ge=0
    )
    side_channels: Annotated[tuple[str, ...], Strict(False)] = option(
        (),
        "Side channels of your own: module:Class each, a subclass of the package's SideChannel without "
        "arguments. The module may lie in the task's folder.",
        examples=[["channels:Weather"]],
    )


class EnvConfig(Block):
    """The part of ``base_config`` that defines the environment."""

    env_type: KindName = required(
        "Kind of simulator: UNITY, GYM for any Gymnasium environment, DM_CONTROL for the DeepMind "
        "Control suite, that of a package (docs/plugins.md), or module:Recipe; OBJECT: Python hands it in.",
        resume=_OTHER_TASK,
        shared=True,
        names="kind",
    )
    env_name: str = required(
        "Name of the environment. GYM: an id such as Pendulum-v1, module:Id or file.py:Id, also from the "
        "task's folder; DM_CONTROL: domain/task such as cartpole/swingup. No default either.",
        resume=_OTHER_TASK,
        min_length=1,
        shared=True,
        names="environment",
    )
    env_args: dict[str, Any] | None = option(
        None,
        "Keyword arguments for building the environment. GYM: those of gymnasium.make; DM_CONTROL: those of "
        "the task, and render_mode, height, width and camera_id.",
        resume=_OTHER_TASK,
        shared=True,
        names="arguments",
    )
    unity_args: UnityArgs = block(UnityArgs, "Only for Unity environments.")
    wrappers: Annotated[tuple[NamedEntry, ...], Strict(False)] = option(
        (),
        "Gymnasium wrappers, innermost first: each a name, module:Class or file.py:Class, alone or as "
        "{Name: {kwargs}}.",
        resume=_OTHER_TASK,
        examples=[["Name", "module:Class", {"Name": {"argument": "value"}}]],
        shared=True,
        names="wrappers",
    )
    info_keys: Annotated[tuple[str, ...], Strict(False)] = option(
        ("is_success",),
        "Keys of an environment's infos with a number to log: of each episode the last one, or the sum where "
        "the key begins with reward. Unity has statistics of its own.",
        examples=[["is_success", "reward_forward"]],
        names="infos",
    )
    reward_scale: Finite = option(
        1.0,
        "Fixed factor on rewards that are learned from; returns and evaluations are reported unscaled.",
        resume="fixed: what is stored and what the critics have learned is in the old scale",
        gt=0,
    )
    workers: Whole = option(
        0,
        "Processes for the environments of a training run; 0: in the main process. Does not change results.",
        ge=0,
    )
    env_timeout: Limit = option(
        120,
        "Seconds after which a step or reset counts as hanging. A worker is then restarted; without "
        "workers the run ends. -1: wait for ever.",
    )
    env_restarts: Whole = option(
        10,
        "Failures of environments in step or reset that a run survives by restarting them, counted anew "
        "when it is resumed.",
        ge=0,
    )
    on_non_finite: Literal["stop", "drop"] = option(
        "stop",
        "Effect of an observation or reward that is NaN or infinite: end the run, or only that episode.",
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
