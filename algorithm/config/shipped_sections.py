"""The sections of ``algorithm/sections.yaml``: every task can inherit them, and one lies below a memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from algorithm.config.errors import Problem
from algorithm.config.random_params import draw
from algorithm.config.tree import MappingNode, Node, ValueNode, find, from_value_at, merge, to_value
from algorithm.config.yaml_io import read_yaml

FILE = Path(__file__).resolve().parents[1] / "sections.yaml"
SEED = "seed"
"""Name of the section with the project's original values."""

RAW = "raw"
"""Name of the section for unscaled rewards and observations."""

MEMORY = "memory"
"""Name of the section below all others where there is a seq_encoder."""

_KEY_AND_REASON = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?:[^#]*# (?P<why>.+))?")


@cache
def sections() -> MappingNode:
    """Return all of them, by name."""
    problems: list[Problem] = []
    read = read_yaml(FILE, problems)
    assert read is not None and not problems, problems
    return read


def beside(own: MappingNode) -> MappingNode:
    """Return a file's own sections and the shipped ones; the file's own go first."""
    return MappingNode({**sections().children, **own.children}, own.where)


def leaves(section: str) -> dict[str, object]:
    """Return dotted path → value of every key in a shipped section."""
    return {".".join(path): to_value(node) for path, node in _leaves(sections().children[section], ())}


def reasons(section: str) -> dict[str, str]:
    """Return dotted path → the comment behind the value in the file."""
    text = FILE.read_text("utf-8")
    found, path = dict[str, str](), list[str]()
    for match in filter(None, map(_KEY_AND_REASON.match, text.splitlines())):
        path[len(match["indent"]) // 2 :] = [match["key"]]
        if path[0] == section and match["why"]:
            found[".".join(path[1:])] = match["why"]
    return found


def under_memory(tree: MappingNode, seed: object, prefix: str) -> tuple[MappingNode, dict[str, object]]:
    """Lay the section ``memory`` below the tree, if that chooses a ``seq_encoder``.

    seed, prefix: of the draws, for the seq_encoder may be drawn
    Returns the tree, and dotted path → value of the keys that nothing else had set.
    """
    drawn, *_ = draw(tree, seed, prefix, [])  # the faults of a draw are reported when it counts
    chosen = find(drawn, ("sac_config", "seq_encoder"))
    taken: dict[str, object] = {}
    if chosen is None or to_value(chosen) is None:
        return tree, taken
    for path, node in _leaves(sections().children[MEMORY], ()):
        block = tree.children.get(path[0], MappingNode())
        if find(tree, path) is None and isinstance(block, MappingNode):
            tree = merge(tree, from_value_at(path, node.value, node.where))
            if find(drawn, path) is None:
                taken[".".join(path)] = node.value
    return tree, taken


class Preset(NamedTuple):
    """A preset and its values by dotted path: those that are taken, and those that a task has set itself."""

    name: str
    taken: dict[str, object]
    overridden: dict[str, object]


def under_preset(tree: MappingNode) -> tuple[MappingNode, Preset | None]:
    """Lay the section that ``base_config.preset`` names below the tree; a wrong name is told elsewhere."""
    name = to_value(find(tree, ("base_config", "preset")) or ValueNode(None, ""))
    if not isinstance(name, str) or name in (SEED, RAW, MEMORY) or name not in sections().children:
        return tree, None
    below = sections().children[name]
    assert isinstance(below, MappingNode)
    taken, overridden = dict[str, object](), dict[str, object]()
    for path, leaf in _leaves(below, ()):
        (taken if find(tree, path) is None else overridden)[".".join(path)] = leaf.value
    return merge(below, tree), Preset(name, taken, overridden)


def _leaves(node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ValueNode]]:
    if isinstance(node, ValueNode):
        yield path, node
        return
    for key, child in node.children.items():
        yield from _leaves(child, (*path, key))
