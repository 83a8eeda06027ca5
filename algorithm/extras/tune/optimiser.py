"""The optimiser of a study: optuna, used trial by trial, with its state in one database.

Another optimiser is a class with the public methods of `Optimiser`.
"""

from __future__ import annotations

import math
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from algorithm.config.extras_config import TuneConfig
from algorithm.core.errors import StorageError, described
from algorithm.core.extras import needs
from algorithm.core.seeding import stream_seed
from algorithm.extras.tune.records import TrialRecord, TrialState
from algorithm.extras.tune.space import SearchSpace

if TYPE_CHECKING:  # it takes a second to import
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

_STATES: Mapping[str, TrialState] = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "RUNNING": "running",
}
_NAMES = {state: name for name, state in _STATES.items()}
_NAME = "study"
_WHY = "why"  # attribute of a trial
_TORN = "the study was killed while this trial was drawn"


def require_optimiser() -> None:
    """Raise UsageError where a package of the extra is missing."""
    with needs("tune", "--tune", where="tune_config"):
        for name in ("optuna", "sqlalchemy"):
            import_module(name)


class Optimiser:
    """Study of optuna. A draw depends only on the database, ``seed`` and the number of the trial.

    database: file of SQLite, created if missing; a kill leaves it intact
    first:    steps of a run in which it is not pruned
    Every method raises StorageError for a database that is damaged or cannot be written. Raises UsageError
    if optuna is not installed.
    """

    def __init__(self, database: Path, space: SearchSpace, tune: TuneConfig, seed: int, first: int) -> None:
        require_optimiser()
        import optuna
        from sqlalchemy.pool import NullPool

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self._states = optuna.trial.TrialState
        self._tune = tune
        self._seed = seed
        self._space = space
        self._database = database
        with self._stored(LookupError, TypeError, ValueError):  # errors due to damaged rows
            # A creator: not every path can be part of a URL.
            creator = partial(sqlite3.connect, database)
            pool = {"creator": creator, "poolclass": NullPool}  # a connection of its own for each thread
            self._storage = optuna.storages.RDBStorage("sqlite://", pool)
            self._study: Study = optuna.create_study(
                storage=self._storage,
                study_name=_NAME,
                direction=tune.direction,
                load_if_exists=True,
                pruner=self._pruner(first),
            )
            for trial in self._study.get_trials(deepcopy=False, states=[self._states.RUNNING]):
                if len(trial.params) < len(space.distributions):
                    self._storage.set_trial_user_attr(self._id(trial.number), _WHY, _TORN)
                    self._study.tell(trial.number, state=self._states.FAIL)

    @property
    def trials(self) -> list[TrialRecord]:
        """All trials, by number."""
        return [self._record(number, trial) for number, trial in enumerate(self._complete_draws(), 1)]

    def ask(self) -> TrialRecord:
        """Draw and return the next trial."""
        self._study.sampler = self._sampler(len(self._complete_draws()) + 1)
        with self._stored():
            self._study.ask(dict(self._space.distributions))
        return self.trials[-1]

    def report(self, number: int, step: int, value: float) -> None:
        """Store the value of a trial at a step, if it has none yet and the value is finite."""
        trial = self._complete_draws()[number - 1]
        if math.isfinite(value) and step not in trial.intermediate_values:
            with self._stored():
                self._storage.set_trial_intermediate_value(self._id(trial.number), step, value)

    def is_hopeless(self, number: int) -> bool:
        """Return whether the pruner would end a trial by its values so far."""
        with self._stored():
            return self._study.pruner.prune(self._study, self._complete_draws()[number - 1])

    def end(self, number: int, state: TrialState, *, score: float | None = None, why: str = "") -> None:
        """Store the end of a trial; the score of a pruned one is its last reported value.

        score: of a complete trial
        why:   reason of a failure
        """
        index = self._complete_draws()[number - 1].number
        with self._stored():
            self._storage.set_trial_user_attr(self._id(index), _WHY, why)
            self._study.tell(index, score, state=self._states[_NAMES[state]])

    @contextmanager
    def _stored(self, *others: type[Exception]) -> Iterator[None]:
        """Turn errors of the database, and ``others``, into StorageError."""
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        kinds: tuple[type[Exception], ...] = (SQLAlchemyError, StorageInternalError, *others)
        try:
            yield
        except kinds as error:
            raise StorageError(
                "the database of a study cannot be used",
                where=self._database,
                why=described(error.__cause__ or error).partition("\n")[0],
                fix="if the disk is full, make room and resume; if it is damaged, restore a copy of it, or "
                "start another study; the runs of its trials are intact",
            ) from error

    def _complete_draws(self) -> list[FrozenTrial]:
        """Return optuna's trials, except those killed while they were drawn."""
        with self._stored():
            trials = self._study.get_trials(deepcopy=False)
        return [each for each in trials if each.state.name in _STATES and each.user_attrs.get(_WHY) != _TORN]

    def _id(self, index: int) -> int:
        """Return the id in the storage of a trial with optuna's number."""
        study = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study, index)

    def _record(self, number: int, trial: FrozenTrial) -> TrialRecord:
        """Return a trial of optuna as a record with our number."""
        return TrialRecord(
            number=number,
            values={path: self._space.labels[path].get(value, value) for path, value in trial.params.items()},
            state=_STATES[trial.state.name],
            score=trial.values[0] if trial.values else math.nan,
            reports=dict(trial.intermediate_values),
            why=str(trial.user_attrs.get(_WHY, "")),
        )

    def _sampler(self, number: int) -> BaseSampler:
        from optuna import samplers

        seed = stream_seed(self._seed, "trial", number) >> 32
        if self._tune.sampler == "tpe":
            return samplers.TPESampler(
                seed=seed,
                n_startup_trials=self._tune.startup,
                multivariate=True,
                constant_liar=self._tune.jobs > 1,
            )
        return samplers.RandomSampler(seed=seed)

    def _pruner(self, first: int) -> BasePruner:
        from optuna import pruners

        if self._tune.prunes:
            return pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=first)
        return pruners.NopPruner()
