"""Behaviours and images at the start of players."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.display import has_display
from algorithm.env.config import without_team
from algorithm.env.unity.seat import Seat

_KEY = "base_config.unity_args.no_graphics"


def behaviour_names(found: Iterable[str], awaited: Sequence[str]) -> dict[str, str]:
    """Return Unity's name -> ours: without the team, unless there are several or ``awaited`` names it."""
    plain = [without_team(name) for name in found]
    return {
        name: short if plain.count(short) == 1 and name not in awaited else name
        for name, short in zip(found, plain, strict=True)
    }


def absent(missing: Sequence[str], found: Iterable[str], timeout: float) -> EnvError | UsageError:
    """Return the error of behaviours that have not shown up within ``timeout`` seconds."""
    if not missing:
        return EnvError(
            "the Unity scene has no agents",
            why=f"no behaviour showed up within {timeout:g} s",
            fix="put an agent into the scene whose Behavior Type is Default",
        )
    return UsageError(
        f"ma_config names {', '.join(map(repr, missing))}, which the Unity scene does not have",
        where="ma_config",
        why=f"within {timeout:g} s (base_config.env_timeout) only {', '.join(map(repr, found))} showed up",
        fix="rename or remove that part of ma_config, or raise env_timeout if it comes later",
    )


def late(known: Iterable[str], name: str) -> EnvError:
    """Return the error of a behaviour that shows up after the start."""
    return EnvError(
        f"the Unity behaviour {name} has shown up late",
        why=f"there are networks for {', '.join(known)} only: it was not in the scene at the start",
        fix=f"announce it, so that it is waited for: ma_config: {{{without_team(name)}: {{}}}}",
    )


def black_images(seats: Sequence[Seat]) -> list[str]:
    """Return the image sensors whose last messages, to all players, are black."""
    lit: dict[str, bool] = {}
    for seat in seats:
        for name, behaviour in seat.behaviours.items():
            asking, _ = seat.player.env.get_steps(name)
            for sensor in behaviour.sensors if len(asking) else ():
                if sensor.axes:
                    what = f"{sensor.name} of {name}"
                    lit[what] = lit.get(what, False) or bool(asking.obs[sensor.name].any())
    return [what for what, seen in lit.items() if not seen]


def use_graphics(seats: Sequence[Seat], black: Sequence[str], no_graphics: bool | Literal["auto"]) -> str:
    """Give graphics to further players unless ``no_graphics`` is True; return a line for a person.

    Raises UsageError where there is no display.
    """
    if no_graphics is True:
        return f"images are black: the player has no graphics ({_KEY}: true)"
    if not has_display():
        raise UsageError(
            "images of the Unity player are black",
            where=", ".join(black),
            why="it has no graphics, and this machine has no display for a player with them",
            fix=f"put xvfb-run -a in front of the command; or, if they are to be black, set {_KEY}: true",
        )
    for seat in seats:
        seat.draw()
    return f"images were black: the player is started anew with graphics ({_KEY}: false does so at once)"
