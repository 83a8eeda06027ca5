"""A trainer configuration of ML-Agents as one of ours, which loads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algorithm.config.errors import ConfigError, Problem, suggest
from algorithm.config.resolve import validate
from algorithm.config.sections import misplaced_keys
from algorithm.config.tree import KeyPath, Node, merge, to_value
from algorithm.config.yaml_io import inline, read_yaml
from algorithm.core.fields import to_whole
from algorithm.extras.mlagents.keys import NOTHING, Given, KeyValueError, TrainerKey
from algorithm.extras.mlagents.layout import KNOWN as AT_TOP
from algorithm.extras.mlagents.layout import TrainerFile, leaves, read_layout
from algorithm.extras.mlagents.parameters import cleaned
from algorithm.extras.mlagents.table import KNOWN, REFUSED, TRAINED_ALONE, TRAINERS, place_of
from algorithm.extras.mlagents.text import OurSection, OurValue, yaml_of
from algorithm.extras.mlagents.trainers import OF_TEAMS

_ALWAYS = ("", "hyperparameters", "network_settings")
_BLOCKS = ("trainer_type", "hyperparameters", "network_settings", "reward_signals", "max_steps")
_PARAMETERS = "environment_parameters"


@dataclass(frozen=True)
class Translation:
    """Sections of ours as text, and how many keys of the file have an equal and how many are told."""

    text: str
    taken: int
    told: int


def translate(file: Path, folder: Path | None = None) -> Translation:
    """Translate a trainer configuration of ML-Agents.

    folder: where the result will stand, which recordings are looked for from; None: the current one
    Raises ConfigError with every fault, each with the line of the file and ML-Agents' key.
    """
    problems: list[Problem] = []
    root = read_yaml(file, problems)
    if root is None:
        raise ConfigError(problems)
    twice, problems = problems, []
    layout = read_layout(root)
    work = _Translator(file, folder, layout, problems)
    sections = [work.section(name, own) for name, own in layout.sections.items()]
    for name, node in layout.unknown.items():
        below = [f"{name}.{key}" for key in _BLOCKS]
        problems.append(_unknown(name, node, below if name.startswith("behaviors.") else AT_TOP))
    if not (problems or layout.parameters or any(map(_said, layout.sections.values()))):
        problems.append(_nothing_in(file))
    for section in sections if not problems else ():
        _check(section, problems)
    if problems:
        raise ConfigError(problems)
    head = [f"From {file.name} of ML-Agents; its keys are in the comments. ml-agents: no counterpart here."]
    if len(sections) > 1:
        head.append(
            "Each behaviour is a section, -c NAME; those of one scene belong together, below ma_config."
        )
    head += [f"{one.what}, {one.where}: the last one counts, as in ML-Agents." for one in twice]
    return Translation(yaml_of(sections, head), len(work.taken), len(work.told - work.taken))


def _nothing_in(file: Path) -> Problem:
    why, fix = (
        "it has neither behaviours nor parameters",
        "pass the file that mlagents-learn was started with",
    )
    return Problem(f"{file} is not a training configuration", str(file), why, fix)


def _check(section: OurSection, problems: list[Problem]) -> None:
    """Load a section as a task's; faults carry the places of ML-Agents' file."""
    tree = section.tree()
    valid = validate(tree, 0, problems, runnable=None)
    problems += misplaced_keys(valid.config, valid.behaviours, tree).values()


@dataclass
class _Translator:
    """The translation of one file, and which of its keys have been taken and told, with their places."""

    file: Path
    folder: Path | None
    layout: TrainerFile
    problems: list[Problem]
    taken: set[tuple[str, str]] = field(default_factory=set)
    told: set[tuple[str, str]] = field(default_factory=set)

    def section(self, name: str, behaviours: Mapping[str, Node]) -> OurSection:
        """Translate what becomes one section."""
        section = OurSection(name)
        if behaviours:
            self._environment(section, list(behaviours))
            self._behaviours(section, behaviours)
        for key, node, why in self.layout.unused.get(name, ()):
            section.tell(("base_config",) if behaviours else (), f"{key}: {inline(to_value(node))}", why)
            self.told.add((node.where, key))
        for key, node in self.layout.parameters.children.items() if self.layout.parameters else ():
            value, told = cleaned(key, node)
            section.lines[_PARAMETERS, key] = OurValue(value, f"{node.where} ({_PARAMETERS})")
            if len(behaviours) > 1 and "'measure': 'progress'" in str(value):
                told.append(
                    (f"{key}: measure: progress", "counted in steps of the run, summed over behaviours")
                )
            for text, why in told:
                section.tell((_PARAMETERS,), text, why)
            self.taken.add((node.where, key))
        return section

    def _environment(self, section: OurSection, names: Sequence[str]) -> None:
        name = names[0] if len(names) == 1 and names[0] else self.file.stem
        section.lines["base_config", "env_type"] = OurValue("UNITY", str(self.file))
        section.lines["base_config", "env_name"] = OurValue(
            name, str(self.file), "passed to the build as --scene"
        )
        path = self.layout.run.find(("env_settings", "env_path"))
        if path is None or path.value is None:
            build = "base_config.unity_args.build_path; without a build train with --editor"
            section.tell(("base_config",), "--env, env_settings.env_path", build)

    def _behaviours(self, section: OurSection, behaviours: Mapping[str, Node]) -> None:
        common: dict[KeyPath, list[tuple[TrainerKey, OurValue]]] = {}
        for name, node in behaviours.items():
            prefix: KeyPath = () if len(behaviours) == 1 else ("ma_config", name)
            trainer = str(node.value_at("trainer_type") or "ppo")
            if trainer not in TRAINERS:
                self.problems.append(_no_trainer(name, trainer, node))
                continue
            if trainer in OF_TEAMS:
                section.tell((*prefix, "ppo_config"), f"trainer_type: {trainer}", TRAINED_ALONE)
            given = Given(merge(self.layout.run, node), TRAINERS[trainer])
            self._tell(section, prefix, trainer, given)
            own = {path: (key, line) for key, path, line in self._lines(trainer, given)}
            for path, (key, line) in own.items():
                if key.run is None:
                    section.lines[(*prefix, *path)] = line
                else:
                    common.setdefault(path, []).append((key, line))
        for path, found in common.items():
            section.lines[path] = _common(found)

    def _lines(self, trainer: str, given: Given) -> Iterator[tuple[TrainerKey, KeyPath, OurValue]]:
        """Yield what the rows of a trainer make of a behaviour."""
        for key in TRAINERS[trainer]:
            node = given.find(key.theirs) if key.theirs else None
            if node is None and not _silent(key, given):
                continue
            written = given[key.theirs] if key.theirs else key.default
            try:
                value = key.to(written, given)
            except (ValueError, ZeroDivisionError, OverflowError) as error:
                self._refuse(error.theirs if isinstance(error, KeyValueError) else key.theirs, given, error)
                continue
            if value is NOTHING:
                continue
            if "demonstrations.path" in key.ours:
                value = self._from_folder(value)
            for ours in key.ours:
                line = OurValue(value, self._where(key, node), _remark(key, node, value))
                yield key, tuple(ours.split(".")), line

    def _refuse(self, theirs: str, given: Given, error: Exception) -> None:
        node = given.find(theirs)
        problem = _wrong(theirs, given[theirs], node.where if node else str(self.file), error)
        if problem not in self.problems:
            self.problems.append(problem)

    def _where(self, key: TrainerKey, node: Node | None) -> str:
        if node is not None:
            return f"{node.where} ({key.theirs})"
        return f"{self.file.name} (ML-Agents' {f'default of {key.theirs}' if key.theirs else 'way'})"

    def _from_folder(self, value: object) -> object:
        """Return recordings as seen from the folder of the result, those that are there."""
        paths = [str(path) for path in (value if isinstance(value, list) else [value])]
        if self.folder is not None:
            paths = [os.path.relpath(path, self.folder) if Path(path).exists() else path for path in paths]
        return paths if isinstance(value, list) else paths[0]

    def _tell(self, section: OurSection, prefix: KeyPath, trainer: str, given: Given) -> None:
        """Tell the keys without an equal, and refuse those that nobody knows."""
        rows: dict[str, list[TrainerKey]] = {}
        for key in TRAINERS[trainer]:
            rows.setdefault(key.theirs, []).append(key)
        for theirs, node in leaves(given.node):
            found, mark = rows.get(theirs), (node.where, theirs)
            is_block = any(one.startswith(f"{theirs}.") for one in KNOWN)
            if (found is None and theirs not in KNOWN) or is_block:
                self.problems.append(_unknown(*_outermost(theirs, node, given), _beside(theirs)))
            elif found and any(key.ours for key in found):
                self.taken.add(mark)
            else:
                why = found[0].says if found else f"{trainer.upper()} has no such key"
                place = place_of(theirs, trainer)
                of_run = not prefix or theirs.partition(".")[0] in AT_TOP
                inside = prefix if place == "base_config" else (*prefix, place)
                block: KeyPath = (place,) if of_run else inside
                section.tell(block, f"{theirs}: {inline(node.value)}", why)
                self.told.add(mark)


def _said(behaviours: Mapping[str, Node]) -> bool:
    return any(node.children for node in behaviours.values())


def _silent(key: TrainerKey, given: Given) -> bool:
    """Return whether a row counts though the file is silent: its default, where the block is there."""
    if not key.theirs:
        return True
    block = key.theirs.rpartition(".")[0]
    return key.default is not None and (block in _ALWAYS or given.find(block) is not None)


def _remark(key: TrainerKey, node: Node | None, value: object) -> str:
    """Return what stands behind a value: the key of ML-Agents, its value if it is another one, and more."""
    if not key.theirs:
        return f"{key.says}, fixed there" if key.says == "as in ML-Agents" else key.says
    named, more = key.theirs, key.means if value else ""
    if node is None:
        named += ", its default"
    elif node.is_mapping:
        more = key.says
    elif to_whole(node.value) != value:
        named, more = f"{named}: {inline(node.value)}", key.says or more
    return f"{named} — {more}" if more else named


def _common(found: Sequence[tuple[TrainerKey, OurValue]]) -> OurValue:
    """Return the line of the whole run from those of all behaviours."""
    (key, line), *others = found
    assert key.run is not None, "a row of the run"
    value = key.run.of([one.value for _, one in found])
    remark = f"{key.theirs}, {key.run.words}" if others and key.run.words else line.remark
    return OurValue(value, line.where, remark)


def _no_trainer(name: str, trainer: str, node: Node) -> Problem:
    found = node.find(("trainer_type",)) or node
    why, fix = REFUSED.get(trainer, ("ML-Agents has no such trainer", suggest(trainer, TRAINERS, "trainers")))
    return Problem(f"`{name}` cannot be trained by `{trainer}`", found.where, why, fix)


def _wrong(theirs: str, value: Any, where: str, error: Exception) -> Problem:  # noqa: ANN401 - as written
    why = f"it must be {error}" if isinstance(error, ValueError) else str(error)
    return Problem(f"wrong value `{theirs}: {inline(value)}`", where, why, "correct it in that file")


def _beside(theirs: str) -> list[str]:
    """Return the known keys of a behaviour, or of a run's settings."""
    at_top = theirs.partition(".")[0] in AT_TOP
    return [one for one in KNOWN if (one.partition(".")[0] in AT_TOP) == at_top]


def _outermost(theirs: str, node: Node, given: Given) -> tuple[str, Node]:
    """Return the first name of an unknown key below which nothing is known, and its node."""
    parts = theirs.split(".")
    for end in range(1, len(parts)):
        block = ".".join(parts[:end])
        if not any(one == block or one.startswith(f"{block}.") for one in KNOWN):
            return block, given.find(block) or node
    return theirs, node


def _unknown(theirs: str, node: Node, known: Sequence[str]) -> Problem:
    """Return the fault of a key that no release has, with those beside it; or of a block that is a value."""
    inside = _below(f"{theirs}.", known)
    if inside:
        fix = f"write its keys indented below it: {', '.join(inside)}"
        return Problem(f"`{theirs}` has no keys", node.where, "it is a block of keys, not a value", fix)
    block, dot, name = theirs.rpartition(".")
    why = "no release of ML-Agents since 0.12 has it, and a misspelt key would be silently ignored"
    return Problem(
        f"unknown key `{theirs}`", node.where, why, suggest(name, _below(block + dot, known), "known keys")
    )


def _below(block: str, known: Sequence[str]) -> list[str]:
    """Return the names right below a block, which ends with a dot; of the empty one those at the top."""
    return list(
        dict.fromkeys(one.removeprefix(block).partition(".")[0] for one in known if one.startswith(block))
    )
