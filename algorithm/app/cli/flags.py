"""The flags that ``main.py`` and ``main_ds.py`` have in common, and the form of a parser's errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from typing_extensions import override

from algorithm.app.cli.completion import add_completion
from algorithm.app.cli.flag_types import (
    checkpoint,
    device,
    folder,
    limit,
    mapping,
    natural,
    port_number,
    positive,
)
from algorithm.config.elsewhere import COMMANDS, remedy
from algorithm.config.errors import EXIT_CONFIG, ConfigError, Problem
from algorithm.core.program import VERSION, as_typed

_FIRST = "python main.py gym/pendulum, or python main.py CartPole-v1"


class Parser(argparse.ArgumentParser):
    """Parser whose errors have the form of every other fault and say what to write instead."""

    @override
    def error(self, message: str, fix: str | None = None) -> NoReturn:
        where = f"arguments of {self.prog}"
        leave(Problem("the command line cannot be read", where, message, fix or self._help))

    def no_env(self, why: str, fix: str | None = None) -> NoReturn:
        """Leave because no environment is named, with examples unless there is a better ``fix``."""
        self.error(why, fix or f"name what to train: {as_typed(_FIRST)}; {self._help}")

    def read(self, argv: Sequence[str] | None) -> dict[str, Any]:
        """Return the value of each flag; None reads the command line of this process.

        Leaves by SystemExit for words that are not known.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        known, unknown = self.parse_known_args(words)
        is_command = known.env in COMMANDS and not any(Path(at, known.env).exists() for at in (".", "envs"))
        if unknown or is_command:
            fix = remedy(words, unknown, known.env, self._option_string_actions, self._program)
            if unknown:
                self.error(f"unrecognized arguments: {' '.join(unknown)}", fix)
            self.no_env(f"{known.env} is no environment, and there are no commands", fix)
        return vars(known)

    @property
    def _program(self) -> str:
        return self.prog if self.prog in ("asac", "asac-ds") else f"python {self.prog}"

    @property
    def _help(self) -> str:
        return f"{self._program} --help shows every flag"


def make_parser(prog: str, description: str, epilog: str) -> Parser:
    """Return a parser whose errors have the form of every other fault."""
    return Parser(
        prog=as_typed(f"python {prog}").removeprefix("python "),
        description=description,
        epilog=as_typed(epilog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_common(parser: argparse._ActionsContainer, models: Path) -> None:
    """Add the flags for the task and the number of environments; models: the usual folder of all runs."""
    parser.add_argument(
        "--config",
        "-c",
        help="section of config.yaml, or a file of the folder, or FILE:SECTION; a file for an environment "
        "without a folder",
    )
    parser.add_argument("--name", "-n", help="training name; may contain {time} and {hostname}")
    parser.add_argument(
        "--directory", type=folder, default=models, metavar="DIR", help="folder of all runs; default: models"
    )
    parser.add_argument("--agents", "--envs", type=positive, help="number of environments side by side")
    parser.add_argument(
        "--env_args", type=mapping, help="additional args for environments: k=v,k=v or a YAML mapping"
    )


def add_training(parser: argparse._ActionsContainer) -> None:
    """Add the flags of a training: resume, length, seed, overrides."""
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest run of ENV, or that of -n, with its own settings; -c, -o change them",
    )
    parser.add_argument("--max_iter", type=limit, help="max iteration, -1: no limit")
    parser.add_argument("--max_step", type=limit, help="max environment steps, -1: no limit")
    parser.add_argument(
        "--evaluations", type=positive, metavar="N", help="end with the N-th evaluation of the run in all"
    )
    parser.add_argument(
        "--networks",
        metavar="FOLDER",
        help="begin with the networks of a checkpoint, targets equal to them; with --resume "
        "base_config.evolver_keep says what stays besides",
    )
    parser.add_argument(
        "--profile", action="store_true", help="write where the time of the training goes: profile.txt"
    )
    parser.add_argument("--preset", help="a better learner: lean, cross, tqc, xqc, simba, droq")
    parser.add_argument("--seed", type=natural, help="seed of the run; default: the file's, else a fresh one")
    parser.add_argument(
        "--override",
        "-o",
        action="append",
        metavar="A.B=VALUE",
        help="set any key of the configuration; repeatable",
    )


def add_sharing(parser: argparse._ActionsContainer) -> None:
    """Add the flags that share a run, or trust one that somebody has shared."""
    parser.add_argument(
        "--export",
        metavar="FILE.zip",
        help="write the run as one file to share: networks of --ckpt or the best",
    )
    parser.add_argument("--push", metavar="OWNER/NAME", help="the same on the Hugging Face hub")
    parser.add_argument("--replace", action="store_true", help="with --export: replace a file of that name")
    parser.add_argument("--private", action="store_true", help="with --push: make a private repository")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run the code that the export of -n FILE.zip or -n hf://OWNER/NAME brings or names",
    )


def add_talk(parser: argparse._ActionsContainer) -> None:
    """Add the flags for what is printed."""
    parser.add_argument("--version", action="version", version=VERSION, help="print the version and exit")
    parser.add_argument("--quiet", action="store_true", help="print only warnings and the result")
    parser.add_argument("--debug", action="store_true", help="print debug lines and whole tracebacks")
    add_completion(parser)


def add_acting(parser: argparse._ActionsContainer, *, port: str) -> None:
    """Add the flags for acting; ``port`` is the name of the flag for Unity's port."""
    parser.add_argument("--run", action="store_true", help="inference mode")
    parser.add_argument("--render", action="store_true", help="render")
    if port == "--port":
        parser.add_argument(
            "--disable_sample", action="store_true", help="disable sampling when choosing actions"
        )
        parser.add_argument("--watch", action="store_true", help="--run --render --disable_sample")
    parser.add_argument("--logger_in_file", action="store_true", help="write debug lines into train.log too")
    other = "--unity_port" if port == "--port" else "--port"
    parser.add_argument(
        port,
        "-p",
        other,
        dest="port",
        type=port_number,
        help="UNITY: communication port of the first player, taken or refused; no effect on GYM",
    )
    parser.add_argument(
        "--editor", action="store_true", help="UNITY: train in the Unity Editor; no effect on GYM"
    )


def add_model(parser: argparse._ActionsContainer) -> None:
    """Add the flags for the networks and their device."""
    parser.add_argument(
        "--device", type=device, default="auto", help="cpu, cuda, cuda:N, gpu (= cuda) or auto (default)"
    )
    parser.add_argument(
        "--ckpt",
        type=checkpoint,
        metavar="STEP",
        help="checkpoint to restore: its environment steps, latest or best; default: the newest intact one",
    )
    parser.add_argument("--nn", help="neural network model: a file of the task's folder, without .py")


def cannot(what: str, why: str, fix: str) -> Problem:
    """Return the problem of a command line that asks for the impossible."""
    return Problem(what, "command line", why, fix)


def leave(*problems: Problem) -> NoReturn:
    """Print the faults and end the process with the exit code of a wrong configuration."""
    print(f"error: {ConfigError(problems)}", file=sys.stderr)
    raise SystemExit(EXIT_CONFIG)
