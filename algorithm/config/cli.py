"""The command lines of ``main.py`` and ``main_ds.py``. A flag that is not given never overrides the file."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from algorithm.config.errors import EXIT_CONFIG, ConfigError, Problem, did_you_mean, unavailable
from algorithm.config.source import parse_value

_EXAMPLES = """\
examples:
  # train the task envs/gym/pendulum with its default settings
  python main.py gym/pendulum -c config
  # train with name "test_{time}" and 10 environments, twice, with two seeds
  python main.py gym/pendulum -n "test_{time}" --agents=10 --repeat=2
  # change single settings, whatever the file says
  python main.py gym/pendulum -o sac_config.learning_rate=1e-3 -o sac_config.n_step=3
  # go on with a run that was stopped or killed, exactly where its newest checkpoint was made
  python main.py gym/pendulum -n NAME --resume
  # watch a trained run act, without sampling; measure it; film it
  python main.py gym/pendulum -n NAME --run --render --disable_sample
  python main.py gym/pendulum -n NAME --eval 10 --ckpt best
  python main.py gym/pendulum -n NAME --video
  # look at an environment before training, and at what a training would cost
  python main.py gym/pendulum --check
  python main.py gym/pendulum --dry_run
"""
_DS_EXAMPLES = """\
examples:
  python main_ds.py test learner --logger_in_file
  python main_ds.py test actor --logger_in_file
"""


Ckpt = int | Literal["latest", "best"]
"""Which checkpoint: its environment steps, the one saved last, or the one with the best evaluation."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What the command line of ``main.py`` asks for. None and false: the flag was not given.

    device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto`` (``gpu`` is read as ``cuda``).
    ckpt:   the checkpoint to restore.
    eval:   episodes of an evaluation with the deterministic policy.
    record: file for what is seen and done while playing.
    report: names of runs.
    notices: sentences to show because a flag has no effect.
    """

    env: str
    config: str | None = None
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    run: bool = False
    resume: bool = False
    eval: int | None = None
    video: bool = False
    record: str | None = None
    check: bool = False
    dry_run: bool = False
    report: tuple[str, ...] = ()
    logger_in_file: bool = False
    render: bool = False
    env_args: Mapping[str, Any] | None = None
    agents: int | None = None
    max_iter: int | None = None
    name: str | None = None
    disable_sample: bool = False
    use_env_nn: bool = False
    device: str = "auto"
    ckpt: Ckpt | None = None
    nn: str | None = None
    repeat: int = 1
    quiet: bool = False
    debug: bool = False
    notices: tuple[str, ...] = ()

    @property
    def plays(self) -> bool:
        """Whether a trained agent acts and nothing is learned."""
        return self.run or self.eval is not None or self.video


def config_flags(options: TrainOptions) -> dict[str, object]:
    """The flags that stand for a key of the configuration, as `load_config` takes them."""
    keys = {
        "base_config.n_envs": options.agents,
        "base_config.max_iter": options.max_iter,
        "base_config.name": options.name,
        "base_config.env_args": options.env_args,
        "sac_config.nn": options.nn,
        # Without sampling there is no density to correct with: its ratio is 1.
        "sac_config.use_n_step_is": False if options.disable_sample else None,
    }
    return {path: value for path, value in keys.items() if value is not None}


def parse_args(argv: Sequence[str] | None = None) -> TrainOptions:
    """Read the command line of ``main.py``; None is that of this process.

    Leaves by SystemExit: 0 after ``--help`` and ``--schema``, 2 with a message for anything that cannot be
    done, flags of later parts among it.
    """
    given = vars(_parse(_train_parser(), argv))
    notices = [
        f"--{flag} has no effect on GYM: it is for Unity environments"
        for flag in ("port", "editor")
        if given.pop(flag) not in (None, False)
    ]
    overrides, names = tuple(given.pop("override") or ()), tuple(given.pop("report") or ())
    options = TrainOptions(**given, overrides=overrides, report=names, notices=tuple(notices))
    _refuse_mixed(options)
    return options


def parse_distributed(argv: Sequence[str] | None = None) -> NoReturn:
    """Read the command line of ``main_ds.py`` and refuse it: distributed training comes with a later part.

    Leaves by SystemExit, 0 after ``--help``, else 2.
    """
    given = _parse(_distributed_parser(), argv)
    _exit(
        unavailable(
            f"main_ds.py {given.role}",
            "command line",
            "distributed training",
            f"train in one process: python main.py {given.env}",
        )
    )


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in the shape of every other fault, and names the flag nearest to an unknown one."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--?[\w-]+)", message)
        close = unknown and did_you_mean(unknown[1], self._option_string_actions)
        fix = f"did you mean {close}?" if close else f"python {self.prog} --help shows every flag"
        _exit(Problem("the command line cannot be read", f"arguments of {self.prog}", message, fix))


class _PrintSchema(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        from algorithm.config.reference import json_schema  # not needed in a run

        print(json.dumps(json_schema(), indent=2))
        raise SystemExit(0)


def _train_parser() -> argparse.ArgumentParser:
    parser = _parser("main.py", "Train a Soft Actor-Critic agent, or let a trained one act.", _EXAMPLES)
    parser.add_argument("env", help="a folder below envs/, or the path of a folder with a config.yaml")
    what = parser.add_argument_group("what to run")
    _common(what)
    what.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest run of ENV, or that of -n, with its own settings; -c, -o change them",
    )
    what.add_argument("--eval", type=_positive, metavar="N", help="play N episodes without sampling, measure")
    what.add_argument("--video", action="store_true", help="film the first episode that is played")
    what.add_argument(
        "--record", metavar="FILE.npz", help="with --run or --eval: keep what was seen and done"
    )
    what.add_argument(
        "--check", action="store_true", help="look for what would keep ENV from being learned, train nothing"
    )
    what.add_argument("--dry_run", action="store_true", help="say what a training would cost, train nothing")
    what.add_argument(
        "--report", nargs="+", metavar="NAME", help="write the page of a run, or compare several"
    )
    what.add_argument("--max_iter", type=_limit, help="max iteration, -1: no limit")
    what.add_argument(
        "--repeat", type=_positive, default=1, help="number of repeated experiments, seed + 1 each"
    )
    what.add_argument("--seed", type=_natural, help="seed of the run; default: the file's, else a fresh one")
    what.add_argument(
        "--override",
        "-o",
        action="append",
        metavar="A.B=VALUE",
        help="set any key of the configuration; repeatable",
    )
    _acting(parser.add_argument_group("how to run"), port="--port")
    model = parser.add_argument_group("which networks")
    _model(model)
    model.add_argument(
        "--use_env_nn", action="store_true", help="use nn.py of the task, not the run's saved copy"
    )
    talk = parser.add_argument_group("what to say")
    talk.add_argument("--quiet", action="store_true", help="print only warnings and the result")
    talk.add_argument("--debug", action="store_true", help="print debug lines and whole tracebacks")
    talk.add_argument(
        "--schema", action=_PrintSchema, nargs=0, help="print the JSON schema of config.yaml and exit"
    )
    return parser


def _distributed_parser() -> argparse.ArgumentParser:
    text = "Distributed training. Not available in this version."
    parser = _parser("main_ds.py", text, _DS_EXAMPLES)
    parser.add_argument("env", help="a folder below envs/, or the path of a folder with a config.yaml")
    roles = ("learner", "l", "actor", "a", "evolver", "e", "cluster")
    parser.add_argument("role", choices=roles, help="the part that this process plays")
    _common(parser)
    parser.add_argument("--learner_host", help="learner host")
    parser.add_argument("--learner_port", type=_positive, help="learner port")
    _acting(parser, port="--unity_port")
    _model(parser)
    return parser


def _parser(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _common(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--config", "-c", help="section of config.yaml, or a file of the folder, or FILE:SECTION"
    )
    parser.add_argument("--name", "-n", help="training name; knows {time} and {hostname}")
    parser.add_argument("--agents", "--envs", type=_positive, help="number of environments side by side")
    parser.add_argument(
        "--env_args", type=_mapping, help="additional args for environments: k=v,k=v or a YAML mapping"
    )


def _acting(parser: argparse._ActionsContainer, *, port: str) -> None:
    parser.add_argument("--run", action="store_true", help="inference mode")
    parser.add_argument("--render", action="store_true", help="render")
    if port == "--port":
        parser.add_argument(
            "--disable_sample", action="store_true", help="disable sampling when choosing actions"
        )
    parser.add_argument("--logger_in_file", action="store_true", help="write debug lines into train.log too")
    parser.add_argument(port, "-p", type=_positive, help="UNITY: communication port")
    parser.add_argument("--editor", action="store_true", help="UNITY: running in Unity Editor")


def _model(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--device", type=_device, default="auto", help="cpu, cuda, cuda:N, gpu (= cuda) or auto (default)"
    )
    parser.add_argument(
        "--ckpt",
        type=_checkpoint,
        metavar="STEP",
        help="checkpoint to restore: its environment steps, latest or best; default: the newest intact one",
    )
    parser.add_argument("--nn", help="neural network model: a file of the task's folder, without .py")


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    given = parser.parse_args(argv)
    if "schema" in given:
        del given.schema
    return given


def _refuse_mixed(options: TrainOptions) -> None:
    """Refuse flags that ask for two things at once, or that need another one."""
    modes = {
        "--run, --eval or --video": options.plays,
        "--resume": options.resume,
        "--check": options.check,
        "--dry_run": options.dry_run,
        "--report": bool(options.report),
    }
    asked = [flag for flag, given in modes.items() if given]
    if len(asked) > 1:
        _exit(
            _cannot(
                f"{asked[0]} and {asked[1]} cannot go together", "each is another command", "leave one out"
            )
        )
    if options.record and not (options.run or options.eval):
        _exit(
            _cannot(
                "--record needs --run or --eval", "only what is played can be kept", "add --run or --eval N"
            )
        )
    if options.repeat > 1 and options.resume:
        _exit(_cannot("--repeat and --resume cannot go together", "one run is resumed", "leave one out"))


def _cannot(what: str, why: str, fix: str) -> Problem:
    return Problem(what, "command line", why, fix)


def _exit(*problems: Problem) -> NoReturn:
    print(ConfigError(problems), file=sys.stderr)
    raise SystemExit(EXIT_CONFIG)


def _whole(text: str, lowest: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer() or value < lowest:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number ≥ {lowest}")
    return int(value)


def _positive(text: str) -> int:
    return _whole(text, 1)


def _natural(text: str) -> int:
    return _whole(text, 0)


def _checkpoint(text: str) -> Ckpt:
    if text == "latest":
        return "latest"
    if text == "best":
        return "best"
    try:
        return _natural(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and neither latest nor best") from None


def _limit(text: str) -> int:
    return -1 if text == "-1" else _whole(text, 1)


def _device(text: str) -> str:
    name = text.lower().replace("gpu", "cuda")
    if not re.fullmatch(r"cpu|auto|cuda(:\d+)?", name):
        raise argparse.ArgumentTypeError(f"{text} is none of cpu, cuda, cuda:N, gpu, auto")
    return name


def _mapping(text: str) -> dict[str, Any]:
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
