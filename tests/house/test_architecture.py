"""The house rules that a machine can check. The rules are in ``import_rules``; here they meet the source."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from algorithm.core.extras import BUILT_ON, PLACES
from main import main
from tests.house.import_rules import (
    EXTRAS,
    ORDER,
    Module,
    asked_for,
    circles,
    defined_types,
    imports,
    spelt_out,
    unsafe,
    violations,
)

ROOT = Path(__file__).resolve().parents[2]
FRAMES = 12  # of ours, from the command line to the environment
MAX_LINES, MAX_FILES, MAX_FUNCTION = 300, 15, 40

LARGER = {"algorithm.env"}
"""Package from before the limit of 15 files; none may be added."""

WITHOUT_TORCH = (
    "algorithm.core",
    "algorithm.nn",
    "algorithm.replay",
    "algorithm.agents",
    "main",
    "algorithm.config",
    "algorithm.app.cli.parsing",
    "algorithm.config.loader",
    "algorithm.store.rundir",
    "algorithm.core.errors",
    "algorithm.app.console.output",
    "algorithm.app.report.command",
    "algorithm.extras.check.checker",
    "algorithm.extras.standings.comparison",
    "algorithm.extras.tune.command",
    "ds.net.server",
    "ds.net.client",
    "ds.certificates",
    "ds.checking",
    "ds.evolver.genes",
    "ds.evolver.networks",
    "ds.evolver.population",
)
"""Torch takes seconds to import; these answer, or complain, before it is needed."""

SOURCE = re.compile(r"arXiv[ :]\d{4}\.\d{4,5}|\S+ (==?|[≡≈←∝]) \S+|[Σ∏∫]")
"""A paper or an equation."""


def read_modules(*folders: str) -> list[Module]:
    """Every source file of some folders."""
    return [_read(file) for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def _read(file: Path) -> Module:
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), file.read_text("utf-8"), is_package)


MODULES = [*map(_read, ROOT.glob("main*.py")), *read_modules("algorithm", "asac", "ds", "envs")]
"""Every source file that the rules hold for."""

TOOLS = read_modules("scripts", "docs")
"""Files that only keep out of the extras; a benchmark may measure one."""

KNOWN = {module.name for module in MODULES}
LIBRARY = [module for module in MODULES if module.name.startswith(("algorithm.", "ds."))]


def exists(name: str) -> bool:
    """Whether the project has a module of that name."""
    return name in KNOWN


def test_imports_run_one_way() -> None:
    assert [line for module in MODULES for line in violations(module.name, imports(module, KNOWN))] == []
    assert [layer for layer in ORDER if not exists(layer)] == [], "in the order of layers and nowhere else"


def test_extras_are_had_from_the_table_alone() -> None:
    """Source keeps to it by the order of layers. Here are tools, and modules named by a string."""
    wall = [line for module in TOOLS for line in violations(module.name, imports(module, KNOWN) & KNOWN)]
    assert [line for line in wall if EXTRAS in line] == []
    assert [line for module in MODULES + TOOLS for line in spelt_out(module)] == []


def test_every_name_of_the_table_of_extras_is_there_and_asked_for() -> None:
    by_name = {module.name: module for module in MODULES}
    assert {name: place.module for name, place in PLACES.items() if place.module not in by_name} == {}
    defined = {name: _defined(by_name[place.module]) for name, place in PLACES.items()}
    assert [name for name, names in defined.items() if name not in names] == []
    assert set[str]().union(*(asked_for(module) for module in MODULES + TOOLS)) == PLACES.keys()
    folders = {module.name.split(".")[2] for module in MODULES if module.name.startswith(f"{EXTRAS}.")}
    reached = {place.module.split(".")[2] for place in PLACES.values()}
    assert folders == reached.union(*BUILT_ON.values()), "an extra that nothing asks for"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {place.pip for place in PLACES.values()} - {""} <= project["optional-dependencies"].keys()


def _defined(module: Module) -> set[str]:
    """Functions and classes at the top level of a file."""
    return {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_no_module_imports_itself_by_a_detour() -> None:
    """Functions and TYPE_CHECKING included: what only types hide is a circle all the same."""
    assert circles({module.name: imports(module, KNOWN) & KNOWN for module in MODULES}) == []


def test_no_two_packages_import_one_another() -> None:
    """A package is a folder of ``algorithm``, or ``ds``; also by way of others."""
    graph: dict[str, set[str]] = {}
    for module in LIBRARY:
        targets = imports(module, KNOWN) & KNOWN
        graph.setdefault(package_of(module.name), set()).update(map(package_of, targets))
    assert circles(graph) == []


def package_of(name: str) -> str:
    """``algorithm.env`` of a module in it, ``ds`` of one in that."""
    first, _, rest = name.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first == "algorithm" and rest else first


def test_chains_of_imports_stay_short() -> None:
    """Imports at the top of files alone: what a function imports is read where it is used."""
    graph = {module.name: imports(head_of(module), KNOWN) & KNOWN for module in MODULES}
    depth: dict[str, int] = {}
    while len(depth) < len(graph):
        for name in graph.keys() - depth.keys():
            if graph[name] - {name} <= depth.keys():
                depth[name] = 1 + max((depth[target] for target in graph[name] - {name}), default=0)
    assert max(depth.values()) <= 24


def head_of(module: Module) -> Module:
    """The file with nothing but the imports at its top level."""
    head = [node for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return replace(module, source="\n".join(map(ast.unparse, head)))


def test_few_frames_lead_from_the_command_to_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[int] = []
    step = CartPoleEnv.step

    def counting(self: CartPoleEnv, action: Any) -> Any:
        frames.append(sum(str(ROOT / "algorithm") in frame.filename for frame in inspect.stack(0)))
        return step(self, action)

    monkeypatch.setattr(CartPoleEnv, "step", counting)
    monkeypatch.chdir(tmp_path)
    assert main(["CartPole-v1", "--max_step=2", "--device=cpu", "--quiet"]) == 0
    assert frames[0] <= FRAMES, "of a step of the training; evaluations have three more"


def test_the_command_line_ends_in_the_application() -> None:
    """Neither the engine nor ``ds`` names the flags of a training."""
    named = [module.name for module in MODULES if "TrainOptions" in module.source]
    assert named and [name for name in named if not name.startswith(("algorithm.app.", f"{EXTRAS}."))] == []


def test_nothing_read_is_executed() -> None:
    assert [line for module in MODULES for line in unsafe(module)] == []


def test_no_type_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = {}
    for module in LIBRARY:
        for name in defined_types(module):
            places.setdefault(name, []).append(module.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_files_and_packages_stay_small() -> None:
    assert not [module.name for module in LIBRARY if module.source.count("\n") > MAX_LINES]
    files = Counter(module.package for module in LIBRARY if not module.is_package)
    assert {package for package, number in files.items() if number > MAX_FILES} == LARGER


def test_functions_stay_short() -> None:
    long = [
        f"{module.name}.{node.name}"
        for module in LIBRARY
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef) and lines_of(node) > MAX_FUNCTION
    ]
    assert long == []


def lines_of(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstrings."""
    docs = [
        node.body[0]
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
    ]
    ends = [(node.end_lineno or 0) - node.lineno + 1 for node in (function, *docs)]
    return ends[0] - sum(ends[1:])


def test_every_op_names_its_source() -> None:
    """The library of torch and numpy has names, and no formula."""
    ops = [module for module in LIBRARY if module.name.startswith("algorithm.ops.")]
    ops = [module for module in ops if module.name != "algorithm.ops.library"]
    functions = [node for module in ops for node in module.tree.body if isinstance(node, ast.FunctionDef)]
    public = {f.name: ast.get_docstring(f) or "" for f in functions if not f.name.startswith("_")}
    assert public and [name for name, text in public.items() if not SOURCE.search(text)] == []


def test_what_answers_at_once_starts_without_torch() -> None:
    assert [name for name in WITHOUT_TORCH if not exists(name)] == [], "moved: correct this list"
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    code += "    if 'torch' in sys.modules: sys.exit(name)"
    done = subprocess.run(
        [sys.executable, "-c", code, *WITHOUT_TORCH], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "target", "why"),
    [
        ("algorithm.core.spec", "algorithm.core.data", "stands right of"),
        ("algorithm.core.data", "algorithm.ops.returns", "stands right of"),
        ("algorithm.ops.returns", "numpy", "imports torch only"),
        ("algorithm.ops.returns", "algorithm.core.data", "imports torch only"),
        ("algorithm.nn.layers.mlp", "algorithm.replay.buffer", "stands right of"),
        ("algorithm.replay.buffer", "algorithm.extensions.base", "stands right of"),
        ("algorithm.extensions.base", "algorithm.agents.sac.model", "imports a family"),
        ("algorithm.agents", "algorithm.agents.sac.heads", "imports a family"),
        ("algorithm.extensions.base", "algorithm.extensions.rnd", "stands right of"),
        ("algorithm.extensions.rnd", "algorithm.agents.sac", "imports a family"),
        ("algorithm.run.trainer", "algorithm.agents.sac.agent", "imports a family"),
        ("ds.learner", "algorithm.agents.sac.agent", "imports a family"),
        ("algorithm.env.vector", "algorithm.agents.roles", "stands right of"),
        ("algorithm.env.gym", "algorithm.config", "stands right of"),
        ("algorithm.config.schema", "algorithm.store.rundir", "stands right of"),
        ("algorithm.store.rundir", "algorithm.run.trainer", "stands right of"),
        ("algorithm.run.evaluation.evaluate", "algorithm.app.play", "stands right of"),
        ("algorithm.app.play", "algorithm.app.preview.dry_run", "stands right of"),
        ("algorithm.app.preview.dry_run", "main", "stands right of"),
        ("algorithm.run.trainer", "ds.net.wire", "never the other way round"),
        ("algorithm.run.trainer", "tests.lib.oracles", "not for"),
        ("algorithm.utils", "algorithm.core.spec", "no place"),
        ("algorithm.agents.sac.config", "torch", "fragment"),
        ("algorithm.agents.sac.config", "algorithm.agents.sac.learner", "fragment"),
        ("algorithm.agents.sac.rules", "algorithm.agents.sac.learner", "fragment"),
        ("algorithm.agents.sac.config", "algorithm.agents.on_policy.rules", "fragment"),
        ("algorithm.run.trainer", "algorithm.core.spec.*", "star imports"),
        ("ds.net.wire", "main", "ds imports"),
        ("algorithm.run.build", "algorithm.extras.a3c.runtime", "by extra(NAME)"),
        ("algorithm.app.command", "algorithm.extras", "by extra(NAME)"),
        ("algorithm.core.extras", "algorithm.extras.a3c.runtime", "by extra(NAME)"),
        ("algorithm.config.schema", "algorithm.extras.a3c.config", "by extra(NAME)"),
        ("asac", "algorithm.extras.a3c.runtime", "by extra(NAME)"),
        ("ds.actor", "algorithm.extras.a3c.runtime", "by extra(NAME)"),
        ("benchmarks.harness", "algorithm.extras.a3c.runtime", "by extra(NAME)"),
        ("algorithm.extras.a3c.runtime", "algorithm.extras.unity.vec", "BUILT_ON"),
        ("algorithm.extras.a3c.runtime", "asac", "stands right of"),
        ("algorithm.extras.a3c.runtime", "ds.net.wire", "never the other way round"),
        ("algorithm.extras.a3c.runtime", "tests.lib.oracles", "not for"),
        ("envs.gym.pendulum.nn", "algorithm.agents.sac.heads", "algorithm.nn and nothing else"),
    ],
)
def test_a_wrong_import_is_named(name: str, target: str, why: str) -> None:
    (message,) = violations(name, [target])
    assert message.startswith(f"{name} imports ") and why in message


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("algorithm.core.data", "algorithm.core.spec"),
        ("algorithm.ops.returns", "torch.nn.functional"),
        ("algorithm.ops.returns", "algorithm.ops.shapes"),
        ("algorithm.ops.returns", "math"),
        ("algorithm.agents.sac.learner", "algorithm.extensions.base"),
        ("algorithm.agents.sac.config", "pydantic"),
        ("algorithm.agents.sac.config", "algorithm.core.fields"),
        ("algorithm.agents.sac.learner", "algorithm.agents.sac.config"),
        ("algorithm.extensions", "algorithm.extensions.rnd"),
        ("algorithm.config.schema", "algorithm.agents.sac.config"),
        ("algorithm.run.trainer", "algorithm.config"),
        ("algorithm.run.trainer", "rich.live"),
        ("main", "algorithm.run.trainer"),
        ("ds.learner", "algorithm.agents.roles"),
        ("algorithm.agents.registry", "algorithm.agents.sac.family"),
        ("algorithm.agents", "algorithm.agents.off_policy.variant"),
        ("algorithm.extras.a3c.runtime", "algorithm.extras.a3c.messages"),
        ("algorithm.extras.a3c.runtime", "algorithm.app.command"),
        ("envs.gym.pendulum.nn", "algorithm.nn"),
        ("envs.gym.pendulum.nn", "torch"),
    ],
)
def test_a_right_import_passes(name: str, target: str) -> None:
    assert violations(name, [target]) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("import algorithm.run", "algorithm.run"),
        ("from algorithm import run", "algorithm.run"),
        ("from algorithm.run import trainer", "algorithm.run.trainer"),
        ("from algorithm.run.trainer import Trainer", "algorithm.run.trainer"),
        ("def f():\n    import algorithm.run.trainer as t", "algorithm.run.trainer"),
        ("if TYPE_CHECKING:\n    from algorithm.run import trainer", "algorithm.run.trainer"),
        ("from . import heads", "algorithm.agents.sac.heads"),
        ("from .heads import Head", "algorithm.agents.sac.heads"),
        ("from ...run import trainer", "algorithm.run.trainer"),
        ("from ... import run", "algorithm.run"),
        ("from ...run.trainer import *", "algorithm.run.trainer.*"),
        ("importlib.import_module('algorithm.run.trainer')", "algorithm.run.trainer"),
        ("import_module('...run.trainer', __package__)", "algorithm.run.trainer"),
    ],
)
def test_every_way_of_importing_is_seen(source: str, target: str) -> None:
    known = {"algorithm.run", "algorithm.run.trainer", "algorithm.agents.sac.heads"}
    assert target in imports(Module("algorithm.agents.sac.learner", source), known)
    package = Module("algorithm.agents.sac", "from .heads import Head", is_package=True)
    assert imports(package, known) == {"algorithm.agents.sac.heads"}


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("import pickle", 1),
        ("from pickle import loads", 1),
        ("def f():\n    exec(text)", 1),
        ("import builtins\nbuiltins.eval('1')", 1),
        ("import torch as t\nt.load(file)", 1),
        ("from torch import load\nload(file)", 1),
        ("import yaml\nyaml.load(text, Loader=yaml.SafeLoader)", 1),
        ("from yaml import unsafe_load as read\nread(text)", 1),
        ("import numpy as np\nnp.load(file, allow_pickle=flag)", 1),
        ("model.eval()", 0),
        ("import torch\ntorch.compile(model)", 0),
        ("import yaml\nyaml.safe_load(text)", 0),
        ("import numpy as np\nnp.load(file, allow_pickle=False)", 0),
        ("spec.loader.exec_module(module)", 0),
    ],
)
def test_what_executes_a_file_is_named_and_nothing_else(source: str, number: int) -> None:
    assert len(unsafe(Module("algorithm.store.checkpoints.checkpoint", source))) == number
