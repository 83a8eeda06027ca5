"""All of a training that a checkpoint holds, and its restoration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from torch import Tensor

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import Collector
from algorithm.config.resume_rules import Change, table
from algorithm.core.data import Array, State
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.experience.collector import Iteration
from algorithm.experience.faults import Faults
from algorithm.runs.checkpoints.checkpoint import Checkpoint, Snapshot, load_checkpoint, load_replay
from algorithm.runs.checkpoints.manifest import MANIFEST, STATE
from algorithm.runs.names import behaviour_level
from algorithm.runs.provenance import what_differs
from algorithm.train.counters import Counters
from algorithm.train.health import HealthMonitor
from algorithm.train.randomness import GlobalRandom


@dataclass(frozen=True)
class Start:
    """A checkpoint to go on from, read and verified but for its replays."""

    saved: Checkpoint
    changes: Sequence[Change]  # of the configuration since
    older: Iterator[Checkpoint] | None  # that may take its place; None if it was asked for

    @property
    def rows(self) -> Rows:
        """Rows for the start screen."""
        return [("from", f"step {self.saved.step:,}"), *table(self.changes)]


class TrainState:
    """Collector, agents and counts of a training, driven by the trainer.

    make_collector: source of the agents' transitions; its watch is charged with the time
    agents: one per behaviour
    faults: receiver of the environments' reports
    made_with: versions and code, see :func:`~algorithm.runs.provenance.made_with`
    """

    def __init__(
        self,
        make_collector: Callable[[Mapping[str, Agent], Stopwatch], Collector],
        agents: Mapping[str, Agent],
        faults: Faults,
        made_with: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._made_with = made_with
        self.agents, self.faults = agents, faults
        self.watch = Stopwatch()
        self.collector = make_collector(agents, self.watch)
        self.iteration = Iteration(self.collector)
        self.counters = Counters(agents)
        self.health = {
            name: HealthMonitor(family(agent.config), agent.config) for name, agent in agents.items()
        }
        self._random = GlobalRandom()

    @property
    def updates(self) -> int:
        """Gradient updates of all agents."""
        return sum(agent.updates for agent in self.agents.values())

    def snapshot(self, metrics: Mapping[str, object]) -> Snapshot:
        """Return everything as it is now, between two steps.

        metrics: state of what has been logged, see :class:`~algorithm.runs.logs.metrics.MetricsLogger`
        """
        state = State.joined(
            {
                "tally": self.counters.state(),
                "feed": self.collector.state(),
                "iteration": self.iteration.state(),
                "faults": self.faults.state(),
                "health": State(meta={_part(name): own.state() for name, own in self.health.items()}),
                "random": self._random.state(),
                "agents": State.joined({_part(name): agent.state() for name, agent in self.agents.items()}),
            }
        )
        tensors: dict[str, Mapping[str, Tensor | Array]] = {"run": state.arrays}
        for name, agent in self.agents.items():
            for file, named in agent.tensors().items():
                tensors[_level(name, file)] = named
        return Snapshot(
            step=self.counters.step,
            tensors=tensors,
            state={
                "run": state.meta,
                "metrics": metrics,
                "seconds": dict(self.watch.seconds),
                "made_with": dict(self._made_with),
            },
            replays={
                _level(name, store): replay
                for name, agent in self.agents.items()
                for store, replay in agent.stores().items()
            },
            trained={_level(name, "model"): agent.trained() for name, agent in self.agents.items()},
        )

    def restore(self, saved: Checkpoint) -> list[str]:
        """Continue from a checkpoint whose replays have been loaded.

        Returns a line for each thing that is not exact. Raises StorageError if the checkpoint does not fit.
        """
        with fitting(saved.path):
            state = State({k: v.numpy() for k, v in saved.tensors["run"].items()}, saved.state["run"])
            notices = [
                line
                for name, agent in self.agents.items()
                for line in self._restore_agent(name, agent, saved, state)
            ]
            self.counters.load_state(state.part("tally"))
            self.faults.load_state(state.part("faults"))
            notices += self.collector.load_state(state.part("feed"))
            self.iteration.load_state(state.part("iteration"))
            for name, own in self.health.items():
                own.load_state(state.meta["health"][_part(name)])
            self.watch.load(saved.state["seconds"])
            notices += what_differs(dict(saved.state["made_with"]), self._made_with)
            if self.counters.step != saved.step:
                raise ValueError(f"it is of step {saved.step}, and its {STATE} of step {self.counters.step}")
            self._random.load_state(state.part("random"))  # last: all of the above may have drawn
        return notices

    @staticmethod
    def _restore_agent(name: str, agent: Agent, saved: Checkpoint, state: State) -> list[str]:
        level = behaviour_level(name)
        prefix = f"{level}/" if level else ""
        own = state.part("agents").part(_part(name))
        draws_on = agent.load_tensors(
            {file: saved.tensors[f"{prefix}{file}"] for file in agent.tensors()},
            own.meta["own"]["updates"],
        )
        agent.load_state(own)
        if draws_on:
            return []
        it, its = ("it", "its") if name == DEFAULT_BEHAVIOUR else (name, f"{name}'s")
        return [f"{it} was trained on another kind of device: {its} random numbers begin anew"]


def load_replays(agents: Mapping[str, Agent], saved: Checkpoint, replays: Path) -> list[str]:
    """Load the replays of a checkpoint, each hashed while it is read; returns a line for each that it lacks.

    replays: folder of the segments
    Raises DamagedError, with the replays unusable, and StorageError for one that does not fit.
    """
    with fitting(saved.path):
        missing = [
            name
            for name, agent in agents.items()
            for store, replay in agent.stores().items()
            if not load_replay(saved.path, replays, _level(name, store), replay)
        ]
    owners = ("its" if name == DEFAULT_BEHAVIOUR else f"{name}'s" for name in missing)
    return [f"{its} replay was not saved (checkpoint_config.replay): it begins empty" for its in owners]


@dataclass(frozen=True)
class ForeignNetworks:
    """Networks that no checkpoint of the run holds: ``--networks FOLDER``.

    folder: a checkpoint; with a folder ``replay`` in it, of segments, its moments and replay count, too
    keep:   ``base_config.evolver_keep``, what stays when the run goes on with them
    """

    folder: Path
    keep: Collection[str]

    def __post_init__(self) -> None:
        """Raise UsageError unless it is the folder of a checkpoint."""
        there = False
        with suppress(OSError, ValueError):  # no system has such a path
            there = (self.folder / MANIFEST).is_file()
        if not there:
            raise UsageError(
                "there are no networks to begin with",
                where=f"--networks {self.folder!s:.200}",
                why=f"it is not the folder of a checkpoint: it has no {MANIFEST}",
                fix="give one, such as --networks models/TASK/NAME/checkpoints/step_000100000",
            )

    @property
    def replay(self) -> Path | None:
        """Segments of the replay that comes along; None without one."""
        folder = self.folder / "replay"
        return folder if folder.is_dir() else None


def load_foreign_replays(
    agents: Mapping[str, Agent], foreign: ForeignNetworks, own: Checkpoint, replays: Path
) -> list[str]:
    """Load the replays that go with networks from elsewhere; returns lines for the user.

    own, replays: checkpoint and segments of the run itself
    Raises StorageError as :func:`load_replays`.
    """
    if "replay" not in foreign.keep:
        return ["base_config.evolver_keep does not name the replay: it begins empty"]
    if foreign.replay is None:
        return load_replays(agents, own, replays)
    lines = load_replays(agents, replace(own, path=foreign.folder), foreign.replay)
    for agent in agents.values():
        for replay in agent.stores().values():
            replay.forget_saved()  # its rows are in no segment of this run
            replay.close_all()  # this run's episodes do not continue those of the other
    return [*lines, f"the replay is that of {foreign.folder}"]


def begin_with_networks(
    agents: Mapping[str, Agent], foreign: ForeignNetworks, own: Checkpoint | None
) -> list[str]:
    """Let agents begin with networks from elsewhere; returns lines for the user.

    own: checkpoint that the run goes on from, None for a new run
    Raises StorageError if there are none, or they do not fit.
    """
    found = load_checkpoint(foreign.folder)
    moments = None
    if own is not None and "optimiser" in foreign.keep:
        moments = own if foreign.replay is None else found
    for name, agent in agents.items():
        level = behaviour_level(name)
        prefix = f"{level}/" if level else ""
        try:
            model = found.tensors[f"{prefix}model"]
            agent.begin_with(model, moments.tensors.get(f"{prefix}optim") if moments else None)
        except (KeyError, ValueError) as error:
            raise StorageError(
                "the networks do not fit this agent",
                where=foreign.folder,
                why=str(error) if isinstance(error, ValueError) else f"there are none for {name!r}",
                fix="give a checkpoint of the same networks and configuration: --networks FOLDER",
            ) from error
    return [f"the networks are those of {foreign.folder}"]


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Raise StorageError about the checkpoint ``folder`` for any error of a state in a wrong form."""
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise StorageError(
            "the checkpoint does not fit this run",
            where=folder,
            why=f"it has no {error}" if isinstance(error, KeyError) else str(error),
            fix="resume with the settings and networks it was trained with, or train a new run",
        ) from error


def _part(behaviour: str) -> str:
    return behaviour_level(behaviour) or DEFAULT_BEHAVIOUR


def _level(behaviour: str, store: str) -> str:
    """Return a file or store below its behaviour's folder; "" for the only store of the only behaviour."""
    return "/".join(part for part in (behaviour_level(behaviour), store) if part)
