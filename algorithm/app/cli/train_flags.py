"""Flags of ``main.py`` as keys of a configuration and words of another command; notices on idle ones."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from algorithm.app.cli.train import TrainOptions
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.program import program
from algorithm.store.names import directory_flags

if TYPE_CHECKING:
    from algorithm.config.schema import Config


def config_flags(options: TrainOptions) -> dict[str, object]:
    """Return the flags that set a key of the configuration, as arguments of `load_config`."""
    keys = {
        "algorithm": options.algorithm,
        "base_config.n_envs": options.agents,
        "base_config.max_iter": options.max_iter,
        "base_config.max_step": options.max_step,
        "base_config.name": options.name,
        "base_config.preset": options.preset,
        "base_config.env_args": options.env_args,
        "base_config.init_from": None if options.resume else options.init_from,
        "base_config.init_parts": options.init_parts or None,
        "base_config.unity_args.port": options.port,
        "base_config.unity_args.fixed_port": None if options.port is None else True,
        "base_config.unity_args.editor": options.editor or None,
        f"{COMMON_BLOCK}.nn": options.nn,
        # Without sampling there is no density to correct with: its ratio is 1.
        f"{COMMON_BLOCK}.use_n_step_is": False if options.disable_sample else None,
    }
    return {path: value for path, value in keys.items() if value is not None}


def task_command(options: TrainOptions, *flags: str) -> str:
    """Return ``python main.py`` with the environment and settings of ``options``, and with ``flags``."""
    from algorithm.config.yaml_io import inline

    values = {
        "config": options.config,
        "algorithm": options.algorithm,
        "preset": options.preset,
        "agents": options.agents,
        "nn": options.nn,
        "env_args": None if options.env_args is None else inline(dict(options.env_args)),
        "max_iter": options.max_iter,
        "max_step": options.max_step,
    }
    words = [f"--{flag}={value}" for flag, value in values.items() if value is not None]
    words += [word for text in options.overrides for word in ("-o", text)]
    words += directory_flags(options.directory)
    return shlex.join([*program(), options.env, *words, *flags])


def notices(options: TrainOptions, config: Config | None) -> list[str]:
    """Return notices on flags without effect, and on settings with side effects in Unity.

    config: of the run; None for commands that need no environment
    """
    texts = list(options.notices)
    if config is None or not config.base_config.kind.player:
        effect = f"has no effect on {config.base_config.env_type if config else 'this command'}"
        flags = {"--port": options.port is not None, "--editor": options.editor}
        return [*texts, *(f"{name} {effect}: it is for Unity environments" for name in flags if flags[name])]
    base = config.base_config
    if options.render and not options.plays:
        texts.append(
            "--render: the first player runs in real time, and the others wait for it; "
            "-o base_config.unity_args.no_graphics=false shows all of them at full speed"
        )
    if base.max_step_each_iter > 0 or base.reset_on_iteration:
        texts.append(
            "a reset applies to a whole Unity player: max_step_each_iter and reset_on_iteration end the "
            "episodes of all its agents"
        )
    if base.unity_args.listen == "all":
        texts.append(
            "unity_args.listen: all: anyone who can reach this machine can pose as the player; there is no "
            "password and no encryption"
        )
    return texts
