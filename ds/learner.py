"""A learner: the training of ``main.py`` whose transitions come from actors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import Collector, MakeReplay
from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.play import play
from algorithm.app.train import resume, train
from algorithm.config.locate import find_env
from algorithm.config.schema import DISTRIBUTED_DEFAULTS
from algorithm.core.errors import UsageError
from algorithm.core.timing import Stopwatch
from algorithm.env.base import VecEnv
from algorithm.env.parameters.curricula import first_lessons
from algorithm.replay.buffer import ReplayBuffer
from algorithm.run.inputs import nn_file
from algorithm.run.runtime import EnvInfo, Runtime
from algorithm.run.training_context import TrainingContext
from algorithm.store.files import write_json
from ds.acting import rows_of_messages
from ds.checking import AcceptanceRules
from ds.collector import RemoteCollector
from ds.compatibility import actor_command, agreed
from ds.net.ingest import IngestQueue
from ds.net.port import refuse_if_taken
from ds.net.protocol import address
from ds.net.security import learner_security
from ds.net.server import Server, most_at_a_time
from ds.prefetch import prefetched_replay
from ds.registry import ActorRegistry
from ds.service import ParameterStore, Service
from ds.weights import WeightPublisher

LOOPBACK = "127.0.0.1"

_WAIT_S = 0.1
"""Seconds until the loop handles a signal while no actor sends anything."""

_GRACE_S = 2.0


def learn(options: DistributedOptions) -> int:
    """Train with actors, or play with a trained agent; return the exit code."""
    train_options, folder = options.train, find_env(options.train.env)
    if train_options.agents is not None and not train_options.plays:
        notice = "--agents has no effect on a learner: it sets the number of environments of an actor"
        train_options = replace(train_options, notices=(*train_options.notices, notice))
    if train_options.plays:
        return play(train_options, folder)
    if train_options.resume:
        return resume(
            train_options, folder, runtime=RemoteRuntime, flags=options.flags, defaults=DISTRIBUTED_DEFAULTS
        )
    loaded = options.load(train_options.seed)
    return train(train_options, loaded, runtime=RemoteRuntime)


class RemoteRuntime(Runtime):
    """Runtime whose transitions come over sockets.

    Raises UsageError, before anything is written, for a port that is taken, secrets that are missing, and a
    Unity Editor instead of a player for evaluations.
    """

    remote = True

    @override
    def __init__(self, context: TrainingContext, eval_env: VecEnv | None) -> None:
        if eval_env is None:
            raise UsageError(
                "a learner needs its own player",
                where="base_config.unity_args.editor",
                why="it evaluates, and the Unity Editor is one player only",
                fix="set build_path, and pass --editor to an actor",
            )
        self._loaded, self._run, self._networks = context.loaded, context.inputs.run, context.networks
        self._faults, self._stack = context.faults, context.stack
        self._base, self._net = self._loaded.config.base_config, self._loaded.config.net_config
        self._host = self._net.learner_host or LOOPBACK
        self._refuse_what_cannot_work()
        self._security = learner_security(self._net, self._host)
        refuse_if_taken(self._host, self._net.learner_port)
        self.env = EnvInfo(eval_env.specs, eval_env.time_limit, "stepped by actors")
        self.make_replay = self._replays()

    @override
    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        base, net = self._base, self._net
        self._agents = agents
        self._rules = self._make_rules()
        self._queue = IngestQueue(base.episode_queue_size, line=most_at_a_time(self._rules.max_message))
        self._stack.callback(self._queue.close)
        self._actors = ActorRegistry(
            run=f"{self._loaded.env_label}/{self._run.name}",
            seed=self._loaded.seed,
            limit=base.max_actors_each_learner,
            synchronous=net.synchronous,
            heartbeat=net.heartbeat,
            left=self._queue.left,
        )
        self._parameters = ParameterStore(first_lessons(self._loaded.config.parameters))
        self._publisher = WeightPublisher(self._parameters, agents, always=net.synchronous)
        return RemoteCollector(
            self._queue,
            self._actors,
            self._parameters,
            agents,
            before_step=self._before_step,
            watch=watch,
            wait=_WAIT_S,
            whole=net.synchronous,
            max_lag={name: self._max_lag(name) for name in agents},
        )

    def _max_lag(self, behaviour: str) -> int | None:
        """Return the limit of the configuration or the family, the lower one; None without any."""
        configured, config = self._net.max_lag, self._loaded.for_behaviour(behaviour)
        limits = [configured if configured >= 0 else None, family(config).remote_limits(config).max_lag]
        return min((limit for limit in limits if limit is not None), default=None)

    @override
    def begin(self) -> None:
        """Listen. The newest weights are published before the first actor joins."""
        console, run = self._faults.console, self._run
        self._publisher.publish_if_due()
        self._server = Server(
            Service(self._actors, self._queue, self._parameters, self._rules),
            host=self._host,
            port=self._net.learner_port,
            security=self._security,
            on_fault=self._actors.count_fault,
        )
        port = self._server.start()
        self._stack.callback(self._server.close, _GRACE_S)
        write_json(run.endpoint, {"host": self._host, "port": port, "pid": os.getpid()})
        if self._security.banner:
            console.warn(self._security.banner)
        console.message(f"listening on {address(self._host, port)}")
        command = actor_command(self._loaded, self.env.specs, run.argument, port, run.models)
        console.command("an actor", command)

    @override
    def end(self, stopped: Callable[[], bool]) -> None:
        """End the actors of a complete training; after a signal they wait for the learner to return."""
        if stopped():
            return
        self._parameters.finished = True
        self._queue.close()
        until = time.monotonic() + 3 * self._net.heartbeat
        while self._actors.metrics()["ds/actors"] and time.monotonic() < until and not stopped():
            self._actors.expire()
            time.sleep(0.05)

    def _refuse_what_cannot_work(self) -> None:
        """Raise UsageError unless actors can act for each family, and a message fits into each replay."""
        loaded, length = self._loaded, 1 if self._net.synchronous else self._base.max_episode_length
        for config in (loaded.config, *loaded.behaviours.values()):
            if family(config).make_acting is None:
                raise UsageError(
                    f"{config.algorithm} has no actors in other processes",
                    where="algorithm",
                    why="it must learn from data of its current networks",
                    fix="train without a learner and actors: "
                    + self._run.command("--algorithm", config.algorithm),
                )
            limited = family(config).remote_limits(config).max_length is not None
            if not limited and config.replay_config.capacity <= length:
                raise UsageError(
                    "a message of an actor would not fit into the replay",
                    where="base_config.max_episode_length and replay_config.capacity",
                    why=f"{length:,} steps and {config.replay_config.capacity:,} rows",
                    fix="lower the first or raise the second",
                )

    def _before_step(self) -> None:
        self._publisher.publish_if_due()
        for line in self._actors.news():
            self._faults.console.message(line)
        self._faults.add_actor_counts(*self._actors.take_faults())

    def _make_rules(self) -> AcceptanceRules:
        loaded = self._loaded
        carries = {name: agent.policy.stored_carry_shape for name, agent in self._agents.items()}
        specs = {name: agent.spec for name, agent in self._agents.items()}
        most = rows_of_messages(loaded, specs, carries, synchronous=self._net.synchronous)
        files = {name: nn_file(loaded.for_behaviour(name), self._networks) for name in specs}
        return AcceptanceRules(
            agreed=agreed(loaded, specs, files),
            specs=specs,
            carry_shapes=carries,
            most=most,
            synchronous=self._net.synchronous,
            room_timeout=self._net.heartbeat,
            room={
                name: min(replay.capacity for replay in replays)
                for name, agent in self._agents.items()
                if (replays := agent.stores().values())
            },
        )

    def _replays(self) -> MakeReplay:
        """Return the maker of replays: prefetched, or plain where nothing may depend on time."""
        if self._net.synchronous:
            return ReplayBuffer
        base = self._base
        threads = max(1, min(base.batch_generator_process_num, (os.cpu_count() or 2) - 1))
        pool = ThreadPoolExecutor(threads, "prefetch")
        self._stack.callback(pool.shutdown, cancel_futures=True)
        return partial(prefetched_replay, threads=pool, ahead=base.batch_queue_size)
