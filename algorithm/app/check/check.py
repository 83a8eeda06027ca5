"""``--check``: findings about an environment before it is trained on, and replays of failed episodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import numpy as np

from algorithm.app.check.check_printer import CheckVerdict, open_printer
from algorithm.app.check.check_process import CheckRequest, CheckStarted, check_in_process
from algorithm.app.check.check_unity import check_player
from algorithm.app.check.commands import command
from algorithm.app.cli.train import TrainOptions
from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import visible
from algorithm.env.base import Observation, StepResult
from algorithm.env.checks.context import CheckLimits
from algorithm.env.checks.finding import CheckResult, Level
from algorithm.env.registry import find_recipe, make_vec_env
from algorithm.env.request import PoolOptions
from algorithm.experience.failure_dump import FailureDump


def check_task(options: TrainOptions, loaded: LoadedConfig, *, limits: CheckLimits | None = None) -> int:
    """Show the findings about an environment; return 0, or the exit code of a training if one is an error."""
    began = time.monotonic()
    code = 0
    counts: Counter[Level] = Counter()
    messages: Generator[CheckStarted | CheckResult, None, None]
    if loaded.config.base_config.kind.player:
        messages = check_player(loaded, limits or CheckLimits())
    else:
        request = request_of(loaded, limits or CheckLimits())
        messages = check_in_process(request)
    with open_printer(quiet=options.quiet) as printer, closing(messages):
        printer.begin(visible(f"{loaded.config.base_config.env_name}, {_source(loaded)}"))
        for message in messages:
            if isinstance(message, CheckStarted):
                printer.at_work(message.group, message.title)
                continue
            for finding in message.findings:
                counts[finding.level] += 1
                if finding.level is Level.ERROR:
                    code = code or finding.code
            printer.show(message)
        printer.end(
            CheckVerdict(
                errors=counts[Level.ERROR],
                warnings=counts[Level.WARNING],
                notes=counts[Level.NOTE],
                seconds=time.monotonic() - began,
                dry_run=command(options, "--dry_run"),
                train=command(options),
            )
        )
    return code


def request_of(loaded: LoadedConfig, limits: CheckLimits) -> CheckRequest:
    """Return the request to check what a training with this configuration would run."""
    base = loaded.config.base_config
    return CheckRequest(
        env_type=base.env_type,
        recipe=find_recipe(
            base.env_type,
            base.env_name,
            folder=loaded.env_dir,
            env_args=base.env_args,
            options=loaded.config.reset_config,
            wrappers=base.wrappers,
        ),
        seed=loaded.seed,
        n_envs=base.n_envs,
        workers=base.workers,
        length_limit=base.max_step_each_iter,
        normalised=loaded.config.run.use_normalization,
        rewards_scaled=loaded.config.run.reward_scaling,
        reward_scale=base.reward_scale,
        timeout=base.env_timeout,
        limits=limits,
    )


def _source(loaded: LoadedConfig) -> str:
    return loaded.source if loaded.file is None else f"{loaded.env_label}/{loaded.source}"


def check_failure(path: Path) -> int:
    """Replay the failure dump of ``path``; return 0 if the same number occurs again, else 1.

    Raises StorageError for a file that is no dump, EnvError if the environment cannot be made or fails.
    """
    dump = FailureDump.read(path)
    _say(f"{dump.env_name}, seed {dump.seed}, {len(dump.actions)} steps")
    _say(f"in the run: {dump.what} was {dump.value}, step {dump.episode_step}")
    if replay_failure(dump, _say):
        print("the same number again")
        return 0
    print(
        "the number did not occur again: the environment is not determined by its seed and its actions, "
        "or it has been changed"
    )
    return 1


def _say(text: str) -> None:
    print(visible(text))


def replay_failure(dump: FailureDump, say: Callable[[str], None]) -> bool:
    """Replay an episode and report its non-finite numbers; return whether the dump's is among them."""
    env = make_vec_env(
        dump.env_type,
        dump.env_name,
        env_args=dump.env_args,
        seed_of=lambda index, episode: dump.seed,
        options=dump.reset_config,
        wrappers=dump.wrappers,
        pool=PoolOptions(timeout=-1, restarts=0),
    )
    try:
        behaviour = next(iter(env.specs))
        found = {0: _non_finite(env.reset(episode=0)[behaviour])}
        for step, flat in enumerate(dump.actions, start=1):
            result = env.step({behaviour: np.array([flat], np.float32)})[behaviour]
            found[step] = _non_finite_of_step(result)
            if result.terminated[0] or result.truncated[0]:
                break
    finally:
        env.close()
    for step, numbers in found.items():
        for what, value in numbers.items():
            action = dump.env_actions[step - 1] if step else "none"
            say(f"step {step}, after action {action}: {what} is {value}")
    return found.get(dump.episode_step, {}).get(dump.what) == dump.value


def _non_finite_of_step(result: StepResult) -> dict[str, str]:
    ended = result.final is not None and (result.terminated[0] or result.truncated[0])
    numbers = _non_finite(result.final if ended and result.final else result)
    return ({} if np.isfinite(result.reward[0]) else {"reward": str(float(result.reward[0]))}) | numbers


def _non_finite(seen: Observation) -> dict[str, str]:
    """``observation 'name'[2]`` -> ``nan``, for every number that is not finite."""
    found = {}
    for name, value in seen.obs.items():
        if value.dtype.kind != "f":
            continue
        for place in np.argwhere(~np.isfinite(value[0])).tolist():
            found[f"observation {name!r}{place or ''}"] = str(float(value[0][tuple(place)]))
    return found
