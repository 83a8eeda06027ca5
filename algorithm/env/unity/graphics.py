"""Cameras of players without graphics, which send black images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from algorithm.env.unity.seat import Seat
from algorithm.errors import UsageError
from algorithm.system.display import has_display

_KEY = "base_config.unity_args.no_graphics"


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
