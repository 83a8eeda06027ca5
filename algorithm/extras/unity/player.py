"""A connected Unity player; the Unity Editor is one without a process."""

from __future__ import annotations

import atexit
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from algorithm.core.errors import EditorStoppedError, EnvError, UserError, described
from algorithm.env.request import EnvRequest
from algorithm.extras.unity.build import PlayerProcess, build_arguments, find_build
from algorithm.extras.unity.link import LinkError, PlayerLink
from algorithm.extras.unity.package import load
from algorithm.extras.unity.spaces import UnityBehaviour

EDITOR_PORT = 5004
"""Port that the Unity Editor connects to; it cannot be changed."""

_PRESS_PLAY = (
    "press Play within base_config.env_timeout; the scene needs an agent whose Behavior Type is Default"
)
_ABSENT = (
    "check that the build contains com.unity.ml-agents, that its scene has an agent whose Behavior Type is "
    "Default, and that no dialog is open; or raise base_config.env_timeout"
)

PlayerEnd = Literal["ended", "absent", "hangs", "goodbye", "lost", "garbled"]


class PlayerError(EnvError):
    """Error of a player that a new one can replace: it crashed, hangs, has ended or broke the protocol.

    kind: ``ended``: its process has ended, ``absent``: it never connected, ``hangs``, ``goodbye``: it ended
          properly, ``lost``: its connection is lost, ``garbled``: its message is invalid
    """

    def __init__(self, kind: PlayerEnd, what: str, *, where: object, why: str, fix: str) -> None:
        super().__init__(what, where=where, why=why, fix=fix)
        self.kind = kind


class Player:
    """A started and connected player, or the editor.

    request: scene, arguments, time-outs and ``unity_args``
    index:   number of the player, for the names of its files
    seed:    from 0 to 2³¹ - 1

    env:  the package's ``BaseEnv``. Its ``reset`` and ``step`` raise PlayerError and EditorStoppedError;
          ``behaviours`` has the spaces by name, and ``get_steps`` returns two
          :class:`~algorithm.extras.unity.spaces.AgentStates`
    port: on which the player is connected
    file: its executable; None for the editor

    Raises UsageError if the port is taken or there is no build for this system, PlayerError if the player
    ends, hangs or never connects, EditorStoppedError, and EnvError if the editor never connects, the protocol
    has another version, or there is no such build.
    """

    def __init__(
        self, request: EnvRequest, *, index: int, no_graphics: bool, seed: int, side_channels: Sequence[Any]
    ) -> None:
        load()
        self._request = request
        self._no_graphics = no_graphics
        self._process: PlayerProcess | None = None
        args = request.unity
        self.file = None if args.editor else find_build(args.build_path, request.folder)
        self._link = PlayerLink(
            EDITOR_PORT if args.editor and not args.fixed_port else args.port,
            fixed=args.editor or args.fixed_port,
            listen=args.listen,
            timeout=request.timeout,
            loss=self._loss,
        )
        self.port = self._link.port
        try:
            if self.file is not None:
                stem = f"{request.purpose}-{index}"
                self._process = PlayerProcess(self.file, self._arguments, request.log, stem)
            else:
                # Printed even if quiet: nothing happens before.
                print(f"press Play in the Unity Editor, which connects to port {self.port}", flush=True)
            with self._failures("in the handshake"):
                self.env = _env_class()(
                    self,
                    self._link,
                    seed=seed,
                    side_channels=list(side_channels),
                    num_areas=args.num_areas,
                )
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Id of the player's process; None for the editor."""
        return self._process.pid if self._process else None

    @property
    def remark(self) -> str:
        """A line on an unusual version of the player's protocol; empty for a usual one."""
        return self._link.remark

    def describe(self) -> str:
        """Return path, process, port, arguments and log file, for messages."""
        if self._process is None:
            return f"the Unity Editor, port {self.port}"
        return "\n".join(
            (
                f"{self.file}, process {self.pid}, port {self.port}",
                f"arguments: {shlex.join(self._process.arguments)}",
                *([f"log: {self._process.log}"] if self._request.log is not None else []),
            )
        )

    def truncate_output(self) -> None:
        """Keep only the end of the process's output if it is large."""
        if self._process is not None:
            self._process.truncate_output()

    def close(self) -> None:
        """End the player and release its port, within five seconds; further calls do nothing."""
        self._link.say_goodbye()
        if self._process is not None:
            self._process.end()
        self._link.close()

    def _arguments(self, log: Path) -> list[str]:
        """Return the player's command line; log: path of its log."""
        graphics = ["-nographics", "-batchmode"] if self._no_graphics else []
        link = ["--mlagents-port", str(self.port), "-logFile", str(log)]
        scene = ["--scene", self._request.env_name]
        return [*graphics, *link, *scene, *build_arguments(self._request.env_args)]

    def _loss(self) -> LinkError | None:
        """Return an error if the player's process has ended, else None."""
        if self._process is None:
            return None
        self.truncate_output()
        how = self._process.how_ended()
        return LinkError("ended", how) if how else None

    @contextmanager
    def _failures(self, stage: str) -> Iterator[None]:
        """Turn errors inside the block into PlayerError, EditorStoppedError or EnvError.

        stage: ``in the handshake``, ``in a step``, ``in a reset``
        """
        try:
            yield
        except LinkError as error:
            raise self._failure(error, stage) from error
        except UserError:  # on unusable spaces, or from the user's side channel
            raise
        except Exception as error:  # due to an invalid message
            raise self._failure(LinkError("garbled", described(error)), stage) from error

    def _failure(self, error: LinkError, stage: str) -> EnvError:
        """Return the error for a failed exchange; stage: as in :meth:`_failures`."""
        kind, why, where = error.kind, error.why, self.describe()
        if kind == "lost" and self._process is not None:
            how = self._process.how_ended(wait=1.0)  # a crash cuts the connection first
            kind, why = ("ended", how) if how else (kind, why)
        if kind == "version":
            return EnvError(
                "the Unity player uses another version of the protocol",
                where=where,
                why=why,
                fix="build it with com.unity.ml-agents 2, 3 or 4, which use protocol 1",
            )
        if self._process is None and not self._link.connected:
            return EnvError("the Unity Editor has not connected", where=where, why=why, fix=_PRESS_PLAY)
        if self._process is None and kind in ("goodbye", "lost"):
            return EditorStoppedError("the Unity Editor has stopped playing", where=where, why=why)
        return self._player_error(kind, stage, why, self._process.log_end() if self._process else "")

    def _player_error(self, kind: PlayerEnd, stage: str, why: str, log: str) -> PlayerError:
        """Return the error of a player that a new one may replace."""
        known = self._link.connected
        if not known and kind != "ended":
            kind = "absent"
        what = {
            "absent": "has not connected",
            "ended": f"has ended {stage if known else 'before it connected'}",
            "hangs": f"hangs {stage}",
            "goodbye": "has ended by itself",
            "lost": f"has closed its connection {stage}",
            "garbled": f"has sent a message that cannot be read {stage}",
        }[kind]
        return PlayerError(
            kind,
            f"the Unity player {what}",
            where=self.describe(),
            why="\n".join(filter(None, (why, log))),
            fix=_ABSENT if kind == "absent" else self._advice(kind),
        )

    def _advice(self, kind: PlayerEnd) -> str:
        """Return advice on a failure."""
        if self._process is None:
            return "check the console of the editor, then start again"
        advice = "see the end of its log"
        if self._request.log is not None:
            advice = f"read {self._process.log} and {self._process.output}"
        if kind == "hangs":
            advice += "; or raise base_config.env_timeout"
        if self._no_graphics and kind in ("ended", "hangs"):
            advice += (
                "; if it has cameras, they need graphics: base_config.unity_args.no_graphics: false, on a "
                "machine without a display with xvfb-run"
            )
        return advice


@cache
def _env_class() -> type[Any]:
    """Return the class of the package's environment over our link; its base class is loaded late."""
    load()
    from mlagents_envs.environment import UnityEnvironment

    class PlayerEnv(UnityEnvironment):  # type: ignore[misc]
        """The package's environment, with the process and connection of a Player.

        Messages are read by :mod:`~algorithm.extras.unity.spaces`: the package makes four bytes of each byte
        of a PNG, and refuses PNGs for sensors with channels first.
        """

        def __init__(self, player: Player, link: PlayerLink, **options: Any) -> None:  # noqa: ANN401
            self._player, self._link = player, link
            self.behaviours: dict[str, UnityBehaviour] = {}
            try:
                super().__init__(base_port=link.port, **options)
            finally:
                atexit.unregister(self._close)  # otherwise it would keep every player of a long run

        def _get_communicator(self, *_: object) -> PlayerLink:
            return self._link

        def reset(self) -> None:
            with self._player._failures("in a reset"):
                super().reset()

        def step(self) -> None:
            self._player.truncate_output()
            with self._player._failures("in a step"):
                super().step()

        def close(self) -> None:
            self._player.close()

        def _update_behavior_specs(self, output: Any) -> None:  # noqa: ANN401 - a protobuf message
            super()._update_behavior_specs(output)
            self.behaviours |= _new_behaviours(self._env_specs, self.behaviours, output.rl_output.agentInfos)

        def _update_state(self, output: Any) -> None:  # noqa: ANN401 - a protobuf message
            self._env_state |= _read_states(self.behaviours, output.agentInfos)
            self._side_channel_manager.process_side_channel_message(output.side_channel)

    return PlayerEnv


def _new_behaviours(
    specs: Mapping[str, Any], known: Mapping[str, UnityBehaviour], infos: Mapping[str, Any]
) -> dict[str, UnityBehaviour]:
    """Return the behaviours of ``specs`` that are not in ``known``.

    infos: name -> messages about its agents; it has at least one for each new behaviour, as the example
    """
    return {
        name: UnityBehaviour(name, spec, infos[name].value[0])
        for name, spec in specs.items()
        if name not in known
    }


def _read_states(behaviours: Mapping[str, UnityBehaviour], infos: Mapping[str, Any]) -> dict[str, object]:
    """Return the states of each behaviour's agents in a message, none for a behaviour that is not in it."""
    messages = {name: infos[name].value if name in infos else () for name in behaviours}
    return {name: behaviours[name].read(values) for name, values in messages.items()}
