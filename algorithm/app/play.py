"""``--run``, ``--eval N`` and ``--video``: episodes with the networks of a checkpoint, without learning.

Writes ``evaluation.json`` and ``videos/`` in the run's folder, and the target of ``--record``. What is
written for an export goes into a folder of its name, beside the runs of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from algorithm.agents.base import Agent
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags, notices
from algorithm.app.console.output import open_console
from algorithm.app.outputs import Outputs, Scores, scores_json, scores_of, table
from algorithm.app.parameters import played_lessons
from algorithm.app.playable import LIMITS, PlayableRun, playable_run
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.console import Console
from algorithm.core.data import Episode
from algorithm.core.errors import EditorStoppedError, StorageError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.system.display import has_display
from algorithm.core.wording import Rows, info_rows, listed, short
from algorithm.env.base import VecEnv
from algorithm.nn.process import own_modes
from algorithm.run.context import RunContext
from algorithm.run.evaluation.callbacks import CallbackList, ProgressLines
from algorithm.run.evaluation.evaluate import cut_off_line, episode_limit, eval_loop, eval_policies, evaluate
from algorithm.run.experience.collector import Iteration
from algorithm.run.experience.faults import Faults
from algorithm.run.signals import StopRequest
from algorithm.store.files import write_json
from algorithm.store.follow_up_commands import can_be_watched


@own_modes()
def play(options: TrainOptions, folder: EnvFolder) -> int:
    """Play with a trained agent; return the exit code.

    ``--run`` plays until ``max_iter``, ``max_step`` or a signal; ``--eval N`` plays N episodes of each
    behaviour with the deterministic policy, ``--video`` alone one. The run is that of ``--name``, which may
    be an export, or the newest. ``--eval`` on one environment plays the episodes of the training's
    evaluations. Stop in the Unity Editor counts as a signal.
    """
    with ExitStack() as stack:
        played = stack.enter_context(playable_run(options, folder))
        loaded = _loaded(options, played, folder)
        console = stack.enter_context(open_console(quiet=options.quiet))
        stop = stack.enter_context(StopRequest())
        _warn(options, loaded, console)
        _compare_with_trained(played, loaded, folder, console)
        faults = Faults(console, go_on=stop.check_start)
        context = RunContext(loaded=loaded, device=options.device, faults=faults, stack=stack)
        playing = _begin(options, folder, played, context, stop)
        if options.run:
            playing.play_on()
        else:
            playing.measure(options.eval)
    return stop.exit_code


def _begin(
    options: TrainOptions, folder: EnvFolder, played: PlayableRun, context: RunContext, stop: StopRequest
) -> _Playing:
    """Prepare the episodes: the checkpoint's agents, the environment in its lessons, and the outputs."""
    loaded, console = context.loaded, context.console
    saved = played.checkpoint(options.ckpt, warn=console.warn)
    lessons = context.lessons = played_lessons(loaded.config, options.lesson, saved)
    base = loaded.config.base_config
    watched = options.run and base.kind.player and has_display()
    env = context.env("evaluate", base.n_envs, render=options.render or watched, film=options.video)
    networks = folder.path if options.use_env_nn else played.run.path
    with played.fitting(env.specs):
        agents = context.players(env.specs, networks, saved)
    acting = "sampled" if options.run and not options.disable_sample else "deterministic"
    lesson_text = "".join(f", {name} {lesson}" for name, lesson in lessons.items())
    console.message(f"playing {played.shown(saved)}, {acting} actions{lesson_text}; Ctrl-C ends")
    return _Playing(
        loaded=loaded,
        agents=agents,
        env=env,
        stop=stop,
        console=console,
        files=Outputs.of(options, played.output, context, env, saved.step),
        step=saved.step,
        acting=acting,
        lessons=lessons,
    )


def _loaded(options: TrainOptions, played: PlayableRun, folder: EnvFolder) -> LoadedConfig:
    """Load the run's configuration with the options' changes, and without the training's limits."""
    return load_config_file(
        played.run.config,
        (*LIMITS, *options.overrides),
        config_flags(options),
        options.seed,
        env=played.task(folder),
        require_runnable=True,
    )


def _compare_with_trained(
    played: PlayableRun, loaded: LoadedConfig, folder: EnvFolder, console: Console
) -> None:
    """Warn of another environment than the trained one; raise UsageError for another algorithm."""
    trained = load_config_file(played.run.config, env=folder)
    played_in, trained_in = (each.config.base_config.env_name for each in (loaded, trained))
    names = {name.rpartition(":")[2] for name in (played_in, folder.env_name or played_in)}
    if others := names - {trained_in.rpartition(":")[2]}:
        console.warn(
            f"the {played.kind} was trained on {trained_in}, not on {listed(sorted(others))}; "
            f"it plays in {played_in}"
        )
    for name in ("", *loaded.behaviours):
        theirs, wanted = (
            (each.for_behaviour(name) if name else each.config).algorithm for each in (trained, loaded)
        )
        if theirs != wanted:
            raise UsageError(
                f"run {played.run.name!r} was trained with {theirs}",
                where=f"{f'ma_config.{name}.' if name else ''}algorithm: {wanted}",
                why="its networks belong to that algorithm",
                fix="leave the algorithm out",
            )


def _warn(options: TrainOptions, loaded: LoadedConfig, console: Console) -> None:
    """Show notices on flags without effect, and a missing display."""
    for text in notices(options, loaded.config):
        console.warn(text)
    if options.render and not has_display():
        films = ", --video films instead" if loaded.config.base_config.kind.films else ""
        console.warn(f"there is no display for a window{films}")


@dataclass(frozen=True, kw_only=True)
class _Playing:
    """Episodes that agents play, and their outputs.

    step:    step of the checkpoint
    acting:  ``sampled`` or ``deterministic``
    lessons: parameter with a curriculum -> lesson
    """

    loaded: LoadedConfig
    agents: Mapping[str, Agent]
    env: VecEnv
    stop: StopRequest
    console: Console
    files: Outputs
    step: int
    acting: str
    lessons: Mapping[str, str]

    def play_on(self) -> None:
        """Play until a limit or a signal."""
        episodes = []
        for number, episode in enumerate(self._endless(), start=1):
            episodes.append(episode)
            self.console.message(_line(number, episode))
        scores = scores_of(episodes)
        for behaviour, performance in scores.items():
            infos = "".join(f", {name} {text}" for name, text in info_rows(performance.infos))
            number = len(performance.returns)
            self.console.message(
                f"{behaviour}: mean return {performance.interval.text}{infos}, {number} episodes"
            )
        if not scores:
            self.console.message("no episode was finished")
        written = self._write(scores) if scores else ()
        for name, text in [*written, *self.files.rows]:
            self.console.message(f"{name}: {text}")

    def _endless(self) -> Iterator[Episode]:
        """Yield episodes as they end, until a limit of the configuration or a signal."""
        base = self.loaded.config.base_config
        policies = eval_policies(self.agents, "playing", greedy=self.acting == "deterministic")
        callback, limit = self.files.callback, base.max_step_each_iter
        with (
            _editor_as_signal(self.stop),
            eval_loop(self.env, policies, callback, num_envs=base.n_envs, length_limit=limit) as rollout,
        ):
            iteration, iterations = Iteration(rollout), 0
            while not (self.stop or 0 < base.max_step <= rollout.steps or iterations == base.max_iter):
                episodes = rollout.step()
                callback.step(episodes)
                yield from episodes
                iterations += iteration.ends(episodes)

    def measure(self, number: int | None) -> None:
        """Play ``number`` episodes of each behaviour and write their scores; None: film one episode only."""
        console, run = self.console, self.files.run
        episodes = self._first(number or 1)
        scores = scores_of(episodes)
        if line := cut_off_line(scores.values(), self.loaded.config, self.env.time_limit):
            console.warn(line)
        rows = [("checkpoint", f"step {self.step:,}"), *table(scores), *self.files.rows]
        if self.stop.signal is not None:
            rows.append(("ended by", f"{self.stop.reason}, before all episodes were finished"))
        if scores and number is not None:  # a film alone does not replace an evaluation
            rows += self._write(scores)
        commands = []
        if can_be_watched(self.env.render_modes, display=has_display()):
            commands.append(("watch", run.command("-n", run.name, "--watch", f"--ckpt={self.step}")))
        console.finish(rows, commands)

    def _first(self, number: int) -> list[Episode]:
        """Play and return the first ``number`` episodes of each behaviour; fewer after a signal."""
        episodes: list[Episode] = []

        def on_episode(episode: Episode) -> None:
            episodes.append(episode)
            self.console.message(_line(len(episodes), episode))

        with _editor_as_signal(self.stop):
            evaluate(
                self.env,
                eval_policies(self.agents, "playing", greedy=True),
                number,
                length_limit=episode_limit(self.loaded.config, self.env.time_limit),
                stop=lambda: bool(self.stop),
                on_episode=on_episode,
                callback=CallbackList(self.files.callback, ProgressLines(self.console.message)),
            )
        return episodes

    def _write(self, scores: Scores) -> Rows:
        """Write ``evaluation.json`` and return its row; after a failure warn, and return none."""
        run = self.files.run
        path = run.path / "evaluation.json"
        try:
            run.path.mkdir(parents=True, exist_ok=True)  # that of an export does not exist yet
            lessons = {"lessons": dict(self.lessons)} if self.lessons else {}
            write_json(
                path, {"step": self.step, "acting": self.acting, **lessons, "behaviours": scores_json(scores)}
            )
        except (OSError, StorageError) as error:
            self.console.warn(f"the result was not saved, only shown here · {getattr(error, 'line', error)}")
            return ()
        return (("file", run.shown(path)),)


@contextmanager
def _editor_as_signal(stop: StopRequest) -> Iterator[None]:
    """End the block like a first signal when the user presses Stop in the Unity Editor."""
    try:
        yield
    except EditorStoppedError as end:
        stop.set(end.what, interrupted=True)


def _line(number: int, episode: Episode) -> str:
    """Return the console's line on a finished episode."""
    who = "" if episode.behaviour == DEFAULT_BEHAVIOUR else f"{episode.behaviour} "
    outcome = f"return {short(episode.total):>10}  length {episode.length}"
    return f"episode {number:>4}  {who}agent {episode.agent}  {outcome}"
