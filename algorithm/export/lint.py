"""Operators and element types of a graph against what a runtime has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from algorithm.export.errors import ExportError, required

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TARGETS = Path(__file__).parent / "targets"
"""Lists of operators, one a runtime, each with its source and the date at which it was read."""

_BARRACUDA_UNTIL = 9

_INSTEAD = {
    "Einsum": "write torch.matmul, and transpose or unsqueeze around it",
    "GRU": "use GRU of algorithm.nn, which is exported as one step in elementary operators",
    "LSTM": "use LSTM of algorithm.nn, which is exported as one step in elementary operators",
    "RNN": "use GRU of algorithm.nn, which is exported as one step in elementary operators",
    "Loop": "write the loop over a number that is known when the networks are built",
    "If": "write torch.where instead of a branch",
    "NonZero": "multiply by a mask or write torch.where instead of indexing with one",
    "ScatterND": "write torch.where or torch.cat instead of assigning to an index",
    "ScatterElements": "compare with torch.arange instead of scatter or one_hot",
    "GatherElements": "multiply by a one-hot and sum instead of gather",
    "OneHot": "compare with torch.arange instead of one_hot",
    "Erf": "use tanh, ReLU or nn.GELU(approximate='tanh')",
    "TopK": "write max or argmax",
    "Multinomial": "leave sampling to the policy's actions",
}
_KINDS = {1: "float", 6: "int32", 7: "int64", 9: "bool"}
"""Element types, by ONNX's numbers."""


@dataclass(frozen=True)
class OperatorList:
    """A runtime: name, source of the list, date, and the operators that it has."""

    name: str
    source: str
    date: str
    operators: frozenset[str]


@cache
def target_of(opset: int) -> OperatorList:
    """Return the runtime that an operator set is for: Barracuda up to 9, else Sentis."""
    file = TARGETS / f"{'barracuda' if opset <= _BARRACUDA_UNTIL else 'sentis'}.json"
    content = json.loads(file.read_text("utf-8"))
    return OperatorList(content["name"], content["source"], content["date"], frozenset(content["operators"]))


def operators(model: ModelProto) -> Mapping[str, int]:
    """Return the operators of a graph with their numbers, by name."""
    return dict(sorted(Counter(node.op_type for node in model.graph.node).items()))


def lint(model: ModelProto, opset: int) -> None:
    """Raise ExportError for an operator or element type that the target lacks, and for another opset."""
    target, found = target_of(opset), {one.domain: one.version for one in model.opset_import}
    if found != {"": opset}:
        raise ExportError("the graph has another operator set", where=f"{found}", why=f"{opset} was wanted")
    for node in model.graph.node:
        if node.domain or node.op_type not in target.operators:
            raise ExportError(
                f"{target.name} does not have the operator {node.op_type} on every backend",
                where=place(node),
                why=f"opset {opset} is for {target.name}; its operators are those of {target.source}",
                fix=_INSTEAD.get(node.op_type, "write that part of nn.py with plain operations"),
            )
        _check_kinds(node, target)
    for tensor in model.graph.initializer:
        if tensor.data_type not in _KINDS:
            raise _other_kind(tensor.data_type, f"the constant {tensor.name}", target)


def _check_kinds(node: NodeProto, target: OperatorList) -> None:
    for one in node.attribute:
        number = one.t.data_type if one.HasField("t") else one.i if one.name in ("to", "dtype") else 1
        if number not in _KINDS:
            raise _other_kind(number, place(node), target)


def _other_kind(number: int, where: str, target: OperatorList) -> ExportError:
    kind = required("onnx").TensorProto.DataType.Name(number).lower()
    return ExportError(
        f"{target.name} has no numbers of the type {kind}",
        where=where,
        why=f"it has {', '.join(_KINDS.values())}",
        fix="compute in float32: leave .double(), .half() and the like out of nn.py",
    )


def place(node: NodeProto) -> str:
    """Format a node and the module that it comes from, which is in its name."""
    path = [part for part in node.name.split("/")[1:-1] if part]
    module = f"module {'/'.join(path)}" if path else "the policy's actions"
    return f"node {node.name or node.op_type}, {module}"
