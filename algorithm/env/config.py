"""The keys of ``base_config`` that define the environment. Imports no torch and no simulator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Strict

from algorithm.core.fields import (
    Block,
    Finite,
    Limit,
    NamedEntry,
    Whole,
    block,
    name_schema,
    option,
    part_name,
    required,
)
from algorithm.env.kinds import ENVS

KindName = Annotated[str, part_name(ENVS), name_schema(ENVS)]
"""A kind of environments: built in, or ``module:NAME``."""

_OTHER_TASK = "fixed: networks and stored data belong to this environment; reset_config may change"


class BuildPath(Block):
    """Paths of the Unity executable per operating system.

    A relative path starts in the task's folder, or else in the current one. The extension may be left out.
    """

    win32: str = option("path_win32", "Executable on Windows.")
    linux: str = option("path_linux", "Executable on Linux.")
    darwin: str = option("path_darwin", "Executable or .app on macOS.")


class UnityArgs(Block):
    """Start options of a Unity executable. Without effect on other environments."""

    no_graphics: bool = option(True, "No window. Cameras need false, else their images are black.")
    build_path: BuildPath = block(BuildPath, "Path of the executable.")
    port: Whole = option(5005, "First port to try.", ge=1, le=65535)
    fixed_port: bool = option(False, "Try no other port for the first player. -p sets this and port.")
    listen: Literal["loopback", "all"] = option(
        "loopback",
        "all: also players on other machines or in containers, without password or encryption.",
    )
    editor: bool = option(
        False,
        "Like --editor: train in the Unity Editor, port 5004 unless fixed_port, no evaluations.",
    )
    num_areas: Whole = option(1, "Training areas per player, if the scene supports it.", ge=1)
    time_scale: Finite = option(
        20.0,
        "Speed as a multiple of real time. With --run and --render: 1.",
        gt=0,
        le=100,
    )
    width: Whole = option(84, "Pixels. With --run and --render: 1280.", ge=1)
    height: Whole = option(84, "Pixels. With --run and --render: 720.", ge=1)
    quality_level: Whole = option(5, "Unity's quality level.", ge=0)
    target_frame_rate: Limit = option(-1, "Frames per second. -1: no limit.")
    capture_frame_rate: Whole = option(60, "Frames per simulated second. 0: not fixed.", ge=0)
    side_channels: Annotated[tuple[str, ...], Strict(False)] = option(
        (),
        "Your SideChannel classes, module:Class.",
        examples=[["channels:Weather"]],
    )


class PettingZooArgs(Block):
    """Groups of the agents of a PettingZoo environment. Patterns are those of the shell: `walker_*`."""

    share: dict[str, str] | None = option(
        None,
        "Behavior of each agent: {pattern: name}, for others their own. null: agents whose names differ by a "
        "number only, and whose spaces are equal, share one. {}: none share.",
        resume=_OTHER_TASK,
        examples=[{"walker_*": "walker"}],
    )
    teams: dict[str, Whole] | None = option(
        None,
        "Team of each agent, for self-play: {pattern: number}. null: each behavior is a team; each agent, if "
        "there is only one behavior.",
        resume=_OTHER_TASK,
        examples=[{"red_*": 0, "blue_*": 1}],
    )


class InterventionKeys(Block):
    """Infos of a step in which an environment reports that it executed another action than the policy's."""

    executed: str = option(
        "action_taken",
        "The action executed, an element of the action space. Stored and learned in place of the policy's.",
    )
    flag: str = option("is_intervention", "True where a person acted.")
    actions: Annotated[tuple[str, ...], Strict(False)] = option(
        ("teleop_action", "action_intervention"),
        "The person's action, read where the flag is true. The first of these that is there.",
        examples=[["teleop_action", "action_intervention"]],
    )


INTERVENTION_KEYS = InterventionKeys()
"""The names that gym-hil, lerobot and HIL-SERL use."""


class EnvConfig(Block):
    """The part of ``base_config`` that defines the environment."""

    env_type: KindName = required(
        "Simulator. Also module:Recipe (docs/parts.md). OBJECT is for environments passed in Python.",
        resume=_OTHER_TASK,
        shared=True,
    )
    env_name: str = required(
        "GYM: an id, module:Id or file.py:Id. DM_CONTROL: domain/task.",
        resume=_OTHER_TASK,
        min_length=1,
        shared=True,
    )
    env_args: dict[str, Any] | None = option(
        None,
        "Arguments of gymnasium.make, or of DM_CONTROL's task, plus render_mode, height, width, camera_id.",
        resume=_OTHER_TASK,
        shared=True,
    )
    unity_args: UnityArgs = block(UnityArgs, "Only for Unity environments.")
    pettingzoo_args: PettingZooArgs = block(PettingZooArgs, "Only for PettingZoo environments.")
    wrappers: Annotated[tuple[NamedEntry, ...], Strict(False)] = option(
        (),
        "Gymnasium wrappers, innermost first: Name, module:Class, file.py:Class or {Name: {kwargs}}.",
        resume=_OTHER_TASK,
        examples=[["Name", "module:Class", {"Name": {"argument": "value"}}]],
        shared=True,
    )
    info_keys: Annotated[tuple[str, ...], Strict(False)] = option(
        ("is_success",),
        "Infos to log per episode: the last value, or the sum if the key starts with reward. Not for Unity.",
        examples=[["is_success", "reward_forward"]],
    )
    interventions: InterventionKeys = block(
        InterventionKeys, "Where the info of a step reports an executed action. Not for Unity and TENSOR."
    )
    control_hz: Finite | None = option(
        None,
        "Actions per second of an episode, for robots: updates fill the time between. null: no waiting.",
        gt=0,
    )
    reward_scale: Finite = option(
        1.0,
        "Factor on learned rewards. Reported returns stay unscaled.",
        resume="fixed: stored rewards and learned values are on the old scale",
        gt=0,
    )
    workers: Whole = option(
        0,
        "Worker processes for training environments. 0: none. Results do not change.",
        ge=0,
    )
    env_timeout: Limit = option(
        120,
        "Seconds until a step or reset counts as hung. A worker then restarts; without workers "
        "the run ends. -1: never.",
    )
    env_restarts: Whole = option(
        10,
        "Environment failures that a run tolerates. A resumed run counts from 0.",
        ge=0,
    )
    on_non_finite: Literal["stop", "drop"] = option(
        "stop",
        "On NaN or infinity in an observation or reward: stop the run, or drop the episode.",
    )


def without_team(behaviour: str) -> str:
    """Return ``Name`` of ``Name?team=0``, as Unity calls a team's behaviour, and any other name as it is."""
    return behaviour.partition("?team=")[0]


def team_in(behaviour: str) -> int:
    """Return the team in Unity's name of a behaviour: 1 in ``Name?team=1``, 0 without one."""
    team = behaviour.partition("?team=")[2]
    return int(team) if team.isdecimal() else 0


def opponents(behaviours: Iterable[str]) -> list[str]:
    """Return a line on each behaviour of Unity with several teams, which share it in self-play."""
    teams: dict[str, list[str]] = {}
    for name in behaviours:
        teams.setdefault(without_team(name), []).append(name)
    return [
        f"{' and '.join(names)}: each learns separately against the others' current policies; "
        "self_play.window: 10 lets them share one, which also plays against earlier ones"
        for names in teams.values()
        if len(names) > 1
    ]
