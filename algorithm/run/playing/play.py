"""Playing with the networks of a checkpoint: ``--run``, ``--eval N`` and ``--video``. Nothing is learned.

Written are ``evaluation.json`` and ``videos/`` in the run's folder, and the file of ``--record``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from algorithm.agents.networks import pick_device
from algorithm.config.cli import TrainOptions, config_flags
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.console.base import Console, Rows, open_console
from algorithm.env.base import VecEnv
from algorithm.errors import UsageError
from algorithm.experience.collector import Iteration
from algorithm.experience.faults import Faults
from algorithm.replay.budget import MemoryBudget
from algorithm.roles import Agent, Episode
from algorithm.run.checkpoints.keeper import find_checkpoint
from algorithm.run.files import write_json
from algorithm.run.offers import can_be_watched, has_display
from algorithm.run.playing.evaluate import Visitor, evaluate
from algorithm.run.playing.film import Film, Films
from algorithm.run.playing.record import Recording
from algorithm.run.playing.scores import Logged, Scores, scores_json, scores_of, table
from algorithm.run.playing.watching import NOBODY, Audience, Watcher, shown
from algorithm.run.rundir import RunDir
from algorithm.spec import DEFAULT_BEHAVIOUR
from algorithm.train.assembly import close_env, load_networks_into, make_agents, make_env
from algorithm.train.signals import StopRequest

# The limits and the number of environments of the training do not count here, those of the command line do.
# A step size that falls to 0 at max_step must have one, though nothing is learned.
_OWN_LIMITS = (f"base_config.max_step={10**15}", "base_config.max_iter=-1", "base_config.n_envs=1")


def play(options: TrainOptions, folder: EnvFolder) -> int:
    """Play with a trained agent as the command line says; returns the exit code.

    ``--run`` until ``max_iter``, ``max_step`` or a signal; ``--eval N`` N episodes of each behaviour with the
    deterministic policy; ``--video`` alone one such episode. The newest run of the environment unless
    ``--name`` says which, with its own configuration and networks. ``--eval`` on one environment plays the
    very episodes of an evaluation while training.
    """
    _refuse_contradictions(options)
    run = find_run(options, folder)
    overrides = (*_OWN_LIMITS, *options.overrides)
    loaded = load_config_file(
        run.config, overrides, config_flags(options), options.seed, env=folder, require_runnable=True
    )
    torch.set_num_threads(loaded.config.sac_config.threads)
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        stop = stack.enter_context(StopRequest())
        for text in options.notices:
            console.warn(text)
        if options.render and not has_display():
            console.warn("there is no display: no window can be seen, --video films instead")
        checkpoint = find_checkpoint(run.checkpoints, options.ckpt, warn=console.warn)
        n_envs = loaded.config.base_config.n_envs
        env = make_env(
            loaded.config,
            "evaluate",
            n_envs,
            folder=folder.path,
            faults=Faults(console),
            render=options.render,
            film=options.video,
        )
        stack.callback(close_env, env, console.warn)
        nn_folder = folder.path if options.use_env_nn else run.path
        # Playing stores nothing: whatever replay the run had, not a page of it is touched.
        memory = MemoryBudget(free=sys.maxsize)
        agents = make_agents(loaded, env.specs, nn_folder, pick_device(options.device), memory=memory)
        step = load_networks_into(agents, checkpoint)
        acting = "sampled" if options.run and not options.disable_sample else "deterministic"
        console.message(f"playing {run.shown(checkpoint)}, {acting} actions; Ctrl-C ends")
        watching = _Watching.of(options, run, env, step, console)
        if options.run:
            episodes = list(_told(console, _play(loaded, agents, env, stop, options, watching.watcher)))
            _finish_run(console, run, scores_of(episodes), step, acting)
            for name, text in watching.rows:
                console.message(f"{name}: {text}")
        else:
            episodes = _evaluate(console, loaded, agents, env, stop, options.eval or 1, watching.watcher)
            scores, seen = scores_of(episodes), watching.rows
            _finish_eval(console, run, loaded, options, scores, step, stop, seen, env.render_modes)
    return stop.exit_code


def _refuse_contradictions(options: TrainOptions) -> None:
    if options.run and options.eval is not None:
        raise UsageError(
            "--run and --eval exclude each other",
            why="--eval plays N episodes with the deterministic policy, --run until a limit, with sampling",
            fix="leave one of them out",
        )
    if options.render and options.video:
        raise UsageError(
            "--render and --video exclude each other",
            why="an environment either opens a window or hands out its pictures",
            fix="leave one of them out",
        )


def find_run(options: TrainOptions, folder: EnvFolder) -> RunDir:
    """That of ``--name``, else the one started last. Raises StorageError if there is none."""
    if options.name is None:
        return RunDir.newest(folder.label, argument=options.env)
    return RunDir.open(folder.label, options.name, argument=options.env)


@dataclass(frozen=True)
class _Watching:
    """Film and recording that the command line asks for."""

    run: RunDir
    film: Film | None
    recording: Recording | None

    @classmethod
    def of(cls, options: TrainOptions, run: RunDir, env: VecEnv, step: int, console: Console) -> _Watching:
        film = None
        if options.video:
            film = Films(env, run.videos, warn=console.warn)(step)
        return cls(run, film, Recording(Path(options.record)) if options.record else None)

    @property
    def watcher(self) -> Watcher:
        watchers = [watcher for watcher in (self.film, self.recording) if watcher is not None]
        return Audience(*watchers) if watchers else NOBODY

    @property
    def rows(self) -> Rows:
        """What there is to see afterwards."""
        rows = []
        if self.film is not None and self.film.saved:
            rows.append(("film", self.run.shown(self.film.path)))
        if self.recording is not None and self.recording.episodes:
            shown = self.run.shown(self.recording.path)
            rows.append(("recording", f"{shown}, {self.recording.episodes} episodes"))
        return rows


def _play(
    loaded: LoadedConfig,
    agents: dict[str, Agent],
    env: VecEnv,
    stop: StopRequest,
    options: TrainOptions,
    watcher: Watcher = NOBODY,
) -> Iterator[Episode]:
    base = loaded.config.base_config
    visitors = _visitors(agents, greedy=options.disable_sample)
    with shown(env, visitors, watcher, num_envs=base.n_envs, length_limit=base.max_step_each_iter) as show:
        rollout = show.rollout
        iteration, iterations = Iteration(rollout), 0
        while not stop and not 0 < base.max_step <= rollout.steps and iterations != base.max_iter:
            episodes = show.step()
            yield from episodes
            iterations += iteration.ends(episodes)


def _evaluate(
    console: Console,
    loaded: LoadedConfig,
    agents: dict[str, Agent],
    env: VecEnv,
    stop: StopRequest,
    num_episodes: int,
    watcher: Watcher,
) -> list[Episode]:
    """The episodes that count, as many as were finished before a signal."""
    episodes: list[Episode] = []

    def on_episode(episode: Episode) -> None:
        episodes.append(episode)
        console.message(_line(len(episodes), episode))

    evaluate(
        env,
        _visitors(agents, greedy=True),
        num_episodes,
        length_limit=loaded.config.base_config.max_step_each_iter,
        stop=lambda: bool(stop),
        on_episode=on_episode,
        watcher=watcher,
    )
    return episodes


def _visitors(agents: dict[str, Agent], *, greedy: bool) -> dict[str, Visitor]:
    return {name: Visitor(agent.new_policy("playing"), greedy=greedy) for name, agent in agents.items()}


def _told(console: Console, episodes: Iterator[Episode]) -> Iterator[Episode]:
    for number, episode in enumerate(episodes, start=1):
        console.message(_line(number, episode))
        yield episode


def _line(number: int, episode: Episode) -> str:
    who = "" if episode.behaviour == DEFAULT_BEHAVIOUR else f"{episode.behaviour} "
    outcome = f"return {episode.total:>10.2f}  length {episode.length}"
    return f"episode {number:>4}  {who}agent {episode.agent}  {outcome}"


def _finish_run(console: Console, run: RunDir, scores: Scores, step: int, acting: str) -> None:
    for behaviour, performance in scores.items():
        console.message(
            f"{behaviour}: mean return {performance.interval.text}, {len(performance.returns)} episodes"
        )
    if not scores:
        console.message("no episode was finished")
        return
    console.message(f"written to {run.shown(_write(run, scores, step, acting))}")


def _finish_eval(
    console: Console,
    run: RunDir,
    loaded: LoadedConfig,
    options: TrainOptions,
    scores: Scores,
    step: int,
    stop: StopRequest,
    seen: Rows,
    render_modes: Sequence[str],
) -> None:
    config = loaded.config
    logged = Logged(
        run=run, step=step, episodes=config.eval_config.episodes, num_envs=config.base_config.n_envs
    )
    rows = [("checkpoint", f"step {step:,}"), *table(scores, logged), *seen]
    if stop.signal is not None:
        rows.append(("ended by", f"{stop.signal.name}, before all episodes were finished"))
    if scores and options.eval is not None:  # a film alone does not replace an evaluation
        rows.append(("file", run.shown(_write(run, scores, step, "deterministic"))))
    commands = []
    if can_be_watched(render_modes, display=has_display()):
        watch = run.command("-n", run.name, "--watch", f"--ckpt={step}")  # acting as it was measured
        commands.append(("watch", watch))
    console.finish(rows, commands)


def _write(run: RunDir, scores: Scores, step: int, acting: str) -> Path:
    path = run.path / "evaluation.json"
    write_json(path, {"step": step, "acting": acting, "behaviours": scores_json(scores)})
    return path
