"""Messages on a policy that cannot be exported, and on a graph that is not the policy."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from algorithm.extras.onnx.errors import required
from algorithm.extras.onnx.names import ports_of, refuse_collisions
from tests.extras.onnx import test_export as graphs
from tests.extras.onnx.policies import agent_of, checker, exported, graph_of, with_names
from tests.messages import refusal


def messages() -> Iterator[tuple[str, str]]:
    """Yield name and text."""
    for own, opset in (
        (graphs.Einsum(), 15),
        (graphs.Recurrent(), 15),
        (graphs.Indexed(), 9),
        (graphs.Twice(), 15),
    ):
        doing = partial(exported, graphs.planted(own), opset=opset)
        yield f"{type(own).__name__}, opset {opset}", _said(doing)
    attentive = agent_of(memory="attention", obs="mixed")
    yield "attention, opset 9", _said(lambda: exported(attentive, opset=9))
    names = {"v": "eye one", "i": "eye-one", "c": "eye_one"}
    yield "two observations", _said(lambda: ports_of(with_names(attentive, names), 0, {}))
    yield "two behaviours", _said(lambda: refuse_collisions(("a?team=0", "a_team_0"), "behaviours"))
    attentive.learner.model.rep.carry_shape = (257, 17)
    yield "a wide window", _said(lambda: graph_of(attentive))
    for damage, row in (
        (graphs._normaliser_is_left_out, {}),
        (graphs._mask_is_inverted, {"action": "discrete"}),
        (graphs._version_depends_on_inputs, {}),
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
    kind, _, text = refusal(doing, coded=True).partition("\n")
    text = re.sub(r"got .*", "got …, expected …", text)  # numbers of random networks
    return f"{text}\n{kind.partition(', ')[2]}"
