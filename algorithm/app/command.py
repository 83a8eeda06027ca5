"""The command ``main.py``, which the package installs as ``asac``: training or running of an agent."""

from __future__ import annotations

import errno
import faulthandler
import importlib.machinery
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags, notices
from algorithm.core.errors import StorageError, described, visible
from algorithm.core.extras import extra
from algorithm.core.system.output import make_output_safe
from algorithm.env.pool.process_exit import exit_process

if TYPE_CHECKING:  # help and a mistyped flag are shown without pydantic
    from algorithm.config.loader import LoadedConfig
    from algorithm.config.locate import EnvFolder


Command = Callable[[], int]
"""A command whose modules are loaded; calling it returns the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code. Errors meant for the user are shown without traceback."""
    return perform(parse_args(argv))


def perform(options: TrainOptions) -> int:
    """Run the command that the options choose; return the exit code."""
    try:
        command = _command(options)
        return command()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return show_error(error, debug=options.debug)


def show_error(error: BaseException, *, debug: bool) -> int:
    """Print the error that ended a command as a message for the user; return the exit code."""
    if isinstance(error, SystemExit):  # a library's exit does not end the program
        print(f"internal error: SystemExit({error.code!r}) in the middle of a command", file=sys.stderr)
        return 1
    if isinstance(error, KeyboardInterrupt):  # before or after a run, which handles signals itself
        print("interrupted", file=sys.stderr)
        return 130
    if debug:
        traceback.print_exception(error)
    # A path that no check covers; other errors of the system may be anything.
    if isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC):
        error = StorageError.of(error, what="a file or folder cannot be used", where=error.filename or "")
    known = getattr(error, "exit_code", None)
    if known is None:
        if not debug:
            print("internal error; --debug shows where, or train.log in a run", file=sys.stderr)
        print(visible(described(error)), file=sys.stderr)
        return 1
    print(f"error: {error}", file=sys.stderr)
    return int(known)


def _command(options: TrainOptions) -> Command:
    """Return the command that the options choose, with configuration and modules loaded."""
    if options.tune is not None:
        return _tune(options)
    if options.list or options.from_mlagents is not None:
        return partial(_print, options)
    if options.report:
        return partial(_report, options)
    if options.plays or options.play_against or options.export is not None or options.resume:
        return _of_run(options)
    if options.check or options.dry_run or options.train_reward:
        return _preview(options)
    return _train(options)


def _print(options: TrainOptions) -> int:
    """Print output that needs neither a task nor a run: a list, a translated file."""
    if options.from_mlagents is not None:
        text = visible(extra("translate")(Path(options.from_mlagents)))
        sys.stdout.buffer.write(text.encode())  # UTF-8, as a configuration is read, whatever the console has
        sys.stdout.flush()
        return 0
    from algorithm.store.listing import listing

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    print(visible(listing(options.env, options.directory, width=width)))
    return 0


def _report(options: TrainOptions) -> int:
    """Write a report page, which needs no configuration."""
    show_notices(options)
    folder = _env_folder(options)
    with interruptible_imports():
        from algorithm.app.report.command import report

    return report(options, folder)


def _of_run(options: TrainOptions) -> Command:
    """Return the command for an existing run: share, play or resume it."""
    if options.export is not None:  # all else has a console of its own
        show_notices(options)
    folder = _env_folder(options)
    print_line(options, f"{folder.label}: loading torch")
    with interruptible_imports():
        if options.play_against:
            begin = extra("play_against")
        elif options.plays:
            from algorithm.app.play import play as begin
        elif options.exports_graph:
            begin = extra("share_graphs")
        elif options.export is not None:
            begin = extra("share")
        else:
            from algorithm.app.train import resume as begin
    return partial(begin, options, folder)


def _preview(options: TrainOptions) -> Command:
    """Return the command that examines a training without starting it: check, dry run, a reward."""
    loaded = _load(options, options.seed)
    title = f"{loaded.env_label}, {loaded.source}"
    if options.check:
        show_notices(options, loaded)
        print_line(options, f"{title}: checking the environment")
        with interruptible_imports():
            check: Callable[[TrainOptions, LoadedConfig], int] = extra("check_task")
        return partial(check, options, loaded)
    print_line(options, f"{title}: loading torch")
    with interruptible_imports():
        if options.train_reward:
            show = extra("train_reward")
        else:
            from algorithm.app.preview.dry_run import dry_run as show

    return partial(show, options, loaded)


def _train(options: TrainOptions) -> Command:
    """Return the command that trains one or several runs."""
    loaded = _load(options, options.seed)
    print_line(options, f"{loaded.env_label}, {loaded.source}: loading torch")
    with interruptible_imports():
        from algorithm.app.train import train

    return partial(train, options, loaded, partial(_load, options))


def _tune(options: TrainOptions) -> Command:
    """Return the command that searches hyperparameters."""
    show_notices(options)
    with interruptible_imports():
        tune: Callable[[TrainOptions, Callable[[], LoadedConfig]], int] = extra("tune")
    return partial(tune, options, partial(_load, options, options.seed))


def _env_folder(options: TrainOptions) -> EnvFolder:
    """Return the task's folder, or the environment without one."""
    from algorithm.config.locate import find_env

    return find_env(options.env)


def _load(options: TrainOptions, seed: int | None) -> LoadedConfig:
    """Load the configuration that the options choose, with a seed."""
    from algorithm.config.loader import load_config

    return load_config(
        options.env,
        options.config,
        options.overrides,
        config_flags(options),
        seed=seed,
        require_runnable=True,
    )


@contextmanager
def interruptible_imports() -> Iterator[None]:
    """Let SIGINT end the process at once in the block, where libraries may swallow a KeyboardInterrupt."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads that wait leave the cores to others

    def end(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(2, b"interrupted before anything began\n")  # print could be what was interrupted
        os._exit(128 + number)

    former = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def show_notices(options: TrainOptions, loaded: LoadedConfig | None = None) -> None:
    """Print notices on flags without effect, for commands without a console."""
    for text in notices(options, loaded.config if loaded else None):
        print(f"warning: {visible(text)}", file=sys.stderr)


def print_line(options: TrainOptions, text: str) -> None:
    """Print a line before a run has its console."""
    if not options.quiet:
        print(visible(text), flush=True)


def remove_first_folder() -> None:
    """Remove the first folder of the import path, which Python adds: the script's, or the current one.

    The folder of a checkout that is not installed is added at the end, where child processes find it.
    """
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):  # there is none
        return
    package = Path(__file__).resolve().parents[1]
    del sys.path[0]
    spec = importlib.machinery.PathFinder.find_spec(package.name)
    if spec is None:
        sys.path.append(str(package.parent))
    elif not spec.origin or Path(spec.origin).resolve().parent != package:
        sys.path.insert(0, str(package.parent))  # another version is installed as well


def prepare_process() -> None:
    """Prepare this process: no script's folder in the import path, safe output, stack traces at crashes."""
    remove_first_folder()
    make_output_safe()
    faulthandler.enable()  # a simulator that crashes in this process takes it along, but prints where


def run() -> NoReturn:
    """Run the program, and end the process."""
    prepare_process()
    exit_process(perform(parse_args()))
