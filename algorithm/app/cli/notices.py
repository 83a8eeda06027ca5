"""Notices on flags that have no effect, and on Unity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.app.cli.train import TrainOptions

if TYPE_CHECKING:
    from algorithm.config.schema import Config


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
