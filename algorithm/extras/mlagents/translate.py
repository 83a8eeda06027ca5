"""Translation of a trainer configuration of ML-Agents into one of this project, which is checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algorithm.config.errors import ConfigError, Problem, suggest
from algorithm.config.resolve import validate
from algorithm.config.sections import misplaced_keys
from algorithm.config.tree import KeyPath, Node, merge
from algorithm.config.yaml_io import inline, read_yaml
from algorithm.core.fields import to_whole
from algorithm.extras.mlagents.keys import NOTHING, KeyValueError, TrainerKey, TrainerSettings
from algorithm.extras.mlagents.layout import KNOWN as AT_TOP
from algorithm.extras.mlagents.layout import TrainerFile, leaves, read_layout
from algorithm.extras.mlagents.parameters import cleaned
from algorithm.extras.mlagents.table import KNOWN, TRAINED_ALONE, TRAINERS, place_of
from algorithm.extras.mlagents.text import OurSection, OurValue, yaml_of
from algorithm.extras.mlagents.trainers import POCA

_ALWAYS = ("", "hyperparameters", "network_settings")
_BLOCKS = ("trainer_type", "hyperparameters", "network_settings", "reward_signals", "max_steps")
_PARAMETERS = "environment_parameters"


@dataclass(frozen=True)
class Translation:
    """Text of a translated file, and the number of keys that have a counterpart and that have none."""

    text: str
    translated: int
    untranslated: int


def translate(file: Path, folder: Path | None = None) -> Translation:
    """Translate a trainer configuration of ML-Agents.

    folder: of the result; paths of recordings become relative to it; None: the current one
    Raises ConfigError with every fault, each with its line in the file and ML-Agents' key.
    """
    problems: list[Problem] = []
    root = read_yaml(file, problems)
    if root is None:
        raise ConfigError(problems)
    if not root.only(*AT_TOP).children:
        problems.append(_no_trainer_file(file))
        raise ConfigError(problems)
    layout = read_layout(root)
    work = _Translator(file, folder, layout, problems)
    section = work.section()
    for name, node in layout.unknown.items():
        below = [f"{name}.{key}" for key in _BLOCKS]
        problems.append(_unknown(name, node, below if name.startswith("behaviors.") else AT_TOP))
    if not problems:
        _check(section, problems)
    if problems:
        raise ConfigError(problems)
    head = f"From {file.name} of ML-Agents; its keys are in the comments. ml-agents: no counterpart here."
    return Translation(yaml_of(section, head), len(work.translated), len(work.untranslated - work.translated))


def _no_trainer_file(file: Path) -> Problem:
    """Return the problem of a file without any of the blocks that ML-Agents has since 0.18."""
    return Problem(
        f"{file} is not a training configuration",
        str(file),
        f"it has none of the blocks {', '.join(AT_TOP)}",
        "pass the file that mlagents-learn was started with; ML-Agents itself upgrades one from before 0.18: "
        "python -m mlagents.trainers.upgrade_config",
    )


def _check(section: OurSection, problems: list[Problem]) -> None:
    """Validate a section as a task's; append its faults, with their places in ML-Agents' file."""
    tree = section.tree()
    valid = validate(tree, 0, problems, runnable=None)
    problems += misplaced_keys(valid.config, valid.behaviours, tree).values()


@dataclass
class _Translator:
    """Translator of one file.

    translated, untranslated: (place, key) of each key with, and without, a counterpart
    """

    file: Path
    folder: Path | None
    layout: TrainerFile
    problems: list[Problem]
    translated: set[tuple[str, str]] = field(default_factory=set)
    untranslated: set[tuple[str, str]] = field(default_factory=set)

    def section(self) -> OurSection:
        """Return the translated section, and collect faults in ``problems``."""
        section = OurSection()
        if self.layout.behaviours:
            self._environment(section, list(self.layout.behaviours))
            self._behaviours(section)
        for key, node in self.layout.parameters.children.items():
            value, left_out = cleaned(key, node)
            section.lines[_PARAMETERS, key] = OurValue(value, f"{node.where} ({_PARAMETERS})")
            for text, why in left_out:
                section.comment((_PARAMETERS,), text, why)
            self.translated.add((node.where, key))
        return section

    def _environment(self, section: OurSection, names: Sequence[str]) -> None:
        """Add the keys of the environment to a section; names: of its behaviours."""
        name = names[0] if len(names) == 1 and names[0] else self.file.stem
        section.lines["base_config", "env_type"] = OurValue("UNITY", str(self.file))
        section.lines["base_config", "env_name"] = OurValue(
            name, str(self.file), "passed to the build as --scene"
        )
        path = self.layout.run.find(("env_settings", "env_path"))
        if path is None or path.value is None:
            build = "base_config.unity_args.build_path; without a build train with --editor"
            section.comment(("base_config",), "--env, env_settings.env_path", build)

    def _behaviours(self, section: OurSection) -> None:
        """Add the keys of all behaviours, and those of the run, to a section."""
        behaviours = self.layout.behaviours
        common: dict[KeyPath, list[tuple[TrainerKey, OurValue]]] = {}
        for name, node in behaviours.items():
            prefix: KeyPath = () if len(behaviours) == 1 else ("ma_config", name)
            trainer = str(node.value_at("trainer_type") or "ppo")
            if trainer not in TRAINERS:
                self.problems.append(_unknown_trainer(name, trainer, node))
                continue
            if trainer == POCA:
                section.comment((*prefix, "ppo_config"), f"trainer_type: {trainer}", TRAINED_ALONE)
            settings = TrainerSettings(merge(self.layout.run, node), TRAINERS[trainer])
            self._comment_on_rest(section, prefix, trainer, settings)
            lines = {path: (key, line) for key, path, line in self._lines(trainer, settings)}
            for path, (key, line) in lines.items():
                if key.run is None:
                    section.lines[(*prefix, *path)] = line
                else:
                    common.setdefault(path, []).append((key, line))
        for path, of_all in common.items():
            section.lines[path] = _of_whole_run(of_all)

    def _lines(
        self, trainer: str, settings: TrainerSettings
    ) -> Iterator[tuple[TrainerKey, KeyPath, OurValue]]:
        """Yield (row, our path, value) of each key that a behaviour's settings or ML-Agents' defaults set."""
        for key in TRAINERS[trainer]:
            node = settings.find(key.theirs) if key.theirs else None
            if node is None and not _applies_by_default(key, settings):
                continue
            written = settings[key.theirs] if key.theirs else key.default
            try:
                value = key.to(written, settings)
            except (ValueError, ZeroDivisionError, OverflowError) as error:
                self._refuse(
                    error.theirs if isinstance(error, KeyValueError) else key.theirs, settings, error
                )
                continue
            if value is NOTHING:
                continue
            if "demonstrations.path" in key.ours:
                value = self._from_folder(value)
            for ours in key.ours:
                line = OurValue(value, self._where(key, node), _remark(key, node, value))
                yield key, tuple(ours.split(".")), line

    def _refuse(self, theirs: str, settings: TrainerSettings, error: Exception) -> None:
        """Append the problem of a wrong value, unless it is listed already."""
        node = settings.find(theirs)
        problem = _wrong(theirs, settings[theirs], node.where if node else str(self.file), error)
        if problem not in self.problems:
            self.problems.append(problem)

    def _where(self, key: TrainerKey, node: Node | None) -> str:
        """Return the place of a value in the file, or that it is ML-Agents' default."""
        if node is not None:
            return f"{node.where} ({key.theirs})"
        return f"{self.file.name} (ML-Agents' {f'default of {key.theirs}' if key.theirs else 'way'})"

    def _from_folder(self, value: object) -> object:
        """Return paths of recordings, relative to the folder of the result if they exist."""
        paths = [str(path) for path in (value if isinstance(value, list) else [value])]
        if self.folder is not None:
            paths = [os.path.relpath(path, self.folder) if Path(path).exists() else path for path in paths]
        return paths if isinstance(value, list) else paths[0]

    def _comment_on_rest(
        self, section: OurSection, prefix: KeyPath, trainer: str, settings: TrainerSettings
    ) -> None:
        """Add comments on keys without a counterpart, and faults of unknown keys."""
        rows: dict[str, list[TrainerKey]] = {}
        for key in TRAINERS[trainer]:
            rows.setdefault(key.theirs, []).append(key)
        for theirs, node in leaves(settings.node):
            matches, mark = rows.get(theirs), (node.where, theirs)
            is_block = any(known.startswith(f"{theirs}.") for known in KNOWN)
            if (matches is None and theirs not in KNOWN) or is_block:
                self.problems.append(_unknown(*_outermost(theirs, node, settings), _beside(theirs)))
            elif matches and any(key.ours for key in matches):
                self.translated.add(mark)
            else:
                why = matches[0].remark if matches else f"{trainer.upper()} has no such key"
                place = place_of(theirs, trainer)
                of_run = not prefix or theirs.partition(".")[0] in AT_TOP
                inside = prefix if place == "base_config" else (*prefix, place)
                block: KeyPath = (place,) if of_run else inside
                section.comment(block, f"{theirs}: {inline(node.value)}", why)
                self.untranslated.add(mark)


def _applies_by_default(key: TrainerKey, settings: TrainerSettings) -> bool:
    """Return whether a row applies to a file without its key: by its default, if the file has the block."""
    if not key.theirs:
        return True
    block = key.theirs.rpartition(".")[0]
    return key.default is not None and (block in _ALWAYS or settings.find(block) is not None)


def _remark(key: TrainerKey, node: Node | None, value: object) -> str:
    """Return the comment behind a value: ML-Agents' key, its value there if it differs, and a remark."""
    if not key.theirs:
        return f"{key.remark}, fixed there" if key.remark == "as in ML-Agents" else key.remark
    named, more = key.theirs, key.means if value else ""
    if node is None:
        named += ", its default"
    elif node.is_mapping:
        more = key.remark
    elif to_whole(node.value) != value:
        named, more = f"{named}: {inline(node.value)}", key.remark or more
    return f"{named} — {more}" if more else named


def _of_whole_run(of_all: Sequence[tuple[TrainerKey, OurValue]]) -> OurValue:
    """Return the value of the whole run for a key, from those of all behaviours."""
    (key, line), *others = of_all
    assert key.run is not None, "a row of the run"
    value = key.run.reduce([other.value for _, other in of_all])
    remark = f"{key.theirs}, {key.run.words}" if others and key.run.words else line.remark
    return OurValue(value, line.where, remark)


def _unknown_trainer(name: str, trainer: str, node: Node) -> Problem:
    """Return the problem of a trainer that is not translated."""
    place = node.find(("trainer_type",)) or node
    return Problem(
        f"`{name}` cannot be trained by `{trainer}`",
        place.where,
        "ML-Agents has no such trainer",
        suggest(trainer, TRAINERS, "trainers"),
    )


def _wrong(theirs: str, value: Any, where: str, error: Exception) -> Problem:  # noqa: ANN401 - as written
    """Return the problem of a key with a wrong value."""
    why = f"it must be {error}" if isinstance(error, ValueError) else str(error)
    return Problem(f"wrong value `{theirs}: {inline(value)}`", where, why, "correct it in that file")


def _beside(theirs: str) -> list[str]:
    """Return the known keys of the same place: of a behaviour, or of the run's settings."""
    at_top = theirs.partition(".")[0] in AT_TOP
    return [known for known in KNOWN if (known.partition(".")[0] in AT_TOP) == at_top]


def _outermost(theirs: str, node: Node, settings: TrainerSettings) -> tuple[str, Node]:
    """Return the outermost unknown block of an unknown key, and its node."""
    names = theirs.split(".")
    for end in range(1, len(names)):
        block = ".".join(names[:end])
        if not any(known == block or known.startswith(f"{block}.") for known in KNOWN):
            return block, settings.find(block) or node
    return theirs, node


def _unknown(theirs: str, node: Node, known: Sequence[str]) -> Problem:
    """Return the fault of a key that no release has, or of a block that has a value instead of keys.

    known: the keys that are possible in its place
    """
    inside = _below(f"{theirs}.", known)
    if inside:
        fix = f"write its keys indented below it: {', '.join(inside)}"
        return Problem(f"`{theirs}` has no keys", node.where, "it is a block of keys, not a value", fix)
    block, dot, name = theirs.rpartition(".")
    why = "no release of ML-Agents since 0.18 has it, and a misspelt key would be silently ignored"
    return Problem(
        f"unknown key `{theirs}`", node.where, why, suggest(name, _below(block + dot, known), "known keys")
    )


def _below(block: str, known: Sequence[str]) -> list[str]:
    """Return the names directly below a block ("network_settings."); for "" those at the top."""
    return list(
        dict.fromkeys(key.removeprefix(block).partition(".")[0] for key in known if key.startswith(block))
    )
