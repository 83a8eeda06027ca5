"""Actor: steps its own environments with the learner's newest weights and sends the transitions."""

from __future__ import annotations

import logging
import math
import os
import platform
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from algorithm.agents.networks import pick_device
from algorithm.agents.registry import family
from algorithm.agents.roles import Acting
from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.train import notices
from algorithm.app.console.output import close_logging, logged, open_console, setup_logging
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config
from algorithm.core.console import Console
from algorithm.core.errors import EnvError, StorageError, UsageError, UserError
from algorithm.env.base import VecEnv
from algorithm.env.unity.player import EditorStoppedError
from algorithm.experience.collector import Iteration, LocalCollector
from algorithm.experience.faults import Faults
from algorithm.nn.process import set_matmul_precision, set_up_process
from algorithm.train.assembly import Assembly, check_behaviours
from algorithm.train.signals import StoppedError, StopRequest
from algorithm.train.user_code import nn_file
from ds.acting import actor_seed, with_noise
from ds.client import Client
from ds.compatibility import agreed, digest
from ds.errors import LearnerRefused
from ds.link import Link
from ds.protocol import PROTOCOL, Hello, Welcome
from ds.security import actor_security
from ds.send_queue import SendQueue
from ds.trajectory import TrajectoryWriter
from ds.weights import WeightLoader

LOOPBACK = "127.0.0.1"
LINE_S = 10.0
_ANSWER_S = 20.0
_SYNCHRONOUS_ANSWER_S = 3600.0  # a message is answered when it has been learned from, and evaluated
_LOGGER = logging.getLogger("algorithm")
_LAST_S = 2.0  # for what waits to be sent when the user ends the actor


def act(options: DistributedOptions) -> int:
    """Act until the training is complete or a signal comes; return the exit code."""
    first = _load(options, seed=0)  # where the learner is; all else is drawn from the run's own seed
    set_up_process(1)  # more would only wait for each other beside other actors
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.train.quiet))
        for text in notices(options.train, first.config):
            console.warn(text)
        stop = stack.enter_context(StopRequest())
        link = _link(first.config, console, stop)
        reason = "its work was interrupted"
        stack.callback(lambda: link.close(reason))
        try:
            welcome = link.start()
            if welcome is not None:
                loaded = _load(options, seed=welcome.seed)
                _Work(options, loaded, console, stop, link, welcome, stack).do()
        except Exception as error:
            reason = f"it failed: {error.line if isinstance(error, UserError) else type(error).__name__}"
            raise
        reason = "the training is complete" if link.finished else "its user ended it"
        _show(console, reason if link.finished else stop.text.replace("saving and ", ""))
    return 0 if link.finished else stop.exit_code


def _load(options: DistributedOptions, *, seed: int) -> LoadedConfig:
    own = options.train
    return load_config(
        own.env,
        own.config,
        own.overrides,
        options.flags,
        seed,
        defaults=DISTRIBUTED_DEFAULTS,
        require_runnable=True,
    )


def _link(config: Config, console: Console, stop: StopRequest) -> Link:
    net = config.net_config
    host = net.learner_host or LOOPBACK
    if not net.learner_port:
        raise UsageError(
            "there is no port to dial",
            where="net_config.learner_port",
            why="0 lets a learner choose one, which an actor has to be told",
            fix="add --learner_port PORT, which the learner shows",
        )
    connect = partial(
        Client,
        host,
        net.learner_port,
        security=actor_security(net, host),
        timeout=_SYNCHRONOUS_ANSWER_S if net.synchronous else max(_ANSWER_S, 4 * net.heartbeat),
    )
    versions = {name: version(name) for name in ("torch", "numpy", "gymnasium")}
    hello = Hello(
        protocol=PROTOCOL,
        actor=secrets.token_hex(16),
        host=socket.gethostname(),
        pid=os.getpid(),
        versions={"python": platform.python_version(), **versions},
    )
    return Link(
        connect,
        hello,
        where=f"{host}:{net.learner_port}",
        patience=net.patience,
        show=partial(_show, console),
        stopped=lambda: bool(stop),
    )


def _show(console: Console, text: str) -> None:
    """Show a line on the screen, and log it as soon as there is a log."""
    console.message(text)
    _LOGGER.info(text)


@dataclass(frozen=True)
class _Work:
    """Work of a registered actor. ``screen``: without the log, which is opened here."""

    options: DistributedOptions
    loaded: LoadedConfig
    screen: Console
    stop: StopRequest
    link: Link
    welcome: Welcome
    stack: ExitStack

    def do(self) -> None:
        """Act until the training is complete or a signal comes; failures are logged."""
        folder = _folder(self.welcome, self.options.train.directory)
        setup_logging(folder / "actor.log", debug=self.options.train.logger_in_file)
        self.stack.callback(close_logging)
        try:
            self._act(folder, logged(self.screen, _LOGGER))
        except StoppedError:
            return
        except Exception:
            _LOGGER.exception("the actor failed")
            raise

    def _act(self, folder: Path, console: Console) -> None:
        base = self.loaded.config.base_config
        seed = actor_seed(self.welcome.seed, self.welcome.number)
        faults = Faults(console, go_on=self.stop.check_start)
        assembly = Assembly(
            loaded=self.loaded,
            device=pick_device(self.options.train.device),
            faults=faults,
            stack=self.stack,
            files=folder,
            seed=seed,
        )
        env = assembly.env("train", base.n_envs, workers=base.workers)
        acting = self._acting(env, assembly)
        loader = WeightLoader({name: one.parts for name, one in acting.items()})
        channels = 1 if self.welcome.synchronous else base.episode_sender_process_num
        writer = TrajectoryWriter(max_length=self._max_length(env), channels=channels)
        send_queue = SendQueue(self.link, channels=channels, size=self.loaded.config.net_config.spool_size)
        self._join(env, send_queue, console)
        send_queue.start()
        faults.attach(partial(self._end_of_hang, send_queue))
        self._await_weights(loader)
        rollout = LocalCollector(
            env,
            {name: one.policy for name, one in acting.items()},
            {name: writer.recorder(name) for name in env.specs},
            num_envs=base.n_envs,
            length_limit=base.max_step_each_iter,
            on_non_finite=assembly.on_non_finite(self.options.train.env),
        )
        self._loop(rollout, acting, loader, writer, send_queue, _Lines(console), faults)
        for rest in writer.finish(episodes=(), version=loader.version):
            send_queue.put(rest)
        send_queue.finish(_LAST_S)

    def _end_of_hang(self, send_queue: SendQueue, error: EnvError) -> None:
        """Send what waits and leave; called from another thread than the one that hangs."""
        _LOGGER.error("the actor failed: %s", error)
        send_queue.finish(_LAST_S)
        self.link.close(f"it failed: {error.line}")

    def _loop(
        self,
        rollout: LocalCollector,
        acting: dict[str, Acting],
        loader: WeightLoader,
        writer: TrajectoryWriter,
        send_queue: SendQueue,
        lines: _Lines,
        faults: Faults,
    ) -> None:
        base, link = self.loaded.config.base_config, self.link
        synchronous, iteration = self.welcome.synchronous, Iteration(rollout)
        while not (self.stop or link.finished):
            for name, one in acting.items():
                one.policy.warming_up = link.warming_up[name]
            try:
                episodes = rollout.step()
            except EditorStoppedError as end:
                self.stop.set(end.what, interrupted=True)
                return
            so_far = (faults.env_restarts, faults.non_finite)
            link.report(steps=rollout.steps, version=loader.version, faults=so_far)
            for packed in writer.flush(
                agents=rollout.agents,
                episodes=episodes,
                version=loader.version,
                whole=synchronous,
            ):
                (send_queue.hand_over if synchronous else send_queue.put)(packed)
            if iteration.ends(episodes) and base.reset_on_iteration:
                rollout.truncate()
            newest = link.wait_newer(loader.version) if synchronous else link.weights()
            if newest is not None:
                self._load_weights(loader, newest.chunks)
            lines.add(rollout.steps, [episode.total for episode in episodes])
            lines.show_if_due(loader.version, send_queue)

    def _acting(self, env: VecEnv, assembly: Assembly) -> dict[str, Acting]:
        check_behaviours(self.loaded, env.specs)
        device, seed = assembly.device, assembly.seed
        assert seed is not None, "an actor has a seed of its own"
        made = {}
        for name, spec in env.specs.items():
            config = self.loaded.for_behaviour(name)
            make_acting = family(config).make_acting
            assert make_acting is not None, "its learner has refused to start"
            made[name] = make_acting(
                spec,
                with_noise(config, self.welcome.slot),
                nn_file=nn_file(config, self.loaded.env_dir),
                behaviour=name,
                run_seed=self.welcome.seed,
                own_seed=seed,
                device=device,
            )
        modules = [part for acting in made.values() for part in acting.parts.values()]
        set_matmul_precision(self.loaded.config.sac_config.matmul_precision, modules, device)
        return made

    def _max_length(self, env: VecEnv) -> int:
        """Return the transitions of the longest segment, which all behaviours take."""
        configs = [self.loaded.for_behaviour(name) for name in env.specs]
        limits = [family(config).remote_limits(config).max_length for config in configs]
        own: int = self.loaded.config.base_config.max_episode_length
        return min([own, *(limit for limit in limits if limit is not None)])

    def _join(self, env: VecEnv, send_queue: SendQueue, console: Console) -> None:
        files = {name: nn_file(self.loaded.for_behaviour(name), self.loaded.env_dir) for name in env.specs}
        terms = agreed(self.loaded, env.specs, files)
        self.link.join(terms, digest(terms), send_queue)
        who = f"actor {self.welcome.number} of {self.welcome.run}, in slot {self.welcome.slot}"
        console.message(f"{who}: {env.arrangement} of {self.loaded.config.base_config.env_name}")

    def _await_weights(self, loader: WeightLoader) -> None:
        """Wait for the learner's first weights; no step is taken with others."""
        while not (loader.version or self.stop or self.link.finished):
            newest = self.link.wait_newer(0) if self.welcome.synchronous else self.link.weights()
            if newest is None:
                time.sleep(0.02)
            else:
                self._load_weights(loader, newest.chunks)

    def _load_weights(self, loader: WeightLoader, chunks: Sequence[bytes]) -> None:
        try:
            loader.load(chunks)
        except ValueError as error:
            raise LearnerRefused(
                "the learner's weights cannot be used",
                why=str(error),
                fix="see that both sides have the same version of the program and the same networks",
            ) from error


def _folder(welcome: Welcome, models: Path) -> Path:
    """Make and return the folder of the actor's files, always below that of all runs."""
    run = PurePosixPath(welcome.run)
    if run.is_absolute() or ".." in run.parts or welcome.number < 0:
        raise LearnerRefused("the learner names a run that is none", where=ascii(welcome.run))
    folder = models.absolute() / run / "actors" / str(welcome.number)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, what="the actor's folder cannot be made", where=folder) from error
    return folder


class _Lines:
    """Status line of the actor, every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console, self._last, self._steps_then = console, time.monotonic(), 0
        self._steps, self._returns = 0, [math.nan]

    def add(self, steps: int, returns: Sequence[float]) -> None:
        """Set the steps so far and add the returns of episodes that have just ended."""
        self._steps = steps
        self._returns = [*self._returns, *returns][-20:] if returns else self._returns

    def show_if_due(self, weights: int, send_queue: SendQueue) -> None:
        """Show the line if it is due. weights: the version that acts."""
        now = time.monotonic()
        if now - self._last < LINE_S:
            return
        rate = (self._steps - self._steps_then) / (now - self._last)
        known = [value for value in self._returns if not math.isnan(value)]
        returns = f"return {sum(known) / len(known):,.1f} · " if known else ""
        self._console.message(
            f"{self._steps:,} steps · {rate:,.0f} steps/s · {returns}weights {weights} · "
            f"{send_queue.waiting} waiting"
            + (f" · {send_queue.dropped:,} steps given up" if send_queue.dropped else "")
        )
        self._last, self._steps_then = now, self._steps
