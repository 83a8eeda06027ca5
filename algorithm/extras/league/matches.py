"""``--play_against``: games between trained agents, and how often each has won.

The first run named has the environment, and gets the results as ``matches.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from algorithm.agents.base import Agent
from algorithm.app.cli.flag_types import checkpoint
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags, notices
from algorithm.app.console.output import open_console
from algorithm.app.parameters import played_lessons
from algorithm.app.playable import LIMITS, PlayableRun, run_in
from algorithm.config.loader import load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.errors import UsageError
from algorithm.env.base import VecEnv
from algorithm.extras.league.contests import Contest, Entrant, MatchScore
from algorithm.nn.process import own_modes
from algorithm.run.context import RunContext
from algorithm.run.evaluation.evaluate import DEFAULT_MAX_STEP, episode_limit
from algorithm.run.experience.faults import Faults
from algorithm.run.signals import StopRequest
from algorithm.store.checkpoints.manager import find_checkpoint
from algorithm.store.files import write_json
from algorithm.store.names import Ckpt, names_beside
from algorithm.store.rundir import RunDir

_GAMES = 100
"""Games of each pair without ``--eval N``."""

_RANDOM = "random"
"""Name of the entrant that acts at random."""


def play_against(options: TrainOptions, folder: EnvFolder) -> int:
    """Let every two of the named runs play against each other, and show the scores; return the exit code.

    Raises UsageError for a single run, an environment without teams or with other spaces than a run was
    trained with, and games that do not end; StorageError for a run or checkpoint that does not exist.
    """
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        stop = stack.enter_context(StopRequest())
        matches = _Matches(options, folder, Faults(console, go_on=stop.check_start), stack, stop)
        matches.play()
    return stop.exit_code


@dataclass(frozen=True)
class _Matches:
    """The matches of a command line; ``stack`` closes their environment."""

    options: TrainOptions
    folder: EnvFolder
    faults: Faults
    stack: ExitStack
    stop: StopRequest

    @own_modes()
    def play(self) -> None:
        """Play all pairs, write and show their scores."""
        texts, console = self.options.play_against, self.faults.console
        runs = [None if text == _RANDOM else self._run_of(text) for text in texts]
        host = next((run for run in runs if run is not None), None)
        if len(runs) < 2 or host is None:
            raise _no_game(texts)
        games = self._contest(host[0])
        entrants = [
            Entrant(text, None if run is None else self._agents(text, *run, games.env))
            for text, run in zip(texts, runs, strict=True)
        ]
        scores = []
        for first, second in combinations(entrants, 2):
            console.message(f"{first.name} against {second.name}")
            if not self.stop and (score := games.score(first, second, self.options.eval or _GAMES)):
                scores.append(score)
        rows = [(f"{score.first} against {score.second}", score.text) for score in scores]
        if self.stop:
            rows.append(("ended by", f"{self.stop.reason}, before all games were finished; no file"))
        else:
            rows.append(("file", self._written(host[0], scores)))
        console.finish(rows, [])

    def _run_of(self, text: str) -> tuple[PlayableRun, Ckpt | None]:
        """Return the run that NAME, NAME:CKPT or FOLDER names, and its checkpoint, None for the newest.

        Raises UsageError for what is no checkpoint, and StorageError if there is no such run.
        """
        options, (name, colon, at), which = self.options, text.rpartition(":"), None
        if not colon or Path(text).is_dir():
            name = text
        else:
            try:
                which = checkpoint(at)
            except argparse.ArgumentTypeError as error:
                raise UsageError(
                    f"{at!r} is not a checkpoint",
                    where=f"--play_against {text}",
                    why=str(error),
                    fix="write NAME:STEP, NAME:best, or NAME for the newest one",
                ) from error
        label, models = self.folder.label, options.directory
        if (Path(name) / "config.yaml").is_file() and name not in names_beside(label, name, models=models):
            return run_in(Path(name)), which
        run = RunDir.open(label, name, models=models, argument=options.env, flag="--play_against")
        return PlayableRun(run, run), which

    def _context(self, played: PlayableRun) -> RunContext:
        """Return the context of a run, without the limits of its training."""
        loaded = load_config_file(
            played.run.config,
            (*LIMITS, *self.options.overrides),
            config_flags(self.options),
            self.options.seed,
            env=played.task(self.folder),
            require_runnable=True,
        )
        return RunContext(loaded=loaded, device=self.options.device, faults=self.faults, stack=self.stack)

    def _contest(self, played: PlayableRun) -> Contest:
        """Return a contest on a run's environment. Raises UsageError if that has no teams."""
        context, options = self._context(played), self.options
        config = context.loaded.config
        for notice in notices(options, config):
            self.faults.console.warn(notice)
        if not config.base_config.kind.teams:
            raise UsageError(
                f"{config.base_config.env_type} environments have no teams",
                where=f"--play_against {' '.join(options.play_against)}",
                why="in a match agents of two teams play against each other",
                fix="compare runs by their returns: --report NAME NAME",
            )
        context.lessons = played_lessons(config, options.lesson)
        env = context.env("evaluate")
        limit = episode_limit(config, env.time_limit)
        limit = limit if limit > 0 else env.time_limit or DEFAULT_MAX_STEP
        return Contest(env, limit, stop=lambda: bool(self.stop), greedy=options.disable_sample)

    def _agents(self, text: str, played: PlayableRun, which: Ckpt | None, env: VecEnv) -> Mapping[str, Agent]:
        """Return the agents of a checkpoint. Raises UsageError if the environment has other spaces."""
        warn = self.faults.console.warn
        played.agree(env.specs)
        flag = f"--play_against {text.rpartition(':')[0]}:"
        saved = find_checkpoint(played.run.checkpoints, which, warn=warn, flag=flag)
        return played.players(self._context(played), env.specs, saved)

    def _written(self, played: PlayableRun, scores: Sequence[MatchScore]) -> str:
        """Write ``matches.json`` in a run's folder; return its path, for the user. Raises StorageError."""
        path = played.run.path / "matches.json"
        acting = "deterministic" if self.options.disable_sample else "sampled"
        write_json(path, {"acting": acting, "matches": [score.as_json for score in scores]})
        return played.run.shown(path)


def _no_game(texts: Sequence[str]) -> UsageError:
    return UsageError(
        "there is no game to play",
        where=f"--play_against {' '.join(texts)}",
        why="a game is between two, and one of them must be a run",
        fix=f"name another run, another checkpoint (NAME:STEP), or {_RANDOM} for random actions",
    )
