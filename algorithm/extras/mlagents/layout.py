"""Content of a trainer configuration of ML-Agents: its behaviours, its run, its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from algorithm.config.tree import Node, merge

TOP = ("env_settings", "engine_settings", "checkpoint_settings", "torch_settings", "debug")
"""Names at the top of a file with settings of the run."""

KNOWN = ("behaviors", "default_settings", "environment_parameters", *TOP)
"""Names at the top of a file."""


@dataclass(frozen=True, kw_only=True)
class TrainerFile:
    """Content of a trainer configuration.

    behaviours: by name, each on top of ``default_settings``; these alone, without a name, if there is none
    run:        settings of the run
    parameters: ``environment_parameters``
    """

    behaviours: Mapping[str, Node]
    run: Node
    parameters: Node


def read_layout(root: Node) -> TrainerFile:
    """Return the content of a file."""
    base = root.find(("default_settings",)) or Node({})
    behaviours: dict[str, Node] = {}
    for name, node in (root.find(("behaviors",)) or Node({})).children.items():
        if node.is_mapping or node.value is None:
            behaviours[name] = merge(base, Node(node.children, node.where))
    if not behaviours and base.children:
        behaviours[""] = base
    return TrainerFile(
        behaviours=behaviours,
        run=root.only(*TOP),
        parameters=root.find(("environment_parameters",)) or Node({}),
    )


def leaves(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the dotted keys of a behaviour with their values, except null ones."""
    for path, child in node.leaves():
        if child.value is not None:
            yield ".".join(path), child
