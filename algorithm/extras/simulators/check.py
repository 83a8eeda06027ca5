"""``--check`` of a simulator that steps many environments at once, with random actions."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import UserError
from algorithm.core.seeding import episode_seeds
from algorithm.env.base import Fault, VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.extras.check.context import CheckLimits
from algorithm.extras.check.finding import CheckResult, Finding, error, ok, refusal, warning
from algorithm.extras.simulators.proof import Ledger, Proof, prove
from algorithm.run.experience.requests import env_request

_TRANSITIONS = 1_000_000


def check_lanes(loaded: LoadedConfig, limits: CheckLimits) -> Generator[CheckResult, None, None]:
    """Yield findings about a simulator from a million transitions, or ``limits.total`` seconds."""
    base, faults = loaded.config.base_config, list[Fault]()
    arrangement = ""

    def make(ledger: Ledger) -> VecEnv:
        nonlocal arrangement
        env = make_vec_env(
            replace(
                env_request(loaded, "train"),
                n=base.n_envs,
                seed_of=episode_seeds(loaded.seed, "check"),
                on_fault=faults.append,
                watch=ledger.watch,
            )
        )
        arrangement = env.arrangement
        return env

    yield _result("transitions")
    try:
        proof = prove(make, transitions=_TRANSITIONS, seconds=limits.total, seed=loaded.seed)
    except UserError as refused:
        yield _result("transitions", refusal(refused))
        return
    yield _result("start", ok(arrangement))
    yield _result("transitions", *_transition_findings(proof, arrangement))
    lost = [warning(fault.what, where=fault.where, why=fault.why, fix=fault.fix) for fault in faults]
    yield _result("last observations", *(lost or [_end_finding(proof, arrangement)]))
    speed = proof.transitions / max(proof.seconds, 1e-9)
    yield _result("speed", ok(f"{speed:,.0f} steps/s with random actions, this check included"))


def _transition_findings(proof: Proof, where: str) -> list[Finding]:
    """Return findings about the stored transitions."""
    stored = f"{proof.transitions:,} were stored, {proof.episodes:,} episodes have ended"
    if not proof.wrong:
        return [ok(f"{stored}; all match what the simulator returned")]
    return [
        error(
            f"{stored}; {proof.wrong:,} are missing, or differ from what the simulator returned",
            where=where,
            why="an agent would learn from steps that never happened",
            fix="report it to us, with the environment",
        )
    ]


def _end_finding(proof: Proof, where: str) -> Finding:
    """Return the finding about last observations that belong to the next episode."""
    if not proof.phantoms:
        return ok("no episode ends with the first observation of the next one")
    always = proof.phantoms >= 0.9 * proof.episodes
    return (error if always else warning)(
        f"{proof.phantoms:,} ends have the first observation of the next episode as their last one",
        where=where,
        why="the value of a truncated episode would be taken from another one"
        + "; a small number of initial states may be the reason" * (not always),
        fix="keep the observation from before the lanes are reset, and return it as the last one",
    )


def _result(title: str, *findings: Finding) -> CheckResult:
    return CheckResult(group="lanes", title=title, findings=findings)
