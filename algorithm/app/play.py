"""``--run``, ``--eval N`` and ``--video``: episodes with the networks of a checkpoint, without learning.

Writes ``evaluation.json`` and ``videos/`` in the run's folder, and the file of ``--record``. What is written
for an export goes into a folder of its name, beside the runs of the task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from algorithm.agents.networks import pick_device
from algorithm.agents.roles import Agent, Episode
from algorithm.app.cli.train import TrainOptions, config_flags, notices
from algorithm.app.console.output import open_console
from algorithm.app.sharing.opening import playable_run
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.console import Console
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.system.display import has_display
from algorithm.core.wording import Rows
from algorithm.env.base import VecEnv
from algorithm.env.unity.player import EditorStoppedError
from algorithm.evaluation.callbacks import NULL_CALLBACK, CallbackList, EvalCallback, ProgressLines
from algorithm.evaluation.evaluate import EvalPolicy, Performance, eval_loop, evaluate
from algorithm.evaluation.length import cut_off_line, episode_limit
from algorithm.evaluation.logged import Logged
from algorithm.evaluation.recording import Recording
from algorithm.evaluation.video import VideoRecorder, VideoRecorders
from algorithm.experience.collector import Iteration
from algorithm.experience.faults import Faults
from algorithm.nn.process import set_up_process
from algorithm.replay.budget import MemoryBudget
from algorithm.runs.files import finite_or_null, write_json
from algorithm.runs.offers import can_be_watched
from algorithm.runs.rundir import RunDir
from algorithm.train.assembly import close_env, load_networks_into, make_agents, make_env
from algorithm.train.signals import StopRequest

# Replace those of the training; the command line comes after them. max_step must be a number, since a
# learning rate that falls to 0 needs one. Workers only train, and more of them than environments are refused.
LIMITS = (
    f"base_config.max_step={10**15}",
    "base_config.max_iter=-1",
    "base_config.n_envs=1",
    "base_config.workers=0",
)


def play(options: TrainOptions, folder: EnvFolder) -> int:
    """Play with a trained agent as the command line says; return the exit code.

    ``--run`` plays until ``max_iter``, ``max_step`` or a signal; ``--eval N`` plays N episodes of each
    behaviour with the deterministic policy; ``--video`` alone plays one such episode. The run is that of
    ``--name``, which may be an export, or the newest, with its own configuration and networks. ``--eval`` on
    one environment plays the same episodes as the evaluations of the training. Stop in the Unity Editor
    counts as a signal.
    """
    _refuse_contradictions(options)
    with ExitStack() as stack:
        played = stack.enter_context(playable_run(options, folder))
        run, output = played.run, played.output
        loaded = load_config_file(
            run.config,
            (*LIMITS, *options.overrides),
            config_flags(options),
            options.seed,
            env=played.task(folder),
            require_runnable=True,
        )
        _refuse_other_algorithm(run, loaded, folder)
        set_up_process(loaded.threads)
        console = stack.enter_context(open_console(quiet=options.quiet))
        stop = stack.enter_context(StopRequest())
        for text in notices(options, loaded.config):
            console.warn(text)
        if options.render and not has_display():
            films = "" if loaded.config.base_config.env_type == "UNITY" else ", --video films instead"
            console.warn(f"there is no display: no window can be seen{films}")
        saved = played.checkpoint(options.ckpt, warn=console.warn)
        n_envs = loaded.config.base_config.n_envs
        env = make_env(
            loaded,
            "evaluate",
            n_envs,
            faults=Faults(console, go_on=stop.check_start),
            render=options.render,
            film=options.video,
            watched=options.run,
        )
        stack.callback(close_env, env, console.warn)
        nn_folder = folder.path if options.use_env_nn else run.path
        # Nothing is stored, so no page of the replays is touched and their size does not matter.
        memory = MemoryBudget(free=sys.maxsize)
        device = pick_device(options.device)
        with played.fitting(env.specs):
            agents = make_agents(loaded, env.specs, nn_folder, device, memory=memory, learning=False)
            load_networks_into(agents, saved)
        step = saved.step
        acting = "sampled" if options.run and not options.disable_sample else "deterministic"
        console.message(f"playing {played.shown(saved)}, {acting} actions; Ctrl-C ends")
        files = _Outputs.of(options, output, env, step, console)
        if options.run:
            episodes = list(_shown(console, _play(loaded, agents, env, stop, options, files.callback)))
            _finish_run(console, output, scores_of(episodes), step, acting)
            for name, text in files.rows:
                console.message(f"{name}: {text}")
        else:
            episodes = _evaluate(console, loaded, agents, env, stop, options.eval or 1, files.callback)
            scores = scores_of(episodes)
            _finish_eval(console, output, loaded, options, scores, step, stop, files.rows, env.render_modes)
    return stop.exit_code


def _refuse_other_algorithm(run: RunDir, loaded: LoadedConfig, folder: EnvFolder) -> None:
    """Raise UsageError if overrides name another algorithm than the one that the run was trained with."""
    own = load_config_file(run.config, env=folder)
    for name in ("", *loaded.behaviours):
        theirs, wanted = (
            (each.for_behaviour(name) if name else each.config).algorithm for each in (own, loaded)
        )
        if theirs != wanted:
            raise UsageError(
                f"run {run.name!r} was trained with {theirs}",
                where=f"{f'ma_config.{name}.' if name else ''}algorithm: {wanted}",
                why="its networks are those of that algorithm",
                fix="leave the algorithm out",
            )


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


@dataclass(frozen=True)
class _Outputs:
    """Video and recording that the command line asks for."""

    run: RunDir
    video: VideoRecorder | None
    recording: Recording | None

    @classmethod
    def of(cls, options: TrainOptions, run: RunDir, env: VecEnv, step: int, console: Console) -> _Outputs:
        video = VideoRecorders(env, run.videos, warn=console.warn)(step) if options.video else None
        return cls(run, video, Recording(Path(options.record)) if options.record else None)

    @property
    def callback(self) -> EvalCallback:
        return CallbackList(*(one for one in (self.video, self.recording) if one is not None))

    @property
    def rows(self) -> Rows:
        """Files that were written."""
        rows = []
        if self.video is not None and self.video.saved:
            rows.append(("film", self.run.shown(self.video.path)))
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
    callback: EvalCallback = NULL_CALLBACK,
) -> Iterator[Episode]:
    base = loaded.config.base_config
    policies, limit = _policies(agents, greedy=options.disable_sample), base.max_step_each_iter
    with (
        _editor_as_signal(stop),
        eval_loop(env, policies, callback, num_envs=base.n_envs, length_limit=limit) as loop,
    ):
        rollout = loop.rollout
        iteration, iterations = Iteration(rollout), 0
        while not stop and not 0 < base.max_step <= rollout.steps and iterations != base.max_iter:
            episodes = loop.step()
            yield from episodes
            iterations += iteration.ends(episodes)


def _evaluate(
    console: Console,
    loaded: LoadedConfig,
    agents: dict[str, Agent],
    env: VecEnv,
    stop: StopRequest,
    num_episodes: int,
    callback: EvalCallback,
) -> list[Episode]:
    """Return the episodes that count, as many as were finished before a signal."""
    episodes: list[Episode] = []

    def on_episode(episode: Episode) -> None:
        episodes.append(episode)
        console.message(_line(len(episodes), episode))

    with _editor_as_signal(stop):
        evaluate(
            env,
            _policies(agents, greedy=True),
            num_episodes,
            length_limit=episode_limit(loaded.config, env.time_limit),
            stop=lambda: bool(stop),
            on_episode=on_episode,
            callback=CallbackList(callback, ProgressLines(console.message)),
        )
    if line := cut_off_line(scores_of(episodes).values(), loaded.config, env.time_limit):
        console.warn(line)
    return episodes


@contextmanager
def _editor_as_signal(stop: StopRequest) -> Iterator[None]:
    """End the block as a first signal does when the user stops playing in the Unity Editor."""
    try:
        yield
    except EditorStoppedError as end:
        stop.set(end.what, interrupted=True)


def _policies(agents: dict[str, Agent], *, greedy: bool) -> dict[str, EvalPolicy]:
    return {name: EvalPolicy(agent.new_policy("playing"), greedy=greedy) for name, agent in agents.items()}


def _shown(console: Console, episodes: Iterator[Episode]) -> Iterator[Episode]:
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
    for name, path in _write(console, run, scores, step, acting):
        console.message(f"{name}: {path}")


def _finish_eval(
    console: Console,
    run: RunDir,
    loaded: LoadedConfig,
    options: TrainOptions,
    scores: Scores,
    step: int,
    stop: StopRequest,
    files: Rows,
    render_modes: Sequence[str],
) -> None:
    config = loaded.config
    logged = Logged(
        run=run,
        step=step,
        episodes=config.eval_config.episodes,
        num_envs=config.base_config.n_envs,
        repeats=config.base_config.env_type != "UNITY",
    )
    rows = [("checkpoint", f"step {step:,}"), *table(scores, logged), *files]
    if stop.signal is not None:
        rows.append(("ended by", f"{stop.reason}, before all episodes were finished"))
    if scores and options.eval is not None:  # a film alone does not replace an evaluation
        rows += _write(console, run, scores, step, "deterministic")
    commands = []
    if can_be_watched(render_modes, display=has_display()):
        watch = run.command("-n", run.name, "--watch", f"--ckpt={step}")  # acting as it was measured
        commands.append(("watch", watch))
    console.finish(rows, commands)


def _write(console: Console, run: RunDir, scores: Scores, step: int, acting: str) -> Rows:
    """Write ``evaluation.json`` and return its row; a warning and none where it cannot be written."""
    path = run.path / "evaluation.json"
    try:
        run.path.mkdir(parents=True, exist_ok=True)  # of an export it is not there yet
        write_json(path, {"step": step, "acting": acting, "behaviours": scores_json(scores)})
    except (OSError, StorageError) as error:
        console.warn(f"the result stands here alone · {getattr(error, 'line', error)}")
        return ()
    return (("file", run.shown(path)),)


Scores = dict[str, Performance]
"""Performances by behaviour, in the order in which they first finished an episode."""


def scores_of(episodes: Sequence[Episode]) -> Scores:
    """Group episodes by behaviour; a behaviour without any is left out."""
    scores = {}
    for behaviour in dict.fromkeys(episode.behaviour for episode in episodes):
        own = [episode for episode in episodes if episode.behaviour == behaviour]
        scores[behaviour] = Performance(tuple(e.total for e in own), tuple(e.length for e in own))
    return scores


def scores_json(scores: Scores) -> object:
    """Return the content of ``evaluation.json``."""
    return finite_or_null(
        {
            behaviour: {
                "mean": performance.interval.mean,
                "ci95": performance.interval.half_width,
                "returns": performance.returns,
                "lengths": performance.lengths,
            }
            for behaviour, performance in scores.items()
        }
    )


def table(scores: Scores, logged: Logged | None) -> Rows:
    """Format rows for the console, several per behaviour; compare with ``logged`` if given."""
    rows = []
    for behaviour, performance in scores.items():
        own = [
            ("episodes", f"{len(performance.returns)}"),
            ("mean return", performance.interval.text),
            ("min and max", f"{min(performance.returns):.1f} and {max(performance.returns):.1f}"),
            ("length", f"{float(np.mean(performance.lengths)):.1f} steps"),
        ]
        if logged is not None and (verdict := logged.verdict(behaviour, performance)):
            own.append(("logged", verdict))
        who = "" if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}: "
        rows += [(f"{who}{name}", value) for name, value in own]
    return rows
