"""Every key of a configuration, composed of the blocks that their owners declare.

Each section of a task's ``config.yaml`` has the shape of `Config`. The keys of `MERGE_KEYS` steer the merging
and never reach a `Config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic.fields import FieldInfo
from typing_extensions import override

from algorithm.agents.off_policy.rules import WORTH, planned_updates
from algorithm.agents.on_policy.acer.config import AcerConfig
from algorithm.agents.on_policy.family_config import A2cConfig, A3cConfig, AcktrConfig, PpoConfig
from algorithm.agents.registry import ALGORITHMS, FAMILIES, contradictions
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.td3.config import Td3Config
from algorithm.config.extras_config import ExportConfig, SelfPlayConfig, TuneConfig
from algorithm.config.tree import KeyPath
from algorithm.core.fields import (
    Block,
    Contradiction,
    NamedEntry,
    block,
    block_of,
    contradicting,
    facts_of,
    name_schema,
    option,
    part_name,
)
from algorithm.env.parameters.config import EnvParameter, read_parameters
from algorithm.env.parameters.rules import other_lessons, wrong_numbers, wrong_parameters
from algorithm.keys.base import AUTO, PLAIN, BaseConfig, NetConfig, Preset, no_wrappers
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.keys.checkpoints import CheckpointConfig, EvalConfig, WandbConfig
from algorithm.keys.demonstrations import DemoConfig
from algorithm.keys.run import RunConfig
from algorithm.keys.signals import BehavioralCloning, NnConfig, RewardSignals
from algorithm.replay.config import ReplayConfig

__all__ = [
    "AUTO",
    "BEHAVIOUR_KEYS",
    "DISTRIBUTED_DEFAULTS",
    "MERGE_KEYS",
    "PLAIN",
    "RANDOM_BLOCKS",
    "BaseConfig",
    "Config",
    "NetConfig",
    "Preset",
    "ReplayConfig",
    "contradictions_in",
    "field_at",
    "fields",
    "value_at",
]

Algorithm = Annotated[str, part_name(ALGORITHMS), name_schema(ALGORITHMS)]
"""Names of the algorithm families, and ``module:NAME``; ``algorithm`` chooses one."""


class Config(BehaviourConfig):
    """Everything one agent and its run are built from. ``Config()`` holds the defaults."""

    algorithm: Algorithm = option(
        "SAC",
        f"{', '.join(FAMILIES)}, or your own as module:NAME (docs/parts.md). Its own keys are "
        "in its block, shared ones in sac_config.",
        resume="fixed: networks, optimizers and stored data belong to the algorithm",
        shared=True,
        by_behaviour=True,
    )
    algorithm_args: dict[str, Any] = option(
        {},
        "Keys of your own algorithm, {name: value} (docs/parts.md).",
        resume="free: the algorithm is made with them",
        shared=True,
        by_behaviour=True,
    )
    base_config: BaseConfig = block(BaseConfig, "Environment, name and length of the run.", random=True)
    net_config: NetConfig = block(NetConfig, "Only for distributed training.", random=True)
    reset_config: dict[str, Any] | None = option(
        None,
        "Sent with every reset. GYM: options of reset(). UNITY: parameters, {name: number}.",
        resume="free: from each environment's next reset on; open episodes may end as truncated",
        shared=True,
    )
    environment_parameters: dict[str, Any] = option(
        {},
        "What changes between episodes (docs/curriculum.md): {name: number, sampler or curriculum}.",
        resume=other_lessons,
        shared=True,
    )
    nn_config: NnConfig = block(NnConfig, "Keyword arguments of the network classes.", by_behaviour=True)
    replay_config: ReplayConfig = block(ReplayConfig, "The replay buffer.", by_behaviour=True, random=True)
    sac_config: SacConfig = block(
        SacConfig, "SAC, and keys that every algorithm shares.", by_behaviour=True, random=True
    )
    ppo_config: PpoConfig = block(PpoConfig, "PPO only.", by_behaviour=True, random=True)
    a2c_config: A2cConfig = block(A2cConfig, "A2C only.", by_behaviour=True, random=True)
    a3c_config: A3cConfig = block(A3cConfig, "A3C only.", by_behaviour=True, random=True)
    acktr_config: AcktrConfig = block(AcktrConfig, "ACKTR only.", by_behaviour=True, random=True)
    acer_config: AcerConfig = block(AcerConfig, "ACER only.", by_behaviour=True, random=True)
    td3_config: Td3Config = block(Td3Config, "TD3 only.", by_behaviour=True, random=True)
    reward_signals: RewardSignals = block(RewardSignals, "Rewards to learn from.", by_behaviour=True)
    demonstrations: DemoConfig = block(DemoConfig, "Episodes to learn from.", by_behaviour=True)
    behavioral_cloning: BehavioralCloning = block(
        BehavioralCloning, "Cloning of demonstrated actions.", by_behaviour=True
    )
    self_play: SelfPlayConfig = block(
        SelfPlayConfig, "Games against past policies (docs/multi_agent.md).", random=True
    )
    eval_config: EvalConfig = block(EvalConfig, "Evaluation.", random=True)
    checkpoint_config: CheckpointConfig = block(CheckpointConfig, "Checkpoints.", random=True)
    export_config: ExportConfig = block(ExportConfig, "ONNX export: `--export FILE.onnx`.")
    wandb_config: WandbConfig = block(WandbConfig, "Logging to Weights & Biases.")
    tune_config: TuneConfig = block(TuneConfig, "Search of hyperparameters: `--tune` (docs/tuning.md).")

    @property
    @override
    def run(self) -> RunConfig:
        """The shared keys, which every algorithm has; they stand in ``sac_config``."""
        return self.sac_config

    @property
    def parameters(self) -> dict[str, EnvParameter]:
        """The parameters of the environment that are numbers, samplers and curricula."""
        return read_parameters(self.environment_parameters)

    @property
    def worth_compiling(self) -> bool:
        """Whether so many updates are planned that compiling them first saves time."""
        return planned_updates(self.sac_config, self.base_config.max_step) >= WORTH

    @property
    def evaluates_on_the_way(self) -> bool:
        """Whether there are evaluations before the end of the training."""
        return self.eval_config.per_step != -1 and self.eval_config.episodes > 0

    def wrappers_for(self, purpose: Literal["train", "evaluate"]) -> tuple[NamedEntry, ...]:
        """Return the wrappers of the environments of one purpose, innermost first."""
        eval_wrappers = self.eval_config.wrappers if purpose == "evaluate" else None
        return self.base_config.wrappers if eval_wrappers is None else eval_wrappers

    @override
    def contradictions(self) -> Iterator[Contradiction]:
        """Yield contradictions between blocks: evaluations, limits, parameters, and the algorithm's keys."""
        kind = self.base_config.kind
        yield from contradicting(
            (
                not kind.films and self.eval_config.video,
                ("base_config.env_type", "eval_config.video"),
                "a Unity player draws in its own window and returns no images"
                if kind.player
                else "its simulator returns no images",
                "set eval_config.video: false" + "; --watch shows the player" * kind.player,
            ),
            (
                not kind.gymnasium and bool(self.eval_config.wrappers),
                ("base_config.env_type", "eval_config.wrappers"),
                *no_wrappers(kind),
            ),
            (
                self.self_play.window > 0 and not kind.teams,
                ("base_config.env_type", "self_play.window"),
                f"{kind.name} environments have no teams",
                "set self_play.window: 0, or write the game as a PettingZoo environment",
            ),
            (
                isinstance(self.base_config.stop_at_return, float) and not self.evaluates_on_the_way,
                ("base_config.stop_at_return", "eval_config.per_step"),
                "evaluations during training, which could end it, are switched off",
                "set eval_config.per_step and episodes, or base_config.stop_at_return: null",
            ),
            (
                self.base_config.stop_without_improvement > 0 and not self.evaluates_on_the_way,
                ("base_config.stop_without_improvement", "eval_config.per_step"),
                "no evaluation during training could end it",
                "set eval_config.per_step and episodes, or base_config.stop_without_improvement: -1",
            ),
        )
        if kind.parameters:
            yield from wrong_numbers(self.reset_config)
        if self.environment_parameters:
            yield from wrong_parameters(self)
        yield from contradictions(self)


@cache
def fields(model: type[Block] = Config, path: KeyPath = ()) -> tuple[tuple[KeyPath, FieldInfo], ...]:
    """Return every key that holds a value, with its path, in the order of the listing."""
    rows: list[tuple[KeyPath, FieldInfo]] = []
    for name, field in model.model_fields.items():
        inner = block_of(field)
        rows += [((*path, name), field)] if inner is None else fields(inner, (*path, name))
    return tuple(rows)


def field_at(path: KeyPath) -> FieldInfo | None:
    """Return the declaration of the key at ``path``, or None if there is no such key."""
    return _BY_PATH.get(path)


def contradictions_in(block: Block, path: KeyPath = ()) -> Iterator[tuple[list[KeyPath], Contradiction]]:
    """Yield the contradictions of a block and of the blocks within, each with the paths of its keys.

    Blocks at their defaults are left out: defaults never contradict each other.
    """
    for name in type(block).model_fields:
        if name in block.model_fields_set and isinstance(inner := getattr(block, name), Block):
            yield from contradictions_in(inner, (*path, name))
    for clash in block.contradictions():
        yield [(*path, *key.split(".")) for key in clash.keys], clash


def value_at(config: Config, path: KeyPath) -> object:
    """Return the value at a path in a configuration."""
    value: object = config
    for name in path:
        value = getattr(value, name)
    return value


_BY_PATH = dict(fields())
"""Path -> declaration of all keys."""

MERGE_KEYS = {
    "ma_config": "Settings of single behaviors, which override the rest: {name: {algorithm, sac_config, …}}.",
    "inherited": "Sections to start from, left to right: of this file, else of algorithm/sections.yaml.",
    "random_params": "Values to draw at the start of a run: {key: {in: [...]}}, {key: {std: s}}, "
    "{key: {std: s, truncated: [lo, hi]}} or {key: {truncated: [lo, hi]}}.",
}
"""Keys of a section that control merging, and are not part of a configuration."""

DISTRIBUTED_DEFAULTS: Mapping[str, object] = {
    ".".join(path): facts_of(field).distributed_default
    for path, field in fields()
    if facts_of(field).distributed_default is not None
}
"""Dotted path -> default that differs in distributed training."""

BEHAVIOUR_KEYS = tuple(name for name, field in Config.model_fields.items() if facts_of(field).by_behaviour)
"""Keys and blocks that a behaviour of ``ma_config`` may have for itself; all others belong to the run."""

RANDOM_BLOCKS = tuple(name for name, field in Config.model_fields.items() if facts_of(field).random)
"""The blocks that may hold ``random_params``."""
