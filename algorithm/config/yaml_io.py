"""Reading and writing YAML: PyYAML's safe loader, with the place of every value kept.

Differences from YAML 1.1 as PyYAML reads it: ``3e-4`` is a number, ``010`` is ten and ``1:30`` is no number;
dates stay text, keys are always text, and a key that stands twice in one mapping is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override
from yaml import nodes

from algorithm.config.errors import Problem
from algorithm.config.tree import MappingNode, Node, ValueNode, to_value
from algorithm.core.reading import read_text

_NUMBER = re.compile(
    r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$")
_TAB_INDENT = re.compile(r"^ *\t\s*[^\s#]", re.MULTILINE)
_LARGEST = 4 * 2**20  # bytes of a file
_MOST = 100_000  # values
_MERGE = "tag:yaml.org,2002:merge"
_FLOAT = "tag:yaml.org,2002:float"
_INT = "tag:yaml.org,2002:int"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in (_FLOAT, _INT, _TIMESTAMP)]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+.0123456789":
        table.setdefault(first, []).extend([(_FLOAT, _NUMBER), (_INT, _WHOLE)])
    return table


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _resolvers()


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes exactly what `_Loader` would read as something else."""

    yaml_implicit_resolvers = _resolvers()

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def shown(path: Path) -> str:
    """Return the path as a user would type it: relative to the current folder where it lies below."""
    path = path.resolve()
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def read_yaml(path: Path, problems: list[Problem]) -> MappingNode | None:
    """Read the file as a tree. Faults are appended to ``problems``; None if it holds no mapping."""
    name = shown(path)
    try:
        text = read_text(path, _LARGEST, follow=True)
    except (OSError, ValueError) as error:
        problems.append(
            Problem(f"cannot read {name}", name, str(error), "check that it is a readable UTF-8 text file")
        )
        return None
    return parse_tree(text, name, problems)


def parse_tree(text: str, name: str, problems: list[Problem]) -> MappingNode | None:
    """Parse text like `read_yaml`; ``name`` stands for the file in messages."""
    tabs = list(_tab_problems(text, name))
    if tabs:
        problems.extend(tabs)
        return None
    try:
        loader = _Loader(text)  # it refuses characters such as NUL at once
    except yaml.YAMLError as error:
        problems.append(_syntax_problem(error, name))
        return None
    try:
        node = loader.get_single_node()
        if node is None:
            return MappingNode({}, f"{name}:1")
        tree = _Builder(loader, name, problems).build(node)
    except (yaml.YAMLError, RecursionError) as error:
        problems.append(_syntax_problem(error, name))
        return None
    finally:
        loader.dispose()
    if isinstance(tree, ValueNode):
        problems.append(
            Problem(
                f"{name} holds no mapping",
                tree.where,
                "a configuration is a mapping of names to values",
                "write `name: value` lines",
            )
        )
        return None
    return tree


def parse_value(text: str) -> Any:  # noqa: ANN401 - whatever the text spells
    """Parse one value as it would stand in a file: ``3e-4``, ``[1, 2]``, ``{a: 1}``, ``null``, text.

    Raises ValueError with a one-line reason if the text is no YAML.
    """
    problems: list[Problem] = []
    tree = parse_tree(f"value: {text}\n", "", problems)
    if tree is None or problems:
        raise ValueError(problems[0].why)
    if list(tree.children) != ["value"]:
        raise ValueError("it is more than one value")
    return to_value(tree.children["value"])


def write_yaml(value: object) -> str:
    """Return YAML that `parse_tree` reads back as the same value."""
    text = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    return str(text)


def inline(value: object) -> str:
    """Return the value on one line, as it would stand behind a colon."""
    text = yaml.dump(
        value, Dumper=_Dumper, allow_unicode=True, default_flow_style=True, width=10**6, sort_keys=False
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def _tab_problems(text: str, name: str) -> Iterator[Problem]:
    for found in _TAB_INDENT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Problem(
            "a line is indented with a tab",
            f"{name}:{line}",
            "YAML allows only spaces for indentation",
            "replace the tab by spaces",
        )


def _syntax_problem(error: yaml.YAMLError | RecursionError, name: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"{name}:{mark.line + 1}, column {mark.column + 1}" if mark else name
    why = str(getattr(error, "problem", None) or error).splitlines()[0]
    fix = "look at the indentation, colons, brackets and quotes there and one line above"
    return Problem("the file is not valid YAML", where, why, fix)


class _Builder:
    """Builder of a tree from PyYAML's nodes."""

    def __init__(self, loader: _Loader, name: str, problems: list[Problem]) -> None:
        self._loader = loader
        self._name = name
        self._problems = problems
        self._open: set[int] = set()  # nodes being built: an alias to one of them would never end
        self._built = 0  # an alias counts as often as it is used

    def build(self, node: nodes.Node) -> Node:
        where = self._where(node)
        self._built += 1
        if self._built > _MOST:
            raise yaml.composer.ComposerError(
                problem=f"it has more than {_MOST:,} values once its aliases are written out",
                problem_mark=node.start_mark,
            )
        if id(node) in self._open:
            raise yaml.composer.ComposerError(
                problem="an alias stands inside its own anchor", problem_mark=node.start_mark
            )
        self._open.add(id(node))
        try:
            if isinstance(node, nodes.MappingNode):
                return MappingNode(self._children(node), where)
            if isinstance(node, nodes.SequenceNode):
                return ValueNode([to_value(self.build(item)) for item in node.value], where)
            return ValueNode(self._scalar(node), where)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: nodes.Node) -> Any:  # noqa: ANN401 - whatever the scalar spells
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                problem=str(error), problem_mark=node.start_mark
            ) from error

    def _children(self, node: nodes.MappingNode) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        own: dict[str, Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = {**self._merge_key(value_node), **merged}
                continue
            if not isinstance(key_node, nodes.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a plain name", problem_mark=key_node.start_mark
                )
            key = str(key_node.value)
            if key in own:
                self._duplicate(key, own[key].where, self._where(key_node))
            own[key] = self._at(self.build(value_node), self._where(key_node))
        return {**merged, **own}

    def _merge_key(self, node: nodes.Node) -> dict[str, Node]:
        """Return the children of the mappings that ``<<`` names; of several, the first wins."""
        children: dict[str, Node] = {}
        for item in node.value if isinstance(node, nodes.SequenceNode) else [node]:
            branch = self.build(item)
            if isinstance(branch, ValueNode):
                raise yaml.constructor.ConstructorError(
                    problem="<< needs a mapping or a list of mappings", problem_mark=item.start_mark
                )
            children = {**branch.children, **children}
        return children

    def _duplicate(self, key: str, first: str, second: str) -> None:
        self._problems.append(
            Problem(
                f"`{key}` stands twice in one mapping",
                second,
                f"only one of the two values could count; the first is at {first}",
                "remove one of them",
            )
        )

    def _where(self, node: nodes.Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"

    @staticmethod
    def _at(node: Node, where: str) -> Node:
        """Return the node with the line of its key, not of the beginning of a block or an anchor."""
        return (
            ValueNode(node.value, where) if isinstance(node, ValueNode) else MappingNode(node.children, where)
        )
