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
    """The chosen section and its file, with all sections of that.

    file: None for an environment without a folder, of which no file was chosen
    """

    file: Path | None
    section: str
    sections: Node

    @property
    def place(self) -> str:
        """The section and its file, for a person."""
        return f"{shown(self.file) if self.file else 'command line'}, section {self.section}"


class PresetLayer(NamedTuple):
    """A shipped section below one configuration: a preset, or one by the spaces.

    behaviours: that have this configuration; none of a preset, which is for all
    taken:      its values by dotted path; overridden: paths that the task decides itself
    why_not:    why it is left out as a whole; empty where it lies there
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
    """Return a shipped section as it stands in the file, with its comments."""
    found = re.search(rf"^{section}:\n(?: +.*\n)+", FILE.read_text("utf-8"), re.MULTILINE)
    assert found, f"there is no section {section}"
    return found[0]


def read_sections(file: Path, problems: list[Problem]) -> Node | None:
    """Read the sections of a file by name; one that holds keys of a section alone is a default section."""
    read = read_yaml(file, problems)
    if read and read.value and read.value.keys() <= {*Config.model_fields, *MERGE_KEYS}:
        return Node({DEFAULT_SECTION: read}, read.where)
    return read


def choose(folder: EnvFolder, config: str | None, problems: list[Problem]) -> Choice | None:
    """Find the choice of ``--config``: a section of config.yaml, a file of the folder, or ``FILE:SECTION``.

    Where nothing has the name a section that ships with the framework may. An environment without a folder
    has no sections of its own. None where nothing could be read.
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

    Returns the tree, and the names of the shipped sections among them.
    """
    own = choice.sections.children
    sections = {**shipped().children, **own}
    names = [DEFAULT_SECTION] if DEFAULT_SECTION in own else []
    names = [
        each
        for name in dict.fromkeys((*names, choice.section))
        for each in _ancestry(sections, name, (), problems)
    ]
    tree = Node({}, shown(choice.file) if choice.file else "the defaults")
    for name in names:
        tree = merge(tree, as_section(sections[name], name, problems).without("inherited"))
    return tree, tuple(name for name in dict.fromkeys(names) if name not in own)


def foreign(config: Config, behaviours: Mapping[str, Config], tree: Node) -> dict[str, Problem]:
    """Return the keys of other families than the chosen one: dotted path → what is wrong with it.

    tree: what was set for this run: the chosen section or overrides, not what they inherit
    """
    found = dict(_misplaced(config.algorithm, tree, ""))
    for name, own in behaviours.items():
        part = tree.find(("ma_config", name))
        found |= _misplaced(own.algorithm, part, f"ma_config.{name}.") if part else {}
    return found


def _misplaced(algorithm: str, tree: Node, prefix: str) -> Iterator[tuple[str, Problem]]:
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
            found = misplaced(algorithm, block, key) if is_known else None
            if found is not None:
                path = f"{prefix}{block}.{key}"
                yield path, Problem(f"`{path}` has no effect", node.where, *found)


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


def under_memory(tree: Node, seed: object, prefix: str) -> tuple[Node, dict[str, object]]:
    """Lay the section ``memory`` below the tree, if that chooses a ``seq_encoder``.

    seed, prefix: of the draws, for the seq_encoder may be drawn
    Returns the tree, and dotted path → value of the keys that nothing else had set.
    """
    params = (tree.find((COMMON_BLOCK, RANDOM)) or Node({})).children
    encoder = tree.value_at(COMMON_BLOCK, _ENCODER)
    if _ENCODER in params:  # the faults of a draw are reported with all others
        alone = Node({**tree.children[COMMON_BLOCK].children, RANDOM: Node({_ENCODER: params[_ENCODER]})})
        encoder = draw(Node({COMMON_BLOCK: alone}), seed, prefix, [])[0].value_at(COMMON_BLOCK, _ENCODER)
    if encoder is None:
        return tree, {}
    tree, memory = _above(MEMORY, tree)
    drawn = {f"{COMMON_BLOCK}.{key}" for key in params}
    return tree, {prefix + path: value for path, value in memory.taken.items() if path not in drawn}


def under_preset(tree: Node) -> tuple[Node, PresetLayer | None]:
    """Lay the section that ``base_config.preset`` names below the tree; a wrong name is refused later."""
    name = tree.value_at("base_config", "preset")
    if not isinstance(name, str) or name in (SEED, RAW, MEMORY) or name not in shipped().children:
        return tree, None
    return _above(name, tree)


def _above(name: str, tree: Node) -> tuple[Node, PresetLayer]:
    """Return the tree above a shipped section, and what that sets."""
    below = shipped().children[name]
    values = {".".join(path): leaf.value for path, leaf in below.leaves()}
    kept = tuple(".".join(path) for path, _ in below.leaves() if tree.find(path) is not None)
    taken = {path: value for path, value in values.items() if path not in kept}
    return merge(below, tree), PresetLayer((), name, taken, kept)


def _ancestry(
    sections: dict[str, Node], name: str, trail: tuple[str, ...], problems: list[Problem]
) -> Iterator[str]:
    """Yield all that a section inherits, and the section."""
    inherited = sections[name].find(("inherited",)) or Node(None)
    for parent in _parents(inherited, problems):
        if parent in (*trail, name):
            problems.append(_cycle((*trail, name, parent), inherited.where))
        elif parent not in sections:
            known = [section for section in sections if section != name]
            why = f"`{name}` inherits it, and the file has no such section"
            fix = suggest(parent, known, "other sections")
            problems.append(Problem(f"unknown section `{parent}`", inherited.where, why, fix))
        else:
            yield from _ancestry(sections, parent, (*trail, name), problems)
    yield name


def _parents(node: Node, problems: list[Problem]) -> list[str]:
    names = [node.value] if isinstance(node.value, str) else [] if node.value is None else node.value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    why = "it must be the name of a section, or a list of names"
    fix = "write `inherited: name` or `inherited: [first, second]`"
    problems.append(Problem("`inherited` names no sections", node.where, why, fix))
    return []


def _cycle(trail: tuple[str, ...], where: str) -> Problem:
    fix = f"remove `{trail[-1]}` from what `{trail[-2]}` inherits, or the other way round"
    return Problem("`inherited` is circular", where, " → ".join(trail), fix)


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
    return next((f for f in (folder / name, folder / f"{name}.yaml") if name and f.is_file()), None)


def _no_config(config: str, folder: EnvFolder, main: Node) -> Problem:
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
