"""Reading and writing YAML: PyYAML's safe loader, with the place of every value kept.

Differences from YAML 1.1 as PyYAML reads it: ``3e-4`` is a number, ``010`` is ten and ``1:30`` is no number;
dates stay text, keys are always text, and a key that stands twice in one mapping is a fault. Of a Python
object that PyYAML has written only the data are read.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override
from yaml import nodes

from algorithm.config.errors import Problem
from algorithm.config.tree import Node, plain, to_value
from algorithm.core.reading import read_text

_NUMBER = re.compile(
    r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$")
_LARGEST = 4 * 2**20  # bytes of a file
_MOST = 100_000  # values
_MERGE = "tag:yaml.org,2002:merge"
_FLOAT = "tag:yaml.org,2002:float"
_INT = "tag:yaml.org,2002:int"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_PYTHON = "tag:yaml.org,2002:python/"
_OBJECT = f"{_PYTHON}object/apply:"


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's rules for plain values, with our own for numbers and without dates."""
    table = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in (_FLOAT, _INT, _TIMESTAMP)]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+.0123456789":
        table.setdefault(first, []).extend([(_FLOAT, _NUMBER), (_INT, _WHOLE)])
    return table


class _Loader(yaml.SafeLoader):
    """Loader of a text as a tree.

    name:     of the file, for the places of values
    problems: list to which faults of the text are appended
    """

    yaml_implicit_resolvers = _resolvers()

    def __init__(self, text: str, name: str, problems: list[Problem]) -> None:
        super().__init__(text)  # it refuses characters such as NUL at once
        self._name = name
        self._problems = problems
        self._built = 0  # an alias counts as often as it is used

    def tree(self) -> Node:
        """Return the text as a tree; an empty mapping if it has only comments.

        Appends keys that appear twice to ``problems``. Raises yaml.YAMLError or ValueError for other faults.
        """
        node = self.get_single_node()
        return Node({}, f"{self._name}:1") if node is None else self._build(node, self._where(node))

    def _build(self, node: nodes.Node, where: str) -> Node:
        """Return the tree of a node, whose values have the place ``where`` or their own."""
        self._built += 1
        if self._built > _MOST:
            raise _refusal(f"it has more than {_MOST:,} values once its aliases are written out", node)
        if node.tag.startswith(_OBJECT):
            node = _data(node)
        if isinstance(node, nodes.MappingNode):
            return Node(self._children(node), where)
        if isinstance(node, nodes.SequenceNode):
            return Node([to_value(self._build(item, where)) for item in node.value], where)
        return Node(self.construct_object(node), where)

    def _children(self, node: nodes.MappingNode) -> dict[str, Node]:
        """Return the children of a mapping; a key that appears twice is a problem."""
        merged: dict[str, Node] = {}
        children: dict[str, Node] = {}
        for key_node, value_node in node.value:
            where = f"{self._name}:{key_node.start_mark.line + 1}"  # not that of an anchor elsewhere
            if key_node.tag == _MERGE:
                merged = {**self._merge_key(value_node), **merged}
                continue
            if not isinstance(key_node, nodes.ScalarNode):
                raise _refusal("a key must be a plain name", key_node)
            key = str(key_node.value)
            if key in children:
                why = f"only one of the two values can apply; the first is at {children[key].where}"
                what = f"`{key}` appears twice in one mapping"
                self._problems.append(Problem(what, where, why, "remove one of them"))
            children[key] = self._build(value_node, where)
        return {**merged, **children}

    def _merge_key(self, node: nodes.Node) -> dict[str, Node]:
        """Return the children of the mappings that ``<<`` names; of several, the first wins."""
        children: dict[str, Node] = {}
        for item in node.value if isinstance(node, nodes.SequenceNode) else [node]:
            if not isinstance(item, nodes.MappingNode):
                raise _refusal("<< needs a mapping or a list of mappings", item)
            children = {**self._build(item, self._where(item)).children, **children}
        return children

    def _where(self, node: nodes.Node) -> str:
        """Return file and line of a node."""
        return f"{self._name}:{node.start_mark.line + 1}"


def _data(node: nodes.Node) -> nodes.Node:
    """Return the data of a Python object that PyYAML has written: a mapping's entries, an enum's value.

    Its class is not imported: no tag is executed.
    """
    if isinstance(node, nodes.MappingNode):
        parts = [value for key, value in node.value if key.value == "dictitems"]
    else:
        parts = [value for value in node.value if not value.tag.startswith(f"{_PYTHON}name:")]
    return parts[0] if parts else nodes.MappingNode(node.tag, [], node.start_mark, node.end_mark)


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes exactly the texts that `_Loader` would read as another type."""

    yaml_implicit_resolvers = _resolvers()

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def shown(path: Path) -> str:
    """Return the path as a user would type it: relative to the current folder where it lies below."""
    path = path.resolve()
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def read_yaml(path: Path, problems: list[Problem]) -> Node | None:
    """Read a file whose content is one mapping; return None if it cannot be read as one.

    Faults are appended to ``problems``, also those of single keys, with which the tree is returned.
    """
    name = shown(path)
    try:
        text = read_text(path, _LARGEST, follow=True)
    except (OSError, ValueError) as error:
        fix = "check that it is a readable UTF-8 text file"
        problems.append(Problem(f"cannot read {name}", name, str(error), fix))
        return None
    return parse_tree(text, name, problems)


def parse_tree(text: str, name: str, problems: list[Problem]) -> Node | None:
    """Parse the text of a file as :func:`read_yaml` does. name: of the file, for messages."""
    try:
        tree = _Loader(text, name, problems).tree()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problems.append(_syntax_problem(error, name))
        return None
    if not tree.is_mapping:
        why = "a configuration is a mapping of names to values"
        problems.append(Problem(f"{name} is not a mapping", tree.where, why, "write `name: value` lines"))
        return None
    return tree


def parse_value(text: str) -> Any:  # noqa: ANN401 - whatever the text spells
    """Parse one value in the syntax of a file: ``3e-4``, ``[1, 2]``, ``{a: 1}``, ``null``, text.

    Raises ValueError with a one-line reason if the text is no YAML.
    """
    problems: list[Problem] = []
    tree = parse_tree(f"value: {text}\n", "", problems)
    if tree is None or problems:
        raise ValueError(problems[0].why)
    if list(tree.children) != ["value"]:
        raise ValueError("it is more than one value")
    return tree.value_at("value")


_dumped = partial(yaml.dump, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def write_yaml(value: object) -> str:
    """Return YAML that `parse_tree` reads back as the same value."""
    return str(_dumped(value, default_flow_style=False, width=100))


def inline(value: object) -> str:
    """Return the value as YAML on one line."""
    text = str(_dumped(plain(value), default_flow_style=True, width=10**6))
    return text.removesuffix("\n").removesuffix("\n...")


def _refusal(why: str, node: nodes.Node) -> yaml.MarkedYAMLError:
    """Return the error for a node that YAML allows and a configuration does not."""
    return yaml.MarkedYAMLError(problem=why, problem_mark=node.start_mark)


def _syntax_problem(error: Exception, name: str) -> Problem:
    """Return the problem for text that is no YAML."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"{name}:{mark.line + 1}, column {mark.column + 1}" if mark else name
    why = str(getattr(error, "problem", None) or error).splitlines()[0]
    fix = "check the indentation, colons, brackets and quotes there and one line above"
    if isinstance(error, RecursionError):
        why = "it is nested too deeply, or an alias is inside its own anchor"
    if "\\t" in why:
        fix = "replace the tab with spaces: YAML allows no tabs in indentation"
    return Problem("the file is not valid YAML", where, why, fix)
