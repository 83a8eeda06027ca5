"""``--check``: looks at an environment for what would keep it from being learned. Nothing is trained."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

from algorithm.config.cli import TrainOptions
from algorithm.config.loader import LoadedConfig
from algorithm.env.checks.finding import Level
from algorithm.env.checks.lab import Limits
from algorithm.env.named import locate
from algorithm.env.wrappers import located
from algorithm.errors import EnvError
from algorithm.preflight.check_printer import Verdict, open_sheet
from algorithm.preflight.check_process import Begun, Order, examined
from algorithm.preflight.commands import command


def check_task(options: TrainOptions, loaded: LoadedConfig, *, limits: Limits | None = None) -> int:
    """Show what was found; returns 0, or 4 if there is an error among it."""
    began = time.monotonic()
    counts: Counter[Level] = Counter()
    messages = examined(order_of(loaded, limits or Limits()))
    with open_sheet(quiet=options.quiet) as sheet, closing(messages):
        sheet.begin(f"{loaded.config.base_config.env_name}, {_source(loaded)}")
        for message in messages:
            if isinstance(message, Begun):
                sheet.at_work(message.group, message.title)
                continue
            counts.update(finding.level for finding in message.findings)
            sheet.show(message)
        sheet.end(
            Verdict(
                errors=counts[Level.ERROR],
                warnings=counts[Level.WARNING],
                notes=counts[Level.NOTE],
                seconds=time.monotonic() - began,
                dry_run=command(options, "--dry_run"),
                train=command(options),
            )
        )
    return EnvError.exit_code if counts[Level.ERROR] else 0


def order_of(loaded: LoadedConfig, limits: Limits) -> Order:
    """What a training with this configuration would run."""
    base = loaded.config.base_config
    return Order(
        env_name=locate(base.env_name, loaded.env_dir),
        env_args=base.env_args or {},
        wrappers=located(base.wrappers, loaded.env_dir),
        options=loaded.config.reset_config,
        seed=loaded.seed,
        n_envs=base.n_envs,
        workers=base.workers,
        length_limit=base.max_step_each_iter,
        normalised=loaded.config.sac_config.use_normalization,
        rewards_scaled=loaded.config.sac_config.reward_scaling,
        reward_scale=base.reward_scale,
        timeout=base.env_timeout,
        limits=limits,
    )


def _source(loaded: LoadedConfig) -> str:
    return loaded.source if loaded.file is None else f"{loaded.env_label}/{loaded.source}"
