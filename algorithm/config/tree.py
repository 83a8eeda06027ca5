"""Configuration as a tree whose values carry their place in a file; merging of two trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class ValueNode:
    """A value that merging replaces as a whole: a scalar or a list. ``where`` reads like ``file:line``."""

    value: Any
    where: str


@dataclass(frozen=True)
class MappingNode:
    """A mapping, merged key by key."""

    children: Mapping[str, Node] = field(default_factory=dict)
    where: str = "the defaults"

    def without(self, *keys: str) -> MappingNode:
        """Return the same mapping, less ``keys``."""
        return MappingNode({k: v for k, v in self.children.items() if k not in keys}, self.where)

    def with_child(self, key: str, node: Node) -> MappingNode:
        """Return the same mapping with ``key`` set to ``node``."""
        return MappingNode({**self.children, key: node}, self.where)


Node: TypeAlias = ValueNode | MappingNode


def merge(base: MappingNode, over: MappingNode) -> MappingNode:
    """Lay ``over`` on ``base``: mappings merge, everything else replaces. Neither is changed."""
    children = dict(base.children)
    for key, new in over.children.items():
        old = children.get(key)
        children[key] = (
            merge(old, new) if isinstance(old, MappingNode) and isinstance(new, MappingNode) else new
        )
    return MappingNode(children, base.where if base.children else over.where)


def to_value(node: Node) -> Any:  # noqa: ANN401 - whatever was written
    """Return the bare value of a tree: dicts, lists and scalars."""
    if isinstance(node, ValueNode):
        return node.value
    return {key: to_value(child) for key, child in node.children.items()}


def from_value(value: object, where: str) -> Node:
    """Return the tree of a bare value, all of it from one place."""
    if isinstance(value, Mapping):
        return MappingNode({str(key): from_value(child, where) for key, child in value.items()}, where)
    return ValueNode(value, where)


def from_value_at(path: tuple[str, ...], value: object, where: str) -> MappingNode:
    """Return a tree with ``value`` at ``path`` and nothing else."""
    node = from_value(value, where)
    for key in reversed(path):
        node = MappingNode({key: node}, where)
    assert isinstance(node, MappingNode), "the path has at least one key"
    return node


def find(tree: MappingNode, path: tuple[str, ...]) -> Node | None:
    """Return the node at ``path``, or None."""
    node: Node | None = tree
    for key in path:
        node = node.children.get(key) if isinstance(node, MappingNode) else None
    return node
