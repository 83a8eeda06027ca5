"""The list of checks, run in order by ``python main.py ENV --check``.

A check is a function from a :class:`~algorithm.extras.check.context.CheckContext` to findings, and a line of
:data:`CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from algorithm.extras.check import determinism, episodes, interface, spaces
from algorithm.extras.check.context import CheckContext
from algorithm.extras.check.finding import CheckResult, Finding, FindingError, Level, ok


class Check(NamedTuple):
    """One check.

    run:       yields findings; those worse than OK replace the others. It may raise FindingError where the
               environment cannot continue
    fine:      text of the result if it yields nothing
    essential: an error ends all checks
    """

    group: str
    title: str
    run: Callable[[CheckContext], Iterator[Finding]]
    fine: str = "no problems"
    essential: bool = False


CHECKS: tuple[Check, ...] = (
    Check("environment", "made", interface.check_build, essential=True),
    Check("environment", "keeps going", interface.check_random_steps, essential=True),
    Check("environment", "wrappers", interface.check_wrappers, "none keeps its own statistics"),
    Check("observations", "shape", spaces.check_shapes),
    Check("observations", "finite", spaces.check_obs_finite, "no NaN, no infinity"),
    Check("observations", "bounds", spaces.check_obs_bounds),
    Check("observations", "change", spaces.check_change, "every observation changes"),
    Check("observations", "scale", spaces.check_obs_scale),
    Check("actions", "bounds", spaces.check_action_bounds, "reasonable, if there are any"),
    Check("rewards", "finite", episodes.check_rewards_finite, "finite numbers"),
    Check("rewards", "differ", episodes.check_rewards_differ),
    Check("rewards", "scale", episodes.check_reward_scale),
    Check("episodes", "end", episodes.check_ends),
    Check("episodes", "time limit", episodes.check_time_limits),
    Check("seeds", "repeat", determinism.check_repeatable),
    Check("seeds", "copies", determinism.check_copies),
)
"""All checks in order."""


def run_checks(context: CheckContext, checks: Sequence[Check] = CHECKS) -> Iterator[CheckResult]:
    """Yield the findings of each check."""
    for check in checks:
        findings: list[Finding] = []
        try:
            for finding in check.run(context):
                findings.append(finding)  # findings before a failure stay
        except FindingError as flaw:
            findings.append(flaw.finding)
        worse = tuple(finding for finding in findings if finding.level > Level.OK)
        checked = CheckResult(
            group=check.group, title=check.title, findings=worse or tuple(findings) or (ok(check.fine),)
        )
        yield checked
        if check.essential and checked.level is Level.ERROR:
            return
