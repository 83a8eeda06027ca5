"""Construction of a training from its inputs: all that can fail before the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from algorithm.agents.base import Agent
from algorithm.config.at_start.decided import decided
from algorithm.config.loader import dump_config, overlaid
from algorithm.core.console import Console
from algorithm.core.extras import extra
from algorithm.core.plugins import Plugin
from algorithm.core.reading import read_json
from algorithm.core.spec import AgentSpec
from algorithm.env.pool.repetition import noted, other_limits
from algorithm.run.assembly import Assembly, check_eval_spaces
from algorithm.run.callbacks import Callbacks, Training, end_of_learn, load_callbacks
from algorithm.run.checkpointer import Checkpointer, kept_replays
from algorithm.run.evaluation.callbacks import NULL_CALLBACK, CallbackList
from algorithm.run.evaluation.evaluate import Evaluator
from algorithm.run.evaluation.recording import kept_recordings
from algorithm.run.evaluation.video import video_recorders
from algorithm.run.experience.faults import Faults
from algorithm.run.foreign import (
    ForeignNetworks,
    begin_with_networks,
    load_foreign_replays,
    load_replays,
    networks_of,
)
from algorithm.run.reporter import open_metrics
from algorithm.run.run import RunInputs, RunParts
from algorithm.run.runtime import LocalRuntime, Runtime, check_together, chosen_runtime
from algorithm.run.state import Start, TrainState, seed_globally
from algorithm.run.trainer import Trainer
from algorithm.run.user_code import env_file, nn_file, plugins_of
from algorithm.store.checkpoints.manager import CheckpointManager, passed_over
from algorithm.store.checkpoints.manifest import DamagedError
from algorithm.store.lock import RunLock
from algorithm.store.logs.metrics import MetricsLogger
from algorithm.store.provenance import made_with, start_of

_DROPPED_IN_EVALUATIONS = 100  # episodes; an evaluation waits for whole ones


def build(
    inputs: RunInputs,
    start: Start | None,
    *,
    runtime: type[Runtime] = LocalRuntime,
    console: Console,
    lock: RunLock,
    stack: ExitStack,
) -> RunParts:
    """Build all that can fail before the first step; nothing of an older state is cut back before.

    start:   checkpoint to go on from
    runtime: source of the transitions
    lock:    of the run's folder; stack: closes what is opened here
    """
    callbacks = _callbacks(inputs)
    seed_globally(inputs.loaded.seed)
    assembly = _assembly(inputs, start, console, stack)
    networks = inputs.run.path if start and not inputs.task_nn else inputs.loaded.env_dir
    runtime = chosen_runtime(inputs.loaded, runtime, greedy=inputs.greedy)
    assembly, source, evaluator = _environments(inputs, assembly, runtime, networks)
    inputs = replace(inputs, loaded=assembly.loaded)
    check_together(inputs.loaded, source.env.specs)
    own_env, plugins = env_file(inputs.loaded), plugins_of(inputs.loaded, source.env.specs, networks)
    foreign = networks_of(inputs, console.warn, resumed=start is not None)
    training, start, notices = _training(inputs, assembly, source, networks, start, foreign, own_env, plugins)
    render_modes = evaluator.env.render_modes if evaluator else ()
    _write_down(inputs, source.env.specs, networks, start, foreign, render_modes, own_env, plugins)
    metrics = open_metrics(inputs.loaded, inputs.run, start, console, stack)
    saver = _checkpointer(inputs, training, start, metrics, lock)
    callbacks.attach(
        Training(inputs.run.path, inputs.loaded.config, training.agents, training.counters, inputs.stop)
    )
    return RunParts(
        loaded=inputs.loaded,
        trainer=_trainer(inputs, training, source, evaluator, saver, metrics, callbacks),
        training=training,
        runtime=source,
        saver=saver,
        metrics=metrics,
        render_modes=render_modes,
        resumed=start,
        notices=notices,
    )


def _trainer(
    inputs: RunInputs,
    training: TrainState,
    source: Runtime,
    evaluator: Evaluator | None,
    saver: Checkpointer,
    metrics: MetricsLogger,
    callbacks: Callbacks,
) -> Trainer:
    """Return the loop of the run."""
    console = training.faults.console
    return Trainer(
        training,
        inputs.loaded.config,
        runtime=source,
        evaluator=evaluator,
        saver=saver,
        console=console,
        metrics=metrics,
        stop=inputs.stop,
        callbacks=callbacks,
        evaluations=inputs.evaluations,
        profile=extra("TrainingProfile")(inputs.run.path / "profile.txt", console)
        if inputs.profile
        else None,
    )


def _callbacks(inputs: RunInputs) -> Callbacks:
    """Return a user's own code; where nothing is trained, that of the configuration waits for a beginning."""
    if end_of_learn(inputs.callbacks) == 0:
        return Callbacks(inputs.callbacks)
    entries = inputs.loaded.config.base_config.callbacks
    return Callbacks([*load_callbacks(entries, inputs.loaded.env_dir), *inputs.callbacks])


def _assembly(inputs: RunInputs, start: Start | None, console: Console, stack: ExitStack) -> Assembly:
    return Assembly(
        loaded=inputs.loaded,
        device=inputs.device,
        faults=Faults(console, go_on=inputs.stop.check_start),
        stack=stack,
        files=inputs.run.path,
        since=start.saved.step if start else 0,
        given=inputs.given,
    )


def _environments(
    inputs: RunInputs, assembly: Assembly, runtime: type[Runtime], networks: Path
) -> tuple[Assembly, Runtime, Evaluator | None]:
    """Return the source of transitions, and evaluations where there can be a second environment.

    The first environment says what the spaces are; with that the configuration of the assembly is whole.
    """
    run, console = inputs.run, assembly.faults.console
    base, film = inputs.loaded.config.base_config, inputs.loaded.config.eval_config.video
    eval_env = None
    if not base.in_editor:
        # A learner shows its evaluations, since nothing else happens there.
        eval_env = assembly.env("evaluate", render=inputs.render and runtime.remote, film=film)
        assembly = assembly.fitted(eval_env.specs)
    source = runtime(assembly, run, eval_env, networks=networks, render=inputs.render)
    if eval_env is None:
        return assembly.fitted(source.env.specs), source, None
    loaded = assembly.loaded
    check_eval_spaces(loaded, source.env.specs, eval_env.specs)
    for line in other_limits(eval_env.specs, noted(source.env.specs)):
        console.warn(f"in evaluations {line}")
    on_non_finite = assembly.on_non_finite(run.argument, "evaluate", most=_DROPPED_IN_EVALUATIONS)
    films = video_recorders(eval_env, run.videos, warn=console.warn) if film else lambda _: NULL_CALLBACK
    folders = {name: loaded.for_behaviour(name).demonstrations.record for name in eval_env.specs}
    recordings = kept_recordings(folders, run.path, warn=console.warn)
    evaluator = Evaluator(
        eval_env,
        loaded.config,
        console,
        watch=lambda step: CallbackList(films(step), *recordings(step)),
        on_non_finite=on_non_finite,
    )
    return assembly, source, evaluator


def _agents(
    inputs: RunInputs,
    assembly: Assembly,
    source: Runtime,
    networks: Path,
    start: Start | None,
    foreign: ForeignNetworks | None,
) -> tuple[dict[str, Agent], Start | None, list[str]]:
    """Return agents with a checkpoint's replays, that checkpoint, and a line for each missing replay.

    Damage of a replay shows only while it is loaded. The checkpoint before then begins with new agents.
    """
    replays = inputs.run.replay
    while True:
        agents = assembly.agents(
            source.env.specs, networks, greedy=inputs.greedy, make_replay=source.make_replay
        )
        if start is None:
            return agents, None, []
        try:
            if foreign is not None:
                return agents, start, load_foreign_replays(agents, foreign, start.saved, replays)
            return agents, start, load_replays(agents, start.saved, replays)
        except DamagedError as error:
            if start.older is None or (foreign is not None and foreign.replay is not None):
                raise  # an older checkpoint would change nothing about a replay from elsewhere
            assembly.faults.console.warn(passed_over(error))
            start = replace(start, saved=next(start.older))


def _training(
    inputs: RunInputs,
    assembly: Assembly,
    source: Runtime,
    networks: Path,
    start: Start | None,
    foreign: ForeignNetworks | None,
    own_env: Path | None,
    plugins: Sequence[Plugin],
) -> tuple[TrainState, Start | None, list[str]]:
    """Return the training as it begins, its checkpoint, and a line on each thing of note."""
    loaded = inputs.loaded
    agents, start, notices = _agents(inputs, assembly, source, networks, start, foreign)
    # The run's own networks and the environment's own file are looked at by themselves.
    apart = {f"{loaded.for_behaviour(name).run.nn}.py" for name in agents}
    apart |= {own_env.name} if own_env else set()
    made = made_with(loaded.env_dir, apart, plugins)
    training = TrainState(
        source.make_collector, agents, assembly.faults, made, parameters=loaded.config.parameters
    )
    saved = start.saved if start else None
    if saved:
        notices += training.restore(saved)
        notices += other_limits(source.env.specs, read_json(inputs.run.manifest).get("spaces") or {})
    if foreign is not None:
        notices += begin_with_networks(agents, foreign, saved)
    if saved and own_env is not None and inputs.run.has_other(own_env):
        notices.append(f"the environment's file {own_env.name} has been changed since")
    return training, start, notices


def _write_down(
    inputs: RunInputs,
    specs: Mapping[str, AgentSpec],
    networks: Path,
    start: Start | None,
    foreign: ForeignNetworks | None,
    render_modes: Sequence[str],
    own_env: Path | None,
    plugins: Sequence[Plugin],
) -> None:
    """Write the inputs of the run; its configuration last, which makes the folder a run."""
    run, loaded = inputs.run, inputs.loaded
    for config in map(loaded.for_behaviour, specs):
        file = nn_file(config, networks)
        if isinstance(file, Path) and networks != run.path:  # not those of a plug-in
            run.copy_nn(file, f"{config.run.nn}.py")
    given = inputs.given.noted if inputs.given else None
    begun = start_of(inputs.arguments, own_env, plugins, given, inputs.device)
    if start:
        overrides = overlaid(loaded.overrides, inputs.flags)
        run.note_resumed(begun, step=start.saved.step, overrides=overrides)
    else:
        run.write_overrides(loaded.overrides)
        run.write_manifest(
            begun,
            seeds={"run": loaded.seed},
            render_modes=render_modes,
            spaces=noted(specs),
            init_from=foreign.origin if foreign else None,
        )
    if not start or start.changes:
        if foreign and not start:
            loaded = decided(loaded, "base_config", lambda _: {"init_from": foreign.pinned})
        run.write_config(dump_config(loaded))


def _checkpointer(
    inputs: RunInputs, training: TrainState, start: Start | None, metrics: MetricsLogger, lock: RunLock
) -> Checkpointer:
    """Return the writer of checkpoints, from which agents that diverge go back to the last one."""
    run, kept, console = inputs.run, inputs.loaded.config.checkpoint_config, training.faults.console
    manager = CheckpointManager(
        run.checkpoints,
        run.replay,
        keep=kept.keep,
        best=kept.best,
        milestones=kept.milestones,
        replay=kept_replays(training.agents, kept.replay),
        warn=console.warn,
    )
    if start:
        manager.resume(start.saved.step)
    # Networks from elsewhere are in no checkpoint of this run yet.
    since = start.saved.step if start and inputs.init_from else -1
    saver = Checkpointer(manager, training, console, metrics=metrics.state, check=lock.check, since=since)
    for name, agent in training.agents.items():
        agent.attach(restore=partial(saver.networks, name), report=training.faults)
    return saver
