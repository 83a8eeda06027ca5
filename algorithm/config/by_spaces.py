"""Sections chosen by a task's spaces: each lies below all that the task sets, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from algorithm.agents.off_policy.rules import SMALLEST_BATCH
from algorithm.config.loader import LoadedConfig
from algorithm.config.resolve import lay, layers
from algorithm.config.schema import Config, contradictions_in
from algorithm.config.sections import PresetLayer, shipped
from algorithm.config.tree import KeyPath, Node, to_value
from algorithm.config.yaml_io import inline
from algorithm.core.errors import COMMON_BLOCK

if TYPE_CHECKING:  # a configuration is read before numpy is loaded
    from algorithm.core.spec import AgentSpec

OwnClasses = Callable[[Config], Collection[str]]
"""Configuration of a behaviour → the classes of networks that its task defines itself."""

MEANING: Mapping[str, str] = {
    "continuous": "some actions are numbers",
    "discrete": "some actions are choices",
    "images": "an observation is an image",
    "images_discrete": "an observation is an image, and some actions are choices",
}
"""Section → the spaces that it is for. One without an entry in ``sections.yaml`` sets nothing."""

REASON: Mapping[str, str] = {
    "continuous": "CrossQ learns the most in a second of a CPU core, and the mean of its critics explores",
    "discrete": "CrossQ learns the most in a second of a CPU core, here with scaled rewards",
    "images": "Plain SAC, since CrossQ does not learn from images",
    "images_discrete": "Plain SAC with small batches, which learns as much in a quarter of the time",
}
"""Section → reason for its values."""

CLASSES = {"rep": "ModelRep", "q": "ModelQ", "policy": "ModelPolicy"}
"""Block of ``nn_config`` → the class that gets its values."""

_SIZES = {"dense_n", "dense_depth", "hidden", "activation"}
"""Keys of such a block that may differ from a section's; ``hidden`` stands for the two before it."""

_OF_TARGETS = ((COMMON_BLOCK, "tau"), (COMMON_BLOCK, "update_target_per_step"))
"""Keys that have no effect once a section has turned the target networks off."""

_RANDOM = (COMMON_BLOCK, "start_step")
"""Key of random actions; a section sets at most a tenth of a short training."""

_OF_PRIORITIES = ("alpha", "beta", "beta_increment_per_sampling", "td_error_min", "td_error_max")
"""Keys of ``replay_config`` for priorities; if one is set, a section leaves ``use_priority`` alone."""


def for_spaces(loaded: LoadedConfig, specs: Mapping[str, AgentSpec], own_classes: OwnClasses) -> LoadedConfig:
    """Lay the section that fits each behaviour's spaces below its configuration; return the result.

    specs: of the environment's behaviours. Behaviours that share a configuration get separate ones if their
           spaces need different sections.
    A configuration of a run, with another algorithm than the default one, or with another
    ``base_config.preset`` than ``auto``, is returned unchanged.
    """
    if not loaded.by_spaces:
        return loaded
    groups: dict[tuple[str, str], list[str]] = {}
    for name, spec in specs.items():
        groups.setdefault((loaded.entry_of(name), _section(spec)), []).append(name)
    entries = [entry for entry, _ in groups]
    configs, trees, laid = {"": loaded.config, **loaded.behaviours}, dict(loaded.trees), list[PresetLayer]()
    for (entry, section), names in groups.items():
        tree, config, layers = _Layering(loaded, entry, tuple(names), own_classes).with_section(section)
        laid += layers
        for each in names if entries.count(entry) > 1 else [entry]:
            configs[each], trees[each] = config, tree
    config = configs.pop("")
    return replace(loaded, config=config, behaviours=configs, trees=trees, laid=tuple(laid), by_spaces=False)


def _section(spec: AgentSpec) -> str:
    """Return the name of the section for a behaviour; hybrid actions count as continuous ones."""
    names = (("discrete", "continuous"), ("images_discrete", "images"))
    return names[bool(spec.obs.images)][bool(spec.action.continuous)]


@dataclass(frozen=True)
class _Layering:
    """One of the configurations that were loaded, and the behaviours that have it.

    entry: key of ``ma_config``, or "" for the common configuration
    """

    loaded: LoadedConfig
    entry: str
    names: tuple[str, ...]
    own_classes: OwnClasses

    @property
    def _tree(self) -> Node:
        """All values that file, overrides, flags, draws, memory and the run itself have set."""
        return self.loaded.trees[self.entry]

    def with_section(self, name: str) -> tuple[Node, Config, list[PresetLayer]]:
        """Lay a section below the configuration; return tree, configuration and the layer.

        The layer has the values that were taken, or why none could be; no layer if it is laid already.
        """
        config = self.loaded.behaviours.get(self.entry, self.loaded.config)
        if (
            config.algorithm != Config().algorithm
            or name in self.loaded.shipped
            or (name == "discrete" and config.sac_config.discrete_dqn_like)  # the section is for a policy
        ):
            return self._tree, config, []
        leaves = dict(shipped().children[name].leaves()) if name in shipped().children else {}
        values = {path: leaf.value for path, leaf in leaves.items()}
        # Recordings of others have no probabilities of their actions, which several steps would need.
        values |= (
            {(COMMON_BLOCK, "n_step"): 1, (COMMON_BLOCK, "ensemble_q_reduce"): "min"}
            if config.demonstrations.learned_from
            else {}
        )
        if config.demonstrations.without_random:
            values.pop(_RANDOM, None)
        elif config.base_config.max_step > 0 and _RANDOM in values:
            values[_RANDOM] = min(config.base_config.max_step // 10, cast(int, values[_RANDOM]))
        taken = {path: value for path, value in values.items() if not self._is_set(path)}
        tree = lay(*layers(_dotted(taken), f"section {name}"), self._tree)
        wanted = Config.model_validate(to_value(tree))
        why = next(self._against(config, wanted, values, taken), "")
        kept = tuple(".".join(path) for path in values if path not in taken)
        laid = PresetLayer(self.names, name, _dotted(taken), kept, why)
        return (self._tree, config, [laid]) if why else (tree, wanted, [laid])

    def _is_set(self, path: KeyPath) -> bool:
        """Return whether the key is set, or another key whose value already settles it."""
        block, key = path[0], path[-1]
        others: list[KeyPath] = []  # keys that decide it as well
        if key in ("dense_n", "dense_depth"):
            others = [(*path[:-1], "hidden")]
        elif path == (COMMON_BLOCK, "use_priority"):
            others = [("replay_config", key) for key in _OF_PRIORITIES]
        elif key == "learning_rate_hold" or (
            key == "learning_rate_end" and self._tree.value_at(block, "learning_rate_schedule") == "constant"
        ):
            others = [(COMMON_BLOCK, "learning_rate_schedule")]
        return any(map(self._tree.decides, (path, *others)))

    def _against(
        self,
        before: Config,
        wanted: Config,
        values: Mapping[KeyPath, object],
        taken: Mapping[KeyPath, object],
    ) -> Iterator[str]:
        """Yield the reasons why the section cannot be laid. values: all of it; taken: those to be set."""
        blocks = dict.fromkeys(path[1] for path in values if path[0] == "nn_config")
        classes = self.own_classes(before) if blocks else ()
        for block in blocks:
            if CLASSES[block] in classes:
                yield f"the task has its own {CLASSES[block]}"
            yield from self._of_block(before, block, values)
        for paths, clash in contradictions_in(wanted):
            ours = [path for path in paths if path in taken]
            theirs = [path for path in paths if path not in ours and self._is_set(path)]
            yield _contradicts(ours, theirs, taken) if ours and theirs else clash.why
        norms = [path for path, value in values.items() if path[-1] == "norm" and "batch" in str(value)]
        run = wanted.sac_config
        if norms and run.batch_size * run.learn_step < SMALLEST_BATCH:
            yield _contradicts(norms, [(COMMON_BLOCK, "batch_size")], values)
        targets = (COMMON_BLOCK, "use_target_network")
        theirs = [path for path in _OF_TARGETS if self._is_set(path)]
        if taken.get(targets) is False and theirs:
            yield _contradicts([targets], theirs, taken)

    def _of_block(self, before: Config, block: str, values: Mapping[KeyPath, object]) -> Iterator[str]:
        """Yield contradictions of the task's own ``nn_config`` block, beyond sizes of networks."""
        configured = getattr(before.nn_config, block)
        if configured is None and self._is_set(("nn_config", block)):
            yield f"nn_config.{block} is null"
        ours = [path for path in values if path[:2] == ("nn_config", block)]
        for key, value in (configured or {}).items():
            same = ("nn_config", block, key)
            if key not in _SIZES and values.get(same) != value:
                shown = ("nn_config", block, f"{key} {inline(value)}")
                yield _contradicts([same] if same in values else ours, [shown], values)


def _contradicts(ours: list[KeyPath], theirs: list[KeyPath], values: Mapping[KeyPath, object]) -> str:
    """Return a reason such as ``use_target_network false contradicts clip_epsilon``."""
    shown = " and ".join(f"{'.'.join(path[1:])} {inline(values[path])}" for path in ours)
    verb = "contradicts" if len(ours) == 1 else "contradict"
    return f"{shown} {verb} {' and '.join('.'.join(path[1:]) for path in theirs)}"


def _dotted(values: Mapping[KeyPath, object]) -> dict[str, object]:
    """Return values by dotted path instead of tuples."""
    return {".".join(path): value for path, value in values.items()}
