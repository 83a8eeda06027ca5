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
    """Answer a shell that asks how a command line may go on, and end the process; else do nothing.

    runs: dest of an action -> function of the label of a task, with ``models``, the folder of all runs; it
          returns the names that the action completes
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    with suppress(Exception):  # whatever is wrong, there is nothing to offer
        from argcomplete import autocomplete

        autocomplete(extra("with_completers")(make_parser(), runs), always_complete_options=False)
    os._exit(1)
