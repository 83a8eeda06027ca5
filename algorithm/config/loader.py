"""Loading of a configuration (find, merge, draw, validate; all faults at once), and writing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from algorithm.agents.registry import FAMILIES, barred, misplaced
from algorithm.config.errors import ConfigError, Problem
from algorithm.config.locate import EnvFolder, find_env
from algorithm.config.resolve import (
    SEED_PATH,
    Edits,
    Overrides,
    Validated,
    lay,
    layers,
    read_edits,
    validate,
)
from algorithm.config.schema import AUTO, BEHAVIOUR_KEYS, PLAIN, Config, fields, value_at
from algorithm.config.sections import (
    DEFAULT_SECTION,
    Choice,
    PresetLayer,
    as_section,
    choose,
    lay_preset,
    layered,
    misplaced_keys,
)
from algorithm.config.tree import Node, from_value, merge
from algorithm.config.yaml_io import inline, read_yaml, shown, write_yaml
from algorithm.env.config import without_team

_NO_FLAGS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class LoadedConfig(Validated):
    """A valid configuration and its sources.

    env_label: folder of the task's runs, such as ``gym/pendulum``.
    file:      None for an environment without a folder, of which no file was chosen.
    section:   the chosen section of ``file``; empty if the file is the configuration of a run.
    overrides: as given with ``-o``.
    shipped:   sections of the framework that lie below the task's.
    preset:    layer of the section that ``base_config.preset`` names.
    by_spaces: whether sections by the spaces are still to be laid below, once these are known.
    laid:      layers of the sections by the spaces.
    left_out:  keys of the section that belong to another algorithm than the command line has chosen.
    resolved_keys: keys that the run has set itself, such as ``compile: auto``; see `resolved`.
    """

    env_dir: Path
    env_label: str
    file: Path | None
    section: str
    overrides: tuple[str, ...]
    shipped: tuple[str, ...] = ()
    preset: PresetLayer | None = None
    by_spaces: bool = False
    laid: tuple[PresetLayer, ...] = ()
    left_out: tuple[str, ...] = ()
    resolved_keys: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """The place of the settings, for messages: ``config.yaml, section default``."""
        if self.file is None:
            return "the defaults, no file" if self.section == DEFAULT_SECTION else f"section {self.section}"
        return (
            f"{self.file.name}, section {self.section}" if self.section else f"{self.file.name}, one section"
        )

    def for_behaviour(self, name: str) -> Config:
        """Return the configuration of a behaviour: that of its entry in ``ma_config``, or the common one.

        The entry ``Name`` is also for ``Name?team=0``, ``Name?team=1``, … that have no entry themselves.
        """
        return self.behaviours.get(self.entry_of(name), self.config)

    def entry_of(self, name: str) -> str:
        """Return the key of a behaviour's entry in ``ma_config``; "" if it has the common configuration."""
        return next((part for part in (name, without_team(name)) if part in self.behaviours), "")

    @property
    def seed(self) -> int:
        """The run's seed; every loaded configuration has one."""
        seed = self.config.run.seed
        assert seed is not None, "the loader sets the seed"
        return seed

    def resolved(self, block: str, resolve: Callable[[Config], Mapping[str, object]]) -> LoadedConfig:
        """Return the configuration with keys of a block set by the run, for all and each behaviour.

        resolve: the configuration of a behaviour → key → value
        """
        common = resolve(self.config)
        configs, trees = dict[str, Config](), dict(self.trees)
        for entry, config in {"": self.config, **self.behaviours}.items():
            keys = getattr(config, block)
            values = {**{key: getattr(keys, key) for key in common}, **resolve(config)}
            configs[entry] = config.model_copy(update={block: keys.model_copy(update=values)})
            trees[entry] = merge(trees[entry], from_value({block: values}, "the run"))
        names = self.resolved_keys | {f"{block}.{key}" for key in common}
        return replace(self, config=configs.pop(""), behaviours=configs, trees=trees, resolved_keys=names)

    def is_set(self, dotted: str) -> bool:
        """Return whether a file, an override, a flag or a draw sets the key; else it has its default."""
        return dotted in self.drawn or self.tree.find(tuple(dotted.split("."))) is not None

    def differences(self) -> dict[str, object]:
        """Return dotted path → value of all keys unlike the default, less the seed and `resolved_keys`."""
        changed = {k: v for k, v in _differences(self.config, Config()) if k not in self.resolved_keys}
        changed = {key: value for key, value in changed.items() if not key.startswith("tune_config.")}
        for name, config in self.behaviours.items():
            changed |= {f"ma_config.{name}.{k}": v for k, v in _differences(config, self.config)}
        return changed


def load_config(
    env: str,
    config: str | None = None,
    overrides: Overrides = (),
    flags: Mapping[str, object] = _NO_FLAGS,
    seed: int | None = None,
    *,
    defaults: Mapping[str, object] = _NO_FLAGS,
    require_runnable: bool = False,
) -> LoadedConfig:
    """Load the configuration of a task.

    env: a folder below ``envs/``, the path of any folder with a config.yaml, or the name of an environment.
    config: section, file or ``FILE:SECTION``; None is the section ``default``.
    overrides: ``a.b=value`` each, the value spelt as in YAML; or a mapping. They win over the file. The block
        of a key may be left out if only one has it: see :func:`in_blocks`.
    flags: dotted path → value of the command line's own flags. They win over ``overrides``.
    seed: wins over ``sac_config.seed``; without both a fresh one is drawn.
    defaults: dotted path → value of keys that the file leaves out, instead of the schema's.
    require_runnable: also refuse a configuration without an environment, which cannot be run
    Raises ConfigError with every fault.
    """
    problems: list[Problem] = []
    folder, choice = _locate(env, config, problems)
    below, shipped = layered(choice, problems)
    edits = read_edits(overrides, flags, below, problems)
    switched_off = _switched_off(below, edits.tree)
    lowest = layers({**folder.defaults, **defaults}, "the defaults")
    above = layers(switched_off or {}, "the defaults")
    command_line = [*layers(folder.keys_of_name, "command line"), *edits.overrides, *edits.flags]
    tree, preset = lay_preset(lay(*lowest, below, *above, *command_line))
    place = choice.place if require_runnable and not problems else None
    valid = validate(tree, seed, problems, runnable=place)
    section = choice.sections.children.get(choice.section, Node({}))
    written = misplaced_keys(valid.config, valid.behaviours, section)
    problems += written.values() if switched_off is None else ()
    _refuse(valid, edits, problems)
    return LoadedConfig(
        **vars(valid),
        env_dir=folder.path,
        env_label=folder.label,
        file=choice.file,
        section=choice.section,
        overrides=edits.texts,
        shipped=shipped,
        preset=preset,
        by_spaces=valid.config.base_config.preset == AUTO,
        left_out=() if switched_off is None else (*written, *switched_off),
    )


def load_config_file(
    path: Path,
    overrides: Overrides = (),
    flags: Mapping[str, object] = _NO_FLAGS,
    seed: int | None = None,
    *,
    env: EnvFolder | None = None,
    require_runnable: bool = False,
) -> LoadedConfig:
    """Load a whole configuration from one file, as `dump_config` writes it into a run's folder.

    env: the task it belongs to; None takes the file's own folder. All else as `load_config`.
    """
    problems: list[Problem] = []
    read = read_yaml(path, problems)
    tree = as_section(read, path.name, problems) if read else Node({})
    edits = read_edits(overrides, flags, tree, problems)
    tree = lay(tree, *edits.overrides, *edits.flags)
    valid = validate(tree, seed, problems, runnable=shown(path) if read and require_runnable else None)
    _refuse(valid, edits, problems)
    folder = env or EnvFolder(path.resolve().parent, path.resolve().parent.name)
    return LoadedConfig(
        **vars(valid),
        env_dir=folder.path,
        env_label=folder.label,
        file=path,
        section="",
        overrides=edits.texts,
    )


def _refuse(valid: Validated, edits: Edits, problems: list[Problem]) -> None:
    """Raise ConfigError with the problems so far, and keys of other families among the overrides."""
    problems += misplaced_keys(valid.config, valid.behaviours, lay(*edits.overrides)).values()
    if problems:
        raise ConfigError(problems)


def _switched_off(section: Node, flags: Node) -> dict[str, object] | None:
    """Return keys of a section that another algorithm, chosen by the command line, does not have, and values
    that turn them off.

    None if the section is for that algorithm, or the command line chooses none.
    """
    algorithm = flags.value_at("algorithm")
    if algorithm not in list(FAMILIES) or algorithm == (section.value_at("algorithm") or Config().algorithm):
        return None
    paths = {dotted: tuple(dotted.split(".")) for dotted in barred(algorithm)}
    return {
        dotted: value_at(Config(), path)
        for dotted, path in paths.items()
        if section.value_at(*path) not in (None, False, 0, AUTO, PLAIN)
    }


def plain_config(loaded: LoadedConfig) -> dict[str, Any]:
    """Return the configuration with every key of a run, as text, numbers, lists and mappings."""
    behaviours = {
        name: config.model_dump(mode="json", include=set(BEHAVIOUR_KEYS))
        for name, config in loaded.behaviours.items()
    }
    return {**loaded.config.model_dump(mode="json", exclude={"tune_config"}), "ma_config": behaviours or None}


def dump_config(loaded: LoadedConfig) -> str:
    """Return the configuration with every key, as YAML that `load_config_file` reads back equal."""
    head = [f"# {loaded.env_label}: every key, resolved from {loaded.source}"]
    head += [f"# override: {text}" for text in loaded.overrides]
    head += [f"# drawn: {path} = {inline(value)}" for path, value in loaded.drawn.items()]
    return "\n".join([*(" ".join(line.split()) for line in head), write_yaml(plain_config(loaded))])


def all_changes(overrides: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """Return a command line's changes of a run's configuration, overrides and flags, as overrides."""
    keys = {key: value for key, value in flags.items() if key != "base_config.name"}
    return [*overrides, *(f"{key}={inline(value)}" for key, value in keys.items())]


def _locate(env: str, config: str | None, problems: list[Problem]) -> tuple[EnvFolder, Choice]:
    """Find the environment's folder and the section; add faults to ``problems``.

    After a fault they are empty, so that loading goes on and reports all other faults, too.
    """
    folder, choice = EnvFolder(Path(), ""), None
    try:
        folder = find_env(env)
        choice = choose(folder, config, problems)
    except ConfigError as error:
        problems += error.problems
    return folder, choice or Choice(None, DEFAULT_SECTION, Node({DEFAULT_SECTION: Node({})}))


def _differences(config: Config, base: Config) -> Iterator[tuple[str, object]]:
    """Yield the keys of ``config`` whose value differs from ``base``, without the seed."""
    for path, _ in fields():
        value, other = value_at(config, path), value_at(base, path)
        if value != other and path != SEED_PATH and not (path[1:] and misplaced(config.algorithm, *path[:2])):
            yield ".".join(path), value
