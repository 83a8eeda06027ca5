"""The command line of ``main.py``. A flag that is not given never overrides the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from algorithm.agents.registry import FAMILIES
from algorithm.app.cli.flags import Parser, cannot, leave
from algorithm.app.cli.train import HOW, OUTPUT, TrainOptions
from algorithm.core.program import VERSION, as_typed

ENV_HELP = (
    "a folder below envs/, a path to a folder with a config.yaml, a Gymnasium id, module:Id or file.py:Id"
)

_EXAMPLES = """\
examples:
  # train the task envs/gym/pendulum with its default settings
  python main.py gym/pendulum -c config
  # train with name "test_{time}" and 10 environments, twice, with two seeds
  python main.py gym/pendulum -n "test_{time}" --agents=10 --repeat=2
  # try another algorithm on the same task
  python main.py gym/pendulum --algorithm PPO
  # turn an ML-Agents trainer configuration into a task
  python main.py --from_mlagents 3DBall.yaml
  # override single settings of the file
  python main.py gym/pendulum -o sac_config.learning_rate=1e-3 -o sac_config.n_step=3
  # resume a run that was stopped or killed, exactly from its newest checkpoint
  python main.py gym/pendulum -n NAME --resume
  # watch a trained agent without sampling; evaluate it; film it
  python main.py gym/pendulum -n NAME --watch
  python main.py gym/pendulum -n NAME --eval 10 --ckpt best
  python main.py gym/pendulum -n NAME --video
  # share a run as one file; evaluate a shared one
  python main.py CartPole-v1 -n NAME --export cart_pole.zip
  python main.py CartPole-v1 -n cart_pole.zip --eval 10
  # export its policy as ONNX, for Unity and others
  python main.py CartPole-v1 -n NAME --export cart_pole.onnx
  # check an environment, estimate the cost of training
  python main.py gym/pendulum --check
  python main.py gym/pendulum --dry_run
"""


def parse_args(argv: Sequence[str] | None = None) -> TrainOptions:
    """Parse the command line of ``main.py``; None: that of this process.

    Raises SystemExit: 0 after ``--help``, 2 with a message for a wrong command line.
    """
    parser = train_parser()
    values = parser.read(argv)
    if values["env"] is None:
        if not (values["list"] or values["from_mlagents"]):
            first = as_typed("python main.py gym/pendulum, or python main.py CartPole-v1")
            fix = f"name what to train: {first}; {parser.help_hint}"
            parser.error("the following arguments are required: env", fix)
        values["env"] = ""
    if values.pop("watch"):
        values |= {"run": True, "render": True, "disable_sample": True}
    options = TrainOptions(**values)
    refuse_mixed(options)
    return options


def train_parser() -> Parser:
    """Return the parser of the command line of ``main.py`` for training and watching."""
    parser = Parser("main.py", f"Train an agent with {', '.join(FAMILIES)}, or run a trained one.", _EXAMPLES)
    parser.add_argument("env", nargs="?", help=ENV_HELP)
    parser.add_flags(TrainOptions, with_roles=False)
    watch = "watch a trained agent: --run --render --disable_sample"
    parser.group(HOW).add_argument("--watch", action="store_true", help=watch)
    add_version(parser)
    return parser


def add_version(parser: Parser) -> None:
    """Add the flag that prints the version and exits."""
    what = "print the version and exit"
    parser.group(OUTPUT).add_argument("--version", action="version", version=VERSION, help=what)


_ALONE = ("it has no effect otherwise", "add it, or leave it out")

_OF_ONE_RUN = ("ckpt", "render", "use_env_nn", "disable_sample", "logger_in_file", "quiet", "port", "editor")

_RULES: Sequence[tuple[Callable[[TrainOptions], object], str, str, str]] = (
    (
        lambda options: options.run and options.eval,
        "--run and --eval cannot be combined",
        "--eval plays N episodes with the deterministic policy, --run until a limit, with sampling",
        "leave one out",
    ),
    (
        lambda options: options.render and options.video,
        "--render and --video cannot be combined",
        "an environment either opens a window or returns images",
        "leave one out",
    ),
    (
        lambda options: (
            options.ckpt is not None
            and options.tune is None
            and not (options.resume or options.plays or options.export is not None)
        ),
        "--ckpt chooses the checkpoint to resume, play or export",
        "new training starts without a checkpoint",
        "add --resume, --run or --eval N, or leave --ckpt out",
    ),
    (
        lambda options: options.record and not (options.run or options.eval),
        "--record needs --run or --eval",
        "it records played episodes",
        "add one of them",
    ),
    (
        lambda options: options.lesson and not options.plays,
        "--lesson needs --run, --eval or --video",
        "training starts with the first lesson and advances by itself",
        "add one of them, or leave it out",
    ),
    (
        lambda options: options.names_export and not (options.plays or options.exports_graph),
        "{name} names an export, not a run",
        "an export has no optimizer and no replay, and a run cannot have such a name",
        "play it (--run, --eval N, --video), export its policy (--export FILE.onnx), or name a run",
    ),
    (
        lambda options: options.trust and not options.names_export,
        "--trust needs -n FILE.zip, which names an export",
        *_ALONE,
    ),
    (
        lambda options: options.replace and options.export is None,
        "--replace needs --export FILE",
        *_ALONE,
    ),
    (
        lambda options: options.export is not None and (_changes(options) or options.config is not None),
        "an export cannot change a run's settings",
        "the run is exported unchanged, and -c and -o change settings",
        "leave them out",
    ),
    (
        lambda options: (
            options.from_mlagents and (options.env or options.overrides or options.config is not None)
        ),
        "--from_mlagents takes neither a task nor settings",
        "the translated file is printed",
        "leave them out, and use them with the new task",
    ),
    (
        lambda options: options.play_against and options.name,
        "--play_against names the runs itself",
        "-n names a single one",
        "leave -n out",
    ),
    (
        lambda options: options.tune is not None and options.resume and options.dry_run,
        "--tune can do one thing at a time",
        "--resume continues, --dry_run estimates",
        "leave one out",
    ),
    (
        lambda options: options.tune is not None and any(vars(options)[flag] for flag in _OF_ONE_RUN),
        "--tune cannot be combined with flags of a single run",
        f"it starts many runs; these flags are for one: {', '.join(f'--{flag}' for flag in _OF_ONE_RUN)}",
        "leave them out",
    ),
    (
        lambda options: options.tune is not None and options.config and options.resume,
        "-c is for a new study",
        "an existing study has its own section",
        "leave -c out",
    ),
    (
        lambda options: options.tune and options.name,
        "--tune and -n both name the study",
        "it has one name",
        "leave one out",
    ),
    (
        lambda options: options.repeat > 1 and options.resume,
        "--repeat and --resume cannot be combined",
        "--resume continues a single run",
        "leave one out",
    ),
)
"""Refused command lines: (condition, what, why, advice)."""


def _changes(options: TrainOptions) -> bool:
    """Return whether the options change settings of the run, which an export keeps."""
    if not (options.overrides and options.exports_graph):
        return bool(options.overrides)
    from algorithm.config.resolve import in_blocks
    from algorithm.config.tree import Node

    return not all(words.startswith("export_config.") for words in in_blocks(options.overrides, Node({}), {}))


def refuse_mixed(options: TrainOptions) -> None:
    """Exit for flags that choose two commands at once, or that require another flag."""
    tunes = options.tune is not None
    modes = {
        "--run, --eval or --video": options.plays and not (options.play_against and options.eval),
        "--play_against": options.play_against,
        "--resume": options.resume and not tunes,
        "--tune": tunes,
        "--check": options.check,
        "--dry_run": options.dry_run and not tunes,
        "--train_reward": options.train_reward,
        "--report": options.report,
        "--list": options.list,
        "--export": options.export is not None,
        "--from_mlagents": options.from_mlagents is not None,
    }
    chosen = [mode for mode, is_chosen in modes.items() if is_chosen]
    problems = [
        cannot(what.format(name=options.name), why, fix) for holds, what, why, fix in _RULES if holds(options)
    ]
    if len(chosen) > 1:
        what = f"{' and '.join(chosen[:2])} cannot be combined"
        problems.insert(0, cannot(what, "each is a separate command", "leave one out"))
    of_training = [
        f"--{name}" for name in ("evaluations", "init_from", "init_parts") if getattr(options, name)
    ]
    of_training += ["--repeat"] * (options.repeat > 1)
    if of_training and chosen not in ([], ["--resume"]):
        problems.append(
            cannot(f"{of_training[0]} is for training", "this command does not train", "leave it out")
        )
    if problems:
        leave(*problems)
