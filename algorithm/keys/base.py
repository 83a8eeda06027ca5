"""The run's own keys: its environment, name, length and processes; and its connections.

Imports no torch, since configuration is read before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Strict
from typing_extensions import override

from algorithm.core.fields import (
    AnyConfig,
    Block,
    Contradiction,
    Finite,
    Limit,
    NamedEntry,
    Whole,
    contradicting,
    option,
)
from algorithm.env.config import EnvConfig
from algorithm.env.kinds import KINDS, EnvKind, kind_of

InitPart = Literal["rep", "policy", "q", "v", "temperature", "normaliser", "extensions"]
"""Components of an agent that can be loaded from another run."""

MAX_ENVS = 2**16
"""Largest number of sub-environments: each takes memory before its spaces are read."""
AUTO, PLAIN = "auto", "plain"
"""Values of ``base_config.preset`` that name no section."""

Preset = Literal[
    "auto",
    "plain",
    "continuous",
    "discrete",
    "images",
    "images_discrete",
    "lean",
    "cross",
    "tqc",
    "simba",
    "droq",
    "flash",
    "flash64",
    "lanes",
]
"""Values of ``base_config.preset``."""


def no_wrappers(kind: EnvKind) -> tuple[str, str]:
    """Return reason and advice for wrappers on a kind of environments that cannot have them."""
    if kind.player:
        why = "wrappers are for Gymnasium environments, and a Unity player is not one"
        return why, "leave the wrappers out, and change the scene or the networks"
    why = "wrappers are for single environments, and this simulator steps many at once"
    return why, "leave the wrappers out, and do their work in the environment"


def _new_end(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``max_step``: what falls or grows until then changes at once."""
    sac, moved = new.sac_config, []
    prioritised = sac.use_priority and sac.use_replay_buffer
    if sac.learning_rate_schedule != "constant":
        moved.append("the learning rate decays to the new end, and changes at once")
    if prioritised and new.replay_config.beta_increment_per_sampling is None:
        moved.append("beta grows to 1 at the new end, and changes at once")
    return f"free: {'; '.join(moved)}" if moved else "free"


class BaseConfig(EnvConfig):
    """The environment, the run's name and its length."""

    name: str = option(
        "{time}",
        "Name of the run. {time} and {hostname} are filled in.",
        min_length=1,
        resume="ignored",
    )
    preset: Preset = option(
        AUTO,
        (
            "Named settings, which the task's own override (docs/learners.md). auto: by the spaces. plain: "
            "plain SAC."
        ),
        resume="fixed: its settings are in the run's config.yaml, key by key",
    )
    update_sac_bak_per_step: Whole = option(
        200, "Updates between new weights for actors. PPO, A2C and ACER: once per rollout.", ge=1
    )
    n_envs: Whole = option(
        1,
        "Parallel environments.",
        ge=1,
        le=MAX_ENVS,
        resume="free: the open episodes end as truncated",
    )

    max_iter: Limit = option(
        -1, "Iterations to train. In each, every agent finishes an episode. -1: no limit."
    )
    max_step: Limit = option(
        100_000, "Environment steps to train, summed over agents. -1: no limit.", resume=_new_end
    )
    stop_at_return: Finite | Literal["auto"] | None = option(
        None,
        "Stop at this mean return of an evaluation. auto: spec.reward_threshold, as in `asac CartPole-v1`.",
    )
    stop_without_improvement: Limit = option(
        -1,
        "Stop after this many evaluations without a new best. -1: never.",
    )
    max_step_each_iter: Limit = option(
        -1, "Truncate episodes after this many steps. -1: no limit.", shared=True
    )
    reset_on_iteration: bool = option(
        False,
        "Reset all environments after each iteration and truncate open episodes. Wastes data if n_envs > 1.",
        shared=True,
    )

    callbacks: Annotated[tuple[NamedEntry, ...], Strict(False)] = option(
        (),
        "Your callbacks: module:Class or file.py:Class, or {Name: {kwargs}}.",
        resume="free: the state of callbacks is not saved",
        examples=[["module:Class", {"file.py:Class": {"argument": "value"}}]],
    )

    init_from: str | None = option(
        None,
        "Start from the networks of a run (NAME or NAME:STEP) or a checkpoint folder, with new optimizers.",
        min_length=1,
        resume="ignored",
    )
    init_parts: Annotated[tuple[InitPart, ...], Strict(False)] | None = option(
        None,
        "Load only these parts of init_from. null: all.",
        min_length=1,
        resume="free: of networks that the run is resumed with",
    )

    evolver_enabled: bool = option(True, "Allow `asac-ds ENV evolver`.")
    evolver_mode: Literal["copy", "cem"] = option(
        "copy",
        "copy: others copy the best. cem: all restart from draws around the best ones' mean networks.",
    )
    evolver_keep: Annotated[tuple[Literal["optimiser", "replay"], ...], Strict(False)] = option(
        ("optimiser", "replay"),
        "What a resumed run keeps when --init_from replaces its networks: optimizer moments, replay buffer.",
    )
    evolver_cem_length: Whole = option(50, "Evaluations of each member in a generation.", ge=1)
    evolver_cem_best: Finite = option(
        0.3, "Share of members that make the next generation. At least one member.", gt=0, le=1
    )
    evolver_cem_min_length: Whole = option(
        2, "Evaluations of each member that are enough after evolver_cem_time.", ge=1
    )
    evolver_cem_time: Finite = option(
        3, "Minutes after which evolver_cem_min_length evaluations are enough.", ge=0
    )
    evolver_remove_worst: Whole = option(
        4,
        "Redraw a member that was never among the best while another was this many times.",
        ge=1,
    )

    max_actors_each_learner: Limit = option(-1, "Maximum number of actors per learner. -1: no limit.")
    noise_increasing_rate: Finite = option(
        0,
        "Actor k (from 0) adds noise of k times this. 0: use action_noise.",
        ge=0,
        shared=True,
        resume="free: for actors that join from now on",
    )
    noise_max: Finite = option(
        0.1,
        "Upper limit of the noise from noise_increasing_rate.",
        ge=0,
        shared=True,
        resume="free: for actors that join from now on",
    )
    max_episode_length: Whole = option(
        500,
        "Steps after which an actor sends a message, even if no episode has ended.",
        ge=1,
        shared=True,
    )
    episode_queue_size: Whole = option(
        5, "Messages that may wait for the learner. When full, actors wait.", ge=1
    )
    episode_sender_process_num: Whole = option(
        5, "Unanswered messages per actor. Never more than its environments.", ge=1, le=64
    )
    batch_queue_size: Whole = option(5, "Batches that may wait for an update.", ge=1)
    batch_generator_process_num: Whole = option(
        5,
        "Maximum number of learner threads that prefetch batches. Never more than CPU cores minus one.",
        ge=1,
    )

    @property
    def kind(self) -> EnvKind:
        """The kind of the environment; a user's own is not imported for it."""
        return KINDS.get(self.env_type) or kind_of(self.env_type)

    @property
    def in_editor(self) -> bool:
        """Whether the environment is the Unity Editor, of which there is only one."""
        return self.kind.player and self.unity_args.editor

    @property
    def chosen_preset(self) -> str | None:
        """The preset that the task names; None for ``auto`` and ``plain``."""
        return None if self.preset in (AUTO, PLAIN) else self.preset

    @override
    def contradictions(self) -> Iterator[Contradiction]:
        """Yield workers without environments, and keys that Unity's players do not support."""
        editor = self.in_editor
        if not self.kind.gymnasium:
            yield from self._of_other_simulators()
        yield from contradicting(
            (
                self.workers > self.n_envs,
                ("workers", "n_envs"),
                f"{self.workers} workers for n_envs = {self.n_envs}",
                "lower workers or raise n_envs",
            ),
            (
                self.control_hz is not None and self.n_envs > 1,
                ("control_hz", "n_envs"),
                "several robots would wait for one another's resets",
                "set n_envs: 1, and use an actor for each robot",
            ),
            (
                editor and self.n_envs > 1,
                ("unity_args.editor", "n_envs"),
                f"the Unity Editor is one player, and n_envs = {self.n_envs}",
                "set n_envs: 1, or --agents 1; several agents and areas may be in the scene",
            ),
            (
                editor and isinstance(self.stop_at_return, float),
                ("unity_args.editor", "stop_at_return"),
                "the Unity Editor is one player, and evaluations need another",
                "set stop_at_return: null",
            ),
        )

    def _of_other_simulators(self) -> Iterator[Contradiction]:
        """Yield keys that only single Gymnasium environments support."""
        timed, paced = self.control_hz is not None, ("env_type", "control_hz")
        yield from contradicting(
            (timed, paced, "this simulator keeps its own time", "leave control_hz out"),
            (
                self.workers > 0,
                ("env_type", "workers"),
                "a Unity player is already a process; workers are for environments in this process"
                if self.kind.player
                else "worker processes are for single environments, and this simulator steps many itself",
                "set workers: 0; all n_envs are stepped at once",
            ),
            (len(self.wrappers) > 0, ("env_type", "wrappers"), *no_wrappers(self.kind)),
        )


class NetConfig(Block):
    """Connections of learner and actors: address, security, limits."""

    learner_host: str | None = option(
        None,
        "Learner's address. null: this machine only. Any other address needs the files in secrets.",
        min_length=1,
    )
    learner_port: Whole = option(61001, "Learner's port. 0: any free one.", ge=0, le=65535)
    secrets: str = option(
        ".secrets",
        "Folder of token and certificates.",
        min_length=1,
    )
    insecure: bool = option(False, "No encryption between machines. The token can be read in transit.")
    synchronous: bool = option(
        False,
        "One actor waits for the learner after each step. Results equal one process bit for bit.",
    )
    heartbeat: Finite = option(
        2.0,
        "Seconds between heartbeats. After three missed ones the actor counts as lost.",
        gt=0,
    )
    max_lag: Limit = option(
        -1, "Drop messages whose oldest weights are more than this many versions old. -1: keep all."
    )
    spool_size: Whole = option(
        64, "Messages an actor keeps while the learner is away. When full, the oldest are dropped.", ge=1
    )
    patience: Limit = option(600, "Seconds an actor waits for the learner to start or return. -1: forever.")
