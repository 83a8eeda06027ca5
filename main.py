"""Train or run an agent: ``python main.py gym/pendulum``. See ``python main.py --help``."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from algorithm.config.cli import TrainOptions, config_flags, parse_args
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.locate import find_env


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Errors meant for a user are shown without traceback."""
    options = parse_args(argv)
    sys.path.append(str(Path.cwd()))  # module:Id finds a module beside the user, who may be anywhere
    try:
        return _run(options) if options.run else _train(options)
    except KeyboardInterrupt:  # before or after the run: while it lasts, it handles signals itself
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        code = getattr(error, "exit_code", None)
        if code is None:
            if not options.debug:
                print("internal error; --debug shows where, train.log holds it too", file=sys.stderr)
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        print(f"error: {error}", file=sys.stderr)
        return int(code)


def _run(options: TrainOptions) -> int:
    folder = find_env(options.env)
    _say(options, f"{folder.label}: loading torch")
    with interruptible_imports():
        from algorithm.run.play import play  # torch takes seconds: the line above comes first

    return play(options, folder)


def _train(options: TrainOptions) -> int:
    loaded = _load(options, options.seed)
    _say(options, f"{loaded.env_label}, {loaded.file.name}, section {loaded.section}: loading torch")
    with interruptible_imports():
        from algorithm.run.repeat import train_repeatedly

    return train_repeatedly(options, loaded, lambda seed: _load(options, seed), sys.argv)


def _load(options: TrainOptions, seed: int | None) -> LoadedConfig:
    flags = config_flags(options)
    if options.disable_sample:  # no density to correct with: its ratio is 1
        flags["sac_config.use_n_step_is"] = False
    return load_config(
        options.env, options.config, options.overrides, flags, seed=seed, require_runnable=True
    )


@contextmanager
def interruptible_imports() -> Iterator[None]:
    """Let SIGINT end the process at once; imports of others may swallow a KeyboardInterrupt."""

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, b"interrupted before anything was trained\n")  # print could be what was interrupted
        os._exit(128 + number)

    former = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _say(options: TrainOptions, text: str) -> None:
    if not options.quiet:
        print(text, flush=True)


if __name__ == "__main__":
    faulthandler.enable()  # a simulator that crashes in this process takes it along, but says where
    sys.exit(main())
