"""The command line of ``main.py``, and the options that ``main_ds.py`` has in common with it.

A flag that is not given never overrides the file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from algorithm.app.cli.flag_types import is_export, positive
from algorithm.app.cli.flags import (
    Parser,
    add_acting,
    add_common,
    add_model,
    add_sharing,
    add_talk,
    add_training,
    cannot,
    leave,
    make_parser,
)
from algorithm.env.rules import unsampled
from algorithm.runs.names import MODELS, Ckpt

if TYPE_CHECKING:
    from algorithm.config.schema import Config

ENV_HELP = (
    "a folder below envs/, the path of a folder with a config.yaml, or an environment by its name: an id of "
    "Gymnasium, module:Id or file.py:Id"
)

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
  # share a run as one file; play with one that somebody has shared
  python main.py CartPole-v1 -n NAME --export cart_pole.zip
  python main.py CartPole-v1 -n cart_pole.zip --eval 10
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
    export: zip to write a run into; push: ``OWNER/NAME`` on the hub to upload it to.
    replace: the zip may replace another file; private: the repository is made for its owner alone.
    trust: code of an export that is played may run.
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
    export: str | None = None
    push: str | None = None
    replace: bool = False
    private: bool = False
    trust: bool = False
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

    @property
    def shares(self) -> bool:
        """True if a run is exported or uploaded."""
        return self.export is not None or self.push is not None


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


def notices(options: TrainOptions, config: Config | None) -> list[str]:
    """Return the sentences to show because a flag has no effect, or one that everybody should know.

    config: of the run; None for commands that need no environment
    """
    texts = list(options.notices)
    if config is None or config.base_config.env_type != "UNITY":
        if config and (names := unsampled(config.reset_config)):
            texts.append(
                f"reset_config.{', '.join(names)} is handed to reset() as it is: only Unity draws samples"
            )
        effect = f"has no effect on {config.base_config.env_type if config else 'this command'}"
        given = {"--port": options.port is not None, "--editor": options.editor}
        return [*texts, *(f"{flag} {effect}: it is for Unity environments" for flag in given if given[flag])]
    base = config.base_config
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
    given = parser.read(argv)
    given.pop("schema", None)
    if given["env"] is None:
        if not given["list"]:
            parser.no_env("the following arguments are required: env")
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


def train_parser() -> Parser:
    """Return the parser of ``main.py``."""
    parser = make_parser(
        "main.py", "Train an agent with SAC, PPO or A2C, or let a trained one act.", _EXAMPLES
    )
    parser.add_argument("env", nargs="?", help=ENV_HELP)
    what = parser.add_argument_group("what to run")
    add_common(what, MODELS)
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
    add_sharing(what)
    what.add_argument("--repeat", type=positive, default=1, help="number of trainings, seed + 1 each")
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
        "--export or --push": options.shares,
    }
    given_modes = [flag for flag, given in modes.items() if given]
    if len(given_modes) > 1:
        one, other = given_modes[:2]
        leave(cannot(f"{one} and {other} cannot go together", "each is another command", "leave one out"))
    if options.record and not (options.run or options.eval):
        leave(cannot("--record needs --run or --eval", "only what is played is kept", "add one of them"))
    if options.failure and not options.check:
        leave(cannot("--from needs --check", "it is a file for the check to replay", "add --check"))
    _refuse_sharing(options)
    for flag in ("evaluations", "networks", "profile"):
        if getattr(options, flag) not in (None, False) and any(
            given for mode, given in modes.items() if mode != "--resume"
        ):
            leave(cannot(f"--{flag} is for a training", "nothing is learned here", "leave it out"))
    if options.repeat > 1 and options.resume:
        leave(cannot("--repeat and --resume cannot go together", "one run is resumed", "leave one out"))


def _refuse_sharing(options: TrainOptions) -> None:
    """Refuse flags on exports where they have no meaning."""
    shared = options.name is not None and is_export(options.name)
    if shared and not options.plays:
        leave(
            cannot(
                f"{options.name} names an export, not a run",
                "an export has neither optimiser nor replay, and a run has no such name",
                "play it: --run, --eval N or --video; or give the name of a run",
            )
        )
    needs = {
        "--trust": (options.trust, shared, "-n FILE.zip or -n hf://OWNER/NAME, which name an export"),
        "--replace": (options.replace, options.export is not None, "--export FILE.zip"),
        "--private": (options.private, options.push is not None, "--push OWNER/NAME"),
    }
    for flag, (given, has, needed) in needs.items():
        if given and not has:
            leave(
                cannot(f"{flag} needs {needed}", "it says something of that alone", "add it, or leave it out")
            )
    if options.shares and (options.overrides or options.config is not None):
        leave(cannot("a run is shared as it is", "-c and -o would change its settings", "leave them out"))
