"""Sections of a task's file and of ``algorithm/sections.yaml``: the choice of ``--config``, and its layers.

The shipped ones can be inherited by every task; one of them lies below a memory, others are presets, or lie
below a task by what its spaces are (`algorithm.config.by_spaces`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from algorithm.agents.registry import misplaced
from algorithm.config.errors import Problem, suggest
from algorithm.config.locate import CONFIG_FILE, EnvFolder
from algorithm.config.random_params import RANDOM, draw
from algorithm.config.schema import MERGE_KEYS, Config, field_at
from algorithm.config.tree import Node, merge
from algorithm.config.yaml_io import read_yaml, shown
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.fields import block_of

FILE = Path(__file__).resolve().parents[1] / "sections.yaml"
DEFAULT_SECTION = "default"
SEED = "seed"
"""Name of the section with the project's original values."""

RAW = "raw"
"""Name of the section for unscaled rewards and observations."""

MEMORY = "memory"
"""Name of the section below all others where there is a seq_encoder."""

_ENCODER = "seq_encoder"


@dataclass(frozen=True)
class Choice:
    """The chosen section, its file, and all sections of the file.

    file: None for an environment without a folder, of which no file was chosen
    """

    file: Path | None
    section: str
    sections: Node

    @property
    def place(self) -> str:
        """The section and its file, for messages."""
        return f"{shown(self.file) if self.file else 'command line'}, section {self.section}"


class PresetLayer(NamedTuple):
    """A shipped section as a layer below a configuration: a preset, or a section by the spaces.

    behaviours: behaviours with this configuration; none for a preset, which is for all
    taken:      values of the section that apply, by dotted path
    overridden: paths of its values that the task sets itself
    why_not:    reason why it is left out as a whole; empty if it applies
    """

    behaviours: tuple[str, ...]
    name: str
    taken: dict[str, object]
    overridden: tuple[str, ...]
    why_not: str = ""


@cache
def shipped() -> Node:
    """Return the shipped sections, by name."""
    problems: list[Problem] = []
    read = read_yaml(FILE, problems)
    assert read is not None and not problems, problems
    return read


def text_of(section: str) -> str:
    """Return the text of a shipped section in the file, with its comments."""
    match = re.search(rf"^{section}:\n(?: +.*\n)+", FILE.read_text("utf-8"), re.MULTILINE)
    assert match, f"there is no section {section}"
    return match[0]


def read_sections(file: Path, problems: list[Problem]) -> Node | None:
    """Read the sections of a file by name; a file of plain keys is one section, ``default``."""
    read = read_yaml(file, problems)
    if read and read.value and read.value.keys() <= {*Config.model_fields, *MERGE_KEYS}:
        return Node({DEFAULT_SECTION: read}, read.where)
    return read


def choose(folder: EnvFolder, config: str | None, problems: list[Problem]) -> Choice | None:
    """Find the choice of ``--config``: a section of config.yaml, a file of the folder, or ``FILE:SECTION``.

    If none of these exists, a section that ships with the framework is chosen. An environment without a
    folder has no sections of its own. Return None if nothing could be read.
    """
    main_file = folder.path / CONFIG_FILE if folder.env_name is None else None
    main = read_sections(main_file, problems) if main_file else Node({DEFAULT_SECTION: Node({})})
    if main is None:
        return None
    if config is None or config in main.children:
        return _checked(Choice(main_file, config or DEFAULT_SECTION, main), problems)
    name, colon, section = config.rpartition(":")
    file = _file(folder.path, name if colon else config)
    if file is not None:
        read = read_sections(file, problems)
        section = section if colon else DEFAULT_SECTION
        return _checked(Choice(file, section, read), problems) if read else None
    if config not in shipped().children:
        problems.append(_no_config(config, folder, main))
        return None
    return Choice(main_file, config, main)


def layered(choice: Choice, problems: list[Problem]) -> tuple[Node, tuple[str, ...]]:
    """Merge the file's ``default`` section, what the chosen one inherits, the chosen one, in this order.

    Return the tree, and the names of the shipped sections among them.
    """
    own_sections = choice.sections.children
    sections = {**shipped().children, **own_sections}
    names = [DEFAULT_SECTION] if DEFAULT_SECTION in own_sections else []
    names = [
        each
        for name in dict.fromkeys((*names, choice.section))
        for each in _ancestry(sections, name, (), problems)
    ]
    tree = Node({}, shown(choice.file) if choice.file else "the defaults")
    for name in names:
        tree = merge(tree, as_section(sections[name], name, problems).without("inherited"))
    return tree, tuple(name for name in dict.fromkeys(names) if name not in own_sections)


def misplaced_keys(config: Config, behaviours: Mapping[str, Config], tree: Node) -> dict[str, Problem]:
    """Return the keys that belong to other algorithms than the chosen one: dotted path → fault.

    tree: keys set for this run, by the chosen section or overrides, without inherited ones
    """
    faults = dict(_misplaced(config.algorithm, tree, ""))
    for name, behaviour_config in behaviours.items():
        part = tree.find(("ma_config", name))
        faults |= _misplaced(behaviour_config.algorithm, part, f"ma_config.{name}.") if part else {}
    return faults


def _misplaced(algorithm: str, tree: Node, prefix: str) -> Iterator[tuple[str, Problem]]:
    """Yield path, with a prefix, and fault of each key that the algorithm does not have."""
    for block, inner in tree.children.items():
        nodes = dict(inner.children)
        if block == "nn_config":
            nodes |= {
                f"{key}.{name}": below
                for key, node in inner.children.items()
                for name, below in node.children.items()
            }
        for key, node in nodes.items():
            is_known = block == "nn_config" or field_at((block, key))  # others have been reported as unknown
            reason_and_fix = misplaced(algorithm, block, key) if is_known else None
            if reason_and_fix is not None:
                path = f"{prefix}{block}.{key}"
                yield path, Problem(f"`{path}` has no effect", node.where, *reason_and_fix)


def as_section(node: Node, name: str, problems: list[Problem]) -> Node:
    """Return a section as a mapping; one without content, and blocks without content, count as empty."""
    if not node.is_mapping and node.value is not None:
        why = "a section holds blocks such as base_config and sac_config"
        fix = "write the blocks indented below the section's name"
        problems.append(Problem(f"section `{name}` is not a mapping", node.where, why, fix))
    return Node({key: _filled(key, child) for key, child in node.children.items()}, node.where)


def _filled(key: str, node: Node) -> Node:
    """Return an empty mapping for a block that is null because all its lines are comments."""
    field = Config.model_fields.get(key)
    is_empty = node.value is None and field is not None and block_of(field) is not None
    return Node({}, node.where) if is_empty else node


def lay_memory(tree: Node, seed: object, prefix: str) -> tuple[Node, dict[str, object]]:
    """Lay the section ``memory`` below a tree that chooses a ``seq_encoder``.

    seed, prefix: for the draws of :func:`.draw`, since the seq_encoder may be drawn
    Return the tree, and dotted path → value of the keys that the section sets.
    """
    params = (tree.find((COMMON_BLOCK, RANDOM)) or Node({})).children
    encoder = tree.value_at(COMMON_BLOCK, _ENCODER)
    if _ENCODER in params:  # the faults of a draw are reported with all others
        alone = Node({**tree.children[COMMON_BLOCK].children, RANDOM: Node({_ENCODER: params[_ENCODER]})})
        encoder = draw(Node({COMMON_BLOCK: alone}), seed, prefix, [])[0].value_at(COMMON_BLOCK, _ENCODER)
    if encoder is None:
        return tree, {}
    tree, memory = _lay_shipped(MEMORY, tree)
    drawn = {f"{COMMON_BLOCK}.{key}" for key in params}
    return tree, {prefix + path: value for path, value in memory.taken.items() if path not in drawn}


def lay_preset(tree: Node) -> tuple[Node, PresetLayer | None]:
    """Lay the section that ``base_config.preset`` names below a tree; return both.

    No layer for a preset that is not a section; a wrong name is refused later.
    """
    name = tree.value_at("base_config", "preset")
    if not isinstance(name, str) or name in (SEED, RAW, MEMORY) or name not in shipped().children:
        return tree, None
    return _lay_shipped(name, tree)


def _lay_shipped(name: str, tree: Node) -> tuple[Node, PresetLayer]:
    """Lay a shipped section below a tree; return the tree and the layer."""
    below = shipped().children[name]
    values = {".".join(path): leaf.value for path, leaf in below.leaves()}
    kept = tuple(".".join(path) for path, _ in below.leaves() if tree.find(path) is not None)
    taken = {path: value for path, value in values.items() if path not in kept}
    return merge(below, tree), PresetLayer((), name, taken, kept)


def _ancestry(
    sections: dict[str, Node], name: str, trail: tuple[str, ...], problems: list[Problem]
) -> Iterator[str]:
    """Yield the names of all sections that a section inherits, then its own."""
    inherited = sections[name].find(("inherited",)) or Node(None)
    for parent in _parents(inherited, problems):
        if parent in (*trail, name):
            why = " → ".join((*trail, name, parent))
            fix = f"remove `{parent}` from what `{name}` inherits, or the other way round"
            problems.append(Problem("`inherited` is circular", inherited.where, why, fix))
        elif parent not in sections:
            known = [section for section in sections if section != name]
            why = f"`{name}` inherits it, and the file has no such section"
            fix = suggest(parent, known, "other sections")
            problems.append(Problem(f"unknown section `{parent}`", inherited.where, why, fix))
        else:
            yield from _ancestry(sections, parent, (*trail, name), problems)
    yield name


def _parents(node: Node, problems: list[Problem]) -> list[str]:
    """Return the names of the sections that a section inherits directly."""
    names = [node.value] if isinstance(node.value, str) else [] if node.value is None else node.value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    why = "it must be the name of a section, or a list of names"
    fix = "write `inherited: name` or `inherited: [first, second]`"
    problems.append(Problem("`inherited` names no sections", node.where, why, fix))
    return []


def _checked(choice: Choice, problems: list[Problem]) -> Choice | None:
    """Return the choice; None if its file has no such section."""
    names = list(choice.sections.children)
    section = choice.sections.children.get(choice.section)
    if section is not None:
        return choice
    name = shown(choice.file) if choice.file else ""
    why, fix = f"{name} has no section of that name", suggest(choice.section, names, "sections")
    if Config.model_fields.keys() & names:
        why = f"{name} has blocks at its top level, beside sections"
        fix = f"write `{DEFAULT_SECTION}:` above everything and indent the rest below it"
    problems.append(Problem(f"unknown section `{choice.section}`", name, why, fix))
    return None


def _file(folder: Path, name: str) -> Path | None:
    """Return a file of the folder by its name, with or without ``.yaml``; None if there is none."""
    return next((f for f in (folder / name, folder / f"{name}.yaml") if name and f.is_file()), None)


def _no_config(config: str, folder: EnvFolder, main: Node) -> Problem:
    """Return the fault of a ``--config`` that is neither a section nor a file."""
    near = suggest(config, shipped().children, "sections for every task")
    if folder.env_name is None:
        files = sorted(f.name for f in folder.path.glob("*.yaml"))
        why = f"{shown(folder.path / CONFIG_FILE)} has no such section, and its folder no such file"
        fix = f"{suggest(config, main.children, 'sections')}; files: {', '.join(files)}; {near}"
    else:
        why = (
            f"{folder.env_name} has no folder with sections: -c names a YAML file, and there is no such file"
        )
        fix = f"give the path of a file, or FILE:SECTION; or leave out -c and set single keys with -o; {near}"
    return Problem(f"unknown configuration `{config}`", f"config {config}", why, fix)
