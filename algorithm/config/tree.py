"""Configuration as a tree whose values carry their place in a file; merging of two trees."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str, ...]
"""Names of the enclosing blocks and of a key."""


@dataclass(frozen=True)
class Node:
    """A value and its place, which reads like ``file:line``.

    value: of a mapping a dict of nodes, which merges key by key; else a scalar or a plain list
    """

    value: Any
    where: str = "the defaults"

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping, also an empty one."""
        return isinstance(self.value, dict)

    @property
    def children(self) -> dict[str, Node]:
        """The nodes of a mapping; empty for any other value."""
        return self.value if isinstance(self.value, dict) else {}

    def without(self, *keys: str) -> Node:
        """Return the mapping without ``keys``."""
        return Node({k: v for k, v in self.children.items() if k not in keys}, self.where)

    def only(self, *keys: str) -> Node:
        """Return the mapping with ``keys`` only."""
        return Node({k: v for k, v in self.children.items() if k in keys}, self.where)

    def find(self, path: KeyPath) -> Node | None:
        """Return the node at ``path``, or None."""
        node: Node | None = self
        for key in path:
            node = node.children.get(key) if node else None
        return node

    def decides(self, path: KeyPath) -> bool:
        """Return whether there is a value at ``path`` or, instead of a mapping, above it."""
        node = self
        for key in path:
            if not node.is_mapping:
                return True
            if key not in node.children:
                return False
            node = node.children[key]
        return True

    def value_at(self, *path: str) -> Any:  # noqa: ANN401 - whatever was written
        """Return the bare value at ``path``; None if there is none."""
        node = self.find(path)
        return to_value(node) if node else None

    def leaves(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
        """Yield each value that is no mapping, with its path."""
        for key, child in self.children.items():
            if child.is_mapping:
                yield from child.leaves((*path, key))
            else:
                yield (*path, key), child


def merge(base: Node, over: Node) -> Node:
    """Lay ``over`` on ``base``: mappings merge, everything else replaces. Neither is changed."""
    if not (base.is_mapping and over.is_mapping):
        return over
    children = dict(base.value)
    for key, new in over.value.items():
        children[key] = merge(children[key], new) if key in children else new
    return Node(children, base.where if base.value else over.where)


def to_value(node: Node) -> Any:  # noqa: ANN401 - whatever was written
    """Return the bare value of a tree: dicts, lists and scalars."""
    return {key: to_value(child) for key, child in node.value.items()} if node.is_mapping else node.value


def from_value(value: object, where: str) -> Node:
    """Return the tree of a bare value, all of it from one place."""
    if isinstance(value, Mapping):
        return Node({str(key): from_value(child, where) for key, child in value.items()}, where)
    return Node(plain(value), where)


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a program gives
    """Return a value as a file would hold it: numbers and arrays of NumPy as Python's, paths as text."""
    if isinstance(value, Mapping):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value


def from_value_at(path: KeyPath, value: object, where: str) -> Node:
    """Return a tree with ``value`` at ``path`` and nothing else."""
    node = from_value(value, where)
    for key in reversed(path):
        node = Node({key: node}, where)
    return node
