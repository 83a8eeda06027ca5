"""Completion of command lines in a shell, by argcomplete: ``eval "$(asac --completion bash)"``.

The shell starts the program for every word to be completed, so nothing here loads torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from typing_extensions import override

from algorithm.core.errors import UsageError
from algorithm.core.extras import extra, needs

_SHELLS = ("bash", "zsh", "fish")
_COMMANDS = ("asac", "asac-ds")


class _PrintCode(argparse.Action):
    @override
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: object
    ) -> NoReturn:
        try:
            with needs("completion", "--completion"):
                from argcomplete.shell_integration import shellcode  # not needed in a run
        except UsageError as error:
            parser.exit(error.exit_code, f"error: {error}\n")
        print(shellcode(_COMMANDS, shell=values))
        raise SystemExit(0)


def add_completion(parser: argparse._ActionsContainer) -> None:
    """Add the flag that prints code for a shell, with which it completes ``asac`` and ``asac-ds``."""
    parser.add_argument(
        "--completion",
        action=_PrintCode,
        choices=_SHELLS,
        default=argparse.SUPPRESS,
        help="print the shell code for tab completion of asac and asac-ds, and exit",
    )


def complete(
    make_parser: Callable[[], argparse.ArgumentParser], runs: Mapping[str, Callable[..., list[str]]]
) -> None:
    """Complete a command line for a shell, and end the process; do nothing if no shell has started it.

    runs: dest of an action -> function from a task's label and ``models``, the folder of all runs, to the
          names that complete the action
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    with suppress(Exception):  # after any error there are no completions
        from argcomplete import autocomplete

        autocomplete(extra("with_completers")(make_parser(), runs), always_complete_options=False)
    os._exit(1)
