"""The state of a training, as a checkpoint holds it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import Collector
from algorithm.config.resume_rules import Change, table
from algorithm.config.schema import Config
from algorithm.core.data import Array, State
from algorithm.core.errors import StorageError
from algorithm.core.seeding import stream_seed
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.system.processes import cpu_seconds
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.env.parameters.config import EnvParameters
from algorithm.env.parameters.curricula import Curricula
from algorithm.run.counters import Counters
from algorithm.run.experience.collector import Iteration
from algorithm.run.experience.faults import Faults
from algorithm.run.health import HealthMonitor
from algorithm.store.checkpoints.checkpoint import Checkpoint, Snapshot
from algorithm.store.checkpoints.manifest import STATE
from algorithm.store.names import behaviour_file, behaviour_level
from algorithm.store.provenance import what_differs


@dataclass(frozen=True)
class Start:
    """A checkpoint to continue from, read and verified except for its replays."""

    saved: Checkpoint
    changes: Sequence[Change]  # of the configuration since
    older: Iterator[Checkpoint] | None  # to try if it is damaged; None if the user named it

    @property
    def rows(self) -> Rows:
        """Rows for the start screen."""
        return [("from", f"step {self.saved.step:,}"), *table(self.changes)]


class TrainState:
    """Collector, agents and counts of a training, which the trainer drives.

    make_collector: makes the source of the agents' transitions, which charges its time to a watch
    agents: one per behaviour
    faults: receiver of the environments' failures
    parameters: of the environments
    made_with: versions and code, see :func:`~algorithm.store.provenance.made_with`
    """

    def __init__(
        self,
        make_collector: Callable[[Mapping[str, Agent], Stopwatch], Collector],
        agents: Mapping[str, Agent],
        faults: Faults,
        made_with: Mapping[str, object] = MappingProxyType({}),
        *,
        parameters: EnvParameters = MappingProxyType({}),
    ) -> None:
        self._made_with = made_with
        self.curricula = Curricula(parameters)
        self.agents, self.faults = agents, faults
        self.watch = Stopwatch()
        self.collector = make_collector(agents, self.watch)
        self.iteration = Iteration(self.collector)
        self.counters = Counters(agents)
        self.health = {
            name: HealthMonitor(family(agent.config), agent.config) for name, agent in agents.items()
        }
        self._random = GlobalRandom()
        self._cpu_offset = -cpu_seconds()  # an earlier training of this process is another run's

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds of all processes of the run since its first start, without evaluations."""
        return self._cpu_offset + cpu_seconds()

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Do not charge the block's time to the training, and restore the global generators after it."""
        before, drawn = self.cpu_seconds, self._random.state()
        try:
            yield
        finally:
            self._random.load_state(drawn)
            self._cpu_offset -= self.cpu_seconds - before

    @property
    def updates(self) -> int:
        """Number of gradient updates of all agents."""
        return sum(agent.updates for agent in self.agents.values())

    def snapshot(self, metrics: Mapping[str, object]) -> Snapshot:
        """Return the whole state, between two steps.

        metrics: state of the log, see :class:`~algorithm.store.logs.metrics.MetricsLogger`
        """
        state = State.joined(
            {
                "counters": self.counters.state(),
                "collector": self.collector.state(),
                "iteration": self.iteration.state(),
                "faults": self.faults.state(),
                "health": State(meta={_part(name): monitor.state() for name, monitor in self.health.items()}),
                "random": self._random.state(),
                **({"curricula": self.curricula.state()} if self.curricula.lessons else {}),
                "agents": State.joined({_part(name): agent.state() for name, agent in self.agents.items()}),
            }
        )
        tensors: dict[str, Mapping[str, Tensor | Array]] = {"run": state.arrays}
        for name, agent in self.agents.items():
            for file, named in agent.learner.tensors().items():
                tensors[behaviour_file(name, file)] = named
        seconds = dict[str, float](self.watch.seconds.items(), cpu=self.cpu_seconds)
        return Snapshot(
            step=self.counters.step,
            tensors=tensors,
            state={
                "run": state.meta,
                "metrics": metrics,
                "seconds": seconds,
                "made_with": dict(self._made_with),
            },
            replays={
                behaviour_file(name, store): replay
                for name, agent in self.agents.items()
                for store, replay in agent.stores().items()
            },
            trained={
                behaviour_file(name, "model"): agent.learner.trained() for name, agent in self.agents.items()
            },
        )

    def restore(self, saved: Checkpoint) -> list[str]:
        """Continue from a checkpoint whose replays have been loaded.

        Return a line for each thing that is not restored exactly. Raises StorageError for a misfit.
        """
        with misfit_errors(saved.path):
            state = State({k: v.numpy() for k, v in saved.tensors["run"].items()}, saved.state["run"])
            notices = [
                line
                for name, agent in self.agents.items()
                for line in self._restore_agent(name, agent, saved, state)
            ]
            self.counters.load_state(state.part("counters"))
            self.faults.load_state(state.part("faults"))
            self.curricula.load_state(state.part("curricula") if "curricula" in state.meta else State())
            if self.curricula.lessons:
                self.collector.renew_parameters(self.curricula.lessons)
            notices += self.collector.load_state(state.part("collector"))
            self.iteration.load_state(state.part("iteration"))
            for name, monitor in self.health.items():
                monitor.load_state(state.meta["health"][_part(name)])
            seconds = dict(saved.state["seconds"])
            self._cpu_offset += seconds.pop("cpu", 0.0)  # older checkpoints have none
            self.watch.load(seconds)
            notices += what_differs(dict(saved.state["made_with"]), self._made_with)
            if self.counters.step != saved.step:
                raise ValueError(f"it is of step {saved.step}, and its {STATE} of step {self.counters.step}")
            self._random.load_state(state.part("random"))  # last: all of the above may have drawn
        return notices

    @staticmethod
    def _restore_agent(name: str, agent: Agent, saved: Checkpoint, state: State) -> list[str]:
        """Restore networks and state of an agent; return a line if its random numbers start over, or none."""
        agent_state = state.part("agents").part(_part(name))
        draws_on = agent.learner.load_tensors(
            {file: saved.tensors[behaviour_file(name, file)] for file in agent.learner.tensors()},
            agent_state.meta["own"]["updates"],
        )
        agent.load_state(agent_state)
        if draws_on:
            return []
        it, its = ("it", "its") if name == DEFAULT_BEHAVIOUR else (name, f"{name}'s")
        return [f"{it} was trained on another kind of device: {its} random numbers start over"]


def lessons_of(config: Config, saved: Checkpoint) -> Mapping[str, str] | None:
    """Return the lessons for evaluations of a checkpoint; None for the last ones.

    An export has no lessons: it is evaluated in the last ones.
    """
    curricula: Mapping[str, Mapping[str, str]] = saved.state.get("run", {}).get("curricula", {})
    return curricula.get("lessons") if config.eval_config.lesson == "current" else None


def masked_in(saved: Checkpoint, behaviour: str) -> bool:
    """Return whether a behaviour has met action masks in training; False for an export."""
    agents: Mapping[str, Mapping[str, Mapping[str, object]]] = saved.state.get("run", {}).get("agents", {})
    return bool(agents.get(_part(behaviour), {}).get("own", {}).get("masked"))


@contextmanager
def misfit_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the block, from a state of the wrong form, to StorageErrors about ``folder``."""
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise StorageError(
            "the checkpoint does not fit this run",
            where=folder,
            why=f"it has no {error}" if isinstance(error, KeyError) else str(error),
            fix="resume with the settings, networks and version it was trained with, or train a new run",
        ) from error


def _part(behaviour: str) -> str:
    """Return the name of a behaviour's state, which has no slash."""
    return behaviour_level(behaviour) or DEFAULT_BEHAVIOUR


def seed_globally(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch from the run's seed."""
    random.seed(stream_seed(seed, "global", "python"))
    np.random.seed(stream_seed(seed, "global", "numpy") >> 32)  # it takes 32 bits
    torch.manual_seed(stream_seed(seed, "global", "torch"))  # of every device


class GlobalRandom:
    """State of the global generators of Python, NumPy and torch, which a task's own code may draw from.

    The project itself draws from its own generators (``seeding.py``). On a machine with another number of
    GPUs only the CPU's is restored.
    """

    def state(self) -> State:
        """Return the states of all generators."""
        version, words, gauss = random.getstate()
        legacy = np.random.get_state(legacy=False)
        twister = legacy["state"]
        arrays = {
            "python": np.array(words, np.int64),
            "numpy": twister["key"].astype(np.int64),
            "torch": torch.get_rng_state().numpy(),
        }
        for index, cuda in enumerate(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []):
            arrays[f"cuda:{index}"] = cuda.numpy()
        return State(
            arrays,
            {
                "python": {"version": version, "gauss": gauss},
                "numpy": {
                    "pos": int(twister["pos"]),
                    "has_gauss": int(legacy["has_gauss"]),
                    "gauss": float(legacy["gauss"]),
                },
            },
        )

    def load_state(self, state: State) -> None:
        """Continue from a result of :meth:`state`."""
        arrays, python, numpy = state.arrays, state.meta["python"], state.meta["numpy"]
        random.setstate((python["version"], tuple(arrays["python"].tolist()), python["gauss"]))
        np.random.set_state(
            {
                "bit_generator": "MT19937",
                "state": {"key": arrays["numpy"].astype(np.uint32), "pos": numpy["pos"]},
                "has_gauss": numpy["has_gauss"],
                "gauss": numpy["gauss"],
            }
        )
        torch.set_rng_state(torch.from_numpy(arrays["torch"].astype(np.uint8)))
        cuda = sorted(name for name in arrays if name.startswith("cuda:"))
        if cuda and len(cuda) == torch.cuda.device_count():
            for name in cuda:
                torch.cuda.set_rng_state(torch.from_numpy(arrays[name].astype(np.uint8)), name)
