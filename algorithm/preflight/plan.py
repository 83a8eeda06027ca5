"""What a training will cost, from what was measured and what is configured. Arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass

from algorithm.config.schema import Config

SUMMARY_BYTES = 5_000
"""A row of metrics in metrics.csv, metrics.jsonl and TensorBoard's events, all together and rounded up."""

OTHER_BYTES = 200_000
"""Configuration, log, curve and report of a run, about."""

FILE_BYTES, TENSOR_BYTES = 4_000, 100
"""Of a checkpoint beside its numbers: indices and manifest, and the name of each tensor in a header."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds, of this machine as it is now, and what episodes were like.

    warm_up_step, step: of one environment step with random actions and with the policy; storing included
    update:       of one gradient update, sampling and priorities included; nan where there was none
    evaluation_step: of one step of an evaluation
    updates_per_step: gradient updates owed for each step after the warm-up
    length:       mean length of the episodes that ended; None if none did
    """

    warm_up_step: float
    step: float
    update: float
    evaluation_step: float
    updates_per_step: float
    length: float | None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes.

    checkpoint:    one, without its replay
    row, row_each: of a replay on disk: a row, and what of it is written anew with every checkpoint
    replay:        in memory when full; capacity: its rows
    process:       resident now, of this process and its workers; held: rows in the replay now
    """

    checkpoint: int
    row: float
    row_each: float
    replay: int
    capacity: int
    process: int
    held: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is done. Steps are environment steps.

    length: of an episode of an evaluation: (as it was seen, as the time limit allows)
    """

    steps: int
    updates: int
    evaluations: int
    evaluation_steps: tuple[int, int]  # of all evaluations
    checkpoints: int
    summaries: int
    rows: int  # that the replay gets, the last ones of episodes among them


@dataclass(frozen=True)
class Duration:
    """Seconds by what they go into. Evaluations: if episodes stay as they are, if all last to the limit."""

    acting: float
    updating: float
    evaluating: tuple[float, float]

    @property
    def total(self) -> tuple[float, float]:
        """From, to."""
        training = self.acting + self.updating
        return training + self.evaluating[0], training + self.evaluating[1]


@dataclass(frozen=True)
class Disk:
    """Bytes at the end of the run, at most."""

    checkpoints: int
    kept: int  # number of them
    replay: int
    logs: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.checkpoints + self.replay + self.logs


@dataclass(frozen=True)
class Memory:
    """Bytes: resident now, what the replay still takes, and what saving takes for a moment."""

    now: int
    replay: int
    saving: int

    @property
    def more(self) -> int:
        """What has to be free."""
        return self.replay + self.saving

    @property
    def peak(self) -> int:
        """All of it."""
        return self.now + self.more


def planned_steps(config: Config, length: float | None) -> int | None:
    """Environment steps of the whole run; None if nothing limits it or an iteration's length is not known."""
    base = config.base_config
    limits = [base.max_step] if base.max_step > 0 else []
    if base.max_iter > 0 and length is not None:
        limits.append(round(base.max_iter * base.n_envs * length))
    return min(limits, default=None)


def make_plan(config: Config, steps: int, measured: Measured, time_limit: int | None) -> Plan:
    """What ``steps`` environment steps bring with them."""
    sac = config.sac_config
    evaluations = num_times(steps, config.eval_config.per_step)
    limits = [limit for limit in (time_limit, config.base_config.max_step_each_iter) if limit and limit > 0]
    longest = float(min(limits)) if limits else None
    seen = measured.length or longest or 0.0
    lengths = (seen, max(seen, longest or seen))
    episodes = evaluations * config.eval_config.episodes
    return Plan(
        steps=steps,
        updates=int(measured.updates_per_step * max(0, steps - sac.start_step)),
        evaluations=evaluations,
        evaluation_steps=(round(episodes * lengths[0]), round(episodes * lengths[1])),
        checkpoints=num_times(steps, sac.save_model_per_step),
        summaries=steps // sac.write_summary_per_step,
        rows=steps + (round(steps / seen) if seen else 0) + config.base_config.n_envs,
    )


def num_times(steps: int, interval: int) -> int:
    """How often what is due every ``interval`` steps, and at the end, is done; −1 is only at the end."""
    if interval < 0:
        return 1
    return -(-steps // interval)


def duration(plan: Plan, measured: Measured, start_step: int) -> Duration:
    """Time, without that of saving and filming."""
    warm_up = min(plan.steps, start_step)
    acting = warm_up * measured.warm_up_step + (plan.steps - warm_up) * measured.step
    updating = plan.updates * measured.update if plan.updates else 0.0
    low, high = (steps * measured.evaluation_step for steps in plan.evaluation_steps)
    return Duration(acting, updating, (low, high))


def disk(plan: Plan, config: Config, sizes: Sizes) -> Disk:
    """What the run's folder holds at the end, at most.

    Checkpoints share the rows of their replays. The newest ones need one replay and what came since the
    oldest of them; the best one and the milestones may each need another that shares nothing with it.
    """
    kept = config.checkpoint_config
    apart = kept.best * (plan.evaluations > 0) + len(kept.milestones)
    newest = min(kept.keep, plan.checkpoints)
    number = min(newest + apart, plan.checkpoints + plan.evaluations * kept.best)
    held = min(plan.rows, sizes.capacity)
    interval = min(plan.rows, config.sac_config.save_model_per_step)
    with_replay = {"always": number, "last": 1, "never": 0}[kept.replay]
    rows = 0
    if with_replay:
        replays = 1 + apart * (kept.replay == "always")
        rows = min(plan.rows, replays * sizes.capacity + min(newest, with_replay) * interval)
    return Disk(
        checkpoints=number * sizes.checkpoint,
        kept=number,
        replay=round(rows * sizes.row + with_replay * held * sizes.row_each),
        logs=plan.summaries * SUMMARY_BYTES + OTHER_BYTES,
    )


def memory(plan: Plan | None, sizes: Sizes) -> Memory:
    """At most; without a plan the replay becomes full. Saving copies tensors and makes one file of them."""
    rows = sizes.capacity if plan is None else min(plan.rows, sizes.capacity)
    share = max(0, rows - sizes.held) / sizes.capacity
    return Memory(now=sizes.process, replay=round(share * sizes.replay), saving=2 * sizes.checkpoint)
