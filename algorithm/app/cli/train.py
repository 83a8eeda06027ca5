"""Options of ``main.py``, each with its flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.agents.registry import FAMILIES
from algorithm.app.cli.flag_types import (
    GRAPH,
    checkpoint,
    device,
    folder,
    is_export,
    limit,
    mapping,
    names,
    natural,
    port_number,
    positive,
    recording,
)
from algorithm.app.cli.flags import EVERY_ROLE, Role, flag
from algorithm.runs.names import MODELS, Ckpt

HOW, SAID = "how to run", "what to say"
_what = partial(flag, group="what to run")
_how = partial(flag, group=HOW)
_networks = partial(flag, group="which networks")
_said = partial(flag, group=SAID)
_TRAINING: tuple[Role, ...] = ("learner", "cluster", "evolver")
_LEARNER: tuple[Role, ...] = ("learner",)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``main.py``. None, false and empty: the flag was not given.

    notices: sentences to show because a flag has no effect.
    """

    env: str
    config: str | None = _what(
        "--config",
        "-c",
        roles=EVERY_ROLE,
        help="section of config.yaml, or a file of the folder, or FILE:SECTION; a file for an environment "
        "without a folder",
    )
    name: str | None = _what(
        "--name", "-n", roles=_TRAINING, help="training name; may contain {time} and {hostname}"
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
        "--agents", "--envs", roles=EVERY_ROLE, type=positive, help="number of environments side by side"
    )
    env_args: Mapping[str, Any] | None = _what(
        "--env_args",
        roles=EVERY_ROLE,
        type=mapping,
        help="additional args for environments: k=v,k=v or a YAML mapping",
    )
    resume: bool = _what(
        "--resume",
        roles=_TRAINING,
        default=False,
        help="go on with the newest run of ENV, or that of -n, with its own settings; -c, -o change them",
    )
    max_iter: int | None = _what(
        "--max_iter", roles=_TRAINING, type=limit, help="max iteration, -1: no limit"
    )
    max_step: int | None = _what(
        "--max_step", roles=_TRAINING, type=limit, help="max environment steps, -1: no limit"
    )
    evaluations: int | None = _what(
        "--evaluations",
        roles=_LEARNER,
        type=positive,
        metavar="N",
        help="end with the N-th evaluation of the run in all",
    )
    init_from: str | None = _what(
        "--init_from",
        roles=_LEARNER,
        metavar="NAME[:CKPT]",
        help="begin with the networks of a run of ENV, or of a checkpoint's folder, targets equal to them; "
        "with --resume base_config.evolver_keep says what stays besides",
    )
    init_parts: tuple[str, ...] = _what(
        "--init_parts",
        roles=_LEARNER,
        default=(),
        type=names,
        metavar="PART,PART",
        help="with --init_from: these alone, such as rep,policy,normaliser",
    )
    profile: bool = _what(
        "--profile",
        roles=_LEARNER,
        default=False,
        help="write where the time of the training goes: profile.txt",
    )
    algorithm: str | None = _what(
        "--algorithm",
        roles=EVERY_ROLE,
        help=f"{', '.join(FAMILIES)} or module:NAME; default: the section's, else SAC",
    )
    preset: str | None = _what(
        "--preset",
        roles=EVERY_ROLE,
        help="the learner: plain, cross, flash64, lean, tqc, xqc, simba, droq, flash",
    )
    seed: int | None = _what(
        "--seed", roles=_TRAINING, type=natural, help="seed of the run; default: the file's, else a fresh one"
    )
    overrides: tuple[str, ...] = _what(
        "--override",
        "-o",
        roles=EVERY_ROLE,
        default=(),
        action="append",
        metavar="KEY=VALUE",
        help="set any key of the configuration, such as n_envs=4; repeatable",
    )
    eval: int | None = _what(
        "--eval", type=positive, metavar="N", help="play N episodes without sampling, measure"
    )
    video: bool = _what("--video", default=False, help="film the first episode that is played")
    record: str | None = _what(
        "--record",
        type=recording,
        metavar="FILE",
        help="with --run or --eval: keep what was seen and done; .npz, .demo or minari:NAMESPACE/NAME-vN",
    )
    check: bool = _what(
        "--check", default=False, help="look for what would keep ENV from being learned, train nothing"
    )
    failure: str | None = _what(
        "--from",
        metavar="FILE",
        help="with --check: replay an episode with a number that is not finite, from faults/ of a run",
    )
    dry_run: bool = _what("--dry_run", default=False, help="say what a training would cost, train nothing")
    demos: tuple[str, ...] = _what(
        "--demos",
        default=(),
        nargs="+",
        metavar="PATH",
        help="say what recordings hold and whether they fit ENV: files, folders, patterns, minari:ID",
    )
    report: tuple[str, ...] = _what(
        "--report",
        default=(),
        nargs="+",
        metavar="NAME",
        help="write the page of a run or a population, or compare runs",
    )
    list: bool = _what("--list", default=False, help="list all tasks, or ENV's sections and runs")
    export: str | None = _what(
        "--export",
        metavar="FILE",
        help="FILE.zip: the run as one file to share; FILE.onnx: its policy for Unity and others; of --ckpt "
        "or the best",
    )
    card: bool = _what(
        "--card",
        default=False,
        help="with --export FILE.onnx: print a program that plays such a file without torch, write nothing",
    )
    push: str | None = _what("--push", metavar="OWNER/NAME", help="the same on the Hugging Face hub")
    from_mlagents: str | None = _what(
        "--from_mlagents",
        metavar="FILE",
        help="translate a trainer configuration of ML-Agents, of 0.12 or later: into config.yaml of the new "
        "task ENV, or without ENV to the screen",
    )
    replace: bool = _what(
        "--replace", default=False, help="with --export or --from_mlagents: replace a file of that name"
    )
    private: bool = _what("--private", default=False, help="with --push: make a private repository")
    trust: bool = _what(
        "--trust",
        default=False,
        help="run the code that the export of -n FILE.zip or -n hf://OWNER/NAME brings or names",
    )
    repeat: int = _what("--repeat", default=1, type=positive, help="number of trainings, seed + 1 each")
    run: bool = _how("--run", roles=_LEARNER, default=False, help="inference mode")
    render: bool = _how("--render", roles=_LEARNER, default=False, help="render")
    disable_sample: bool = _how(
        "--disable_sample", default=False, help="disable sampling when choosing actions"
    )
    lesson: tuple[str, ...] = _how(
        "--lesson",
        roles=_LEARNER,
        default=(),
        type=names,
        metavar="NAME",
        help="with --run, --eval or --video: the lesson to play, or PARAMETER=NAME,…; default: the last",
    )
    logger_in_file: bool = _how(
        "--logger_in_file", roles=EVERY_ROLE, default=False, help="write debug lines into train.log too"
    )
    port: int | None = _how(
        "--port",
        "-p",
        "--unity_port",
        roles=EVERY_ROLE,
        type=port_number,
        help="UNITY: communication port of the first player, taken or refused; no effect on GYM",
    )
    editor: bool = _how(
        "--editor", roles=EVERY_ROLE, default=False, help="UNITY: train in the Unity Editor; no effect on GYM"
    )
    device: str = _networks(
        "--device",
        roles=EVERY_ROLE,
        default="auto",
        type=device,
        help="cpu, cuda, cuda:N, gpu (= cuda) or auto (default)",
    )
    ckpt: Ckpt | None = _networks(  # noqa: RUF009 - it returns a field
        "--ckpt",
        roles=_LEARNER,
        type=checkpoint,
        metavar="STEP",
        help="checkpoint to restore: its environment steps, latest or best; default: the newest intact one",
    )
    nn: str | None = _networks(
        "--nn", roles=EVERY_ROLE, help="neural network model: a file of the task's folder, without .py"
    )
    use_env_nn: bool = _networks(
        "--use_env_nn", default=False, help="use nn.py of the task, not the run's saved copy"
    )
    quiet: bool = _said("--quiet", roles=EVERY_ROLE, default=False, help="print only warnings and the result")
    debug: bool = _said(
        "--debug", roles=EVERY_ROLE, default=False, help="print debug lines and whole tracebacks"
    )
    notices: tuple[str, ...] = ()

    @property
    def plays(self) -> bool:
        """True if a trained agent acts and nothing is learned."""
        return self.run or self.eval is not None or self.video

    @property
    def names_export(self) -> bool:
        """True if ``--name`` is that of an export, and of no run."""
        return self.name is not None and is_export(self.name)

    @property
    def exports_graph(self) -> bool:
        """True if a policy is exported as a graph."""
        return self.export is not None and self.export.endswith(GRAPH)

    @property
    def shares(self) -> bool:
        """True if a run is exported or uploaded."""
        return self.export is not None or self.push is not None
