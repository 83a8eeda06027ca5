"""Who ends a process: the program, and never an environment that runs in it."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from algorithm.env.pool.monitor_process import exit_now

_GRACE_S = 2.0  # for threads that end by themselves


class EnvExitError(Exception):
    """An environment tried to end the program it runs in."""


def as_exception(error: BaseException) -> Exception:
    """What an environment raised as an error like any other: SystemExit and its like are a EnvExitError.

    Raises ``error`` if it is the user's own Ctrl-C, which it can only be where nothing handles that signal.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error
    left = EnvExitError(f"{error!r} would end the program, which is not for an environment to do")
    left.__cause__ = error
    return left


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """The block runs an environment's code: what it raises is an Exception. See :func:`contained`."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


def exit_process(code: int) -> NoReturn:
    """End the process by SystemExit, whatever threads an environment has left.

    Python waits for them before it ends. After two seconds they are given up.
    """
    threading.Thread(target=_give_up, args=(code,), name="leave", daemon=True).start()
    sys.exit(code)


def _give_up(code: int) -> None:
    time.sleep(_GRACE_S)
    left = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    if not left:  # something else takes its time
        return
    with suppress(OSError, ValueError):
        print(f"warning: threads that an environment left are given up: {', '.join(left)}", file=sys.stderr)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    exit_now(code)
