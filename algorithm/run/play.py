"""Inference (``--run``): episodes with the networks of a checkpoint. Nothing is learned.

All that is written is ``evaluation.json`` in the run's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import torch

from algorithm.config.cli import TrainOptions, config_flags
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.env.base import VecEnv
from algorithm.run.agent import Agent, pick_device
from algorithm.run.console import Console, open_console
from algorithm.run.evaluate import Visitor
from algorithm.run.faults import Faults
from algorithm.run.files import finite_or_null, write_json
from algorithm.run.keeper import find_checkpoint
from algorithm.run.memory import MemoryBudget
from algorithm.run.rollout import Episode, Iteration, Rollout
from algorithm.run.rundir import RunDir
from algorithm.run.session import load_networks_into, make_agents, make_env
from algorithm.run.signals import StopRequest
from algorithm.run.statistics import mean_interval
from algorithm.spec import DEFAULT_BEHAVIOUR

# The limits and the number of environments of the training do not count here, those of the command line do.
_OWN_LIMITS = ("base_config.max_step=-1", "base_config.max_iter=-1", "base_config.n_envs=1")


def play(options: TrainOptions, folder: EnvFolder) -> int:
    """Play with a trained agent until ``max_iter``, ``max_step`` or a signal; returns the exit code.

    The newest run of the environment unless ``--name`` says which, with its own configuration and networks.
    One environment with ``--disable_sample`` plays the very episodes of an evaluation while training.
    """
    run = _find_run(options, folder)
    overrides = (*_OWN_LIMITS, *options.overrides)
    loaded = load_config_file(
        run.config, overrides, config_flags(options), options.seed, env=folder, require_runnable=True
    )
    torch.set_num_threads(loaded.config.sac_config.threads)
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        stop = stack.enter_context(StopRequest())
        checkpoint = find_checkpoint(run.checkpoints, options.ckpt, warn=console.warn)
        n_envs = loaded.config.base_config.n_envs
        env = make_env(loaded.config, "evaluate", n_envs, faults=Faults(console), render=options.render)
        stack.callback(env.close)
        nn_folder = folder.path if options.use_env_nn else run.path
        # Playing stores nothing: whatever replay the run had, not a page of it is touched.
        memory = MemoryBudget(free=sys.maxsize)
        agents = make_agents(loaded, env, nn_folder, pick_device(options.device), memory=memory)
        step = load_networks_into(agents, checkpoint)
        acting = "deterministic" if options.disable_sample else "sampled"
        console.message(f"playing {run.shown(checkpoint)}, {acting} actions; Ctrl-C ends")
        episodes = []
        for number, episode in enumerate(_play(loaded, agents, env, stop, options), start=1):
            episodes.append(episode)
            console.message(_line(number, episode))
        _finish(console, run, episodes, step, acting)
    return stop.exit_code


def _find_run(options: TrainOptions, folder: EnvFolder) -> RunDir:
    if options.name is None:
        return RunDir.newest(folder.label, argument=options.env)
    return RunDir.open(folder.label, options.name, argument=options.env)


def _play(
    loaded: LoadedConfig,
    agents: dict[str, Agent],
    env: VecEnv,
    stop: StopRequest,
    options: TrainOptions,
) -> Iterator[Episode]:
    base = loaded.config.base_config
    visitors = {
        name: Visitor(agent.new_actor("playing"), greedy=options.disable_sample)
        for name, agent in agents.items()
    }
    rollout = Rollout(env, visitors, num_envs=base.n_envs, length_limit=base.max_step_each_iter)
    iteration, iterations = Iteration(rollout), 0
    while not stop and not 0 < base.max_step <= rollout.steps and iterations != base.max_iter:
        episodes = rollout.step()
        yield from episodes
        iterations += iteration.ends(episodes)


def _line(number: int, episode: Episode) -> str:
    who = "" if episode.behaviour == DEFAULT_BEHAVIOUR else f"{episode.behaviour} "
    outcome = f"return {episode.total:>10.2f}  length {episode.length}"
    return f"episode {number:>4}  {who}agent {episode.agent}  {outcome}"


def _finish(console: Console, run: RunDir, episodes: list[Episode], step: int, acting: str) -> None:
    results: dict[str, object] = {}
    for behaviour in dict.fromkeys(episode.behaviour for episode in episodes):
        own = [episode for episode in episodes if episode.behaviour == behaviour]
        interval = mean_interval([episode.total for episode in own])
        results[behaviour] = {
            "mean": interval.mean,
            "ci95": [interval.low, interval.high],
            "returns": [episode.total for episode in own],
            "lengths": [episode.length for episode in own],
        }
        console.message(f"{behaviour}: mean return {interval.text}, {len(own)} episodes")
    if not results:
        console.message("no episode was finished")
        return
    path = run.path / "evaluation.json"
    evaluation = {"step": step, "acting": acting, "behaviours": finite_or_null(results)}
    write_json(path, evaluation)
    console.message(f"written to {run.shown(path)}")
