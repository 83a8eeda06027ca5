"""Request for environments: everything that a maker of environments needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from algorithm.core.errors import EnvError
from algorithm.env.base import EpisodeSeed, OnFault, ignore_fault
from algorithm.env.config import INTERVENTION_KEYS, InterventionKeys, PettingZooArgs, UnityArgs
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.sources import EnvSource
from algorithm.env.wrappers import Wrapper


def identity(env: Any) -> Any:  # noqa: ANN401 - any simulator
    """Return the simulator unchanged."""
    return env


def ignore_hang(error: EnvError) -> None:
    """Ignore a hang: nothing is to be saved."""


def ignore_text(text: str) -> None:
    """Discard a line on the progress of a start."""


@dataclass(frozen=True)
class EnvRequest:
    """Description of environments to make: which, how they are seeded, and where they run.

    env_type: kind of environment
    env:      its name, or an object of Python code in its place
    seed_of:  seed of an episode, from the number of the sub-environment and of the episode
    folder:   of the task, searched first for files and modules
    env_args: keyword arguments of the environment
    n:        number of sub-environments
    options:  passed to every reset
    render:   show sub-environment 0 in a window
    video:    sub-environment 0 renders images; excludes a window and workers
    wrappers: ``base_config.wrappers``, innermost first
    parameters: of each episode; none by default
    infos:    keys of the infos with numbers of an episode
    interventions: those with actions that were executed in place of the policy's
    control_hz: actions per second of an episode; None: as soon as possible
    watch:    called with a simulator that steps many at once; returns the object to step in its place

    workers:  processes for the sub-environments, at most n; 0 for this process only
    timeout:  seconds after which a step or reset counts as hanging, -1 for never
    restarts: failures survived by a restart; ``on_fault`` is called with each
    on_hang:  called before a hang in this process ends it, in another thread; it gets a minute
    waiting:  called again and again while sub-environments are made, with a text on the progress; an error
              that it raises ends the making
    log:      folder for the output of worker processes, and of Unity's players; a temporary one by default

    unity:      ``base_config.unity_args``
    pettingzoo: ``base_config.pettingzoo_args``
    joint:      each agent also observes what all others observe, as ``all``
    teams:      an agent of a team plays against others: Unity's teams share a behaviour
    behaviours: those that ``ma_config`` names, which are waited for at the start of a Unity player
    purpose:    name of the players' files
    since:      number of the first start of each player; another one, and other seeds, in a resumed run
    """

    env_type: str
    env: str | EnvSource
    _: KW_ONLY
    seed_of: EpisodeSeed
    folder: Path | None = None
    env_args: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    options: Mapping[str, Any] | None = None
    render: bool = False
    video: bool = False
    wrappers: tuple[Wrapper, ...] = ()
    parameters: ParameterSource = field(default_factory=ParameterSource)
    infos: tuple[str, ...] = ()
    interventions: InterventionKeys = INTERVENTION_KEYS
    control_hz: float | None = None
    watch: Callable[[Any], Any] = identity
    workers: int = 0
    timeout: float = 120.0
    restarts: int = 10
    on_fault: OnFault = ignore_fault
    on_hang: Callable[[EnvError], None] = ignore_hang
    waiting: Callable[[str], None] = ignore_text
    log: Path | None = None
    unity: UnityArgs = field(default_factory=UnityArgs)
    pettingzoo: PettingZooArgs = field(default_factory=PettingZooArgs)
    joint: bool = False
    teams: bool = False
    behaviours: tuple[str, ...] = ()
    purpose: str = "player"
    since: int = 0

    @property
    def env_name(self) -> str:
        """Name of the environment, or of the object."""
        return self.env if isinstance(self.env, str) else self.env.name
