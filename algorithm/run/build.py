"""Construction of a training from its inputs; all its parts that can fail before the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from algorithm.agents.base import Agent
from algorithm.config.loader import all_changes, dump_config
from algorithm.core.extras import extra
from algorithm.core.spec import AgentSpec
from algorithm.env.pool.repetition import specs_as_json
from algorithm.run.callbacks import Callbacks, Training, end_of_learn, load_callbacks
from algorithm.run.checkpointer import Checkpointer, kept_replays
from algorithm.run.context import check_eval_spaces
from algorithm.run.evaluation.callbacks import NULL_CALLBACK
from algorithm.run.evaluation.evaluate import Evaluator
from algorithm.run.evaluation.video import video_recorders
from algorithm.run.foreign import (
    begin_with_networks,
    load_foreign_replays,
    load_replays,
)
from algorithm.run.inputs import RunInputs, nn_file
from algorithm.run.reporter import open_metrics
from algorithm.run.runtime import LocalRuntime, Runtime, check_together, chosen_runtime
from algorithm.run.state import TrainState, seed_globally
from algorithm.run.trainer import BuiltTraining
from algorithm.run.training_context import TrainingContext
from algorithm.store.checkpoints.manager import CheckpointManager, skip_warning
from algorithm.store.checkpoints.manifest import DamagedError
from algorithm.store.logs.metrics import MetricsLogger
from algorithm.store.provenance import describe_start, made_with

_DROPPED_IN_EVALUATIONS = 100  # episodes; an evaluation waits for whole ones


def build(context: TrainingContext, runtime: type[Runtime] = LocalRuntime) -> BuiltTraining:
    """Build a training. Whatever can fail does so here, before files of an older state are cut back.

    runtime: class of the source of transitions
    """
    inputs = context.inputs
    callbacks = _callbacks(inputs)
    seed_globally(context.loaded.seed)
    source, evaluator = _environments(context, chosen_runtime(context.loaded, runtime, greedy=inputs.greedy))
    check_together(context.loaded, source.env.specs)
    agents = _agents(context, source)
    if context.loaded.config.self_play.window:
        extra("begin_self_play")(context, agents, source, evaluator)
    training = _training(context, source, agents)
    render_modes = evaluator.env.render_modes if evaluator else ()
    _write_inputs(context, source.env.specs, render_modes)
    metrics = open_metrics(context.loaded, inputs.run, context.start, context.console, context.stack)
    saver = _checkpointer(context, training, metrics)
    config = context.loaded.config
    callbacks.attach(Training(inputs.run.path, config, training.agents, training.counters, inputs.stop))
    return BuiltTraining(
        training=training,
        runtime=source,
        evaluator=evaluator,
        saver=saver,
        metrics=metrics,
        callbacks=callbacks,
        render_modes=render_modes,
    )


def _callbacks(inputs: RunInputs) -> Callbacks:
    """Return the user's callbacks; those of the configuration only if there is something to train."""
    if end_of_learn(inputs.callbacks) == 0:
        return Callbacks(inputs.callbacks)
    entries = inputs.loaded.config.base_config.callbacks
    return Callbacks([*load_callbacks(entries, inputs.loaded.env_dir), *inputs.callbacks])


def _environments(context: TrainingContext, runtime: type[Runtime]) -> tuple[Runtime, Evaluator | None]:
    """Make the source of transitions and the evaluator; fit the configuration to the spaces found.

    There is no evaluator (None) without evaluations, nor for the Unity Editor, which cannot run a second
    environment.
    """
    config = context.loaded.config
    evaluates = config.eval_config.episodes > 0
    if config.base_config.in_editor or not (evaluates or runtime.remote):
        source = runtime(context, None)
        context.fit(source.env.specs)
        return source, None
    # A learner shows its evaluations, since nothing else happens there.
    film = context.loaded.config.eval_config.video
    eval_env = context.env("evaluate", render=context.inputs.render and runtime.remote, film=film)
    context.fit(eval_env.specs)
    source = runtime(context, eval_env)
    loaded, run, warn = context.loaded, context.inputs.run, context.console.warn
    check_eval_spaces(loaded, source.env.specs, eval_env.specs)
    films = video_recorders(eval_env, run.videos, warn=warn) if film else lambda _: NULL_CALLBACK
    if not evaluates:  # a learner has made the environment for its spaces
        return source, None
    return source, Evaluator(
        eval_env,
        loaded.config,
        context.console,
        watch=films,
        on_non_finite=context.on_non_finite(run.argument, most=_DROPPED_IN_EVALUATIONS),
    )


def _agents(context: TrainingContext, source: Runtime) -> dict[str, Agent]:
    """Return the agents, with the replays of the checkpoint to continue from.

    Damage of a replay shows only while it is loaded. Then the checkpoint before is tried, with new agents.
    """
    inputs, foreign, replays = context.inputs, context.foreign, context.inputs.run.replay
    while True:
        agents = context.agents(
            source.env.specs, context.networks, greedy=inputs.greedy, make_replay=source.make_replay
        )
        start = context.start
        if start is None:
            return agents
        try:
            if foreign is not None:
                context.notices += load_foreign_replays(agents, foreign, start.saved, replays)
            else:
                context.notices += load_replays(agents, start.saved, replays)
        except DamagedError as error:
            if start.older is None or (foreign is not None and foreign.replay is not None):
                raise  # an older checkpoint would change nothing about a replay from elsewhere
            context.console.warn(skip_warning(error))
            context.start = replace(start, saved=next(start.older))
        else:
            return agents


def _training(context: TrainingContext, source: Runtime, agents: dict[str, Agent]) -> TrainState:
    """Return the state of a new training, or that of the checkpoint to continue from."""
    loaded, own_env, notices = context.loaded, context.env_file, context.notices
    # The run's own networks and the environment's own file are compared separately.
    apart = {f"{loaded.for_behaviour(name).run.nn}.py" for name in agents}
    apart |= {own_env.name} if own_env else set()
    made = made_with(loaded.env_dir, apart, context.plugins(source.env.specs))
    training = TrainState(
        source.make_collector, agents, context.faults, made, parameters=loaded.config.parameters
    )
    saved, run = context.start.saved if context.start else None, context.inputs.run
    if saved:
        notices += training.restore(saved)
    if context.foreign is not None:
        notices += begin_with_networks(agents, context.foreign, saved)
    if saved and own_env is not None and run.env_file_changed(own_env):
        notices.append(f"the environment's file {own_env.name} has been changed since")
    return training


def _write_inputs(
    context: TrainingContext, specs: Mapping[str, AgentSpec], render_modes: Sequence[str]
) -> None:
    """Write the inputs of the run; its configuration last, which makes the folder a run."""
    inputs, loaded, start, foreign = context.inputs, context.loaded, context.start, context.foreign
    run = inputs.run
    for config in map(loaded.for_behaviour, specs):
        file = nn_file(config, context.networks)
        if file and context.networks != run.path:
            run.copy_nn(file, f"{config.run.nn}.py")
    objects = inputs.env_object.as_json if inputs.env_object else None
    begun = describe_start(inputs.arguments, context.env_file, context.plugins(specs), objects, inputs.device)
    if start:
        overrides = all_changes(loaded.overrides, inputs.flags)
        run.note_resumed(begun, step=start.saved.step, overrides=overrides)
    else:
        run.write_overrides(loaded.overrides)
        run.write_manifest(
            begun,
            seeds={"run": loaded.seed},
            render_modes=render_modes,
            spaces=specs_as_json(specs),
            init_from=foreign.origin if foreign else None,
        )
    if not start or start.changes:
        if foreign and not start:
            loaded = loaded.resolved("base_config", lambda _: {"init_from": foreign.pinned})
        run.write_config(dump_config(loaded))


def _checkpointer(context: TrainingContext, training: TrainState, metrics: MetricsLogger) -> Checkpointer:
    """Return the writer of checkpoints; agents that diverge get the networks of its last one."""
    run, start, console = context.inputs.run, context.start, context.console
    kept = context.loaded.config.checkpoint_config
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
    since = start.saved.step if start and context.inputs.init_from else -1
    saver = Checkpointer(
        manager, training, console, metrics=metrics.state, check=context.lock.check, since=since
    )
    for name, agent in training.agents.items():
        agent.attach(restore=partial(saver.networks, name), report=training.faults)
    return saver
