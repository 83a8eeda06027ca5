"""The import rules as plain functions over source text and names, so that they can be tested themselves."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from algorithm.agents import registry
from algorithm.core.extras import BUILT_ON

FAMILIES = tuple(dict.fromkeys(registry.FAMILIES.values()))
"""Folders of the algorithm families."""

ORDER = (
    "algorithm.core.lazy",
    "algorithm.core.errors",
    "algorithm.core.extras",
    "algorithm.core.plugins",
    "algorithm.core.fields",
    "algorithm.core.system",
    "algorithm.core.reading",
    "algorithm.core.wording",
    "algorithm.core.program",
    "algorithm.core.timing",
    "algorithm.core.seeding",
    "algorithm.core.spec",
    "algorithm.core.steps",
    "algorithm.core.data",
    "algorithm.core.console",
    "algorithm.core",
    "algorithm.keys",
    "algorithm.env",
    "algorithm.ops",
    "algorithm.nn",
    "algorithm.replay",
    "algorithm.agents.roles",
    "algorithm.extensions.base",
    "algorithm.extensions",
    "algorithm.actions",
    "algorithm.agents",
    "algorithm.agents.imitation",
    "algorithm.agents.off_policy",
    *FAMILIES,
    "algorithm.agents.registry",
    "algorithm.demos",
    "algorithm.config",
    "algorithm.store",
    "algorithm.run.experience",
    "algorithm.run.evaluation",
    "algorithm.run",
    "algorithm.app.console",
    "algorithm.app.cli",
    "algorithm.app.report",
    "algorithm.app.parameters",
    "algorithm.app.summaries",
    "algorithm.app.playable",
    "algorithm.app.policy",
    "algorithm.app.training",
    "algorithm.app.train",
    "algorithm.app.outputs",
    "algorithm.app.play",
    "algorithm.app.preview",
    "algorithm.app.env_arguments",
    "algorithm.app.run",
    "algorithm.app.start",
    "algorithm.app.api",
    "algorithm.app.agent",
    "algorithm.app.command",
    "algorithm.extras",
    "asac",
    "main",
)
"""Each may import only from its left."""

EXTRAS = "algorithm.extras"
TABLE = "algorithm.core.extras"
"""The only module outside of the extras that names one."""

FRAGMENT_MAY_IMPORT = (
    "pydantic",
    "pydantic_core",
    "algorithm.core.fields",
    "algorithm.env.kinds",
    "algorithm.keys",
)
OWN = ("algorithm", "asac", "ds", "envs", "main", "main_ds", "tests", "benchmarks")
"""First names of the project's own modules."""

FORBIDDEN_MODULES = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")
FORBIDDEN_CALLS = (
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "torch.save",
    "torch.jit.load",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.full_load_all",
    "yaml.unsafe_load",
    "yaml.unsafe_load_all",
)
"""What can execute a file's content, or write a file that only such a call can read."""


@dataclass(frozen=True)
class Module:
    """A source file: its dotted name, its text, and whether it is a package's ``__init__``."""

    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        """The source, parsed."""
        return ast.parse(self.source)

    @property
    def package(self) -> str:
        """What relative imports in this file start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def within(name: str, prefix: str) -> bool:
    """Whether ``name`` is the module ``prefix`` or lies below it."""
    return name == prefix or name.startswith(prefix + ".")


def imports(module: Module, known: Collection[str]) -> set[str]:
    """Dotted names of everything the file imports, at any depth: functions, TYPE_CHECKING, importlib.

    known: the project's modules; ``from a import b`` means ``a.b`` if that is one of them, else ``a``.
    A star import is reported as ``a.*``.
    """
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, "." * node.level + (node.module or ""))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if alias.name == "*" or full in known else base)
        elif isinstance(node, ast.Call) and _callee(node, {}).endswith("import_module") and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                found.add(_absolute(module, target.value))
    return found


def _absolute(module: Module, name: str) -> str:
    level = len(name) - len(name.lstrip("."))
    if level == 0:
        return name
    parts = module.package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name[level:]])])


def defined_types(module: Module) -> list[str]:
    """Names of the classes, type aliases and type variables that the file defines at its top level.

    They are spelt like ``TypeName``; constants (``ALL_CAPS``, which includes a variable ``T``) are left out.
    """
    found = []
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found += [name for name in names if name.lstrip("_")[:1].isupper() and not name.isupper()]
    return found


def violations(name: str, imported: Iterable[str]) -> list[str]:
    """The rules that module ``name`` breaks by importing ``imported``; one readable line each."""
    return [
        f"{name} imports {target}: {why}" for target in sorted(imported) for why in _objections(name, target)
    ]


def _objections(name: str, target: str) -> Iterator[str]:
    if target.endswith(".*"):
        yield "star imports hide where a name comes from"
        target = target[:-2]
    if within(target, EXTRAS):
        yield from _wall(name, target)
        return
    first = target.partition(".")[0]
    if first in sys.stdlib_module_names or first == "typing_extensions":  # typing of later versions
        return
    if _is_fragment(name):
        family = next((one for one in FAMILIES if within(target, one)), name)
        beside = _is_fragment(target) and within(name, family)
        if not (beside or any(within(target, allowed) for allowed in FRAGMENT_MAY_IMPORT)):
            yield "a configuration fragment imports pydantic, algorithm.core.fields and other fragments only"
    elif within(name, "algorithm.ops"):
        known = ("torch", "numpy") if name == "algorithm.ops.library" else ("torch",)
        if not (first in known or within(target, "algorithm.ops")):
            yield "algorithm.ops is pure maths on tensors and imports torch only"
    elif first in OWN:
        yield from _order(name, target)


def _wall(name: str, target: str) -> Iterator[str]:
    ours, theirs = _folder(name), _folder(target)
    if not within(name, EXTRAS):
        yield f"an extra is had by extra(NAME) of {TABLE} alone"
    elif theirs not in (ours, *BUILT_ON.get(ours, ())):
        yield f"an extra imports another one only where BUILT_ON of {TABLE} says so"


def _folder(name: str) -> str:
    """Name of the extra that a module of ``algorithm.extras`` belongs to; "" for the package itself."""
    return name.removeprefix(EXTRAS).removeprefix(".").partition(".")[0]


def asked_for(module: Module) -> set[str]:
    """Names that the file asks the table for: ``extra("name")``, or ``extra_name="name"`` of a call."""
    values: list[ast.expr] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            values += node.args[:1] if _callee(node, {}).rpartition(".")[2] == "extra" else []
            values += [word.value for word in node.keywords if word.arg == "extra_name"]
    constants = [node.value for value in values for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return {value for value in constants if isinstance(value, str)}


def spelt_out(module: Module) -> list[str]:
    """Return the strings outside of the extras that name a module of them."""
    if within(module.name, EXTRAS) or module.name == TABLE:
        return []
    constants = [node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant)]
    texts = [value for value in constants if isinstance(value, str)]
    return [
        f"{module.name}: {text}" for text in texts if re.fullmatch(r"algorithm[./]extras[./][\w./:]+", text)
    ]


def _order(name: str, target: str) -> Iterator[str]:
    family = next((one for one in FAMILIES if within(target, one)), None)
    if within(name, "envs"):
        if not within(target, "algorithm.nn"):
            yield "a task imports algorithm.nn and nothing else of the project"
    elif family and not (within(name, family) or name == "algorithm.agents.registry" or _is_fragment(target)):
        yield "only algorithm.agents.registry imports a family"
    elif within(name, "ds") or name == "main_ds":
        if not (within(target, "algorithm") or within(target, "ds")):
            yield "ds imports ds and algorithm only"
    elif within(target, "ds") or target == "main_ds":
        yield "ds imports algorithm, never the other way round"
    else:
        yield from _layering(name, target)


def _layering(name: str, target: str) -> Iterator[str]:
    layer, target_layer = _layer(name), _layer(target)
    if layer is None:
        yield f"{name} has no place in the order of layers"
    elif target_layer is None:
        yield f"{target} is not for {name} to import"
    elif _is_fragment(target) or within(target, name):  # a package offers what lies in it
        return
    elif ORDER.index(target_layer) > ORDER.index(layer):
        yield f"{target_layer} stands right of {layer}"


def _layer(name: str) -> str | None:
    """The entry of ORDER that ``name`` belongs to; the longest prefix wins."""
    return max((layer for layer in ORDER if within(name, layer)), key=len, default=None)


def _is_fragment(name: str) -> bool:
    """Whether the module is a part of the schema that lies beside the code it configures."""
    beside = name.startswith("algorithm.") and name.endswith((".config", "_config", ".rules"))
    return within(name, "algorithm.keys") or (beside and name.count(".") >= 2)


def circles(graph: Mapping[str, Collection[str]]) -> list[set[str]]:
    """Return the sets of modules that import one another, also through others. graph: module → imported."""
    left = {name: set(targets) - {name} for name, targets in graph.items()}
    while free := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in free}
    reached = {name: all_imported(name, left) for name in left}
    found = [{other for other in reached[name] if name in reached.get(other, ())} for name in left]
    return [circle for i, circle in enumerate(found) if circle and circle not in found[:i]]


def all_imported(name: str, graph: Mapping[str, Collection[str]]) -> set[str]:
    """Return the modules that a module imports, also through others. graph: module → imported."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - seen
        seen |= new
        waiting += new
    return seen


def unsafe(module: Module) -> list[str]:
    """Calls and imports that could execute what a file holds; one line each, with its line number."""
    aliases = _aliases(module.tree)
    found = []
    for node in ast.walk(module.tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [
            (node.lineno, f"imports {name}") for name in names if name.partition(".")[0] in FORBIDDEN_MODULES
        ]
        if isinstance(node, ast.Call):
            callee = _callee(node, aliases)
            if callee.removeprefix("builtins.") in FORBIDDEN_CALLS:
                found.append((node.lineno, f"calls {callee}"))
            if any(
                word.arg == "allow_pickle" and ast.unparse(word.value) != "False" for word in node.keywords
            ):
                found.append((node.lineno, f"calls {callee} with allow_pickle"))
    return [f"{module.name}:{line} {what}" for line, what in sorted(found)]


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Local name → dotted name of what it was imported as."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _callee(node: ast.Call, aliases: dict[str, str]) -> str:
    """Dotted name of what is called, as far as it is written out; "" for anything computed."""
    parts: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ""
    return ".".join([aliases.get(target.id, target.id), *reversed(parts)])
