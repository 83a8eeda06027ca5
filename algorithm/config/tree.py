"""Configuration as a tree in which every value knows where it was written, and how two trees are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Leaf:
    """A value that merging replaces as a whole: a scalar or a list. ``where`` reads like ``file:line``."""

    value: Any
    where: str


@dataclass(frozen=True)
class Branch:
    """A mapping, merged key by key."""

    children: Mapping[str, Node] = field(default_factory=dict)
    where: str = "the defaults"

    def without(self, *keys: str) -> Branch:
        """The same mapping, less ``keys``."""
        return Branch({k: v for k, v in self.children.items() if k not in keys}, self.where)

    def with_child(self, key: str, node: Node) -> Branch:
        """The same mapping with ``key`` set to ``node``."""
        return Branch({**self.children, key: node}, self.where)


Node: TypeAlias = Leaf | Branch


def merge(base: Branch, over: Branch) -> Branch:
    """Lay ``over`` on ``base``: mappings merge, everything else replaces. Neither is changed."""
    children = dict(base.children)
    for key, new in over.children.items():
        old = children.get(key)
        children[key] = merge(old, new) if isinstance(old, Branch) and isinstance(new, Branch) else new
    return Branch(children, base.where if base.children else over.where)


def plain(node: Node) -> Any:  # noqa: ANN401 - whatever was written
    """The bare value of a tree: dicts, lists and scalars."""
    if isinstance(node, Leaf):
        return node.value
    return {key: plain(child) for key, child in node.children.items()}


def plant(value: object, where: str) -> Node:
    """The tree of a bare value, all of it from one place."""
    if isinstance(value, Mapping):
        return Branch({str(key): plant(child, where) for key, child in value.items()}, where)
    return Leaf(value, where)


def plant_at(path: tuple[str, ...], value: object, where: str) -> Branch:
    """A tree with ``value`` at ``path`` and nothing else."""
    node = plant(value, where)
    for key in reversed(path):
        node = Branch({key: node}, where)
    assert isinstance(node, Branch), "the path has at least one key"
    return node


def find(tree: Branch, path: tuple[str, ...]) -> Node | None:
    """What stands at ``path``, or None."""
    node: Node | None = tree
    for key in path:
        node = node.children.get(key) if isinstance(node, Branch) else None
    return node


def nearest_where(tree: Branch, path: tuple[str, ...]) -> str:
    """Where ``path`` was written, or the nearest mapping above it."""
    node: Node = tree
    for key in path:
        child = node.children.get(key) if isinstance(node, Branch) else None
        if child is None:
            break
        node = child
    return node.where
