"""Flags that ``main.py`` and ``main_ds.py`` share, and how a mistake in them is told."""

from __future__ import annotations

import argparse
import math
import re
import sys
from typing import Any, Literal, NoReturn

from algorithm.config.errors import EXIT_CONFIG, ConfigError, Problem, did_you_mean
from algorithm.config.yaml_io import parse_value

Ckpt = int | Literal["latest", "best"]
"""Which checkpoint: its environment steps, the one saved last, or the one with the best evaluation."""

ENV_HELP = (
    "a folder below envs/, the path of a folder with a config.yaml, or an environment by its name: an id of "
    "Gymnasium, module:Id or file.py:Id"
)

_EXAMPLES = "python main.py gym/pendulum, or python main.py CartPole-v1"


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in the shape of every other fault, and names the flag nearest to an unknown one."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--?[\w-]+)", message)
        close = unknown and did_you_mean(unknown[1], self._option_string_actions)
        fix = f"did you mean {close}?" if close else f"python {self.prog} --help shows every flag"
        if message.endswith("required: env"):
            fix = f"name what to train: {_EXAMPLES}; {fix}"
        leave(Problem("the command line cannot be read", f"arguments of {self.prog}", message, fix))


def make_parser(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A parser whose mistakes look like every other fault."""
    return _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_common(parser: argparse._ActionsContainer) -> None:
    """Flags that say which task and how many environments."""
    parser.add_argument(
        "--config",
        "-c",
        help="section of config.yaml, or a file of the folder, or FILE:SECTION; a file for an environment "
        "without a folder",
    )
    parser.add_argument("--name", "-n", help="training name; knows {time} and {hostname}")
    parser.add_argument("--agents", "--envs", type=positive, help="number of environments side by side")
    parser.add_argument(
        "--env_args", type=mapping, help="additional args for environments: k=v,k=v or a YAML mapping"
    )


def add_training(parser: argparse._ActionsContainer) -> None:
    """Flags of a training: go on, how long, seed, overrides."""
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest run of ENV, or that of -n, with its own settings; -c, -o change them",
    )
    parser.add_argument("--max_iter", type=limit, help="max iteration, -1: no limit")
    parser.add_argument("--max_step", type=limit, help="max environment steps, -1: no limit")
    parser.add_argument("--seed", type=natural, help="seed of the run; default: the file's, else a fresh one")
    parser.add_argument(
        "--override",
        "-o",
        action="append",
        metavar="A.B=VALUE",
        help="set any key of the configuration; repeatable",
    )


def add_talk(parser: argparse._ActionsContainer) -> None:
    """Flags that say how much is printed."""
    parser.add_argument("--quiet", action="store_true", help="print only warnings and the result")
    parser.add_argument("--debug", action="store_true", help="print debug lines and whole tracebacks")


def add_acting(parser: argparse._ActionsContainer, *, port: str) -> None:
    """Flags that say how agents act; ``port`` is the name of the flag for Unity's port."""
    parser.add_argument("--run", action="store_true", help="inference mode")
    parser.add_argument("--render", action="store_true", help="render")
    if port == "--port":
        parser.add_argument(
            "--disable_sample", action="store_true", help="disable sampling when choosing actions"
        )
        parser.add_argument("--watch", action="store_true", help="--run --render --disable_sample")
    parser.add_argument("--logger_in_file", action="store_true", help="write debug lines into train.log too")
    parser.add_argument(port, "-p", type=positive, help="UNITY: communication port; no effect on GYM")
    parser.add_argument(
        "--editor", action="store_true", help="UNITY: running in Unity Editor; no effect on GYM"
    )


def add_model(parser: argparse._ActionsContainer) -> None:
    """Flags that say which networks, and where they compute."""
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
    """A command line that asks for what cannot be."""
    return Problem(what, "command line", why, fix)


def leave(*problems: Problem) -> NoReturn:
    """Print the faults and end the process with the exit code of a wrong configuration."""
    print(f"error: {ConfigError(problems)}", file=sys.stderr)
    raise SystemExit(EXIT_CONFIG)


def whole(text: str, lowest: int) -> int:
    """A whole number ≥ ``lowest``, also as ``1e6``; this and all below raise ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer() or value < lowest:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number ≥ {lowest}")
    return int(value)


def positive(text: str) -> int:
    """A whole number ≥ 1."""
    return whole(text, 1)


def natural(text: str) -> int:
    """A whole number ≥ 0."""
    return whole(text, 0)


def checkpoint(text: str) -> Ckpt:
    """A step, ``latest`` or ``best``."""
    if text == "latest":
        return "latest"
    if text == "best":
        return "best"
    try:
        return natural(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and neither latest nor best") from None


def limit(text: str) -> int:
    """A whole number ≥ 1, or −1 for none."""
    return -1 if text == "-1" else whole(text, 1)


def device(text: str) -> str:
    """``cpu``, ``auto``, ``cuda`` or ``cuda:N``; ``gpu`` is read as ``cuda``."""
    name = text.lower().replace("gpu", "cuda")
    if not re.fullmatch(r"cpu|auto|cuda(:\d+)?", name):
        raise argparse.ArgumentTypeError(f"{text} is none of cpu, cuda, cuda:N, gpu, auto")
    return name


def mapping(text: str) -> dict[str, Any]:
    """``k=v,k=v``, each value as in YAML, or one YAML mapping."""
    pairs = re.split(r",(?=\s*\w+\s*=)", text)
    try:
        if all(re.match(r"\s*\w+\s*=", pair) for pair in pairs):
            return {
                key.strip(): parse_value(value) for key, _, value in (pair.partition("=") for pair in pairs)
            }
        value = parse_value(f"{{{text}}}" if ":" in text and text.lstrip()[0] not in "{[" else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is neither k=v,k=v nor a YAML mapping")
    return value
