"""Options of ``main.py``, each with its flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.agents.registry import FAMILIES
from algorithm.app.cli.flag_types import (
    checkpoint,
    device,
    folder,
    is_export,
    is_graph,
    limit,
    mapping,
    names,
    natural,
    port_number,
    positive,
    recording,
)
from algorithm.app.cli.flags import EVERY_ROLE, Role, flag
from algorithm.store.names import MODELS, Ckpt

HOW, OUTPUT = "how to run", "output"
_what = partial(flag, group="what to run")
_how = partial(flag, group=HOW)
_networks = partial(flag, group="which networks")
_output = partial(flag, group=OUTPUT)
_TRAINING: tuple[Role, ...] = ("learner", "cluster", "evolver")
_LEARNER: tuple[Role, ...] = ("learner",)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``main.py``. None, false and empty: the flag was not given.

    notices: notices on flags without effect
    """

    env: str
    config: str | None = _what(
        "--config",
        "-c",
        roles=EVERY_ROLE,
        help="section of config.yaml, a file of the folder, or FILE:SECTION; without a folder, any file",
    )
    name: str | None = _what(
        "--name", "-n", roles=_TRAINING, help="name of the run; {time} and {hostname} are filled in"
    )
    directory: Path = _what(  # noqa: RUF009 - it returns a field
        "--directory",
        roles=EVERY_ROLE,
        default=MODELS,
        type=folder,
        metavar="DIR",
        help="folder of all runs; default: models",
    )
    agents: int | None = _what(
        "--agents", "--envs", roles=EVERY_ROLE, type=positive, help="number of parallel environments"
    )
    env_args: Mapping[str, Any] | None = _what(
        "--env_args",
        roles=EVERY_ROLE,
        type=mapping,
        help="arguments of the environment: k=v,k=v or a YAML mapping",
    )
    resume: bool = _what(
        "--resume",
        roles=_TRAINING,
        default=False,
        help="resume the newest run of ENV, or the run of -n, with its own settings; -c, -o change them",
    )
    max_iter: int | None = _what(
        "--max_iter", roles=_TRAINING, type=limit, help="maximum iterations; -1: no limit"
    )
    max_step: int | None = _what(
        "--max_step", roles=_TRAINING, type=limit, help="maximum environment steps; -1: no limit"
    )
    evaluations: int | None = _what(
        "--evaluations",
        roles=_LEARNER,
        type=positive,
        metavar="N",
        help="stop after the run's N-th evaluation",
    )
    init_from: str | None = _what(
        "--init_from",
        roles=_LEARNER,
        metavar="NAME[:CKPT]",
        help="start from the networks of a run of ENV or a checkpoint folder; with --resume, "
        "base_config.evolver_keep sets what else stays",
    )
    init_parts: tuple[str, ...] = _what(
        "--init_parts",
        roles=_LEARNER,
        default=(),
        type=names,
        metavar="PART,PART",
        help="with --init_from: load only these parts, such as rep,policy",
    )
    algorithm: str | None = _what(
        "--algorithm",
        roles=EVERY_ROLE,
        help=f"{', '.join(FAMILIES)} or module:NAME; default: the section's, else SAC",
    )
    preset: str | None = _what(
        "--preset",
        roles=EVERY_ROLE,
        help="learner settings: plain, cross, flash64, lean, tqc, simba, droq, flash, lanes",
    )
    seed: int | None = _what(
        "--seed", roles=_TRAINING, type=natural, help="random seed; default: that of the file, else a new one"
    )
    overrides: tuple[str, ...] = _what(
        "--override",
        "-o",
        roles=EVERY_ROLE,
        default=(),
        action="append",
        metavar="KEY=VALUE",
        help="set a configuration key, such as n_envs=4; repeatable",
    )
    eval: int | None = _what(
        "--eval", type=positive, metavar="N", help="evaluate N episodes without sampling"
    )
    video: bool = _what("--video", default=False, help="film the first episode of a trained agent")
    record: str | None = _what(
        "--record",
        type=recording,
        metavar="FILE",
        help="with --run or --eval: record the episodes to a FILE.npz",
    )
    check: bool = _what("--check", default=False, help="check ENV for problems, without training")
    dry_run: bool = _what("--dry_run", default=False, help="estimate time and memory, without training")
    tune: str | None = _what(
        "--tune",
        nargs="?",
        const="",
        metavar="NAME",
        help="search the hyperparameters in tune_config; with --resume or --dry_run",
    )
    train_reward: tuple[str, ...] = _what(
        "--train_reward",
        default=(),
        nargs="+",
        metavar="FILE",
        help="learn from recordings which observations show success, for a robot without a reward",
    )
    report: tuple[str, ...] = _what(
        "--report",
        default=(),
        nargs="+",
        metavar="NAME",
        help="write a report of a run, or compare runs",
    )
    play_against: tuple[str, ...] = _what(
        "--play_against",
        default=(),
        nargs="+",
        metavar="RUN[:CKPT]",
        help="let runs, or random, play against each other: 100 games of each pair, or --eval N",
    )
    list: bool = _what("--list", default=False, help="list all tasks, or the sections and runs of ENV")
    export: str | None = _what(
        "--export",
        metavar="FILE",
        help="FILE.zip: share the run; FILE.onnx: its policy; of the best checkpoint, or --ckpt",
    )
    from_mlagents: str | None = _what(
        "--from_mlagents",
        metavar="FILE",
        help="print the translation of an ML-Agents trainer configuration (0.18 or later), for a config.yaml",
    )
    replace: bool = _what("--replace", default=False, help="with --export: overwrite the file")
    trust: bool = _what(
        "--trust",
        default=False,
        help="run the code in the export of -n FILE.zip",
    )
    repeat: int = _what(
        "--repeat", default=1, type=positive, help="train this many times, with seed + 1 each"
    )
    run: bool = _how("--run", roles=_LEARNER, default=False, help="run a trained agent")
    render: bool = _how("--render", roles=_LEARNER, default=False, help="show the environment in a window")
    disable_sample: bool = _how(
        "--disable_sample", default=False, help="choose the most likely actions, without sampling"
    )
    lesson: tuple[str, ...] = _how(
        "--lesson",
        roles=_LEARNER,
        default=(),
        type=names,
        metavar="NAME",
        help="with --run, --eval or --video: curriculum lesson, or PARAMETER=NAME,…; default: the last",
    )
    logger_in_file: bool = _how(
        "--logger_in_file", roles=EVERY_ROLE, default=False, help="write debug messages to train.log as well"
    )
    port: int | None = _how(
        "--port",
        "-p",
        "--unity_port",
        roles=EVERY_ROLE,
        type=port_number,
        help="UNITY: port of the first player; no other is tried",
    )
    editor: bool = _how("--editor", roles=EVERY_ROLE, default=False, help="UNITY: train in the Unity Editor")
    device: str = _networks(
        "--device",
        roles=EVERY_ROLE,
        default="auto",
        type=device,
        help="cpu, cuda, cuda:N, gpu (= cuda) or auto (default): a learner's GPU for images, large networks",
    )
    ckpt: Ckpt | None = _networks(  # noqa: RUF009 - it returns a field
        "--ckpt",
        roles=_LEARNER,
        type=checkpoint,
        metavar="STEP",
        help="checkpoint to load: its environment steps, latest or best; default: the newest intact one",
    )
    nn: str | None = _networks(
        "--nn", roles=EVERY_ROLE, help="file with the networks, in the task's folder, without .py"
    )
    use_env_nn: bool = _networks(
        "--use_env_nn", default=False, help="use the task's nn.py, not the run's saved copy"
    )
    quiet: bool = _output(
        "--quiet", roles=EVERY_ROLE, default=False, help="print only warnings and the result"
    )
    debug: bool = _output(
        "--debug", roles=EVERY_ROLE, default=False, help="print debug messages and full tracebacks"
    )
    notices: tuple[str, ...] = ()

    @property
    def plays(self) -> bool:
        """Whether a trained agent acts without learning."""
        return self.run or self.eval is not None or self.video

    @property
    def names_export(self) -> bool:
        """Whether ``--name`` is that of an export, and not of a run."""
        return self.name is not None and is_export(self.name)

    @property
    def exports_graph(self) -> bool:
        """Whether a policy is exported as an ONNX graph."""
        return self.export is not None and is_graph(self.export)
