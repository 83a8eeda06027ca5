"""The command line of ``main.py``, and what that of ``main_ds.py`` has in common with it.

A flag that is not given never overrides the file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from algorithm.config.completion import add_completion
from algorithm.config.errors import EXIT_CONFIG, ConfigError, Problem, did_you_mean
from algorithm.config.flag_types import (
    Ckpt,
    checkpoint,
    device,
    folder,
    limit,
    mapping,
    natural,
    port_number,
    positive,
)
from algorithm.config.program import VERSION, as_typed

if TYPE_CHECKING:
    from algorithm.config.schema import BaseConfig

MODELS = Path("models")
"""Folder of all runs, below the current directory, unless ``--directory`` names another."""

ENV_HELP = (
    "a folder below envs/, the path of a folder with a config.yaml, or an environment by its name: an id of "
    "Gymnasium, module:Id or file.py:Id"
)

_FIRST = "python main.py gym/pendulum, or python main.py CartPole-v1"

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
  python main.py gym/pendulum -n NAME --watch
  python main.py gym/pendulum -n NAME --eval 10 --ckpt best
  python main.py gym/pendulum -n NAME --video
  # look at an environment before training, and at what a training would cost
  python main.py gym/pendulum --check
  python main.py gym/pendulum --dry_run
"""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``main.py``. None and false: the flag was not given.

    directory: folder of all runs.
    device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto`` (``gpu`` is read as ``cuda``).
    ckpt:   the checkpoint to restore.
    eval:   episodes of an evaluation with the deterministic policy.
    record: file for what is seen and done while playing.
    failure: dump of an episode for ``--check`` to replay.
    evaluations: of the run in all, after which it ends.
    networks: folder of a checkpoint whose networks a training begins with.
    profile: write where the time of a training goes.
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
    failure: str | None = None
    dry_run: bool = False
    report: tuple[str, ...] = ()
    list: bool = False
    logger_in_file: bool = False
    render: bool = False
    env_args: Mapping[str, Any] | None = None
    agents: int | None = None
    max_iter: int | None = None
    max_step: int | None = None
    evaluations: int | None = None
    networks: str | None = None
    profile: bool = False
    name: str | None = None
    preset: str | None = None
    directory: Path = MODELS
    disable_sample: bool = False
    use_env_nn: bool = False
    device: str = "auto"
    ckpt: Ckpt | None = None
    nn: str | None = None
    repeat: int = 1
    port: int | None = None
    editor: bool = False
    quiet: bool = False
    debug: bool = False
    notices: tuple[str, ...] = ()

    @property
    def plays(self) -> bool:
        """True if a trained agent acts and nothing is learned."""
        return self.run or self.eval is not None or self.video


def config_flags(options: TrainOptions) -> dict[str, object]:
    """Return the flags that stand for a key of the configuration, as `load_config` takes them."""
    keys = {
        "base_config.n_envs": options.agents,
        "base_config.max_iter": options.max_iter,
        "base_config.max_step": options.max_step,
        "base_config.name": options.name,
        "base_config.preset": options.preset,
        "base_config.env_args": options.env_args,
        "base_config.unity_args.port": options.port,
        "base_config.unity_args.fixed_port": None if options.port is None else True,
        "base_config.unity_args.editor": options.editor or None,
        "sac_config.nn": options.nn,
        # Without sampling there is no density to correct with: its ratio is 1.
        "sac_config.use_n_step_is": False if options.disable_sample else None,
    }
    return {path: value for path, value in keys.items() if value is not None}


def notices(options: TrainOptions, base: BaseConfig | None) -> list[str]:
    """Return the sentences to show because a flag has no effect, or one that everybody should know.

    base: of the run's configuration; None for commands that need no environment
    """
    texts = list(options.notices)
    if base is None or base.env_type != "UNITY":
        effect = f"has no effect on {base.env_type}" if base else "has no effect on this command"
        given = {"--port": options.port is not None, "--editor": options.editor}
        return [*texts, *(f"{flag} {effect}: it is for Unity environments" for flag in given if given[flag])]
    if base.max_step_each_iter > 0 or base.reset_on_iteration:
        texts.append(
            "a reset is one of a whole Unity player: max_step_each_iter and reset_on_iteration end the "
            "episodes of all its agents"
        )
    if base.unity_args.listen == "all":
        texts.append(
            "unity_args.listen: all: whoever reaches this machine can pose as the player; there is neither a "
            "password nor encryption"
        )
    return texts


def parse_args(argv: Sequence[str] | None = None) -> TrainOptions:
    """Read the command line of ``main.py``; None is that of this process.

    Leaves by SystemExit: 0 after ``--help`` and ``--schema``, 2 with a message for anything that cannot be
    done, flags of later parts among it.
    """
    parser = train_parser()
    given = vars(parser.parse_args(argv))
    given.pop("schema", None)
    if given["env"] is None:
        if not given["list"]:
            parser.error("the following arguments are required: env")
        given["env"] = ""
    if given.pop("watch"):
        given |= {"run": True, "render": True, "disable_sample": True}
    overrides, names = tuple(given.pop("override") or ()), tuple(given.pop("report") or ())
    options = TrainOptions(**given, overrides=overrides, report=names)
    refuse_mixed(options)
    return options


class _PrintSchema(argparse.Action):
    @override
    def __call__(self, *_: object) -> NoReturn:
        from algorithm.config.reference import json_schema  # not needed in a run

        print(json.dumps(json_schema(), indent=2))
        raise SystemExit(0)


def train_parser() -> argparse.ArgumentParser:
    """Return the parser of ``main.py``."""
    parser = make_parser("main.py", "Train a Soft Actor-Critic agent, or let a trained one act.", _EXAMPLES)
    parser.add_argument("env", nargs="?", help=ENV_HELP)
    what = parser.add_argument_group("what to run")
    add_common(what)
    add_training(what)
    what.add_argument("--eval", type=positive, metavar="N", help="play N episodes without sampling, measure")
    what.add_argument("--video", action="store_true", help="film the first episode that is played")
    what.add_argument(
        "--record", metavar="FILE.npz", help="with --run or --eval: keep what was seen and done"
    )
    what.add_argument(
        "--check", action="store_true", help="look for what would keep ENV from being learned, train nothing"
    )
    what.add_argument(
        "--from",
        dest="failure",
        metavar="FILE",
        help="with --check: replay an episode with a number that is not finite, from faults/ of a run",
    )
    what.add_argument("--dry_run", action="store_true", help="say what a training would cost, train nothing")
    what.add_argument(
        "--report", nargs="+", metavar="NAME", help="write the page of a run or a population, or compare runs"
    )
    what.add_argument("--list", action="store_true", help="list all tasks, or ENV's sections and runs")
    what.add_argument(
        "--repeat", type=positive, default=1, help="number of repeated experiments, seed + 1 each"
    )
    add_acting(parser.add_argument_group("how to run"), port="--port")
    model = parser.add_argument_group("which networks")
    add_model(model)
    model.add_argument(
        "--use_env_nn", action="store_true", help="use nn.py of the task, not the run's saved copy"
    )
    talk = parser.add_argument_group("what to say")
    add_talk(talk)
    talk.add_argument(
        "--schema", action=_PrintSchema, nargs=0, help="print the JSON schema of config.yaml and exit"
    )
    return parser


def refuse_mixed(options: TrainOptions) -> None:
    """Refuse flags that ask for two things at once, or that need another one."""
    modes = {
        "--run, --eval or --video": options.plays,
        "--resume": options.resume,
        "--check": options.check,
        "--dry_run": options.dry_run,
        "--report": bool(options.report),
        "--list": options.list,
    }
    given_modes = [flag for flag, given in modes.items() if given]
    if len(given_modes) > 1:
        one, other = given_modes[:2]
        leave(cannot(f"{one} and {other} cannot go together", "each is another command", "leave one out"))
    if options.record and not (options.run or options.eval):
        leave(cannot("--record needs --run or --eval", "only what is played is kept", "add one of them"))
    if options.failure and not options.check:
        leave(cannot("--from needs --check", "it is a file for the check to replay", "add --check"))
    for flag in ("evaluations", "networks", "profile"):
        if getattr(options, flag) not in (None, False) and any(
            given for mode, given in modes.items() if mode != "--resume"
        ):
            leave(cannot(f"--{flag} is for a training", "nothing is learned here", "leave it out"))
    if options.repeat > 1 and options.resume:
        leave(cannot("--repeat and --resume cannot go together", "one run is resumed", "leave one out"))


class _Parser(argparse.ArgumentParser):
    """Parser whose errors have the form of every other fault and name the flag nearest to an unknown one."""

    @override
    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--?[\w-]+)", message)
        named = f"python {self.prog}" if self.prog.endswith(".py") else self.prog
        close = unknown and did_you_mean(unknown[1], self._option_string_actions)
        fix = f"did you mean {close}?" if close else f"{named} --help shows every flag"
        if message.endswith("required: env"):
            fix = f"name what to train: {as_typed(_FIRST)}; {fix}"
        leave(Problem("the command line cannot be read", f"arguments of {self.prog}", message, fix))


def make_parser(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser whose errors have the form of every other fault."""
    return _Parser(
        prog=as_typed(f"python {prog}").removeprefix("python "),
        description=description,
        epilog=as_typed(epilog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_common(parser: argparse._ActionsContainer) -> None:
    """Add the flags for the task and the number of environments."""
    parser.add_argument(
        "--config",
        "-c",
        help="section of config.yaml, or a file of the folder, or FILE:SECTION; a file for an environment "
        "without a folder",
    )
    parser.add_argument("--name", "-n", help="training name; may contain {time} and {hostname}")
    parser.add_argument(
        "--directory", type=folder, default=MODELS, metavar="DIR", help="folder of all runs; default: models"
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
