"""Actor: steps its own environments with the learner's newest weights and sends the transitions."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from algorithm.agents.networks import pick_device
from algorithm.agents.roles import Acting
from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.train_flags import notices
from algorithm.app.console.output import close_logging, logged, open_console, setup_logging
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.console import Console
from algorithm.core.errors import EditorStoppedError, EnvError, StorageError, UsageError, UserError
from algorithm.env.base import VecEnv
from algorithm.nn.process import own_modes, set_up_process
from algorithm.run.context import RunContext, check_behaviours
from algorithm.run.experience.collector import Iteration, LocalCollector
from algorithm.run.experience.faults import Faults
from algorithm.run.inputs import nn_file
from algorithm.run.signals import StoppedError, StopRequest
from ds.acting import Lessons, StatusLine, actor_seed, make_policies, rows_of_messages
from ds.compatibility import agreed
from ds.net.client import Client
from ds.net.link import Link
from ds.net.protocol import PROTOCOL, Hello, LearnerRefused, Welcome
from ds.net.security import actor_security
from ds.net.send_queue import SendQueue
from ds.step_writer import StepWriter
from ds.weights import load

LOOPBACK = "127.0.0.1"
_ANSWER_S = 20.0
_SYNCHRONOUS_ANSWER_S = 3600.0  # a message is answered when it has been learned from, and evaluated
_LOGGER = logging.getLogger("algorithm")
_LAST_S = 2.0  # for what waits to be sent when the user ends the actor


@own_modes()
def act(options: DistributedOptions) -> int:
    """Act until the training is complete or a signal comes; return the exit code."""
    first = options.load(0)  # where the learner is; all else is drawn from the run's own seed
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
                loaded = options.load(welcome.seed)
                _Work(options, loaded, console, stop, link, welcome, stack).do()
        except Exception as error:
            reason = f"it failed: {error.line if isinstance(error, UserError) else type(error).__name__}"
            raise
        reason = "the training is complete" if link.finished else "its user stopped it"
        _show(console, reason if link.finished else stop.text.replace("saving and ", ""))
    return 0 if link.finished else stop.exit_code


def _link(config: Config, console: Console, stop: StopRequest) -> Link:
    net = config.net_config
    host = net.learner_host or LOOPBACK
    if not net.learner_port:
        raise UsageError(
            "there is no port to connect to",
            where="net_config.learner_port",
            why="0 lets the learner choose one, and an actor must be given that port",
            fix="add --learner_port PORT, which the learner shows",
        )
    client = Client(
        host,
        net.learner_port,
        security=actor_security(net, host),
        timeout=_SYNCHRONOUS_ANSWER_S if net.synchronous else max(_ANSWER_S, 4 * net.heartbeat),
    )
    hello = Hello(protocol=PROTOCOL, actor=secrets.token_hex(16), host=socket.gethostname(), pid=os.getpid())
    return Link(
        client,
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


@dataclass
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
        device = self.options.train.device
        context = RunContext(
            loaded=self.loaded, device=device, faults=faults, stack=self.stack, files=folder, seed=seed
        )
        env = context.env("train", base.n_envs, workers=base.workers)
        check_behaviours(self.loaded, env.specs)
        context.fit(env.specs)
        self.loaded = context.loaded
        chosen = pick_device(device)  # auto: a GPU is the learner's
        policies = make_policies(self.loaded, env.specs, self.welcome, seed, chosen)
        self._act_in(env, context, policies, console)

    def _act_in(
        self, env: VecEnv, context: RunContext, acting: Mapping[str, Acting], console: Console
    ) -> None:
        """Act with the configuration as it is for the spaces of the environments."""
        base = self.loaded.config.base_config
        carries = {name: actor.policy.stored_carry_shape for name, actor in acting.items()}
        most = rows_of_messages(self.loaded, env.specs, carries, synchronous=self.welcome.synchronous)
        writer = StepWriter(most, max_length=base.max_episode_length)
        ahead = min(base.episode_sender_process_num, base.n_envs)
        send_queue = SendQueue(self.link, size=self.loaded.config.net_config.spool_size, ahead=ahead)
        self._join(env, console)
        send_queue.start()
        context.faults.attach(partial(self._end_of_hang, send_queue))
        self._await_weights(acting, writer)
        lessons = Lessons(self.loaded.config.parameters, self.link, console)
        if lessons.now:
            env.renew_parameters(lessons.now)  # before the first reset
        rollout = LocalCollector(
            env,
            {name: actor.policy for name, actor in acting.items()},
            writer.recorders,
            num_envs=base.n_envs,
            length_limit=base.max_step_each_iter,
            on_non_finite=context.on_non_finite(self.options.train.env),
        )
        status = StatusLine(console, self.link)
        self._loop(rollout, acting, writer, send_queue, status, context.faults, lessons)
        for rest in writer.finish():
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
        acting: Mapping[str, Acting],
        writer: StepWriter,
        send_queue: SendQueue,
        status: StatusLine,
        faults: Faults,
        lessons: Lessons,
    ) -> None:
        base, link = self.loaded.config.base_config, self.link
        synchronous, iteration = self.welcome.synchronous, Iteration(rollout)
        while not (self.stop or link.finished):
            for name, actor in acting.items():
                actor.policy.warming_up = link.warming_up[name]
            try:
                episodes = rollout.step()
            except EditorStoppedError as end:
                self.stop.set(end.what, interrupted=True)
                return
            so_far = (faults.env_restarts, faults.non_finite)
            link.report(steps=rollout.steps, version=writer.version, faults=so_far)
            for message in writer.flush(
                agents=rollout.present, episodes=episodes, whole=synchronous, hold=send_queue.sent.waiting > 0
            ):
                send_queue.put(message, until_taken=synchronous)
            lessons.follow(rollout)
            if iteration.ends(episodes) and base.reset_on_iteration:
                rollout.truncate()
            newest = link.wait_newer(writer.version) if synchronous else link.weights()
            if newest is not None:
                self._load_weights(acting, writer, newest)
            status.show_if_due(rollout.steps, [episode.total for episode in episodes], writer.version)

    def _join(self, env: VecEnv, console: Console) -> None:
        files = {name: nn_file(self.loaded.for_behaviour(name), self.loaded.env_dir) for name in env.specs}
        self.link.join(agreed(self.loaded, env.specs, files))
        console.message(
            f"actor {self.welcome.number} of {self.welcome.run}, in slot {self.welcome.slot}: "
            f"{env.arrangement} of {self.loaded.config.base_config.env_name}"
        )

    def _await_weights(self, acting: Mapping[str, Acting], writer: StepWriter) -> None:
        """Wait for the learner's first weights; no step is taken with others."""
        while not (writer.version or self.stop or self.link.finished):
            newest = self.link.wait_newer(0) if self.welcome.synchronous else self.link.weights()
            if newest is None:
                time.sleep(0.02)
            else:
                self._load_weights(acting, writer, newest)

    @staticmethod
    def _load_weights(acting: Mapping[str, Acting], writer: StepWriter, chunks: Sequence[bytes]) -> None:
        try:
            writer.version = load(chunks, {name: actor.parts for name, actor in acting.items()})
        except ValueError as error:
            raise LearnerRefused(
                "the learner's weights cannot be used",
                why=str(error),
                fix="make sure that both sides have the same version of the program and the same networks",
            ) from error


def _folder(welcome: Welcome, models: Path) -> Path:
    """Make and return the folder of the actor's files, always below that of all runs."""
    run = PurePosixPath(welcome.run)
    if run.is_absolute() or ".." in run.parts or welcome.number < 0:
        raise LearnerRefused("the learner sent an invalid name of a run", where=ascii(welcome.run))
    folder = models.absolute() / run / "actors" / str(welcome.number)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, what="the actor's folder cannot be made", where=folder) from error
    return folder
