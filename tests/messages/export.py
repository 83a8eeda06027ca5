"""Messages on a policy that cannot be exported, and on a graph that is not the policy."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from algorithm.core.errors import UserError
from algorithm.extras.onnx.errors import required
from algorithm.extras.onnx.files import files_in
from tests.extras.onnx import test_export as graphs
from tests.extras.onnx.policies import agent_of, checker, exported, graph_of


def messages() -> Iterator[tuple[str, str]]:
    """Yield name and text."""
    yield "Indexed, opset 9", _said(partial(exported, graphs.planted(graphs.Indexed()), opset=9))
    agent = agent_of()
    same = dict.fromkeys(("a?team=0", "a_team_0"), agent.spec)
    yield "two behaviours", _said(lambda: files_in(Path("p.onnx"), same))
    for damage, row in (
        (graphs._normaliser_is_left_out, {}),
        (graphs._mask_is_inverted, {"action": "discrete"}),
    ):
        yield damage.__name__.strip("_").replace("_", " "), _said(partial(_checked, damage, row))
    yield "a package of an extra", _said(lambda: required("not_installed")).replace(sys.executable, "PYTHON")


def _checked(damage: Callable[[Any], None], row: dict[str, str]) -> object:
    agent = agent_of(**row)
    graph = graph_of(agent)
    with torch.no_grad():
        damage(graph)
    return checker(agent, graph)()


def _said(doing: Callable[[], object]) -> str:
    try:
        doing()
    except UserError as error:
        said = re.sub(r"got .*", "got …, expected …", str(error))  # numbers of random networks
        return f"{said}\nexit code {error.exit_code}"
    return "nothing"
