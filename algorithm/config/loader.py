"""Loading of a configuration: find, merge, draw, validate, all faults at once. And its dump."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from algorithm.agents.registry import misplaced
from algorithm.config.errors import ConfigError, Problem
from algorithm.config.locate import (
    DEFAULT_SECTION,
    EnvFolder,
    as_section,
    find_env,
    find_section,
    layered,
    shipped_below,
)
from algorithm.config.random_params import Distribution, draw
from algorithm.config.schema import BEHAVIOUR_KEYS, Config, field_at, fields, value_at
from algorithm.config.shipped_sections import Preset, under_memory, under_preset
from algorithm.config.tree import MappingNode, ValueNode, find, from_value_at, merge, to_value
from algorithm.config.validation import build, refuse_misplaced
from algorithm.config.yaml_io import inline, parse_value, read_yaml, shown, write_yaml
from algorithm.env.config import without_team

_NO_FLAGS: Mapping[str, object] = MappingProxyType({})
_FRESH_SEEDS = 2**31
_SEED = ("sac_config", "seed")


@dataclass(frozen=True)
class LoadedConfig:
    """A valid configuration and its sources.

    env_label: what the run is filed under, such as ``gym/pendulum``.
    file:      None for an environment without a folder, of which no file was chosen.
    section:   the chosen section of ``file``; empty if the file is a whole configuration.
    behaviours: the behaviours that ``ma_config`` names; see `for_behaviour`.
    overrides: as given with ``-o``.
    raw:       what the file, overrides and flags said, merged, before draws and without defaults.
    drawn:     what ``random_params`` drew, dotted path → value.
    for_memory: what was not set and is not the default either, because there is a seq_encoder.
    distributions: what each value of ``drawn`` was drawn from, by the same path.
    shipped:   sections of the framework that lie below.
    preset:    the one that ``base_config.preset`` has laid below all, and what it sets.
    decided:   keys that the run has decided itself; such as ``compile: auto``.
    """

    env_dir: Path
    env_label: str
    file: Path | None
    section: str
    config: Config
    behaviours: Mapping[str, Config]
    overrides: tuple[str, ...]
    raw: Mapping[str, Any]
    drawn: Mapping[str, object]
    for_memory: Mapping[str, object] = field(default_factory=dict)
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    shipped: tuple[str, ...] = ()
    preset: Preset | None = None
    decided: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """The place of the settings, for a person: ``config.yaml, section default``."""
        if self.file is None:
            return "the defaults, no file" if self.section == DEFAULT_SECTION else f"section {self.section}"
        return (
            f"{self.file.name}, section {self.section}" if self.section else f"{self.file.name}, one section"
        )

    def for_behaviour(self, name: str) -> Config:
        """Return the configuration of a behaviour: its own if ``ma_config`` names it, else the common one.

        ``Name`` in ``ma_config`` stands for ``Name?team=0``, ``Name?team=1``, … as far as they are not named.
        """
        return self.behaviours.get(name) or self.behaviours.get(without_team(name), self.config)

    @property
    def seed(self) -> int:
        """The run's seed; every loaded configuration has one."""
        seed = self.config.sac_config.seed
        assert seed is not None, "the loader sets the seed"
        return seed

    @property
    def threads(self) -> int:
        """Number of torch's threads, once ``auto`` has been measured."""
        threads = self.config.sac_config.threads
        assert threads != "auto", "it has not been measured"
        return threads

    def is_set(self, dotted: str) -> bool:
        """Return whether a file, an override, a flag or a draw sets the key; else it has its default."""
        node: object = self.raw
        for key in dotted.split("."):
            if not isinstance(node, Mapping) or key not in node:
                return dotted in self.drawn
            node = node[key]
        return True

    def differences(self) -> dict[str, object]:
        """Return dotted path → value of all that is not the default, less the seed and what was decided."""
        found = {k: v for k, v in _differences(self.config, Config()) if k not in self.decided}
        for name, config in self.behaviours.items():
            found |= {f"ma_config.{name}.{k}": v for k, v in _differences(config, self.config)}
        return found


Overrides = Sequence[str] | Mapping[str, object]
"""Changes of a configuration: texts ``a.b=value`` of a command line, or dotted path → value of a program."""


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
    overrides: ``a.b=value`` each, the value spelt as in YAML; or a mapping. They win over the file.
    flags: dotted path → value of the command line's own flags. They win over ``overrides``.
    seed: wins over ``sac_config.seed``; without both a fresh one is drawn.
    defaults: dotted path → value where the file is silent, instead of the schema's own.
    require_runnable: also refuse what loads but cannot be run, since it names no environment

    Raises ConfigError with every fault.
    """
    problems: list[Problem] = []
    try:
        folder = find_env(env)
    except ConfigError as error:
        problems.extend(error.problems)
        folder = None
    source = find_section(folder, config, problems) if folder else None
    own = folder.defaults if folder else {}
    tree = _with_values(MappingNode(), {**own, **defaults}, "the defaults of this command")
    tree = merge(tree, layered(source, problems)) if source else tree
    tree = _with_values(tree, folder.given if folder else {}, "command line")
    tree, preset = under_preset(_overridden(tree, overrides, flags, problems))
    file = shown(source.file) if source and source.file else "command line"
    runnable = f"{file}, section {source.section}" if source and require_runnable else None
    result = _resolve(tree, seed, problems, runnable=runnable)
    given = _overridden(MappingNode(), overrides, {}, [])
    chosen = source.sections.children.get(source.section) if source else None
    # A section that another algorithm is tried with has been written for its own.
    written = [chosen] if isinstance(chosen, MappingNode) and find(given, ("algorithm",)) is None else []
    refuse_misplaced(*result[:2], [*written, given], problems)
    if problems or folder is None or source is None:
        raise ConfigError(problems)
    return LoadedConfig(
        folder.path,
        folder.label,
        source.file,
        source.section,
        *result[:2],
        _as_texts(overrides),
        *result[2:5],
        distributions=result[5],
        shipped=shipped_below(source),
        preset=preset,
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
    tree = as_section(read, path.name, problems) if read else MappingNode()
    tree = _overridden(tree, overrides, flags, problems)
    result = _resolve(tree, seed, problems, runnable=shown(path) if read and require_runnable else None)
    refuse_misplaced(*result[:2], [_overridden(MappingNode(), overrides, {}, [])], problems)
    if problems:
        raise ConfigError(problems)
    folder = env or EnvFolder(path.resolve().parent, path.resolve().parent.name)
    return LoadedConfig(
        folder.path,
        folder.label,
        path,
        "",
        *result[:2],
        _as_texts(overrides),
        *result[2:5],
        distributions=result[5],
    )


def plain_config(loaded: LoadedConfig) -> dict[str, Any]:
    """Return the configuration with every key, as text, numbers, lists and mappings."""
    values: dict[str, Any] = _lists(loaded.config.model_dump())
    values["ma_config"] = {
        name: _lists(config.model_dump(include=set(BEHAVIOUR_KEYS)))
        for name, config in loaded.behaviours.items()
    } or None
    return values


def dump_config(loaded: LoadedConfig) -> str:
    """Return the configuration with every key, as YAML that `load_config_file` reads back equal."""
    head = [f"# {loaded.env_label}: every key, resolved from {loaded.source}"]
    head += [f"# override: {text}" for text in loaded.overrides]
    head += [f"# drawn: {path} = {inline(value)}" for path, value in loaded.drawn.items()]
    return "\n".join([*(" ".join(line.split()) for line in head), write_yaml(plain_config(loaded))])


def overlaid(overrides: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """Return a command line's changes to a run's configuration, its flags among them, as overrides."""
    keys = {key: value for key, value in flags.items() if key != "base_config.name"}
    return [*overrides, *(f"{key}={inline(value)}" for key, value in keys.items())]


def parse_override(text: str) -> tuple[tuple[str, ...], object]:
    """Parse ``a.b=value`` as path and value; text stays text where the key holds text.

    Raises ValueError with a one-line reason.
    """
    dotted, equals, written = text.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(path):
        raise ValueError("it must be a dotted path, an equals sign and a value")
    field = field_at(path[2:] if path[0] == "ma_config" else path)
    if field is None or field.annotation not in (str, str | None):
        return path, parse_value(written)
    try:
        value = parse_value(written)
    except ValueError:
        return path, written
    nullable = field.annotation is not str
    return path, value if isinstance(value, str) or (value is None and nullable) else written


def _as_texts(overrides: Overrides) -> tuple[str, ...]:
    if isinstance(overrides, Mapping):
        return tuple(f"{key}={inline(value)}" for key, value in overrides.items())
    return tuple(overrides)


def _overridden(
    tree: MappingNode, overrides: Overrides, flags: Mapping[str, object], problems: list[Problem]
) -> MappingNode:
    if isinstance(overrides, Mapping):
        return _with_values(_with_values(tree, overrides, "overrides"), flags, "command line")
    for text in overrides:
        where = f"-o {text}"
        try:
            path, value = parse_override(text)
        except ValueError as error:
            fix = "write for example -o sac_config.learning_rate=1e-3"
            problems.append(Problem(f"cannot read the override `{text}`", where, str(error), fix))
        else:
            tree = merge(tree, from_value_at(path, value, where))
    return _with_values(tree, flags, "command line")


def _with_values(tree: MappingNode, values: Mapping[str, object], source: str) -> MappingNode:
    """Return the tree with dotted path → value over it."""
    for dotted, value in values.items():
        tree = merge(tree, from_value_at(tuple(dotted.split(".")), value, f"{source} ({dotted})"))
    return tree


_Resolved = tuple[
    Config,
    Mapping[str, Config],
    Mapping[str, Any],
    Mapping[str, object],
    Mapping[str, object],
    Mapping[str, Distribution],
]


def _resolve(
    tree: MappingNode, seed: int | None, problems: list[Problem], *, runnable: str | None
) -> _Resolved:
    """Return what `LoadedConfig` holds of a merged tree: from ``config`` to ``distributions``.

    runnable: as in `build`
    """
    raw = to_value(tree)
    parts = _behaviours(tree, problems)
    tree = _with_seed(tree.without("ma_config"), seed)
    run_seed = to_value(find(tree, _SEED) or ValueNode(None, ""))
    whole, for_memory = under_memory(tree, run_seed, "")
    common, drawn, distributions = draw(whole, run_seed, "", problems)
    config = build(common, problems, runnable=runnable)
    behaviours: dict[str, Config] = {}
    for name, part in parts.items():
        own = merge(_only(tree, BEHAVIOUR_KEYS), part)
        own = own if seed is None else _with_seed(own, seed)
        prefix = f"ma_config.{name}."
        own, own_for_memory = under_memory(own, run_seed, prefix)
        own, own_drawn, own_distributions = draw(own, run_seed, prefix, problems)
        of_the_run = common.without(*BEHAVIOUR_KEYS)
        behaviours[name] = build(merge(of_the_run, own), problems)
        drawn |= own_drawn
        distributions |= own_distributions
        for_memory |= {f"{prefix}{path}": value for path, value in own_for_memory.items()}
    return (
        config,
        MappingProxyType(behaviours),
        MappingProxyType(raw),
        MappingProxyType(drawn),
        MappingProxyType(for_memory),
        MappingProxyType(distributions),
    )


def _with_seed(tree: MappingNode, seed: int | None) -> MappingNode:
    """Set the seed to the given one, or to a fresh one where none is configured."""
    node = find(tree, _SEED)
    if seed is None and node is not None and to_value(node) is not None:
        return tree
    value = secrets.randbelow(_FRESH_SEEDS) if seed is None else seed
    if not isinstance(tree.children.get(_SEED[0], MappingNode()), MappingNode):
        return tree  # sac_config is no mapping; the check that follows says so
    return merge(tree, from_value_at(_SEED, value, "--seed"))


def _only(tree: MappingNode, keys: Sequence[str]) -> MappingNode:
    return MappingNode({k: v for k, v in tree.children.items() if k in keys}, tree.where)


def _behaviours(tree: MappingNode, problems: list[Problem]) -> dict[str, MappingNode]:
    """Return the parts of ``ma_config`` by behaviour, with only the keys that a behaviour may have."""
    node = tree.children.get("ma_config")
    if node is None or (isinstance(node, ValueNode) and node.value is None):
        return {}
    if isinstance(node, ValueNode):
        problems.append(_no_behaviours("ma_config", node))
        return {}
    parts: dict[str, MappingNode] = {}
    for name, part in node.children.items():
        if isinstance(part, ValueNode) and part.value is not None:
            problems.append(_no_behaviours(f"ma_config.{name}", part))
            continue
        section = as_section(part, name, problems)
        problems.extend(
            _of_the_run(f"ma_config.{name}.{key}", child.where)
            for key, child in section.children.items()
            if key not in BEHAVIOUR_KEYS
        )
        parts[name] = _only(section, BEHAVIOUR_KEYS)
    return parts


def _no_behaviours(path: str, node: ValueNode) -> Problem:
    return Problem(
        f"`{path}` is not a mapping",
        node.where,
        "ma_config maps the name of a behaviour to the blocks it has for itself",
        "write ma_config: {behaviour: {sac_config: {...}}}, or null",
    )


def _of_the_run(path: str, where: str) -> Problem:
    return Problem(
        f"`{path}` cannot be set for one behaviour",
        where,
        f"a behaviour may have {', '.join(BEHAVIOUR_KEYS)} for itself; all else belongs to the whole run",
        "remove it, or set it at the top level of the section",
    )


def _differences(config: Config, base: Config) -> Iterator[tuple[str, object]]:
    for path, _ in fields():
        value, other = value_at(config, path), value_at(base, path)
        if value != other and path != _SEED and not (path[1:] and misplaced(config.algorithm, *path[:2])):
            yield ".".join(path), value


def _lists(value: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return the value as plain YAML types: tuples become lists."""
    if isinstance(value, dict):
        return {key: _lists(child) for key, child in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
