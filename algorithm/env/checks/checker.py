"""Looks at an environment for what would keep it from being learned: ``python main.py ENV --check``.

A check is a function from a :class:`~algorithm.env.checks.context.CheckContext` to findings, and a line of :data:`CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from algorithm.env.checks import actions, cost, determinism, episodes, interface, observations, rewards
from algorithm.env.checks.context import CheckContext
from algorithm.env.checks.finding import CheckResult, Finding, FindingError, Level, note
from algorithm.env.single import SpaceMismatchError


class Check(NamedTuple):
    """One thing to look at.

    look:      yields what it found; only what is worse than OK is kept, if there is such. It may raise
               FindingError where the environment cannot go on
    essential: after an error nothing else is looked at
    """

    group: str
    title: str
    look: Callable[[CheckContext], Iterator[Finding]]
    essential: bool = False


CHECKS: tuple[Check, ...] = (
    Check("environment", "made", interface.can_be_made, essential=True),
    Check("environment", "interface", interface.speaks_the_interface, essential=True),
    Check("environment", "copies", interface.is_run_as_it_is_looked_at),
    Check("environment", "keeps going", interface.keeps_going),
    Check("environment", "rendering", interface.can_be_shown),
    Check("observations", "shape", observations.fit_their_space),
    Check("observations", "dtype", observations.have_their_dtype),
    Check("observations", "finite", observations.are_finite),
    Check("observations", "bounds", observations.lie_within_bounds),
    Check("observations", "change", observations.change),
    Check("observations", "scale", observations.have_a_fair_scale),
    Check("observations", "images", observations.are_lean_images),
    Check("observations", "own arrays", observations.are_not_reused),
    Check("actions", "bounds", actions.have_fair_bounds),
    Check("actions", "effect", actions.have_an_effect),
    Check("rewards", "finite", rewards.are_finite_numbers),
    Check("rewards", "differ", rewards.differ),
    Check("rewards", "scale", rewards.have_a_fair_scale),
    Check("episodes", "end", episodes.come_about),
    Check("episodes", "time limit", episodes.are_not_time_limits_in_disguise),
    Check("episodes", "length", episodes.have_a_fair_length),
    Check("seeds", "repeat", determinism.same_seed_same_episode),
    Check("seeds", "differ", determinism.other_seed_other_start),
    Check("seeds", "generator", determinism.draws_from_its_own_generator),
    Check("cost", "speed", cost.is_fast),
    Check("cost", "growth", cost.leaves_nothing_behind),
    Check("cost", "close", cost.closes_cleanly),
    Check("cost", "after the end", interface.survives_a_step_after_the_end),
)
"""All of them, in the order in which they are done and shown."""


def run_checks(
    context: CheckContext,
    checks: Sequence[Check] = CHECKS,
    *,
    begins: Callable[[Check], None] = lambda check: None,
) -> Iterator[CheckResult]:
    """What each check found, as soon as it is known.

    begins: told of each check before it is done, so that somebody else knows where a process died
    """
    failures: set[tuple[str, str]] = set()
    for check in checks:
        begins(check)
        findings, flaw = _looked(check, context)
        if flaw is not None:
            known = (flaw.what, flaw.why) in failures
            failures.add((flaw.what, flaw.why))
            findings.append(_again(flaw) if known else flaw)
        failures.update((finding.what, finding.why) for finding in findings)
        checked = CheckResult(group=check.group, title=check.title, findings=tuple(_telling(findings)))
        yield checked
        if check.essential and checked.level is Level.ERROR:
            return


def _looked(check: Check, context: CheckContext) -> tuple[list[Finding], Finding | None]:
    """What it found, and what ended it early."""
    findings: list[Finding] = []
    try:
        for finding in check.look(context):
            findings.append(finding)  # those before a failure stay
    except FindingError as flaw:
        return findings, flaw.finding
    except SpaceMismatchError as broken:
        return findings, note("not looked at: an observation does not fit its space", why=str(broken))
    return findings, None


def _telling(findings: Iterable[Finding]) -> list[Finding]:
    """What is not OK; all, if everything is."""
    found = list(findings)
    return [finding for finding in found if finding.level > Level.OK] or found


def _again(flaw: Finding) -> Finding:
    return note(f"not looked at: {flaw.what}, as above")
