"""Translation of a trainer configuration of ML-Agents into one of this project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from algorithm.config.errors import ConfigError, Problem, suggest
from algorithm.config.tree import KeyPath, Node, merge
from algorithm.config.yaml_io import inline, read_yaml
from algorithm.core.fields import to_whole
from algorithm.extras.mlagents.keys import NOTHING, TrainerKey, TrainerSettings
from algorithm.extras.mlagents.layout import KNOWN, TOP, TrainerFile, leaves, read_layout
from algorithm.extras.mlagents.parameters import cleaned
from algorithm.extras.mlagents.table import TRAINED_ALONE, TRAINERS
from algorithm.extras.mlagents.text import OurSection, OurValue, yaml_of
from algorithm.extras.mlagents.trainers import POCA

_ALWAYS = ("", "hyperparameters", "network_settings")


def translate(file: Path) -> str:
    """Return our configuration for a trainer configuration of ML-Agents, with a comment on each key.

    Raises ConfigError for another file, and for values that cannot be translated, with their lines.
    """
    problems: list[Problem] = []
    root = read_yaml(file, problems)
    if root is not None and not root.only(*KNOWN).children:
        problems.append(
            Problem(
                f"{file} is not a training configuration",
                str(file),
                f"it has none of the blocks {', '.join(KNOWN)}",
                "pass the file that mlagents-learn was started with; ML-Agents itself upgrades one from "
                "before 0.18: python -m mlagents.trainers.upgrade_config",
            )
        )
    if root is None or problems:
        raise ConfigError(problems)
    work = _Translator(file, read_layout(root))
    work.translate()
    if work.problems:
        raise ConfigError(work.problems)
    head = f"From {file.name} of ML-Agents; its keys are in the comments. ml-agents: no counterpart here."
    return yaml_of(work.section, head)


@dataclass
class _Translator:
    """Translator of one file into ``section``."""

    file: Path
    layout: TrainerFile
    problems: list[Problem] = field(default_factory=list)
    section: OurSection = field(default_factory=OurSection)

    def translate(self) -> None:
        """Fill the section, and collect faults in ``problems``."""
        if self.layout.behaviours:
            self._environment(list(self.layout.behaviours))
            self._behaviours()
        for key, node in self.layout.parameters.children.items():
            self.section.lines["environment_parameters", key] = OurValue(cleaned(node))

    def _environment(self, names: Sequence[str]) -> None:
        """Add the keys of the environment; names: of its behaviours."""
        name = names[0] if len(names) == 1 and names[0] else self.file.stem
        self.section.lines["base_config", "env_type"] = OurValue("UNITY")
        self.section.lines["base_config", "env_name"] = OurValue(name, "passed to the build as --scene")
        path = self.layout.run.find(("env_settings", "env_path"))
        if path is None or path.value is None:
            build = "base_config.unity_args.build_path; without a build train with --editor"
            self.section.comment("--env, env_settings.env_path", build)

    def _behaviours(self) -> None:
        """Add the keys of all behaviours, and those of the run."""
        behaviours = self.layout.behaviours
        common: dict[KeyPath, list[tuple[TrainerKey, OurValue]]] = {}
        for name, node in behaviours.items():
            prefix: KeyPath = () if len(behaviours) == 1 else ("ma_config", name)
            trainer = str(node.value_at("trainer_type") or "ppo")
            if trainer not in TRAINERS:
                what = f"`{name}` cannot be trained by `{trainer}`"
                fix = suggest(trainer, TRAINERS, "trainers")
                self.problems.append(Problem(what, node.where, "ML-Agents has no such trainer", fix))
                continue
            if trainer == POCA:
                self.section.comment(f"trainer_type: {trainer}", TRAINED_ALONE)
            settings = TrainerSettings(merge(self.layout.run, node), TRAINERS[trainer])
            self._comment_on_rest(name if prefix else "", trainer, settings)
            lines = {path: (key, line) for key, path, line in self._lines(trainer, settings)}
            for path, (key, line) in lines.items():
                if key.run is None:
                    self.section.lines[(*prefix, *path)] = line
                else:
                    common.setdefault(path, []).append((key, line))
        for path, of_all in common.items():
            self.section.lines[path] = _of_whole_run(of_all)

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
            except ValueError as error:
                what = f"wrong value `{key.theirs}: {inline(written)}`"
                where = node.where if node else str(self.file)
                self.problems.append(Problem(what, where, str(error), "correct it in that file"))
                continue
            if value is not NOTHING:
                for ours in key.ours:
                    yield key, tuple(ours.split(".")), OurValue(value, _remark(key, node, value))

    def _comment_on_rest(self, behaviour: str, trainer: str, settings: TrainerSettings) -> None:
        """Add comments on keys without a counterpart. behaviour: named in them, if there are several."""
        rows: dict[str, list[TrainerKey]] = {}
        for key in TRAINERS[trainer]:
            rows.setdefault(key.theirs, []).append(key)
        for theirs, node in leaves(settings.node):
            matches = rows.get(theirs, [])
            if any(key.ours for key in matches):
                continue
            why = matches[0].remark if matches else f"{trainer.upper()} has no such key"
            of_run = not behaviour or theirs.partition(".")[0] in TOP
            text = f"{inline(theirs)}: {inline(node.value)}"
            self.section.comment(text if of_run else f"{inline(behaviour)}.{text}", why)


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
    return OurValue(value, remark)
