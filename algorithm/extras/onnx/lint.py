"""Operators and element types of a graph: simplified for Unity's runtimes, and compared with their lists."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithm.extras.onnx.errors import ExportError, required

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

TARGETS = Path(__file__).parent / "targets"
"""Lists of operators, one a runtime, each with its source and the date at which it was read."""

_BARRACUDA_UNTIL = 9

_ADVICE = {
    "Einsum": "write torch.matmul, with transpose or unsqueeze around it",
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

_DOUBLE = 11


def target_of(opset: int) -> dict[str, Any]:
    """Return name and operators of the runtime for an operator set: Barracuda's up to 9, else Sentis's."""
    file = TARGETS / f"{'barracuda' if opset <= _BARRACUDA_UNTIL else 'sentis'}.json"
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return content


def operators(model: ModelProto) -> Mapping[str, int]:
    """Return how often a graph uses each operator, by name."""
    return dict(sorted(Counter(node.op_type for node in model.graph.node).items()))


def lint(model: ModelProto, opset: int, *, wide: bool) -> None:
    """Raise ExportError for an operator or element type that the target lacks, and for another opset.

    wide: allow float64, which no environment of Unity's has
    """
    kinds = {*_KINDS, _DOUBLE} if wide else {*_KINDS}
    target, versions = target_of(opset), {each.domain: each.version for each in model.opset_import}
    name = target["name"]
    if versions != {"": opset}:
        raise ExportError(
            "the graph has another operator set", where=f"{versions}", why=f"{opset} was wanted"
        )
    for node in model.graph.node:
        if node.domain or node.op_type not in target["operators"]:
            raise ExportError(
                f"{name} does not have the operator {node.op_type} on every backend",
                where=node_place(node),
                why=f"opset {opset} is for {name}; its operators are those of {target['source']}",
                fix=_ADVICE.get(node.op_type, "write that part of nn.py with plain operations"),
            )
        _check_kinds(node, name, kinds)
    for tensor in model.graph.initializer:
        if tensor.data_type not in kinds:
            raise _other_kind(tensor.data_type, f"the constant {tensor.name}", name)


def _check_kinds(node: NodeProto, target: str, kinds: set[int]) -> None:
    """Raise ExportError for a node with an element type that the target lacks."""
    for attribute in node.attribute:
        number = (
            attribute.t.data_type
            if attribute.HasField("t")
            else attribute.i
            if attribute.name in ("to", "dtype")
            else 1
        )
        if number not in kinds:
            raise _other_kind(number, node_place(node), target)


def _other_kind(number: int, where: str, target: str) -> ExportError:
    """Return the error of an element type that the target lacks; number: ONNX's."""
    kind = required("onnx").TensorProto.DataType.Name(number).lower()
    return ExportError(
        f"{target} does not support the type {kind}",
        where=where,
        why=f"it supports {', '.join(_KINDS.values())}",
        fix="compute in float32: leave .double(), .half() and the like out of nn.py",
    )


def node_place(node: NodeProto) -> str:
    """Format a node's name and its module, for messages."""
    path = [name for name in node.name.split("/")[1:-1] if name]
    module = f"module {'/'.join(path)}" if path else "the policy's actions"
    return f"node {node.name or node.op_type}, {module}"


_WIDER = {2: 6, 3: 6, 4: 6, 5: 6, 12: 7, 13: 7}
"""uint8, int8, uint16, int16 -> int32; uint32, uint64 -> int64, as the numbers of ONNX's element types."""


def simplified(model: ModelProto) -> ModelProto:
    """Return the graph with wider whole numbers, without empty inputs of a Concat, and with shorter names.

    Torch writes whole numbers and empty inputs that Unity's runtimes do not read.
    """
    onnx = required("onnx")
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in _WIDER:
                attribute.i = _WIDER[attribute.i]
            if attribute.HasField("t") and attribute.t.data_type in _WIDER:
                attribute.t.CopyFrom(_widened(attribute.t))
    for tensor in model.graph.initializer:
        if tensor.data_type in _WIDER:
            tensor.CopyFrom(_widened(tensor))
    del model.graph.value_info[:]
    known = onnx.shape_inference.infer_shapes(model).graph.value_info
    empty = {
        value.name
        for value in known
        if any(axis.HasField("dim_value") and not axis.dim_value for axis in value.type.tensor_type.shape.dim)
    }
    for node in model.graph.node:
        if node.op_type == "Concat":
            _drop_inputs(node, empty)
    _number_values(model)
    return model


def _number_values(model: ModelProto) -> None:
    """Shorten the names of values to numbers. Nodes keep their names, which contain the module."""
    graph = model.graph
    fixed = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    made = [name for node in graph.node for name in node.output if name and name not in fixed]
    short = {name: f"v{number}" for number, name in enumerate(made)}
    for node in graph.node:
        node.input[:] = [short.get(name, name) for name in node.input]
        node.output[:] = [short.get(name, name) for name in node.output]


def _widened(tensor: TensorProto) -> TensorProto:
    """Return a constant with a wider type of whole numbers."""
    helper = required("onnx").numpy_helper
    wider = {6: "int32", 7: "int64"}[_WIDER[tensor.data_type]]
    widened: TensorProto = helper.from_array(helper.to_array(tensor).astype(wider), tensor.name)
    return widened


def _drop_inputs(node: NodeProto, empty: set[str]) -> None:
    """Remove the empty inputs of a Concat, unless all are empty."""
    kept = [name for name in node.input if name not in empty]
    if kept and len(kept) < len(node.input):
        node.input[:] = kept
