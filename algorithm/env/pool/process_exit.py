"""Exit of this process, which the program may end and an environment may not. Imports no numpy."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from algorithm.core.system.processes import exit_now

_GRACE_S = 2.0  # for threads to end by themselves


class EnvExitError(Exception):
    """An attempt of an environment to end the program, for example by ``sys.exit``."""


def as_exception(error: BaseException) -> Exception:
    """Return an environment's error as an Exception: SystemExit and its like become an EnvExitError.

    Raises ``error`` if it is the user's own Ctrl-C, which is possible only while that signal has its default
    handler.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error
    left = EnvExitError(f"{error!r} would end the program, which an environment may not do")
    left.__cause__ = error
    return left


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Run an environment's code; whatever it raises becomes an Exception. See :func:`as_exception`."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


def exit_process(code: int) -> NoReturn:
    """End the process by SystemExit, whatever threads an environment has left.

    Python joins them before it ends. After two seconds they are abandoned.
    """
    threading.Thread(target=_abandon_threads, args=(code,), name="exit", daemon=True).start()
    sys.exit(code)


def _abandon_threads(code: int) -> None:
    """End the process after two seconds, whatever threads still run."""
    time.sleep(_GRACE_S)
    left = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    if not left:  # something else is slow
        return
    with suppress(OSError, ValueError):
        print(f"warning: threads that an environment left are abandoned: {', '.join(left)}", file=sys.stderr)
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            output.flush()
    exit_now(code)
