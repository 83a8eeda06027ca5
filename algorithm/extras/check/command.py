"""``--check``: findings about an environment before it is trained on."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import task_command
from algorithm.app.console.output import open_console
from algorithm.config.by_spaces import for_spaces
from algorithm.config.loader import LoadedConfig
from algorithm.core.program import flag_or_argument
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.wording import Rows, counted
from algorithm.env.env_id import resolve_env_id
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.registered import has_vector_class
from algorithm.env.registry import find_recipe
from algorithm.env.sources import EnvSource, GameSource
from algorithm.extras.check.checker import run_checks
from algorithm.extras.check.context import CheckConfig, CheckContext, CheckLimits, LearningKeys
from algorithm.extras.check.finding import CheckResult, Finding, Level
from algorithm.extras.check.printer import CheckPrinter
from algorithm.extras.check.vec_env import check_vec_env
from algorithm.run.experience.requests import env_request


def check_task(options: TrainOptions, loaded: LoadedConfig) -> int:
    """Show the findings about an environment; return 0, or the exit code of a training if one is an error."""
    base = loaded.config.base_config
    single = base.kind.gymnasium
    if base.kind.registered and has_vector_class(resolve_env_id(base.env_name, loaded.env_dir), 1):
        single = False  # the registry has nothing but a vector class
    check = check_single if single else check_vec_env
    in_shell = bool(flag_or_argument("in a shell", ""))
    costs = [("what a training costs", task_command(options, "--dry_run"))] * in_shell
    commands = [*costs, ("train", flag_or_argument(task_command(options), f"asac.train({options.env!r})"))]
    return _show(check(loaded, CheckLimits()), loaded, commands, quiet=options.quiet)


def check_object(loaded: LoadedConfig, source: EnvSource, *, quiet: bool) -> int:
    """Show the findings about an environment that was handed in as an object; return the exit code."""
    limits = CheckLimits()
    if isinstance(source, GameSource):
        checks = check_vec_env(loaded, limits, source.another())
    else:
        checks = run_checks(_context(loaded, limits, source.copies()))
    return _show(checks, loaded, [], quiet=quiet)


def _show(checks: Iterator[CheckResult], loaded: LoadedConfig, commands: Rows, *, quiet: bool) -> int:
    """Show the findings; return the exit code. commands: printed at the end if no finding is an error."""
    began, findings = time.monotonic(), list[Finding]()
    source = loaded.source if loaded.file is None else f"{loaded.env_label}/{loaded.source}"
    printer = CheckPrinter(quiet=quiet)
    printer.begin(f"{loaded.config.base_config.env_name}, {source}")
    for checked in checks:
        printer.show(checked)
        findings += checked.findings
    rows = [("found", f"{_numbers(findings)}, in {time.monotonic() - began:.1f} s")]
    codes = [finding.code for finding in findings if finding.level is Level.ERROR]
    if codes:
        rows.append(("to do", "fix the errors and check again"))
    doubtful = any(finding.level >= Level.WARNING for finding in findings)
    with open_console(quiet=quiet) as console:
        console.finish(rows, [] if codes else commands, doubtful=doubtful)
    return codes[0] if codes else 0


def _numbers(findings: Sequence[Finding]) -> str:
    """Format the number of findings of each level, errors first."""
    counts = [
        (sum(finding.level is level for finding in findings), level.word) for level in list(Level)[:0:-1]
    ]
    return ", ".join(counted(count, word) if count else f"no {word}s" for count, word in counts)


def check_single(loaded: LoadedConfig, limits: CheckLimits) -> Iterator[CheckResult]:
    """Yield the findings about an environment with one agent, made as for a training.

    A call that hangs ends the process after ``base_config.env_timeout`` seconds, and prints its stack.
    """
    timeout = loaded.config.base_config.env_timeout

    def restart_alarm() -> None:
        if timeout > 0:
            faulthandler.dump_traceback_later(timeout + limits.seconds, exit=True, file=2)

    try:
        yield from run_checks(_context(loaded, limits, on_call=restart_alarm))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _context(
    loaded: LoadedConfig,
    limits: CheckLimits,
    source: EnvSource | None = None,
    on_call: Callable[[], None] = lambda: None,
) -> CheckContext:
    """Return the context of an environment, made from its name or by ``source``."""
    base = loaded.config.base_config
    recipe = find_recipe(replace(env_request(loaded, "train", source=source), parameters=ParameterSource()))
    config = CheckConfig(
        seed=loaded.seed,
        options=recipe.options,
        interventions=recipe.interventions,
        parameters=ParameterSource(loaded.config.parameters),
        length_limit=base.max_step_each_iter,
        learning=partial(_learning_keys, loaded),
        reward_scale=base.reward_scale,
    )
    return CheckContext(recipe.make_gym_env, config, limits, on_call=on_call)


def _learning_keys(loaded: LoadedConfig, spec: AgentSpec) -> LearningKeys:
    """Return the learner's keys that a training of these spaces would have, with the default networks."""
    fitted = for_spaces(loaded, {DEFAULT_BEHAVIOUR: spec}, lambda config: set())
    run = fitted.for_behaviour(DEFAULT_BEHAVIOUR).run
    return LearningKeys(use_normalization=run.use_normalization, reward_scaling=run.reward_scaling)
