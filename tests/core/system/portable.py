"""The rule that calls which not every system has stand in few modules, as a function over source text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.core.system.as_windows.absent_names import (
    ABSENT_MODULES,
    FAULTHANDLER_ABSENT,
    OS_ABSENT,
    SIGNALS_PRESENT,
)
from tests.house.import_rules import Module, within

HOMES = ("algorithm.core.system",)
"""Modules with such calls."""

SPECIAL_FILES = ("/proc", "/dev/", "/sys/")


def special(module: Module) -> list[str]:
    """What a module uses that not every system has; one line each, with its number."""
    if any(within(module.name, home) for home in HOMES):
        return []
    tree = ast.parse(module.source)
    found = {(node.lineno, what) for node in ast.walk(tree) for what in _objections(node)}
    return [f"{module.name}:{line} {what}" for line, what in sorted(found)]


def _objections(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {alias.name}" for alias in node.names if alias.name in ABSENT_MODULES)
    elif isinstance(node, ast.ImportFrom):
        if node.module in ABSENT_MODULES:
            yield f"imports {node.module}"
        yield from (f"uses {alias.name}" for alias in node.names if _absent(node.module, alias.name))
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if _absent(node.value.id, node.attr):
            yield f"uses {node.value.id}.{node.attr}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith(SPECIAL_FILES):
            yield f"names {node.value}"
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[str]:
    names = {word.arg for word in node.keywords}
    if "start_new_session" in names and "creationflags" not in names:
        yield "starts a session without creationflags=NEW_GROUP, its like on Windows"
    yield from (f"starts a process with {name}" for name in names & {"preexec_fn", "pass_fds"})
    callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if callee in ("get_context", "set_start_method") and ast.unparse(node.args) != "'spawn'":
        yield f"{callee} of another start method than spawn, the only one that Windows has"


def _absent(module: str | None, name: str) -> bool:
    if module == "signal":
        return not name.startswith("_") and name not in SIGNALS_PRESENT
    return name in {"os": OS_ABSENT, "faulthandler": FAULTHANDLER_ABSENT}.get(module or "", frozenset())
