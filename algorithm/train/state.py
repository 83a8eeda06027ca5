"""All of a training that a checkpoint holds, and its restoration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from torch import Tensor

from algorithm.data import Array, State
from algorithm.errors import StorageError
from algorithm.experience.collector import Iteration
from algorithm.experience.faults import Faults
from algorithm.families import family
from algorithm.roles import Agent, Collector
from algorithm.runs.checkpoints.checkpoint import Checkpoint, Snapshot, load_checkpoint, load_replay
from algorithm.runs.checkpoints.manifest import STATE
from algorithm.runs.names import behaviour_level
from algorithm.runs.provenance import what_differs
from algorithm.spec import DEFAULT_BEHAVIOUR
from algorithm.timing import Stopwatch
from algorithm.train.counters import Counters
from algorithm.train.health import HealthMonitor
from algorithm.train.randomness import GlobalRandom


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


REPLAY = "replay"
"""Folder of segments in a folder of networks that brings a replay along."""


def load_foreign_replays(agents: Mapping[str, Agent], folder: Path) -> list[str]:
    """Load the replays of the checkpoint ``folder`` with its own segments; returns a line for the user.

    Raises StorageError as :func:`load_replays`.
    """
    lines = load_replays(agents, Checkpoint(path=folder, step=0, tensors={}, state={}), folder / REPLAY)
    for agent in agents.values():
        for replay in agent.stores().values():
            replay.forget_saved()  # its rows are in no segment of this run
    return [*lines, f"the replay is that of {folder}"]


def begin_with_networks(
    agents: Mapping[str, Agent], folder: Path, own: Checkpoint | None, kept: Collection[str]
) -> list[str]:
    """Let agents begin with the networks of the checkpoint ``folder``; returns a line for the user.

    own:  checkpoint that the run goes on from, None for a new run
    kept: ``base_config.evolver_keep``; the moments are those of ``folder`` where it brings a replay along
    Raises StorageError if there are none, or they do not fit.
    """
    found = load_checkpoint(folder)
    moments = None
    if own is not None and "optimiser" in kept:
        moments = found if (folder / REPLAY).is_dir() else own
    for name, agent in agents.items():
        level = behaviour_level(name)
        prefix = f"{level}/" if level else ""
        try:
            model = found.tensors[f"{prefix}model"]
            agent.begin_with(model, moments.tensors.get(f"{prefix}optim") if moments else None)
        except (KeyError, ValueError) as error:
            raise StorageError(
                "the networks do not fit this agent",
                where=folder,
                why=str(error) if isinstance(error, ValueError) else f"there are none for {name!r}",
                fix="give a checkpoint of the same networks and configuration: --networks FOLDER",
            ) from error
    return [f"the networks are those of {folder}"]


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
