"""Nodes that torch writes and Unity's runtimes do not read, in an equal form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.export.errors import required

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_WIDER = {2: 6, 3: 6, 4: 6, 5: 6, 12: 7, 13: 7}
"""uint8, int8, uint16, int16 -> int32; uint32, uint64 -> int64, as the numbers of ONNX's element types."""


def plain(model: ModelProto) -> ModelProto:
    """Return the graph with short whole numbers as int32, without empty parts of a Concat, and smaller.

    Each constant stands in it once, and values have numbers for names. Nodes keep theirs, which say where
    they come from.
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
        one.name
        for one in known
        if any(axis.HasField("dim_value") and not axis.dim_value for axis in one.type.tensor_type.shape.dim)
    }
    for node in model.graph.node:
        if node.op_type == "Concat":
            _leave_out(node, empty)
    _share_constants(model)
    _number_values(model)
    return model


def _share_constants(model: ModelProto) -> None:
    outputs = {one.name for one in model.graph.output}
    known: dict[bytes, str] = {}
    same: dict[str, str] = {}
    for node in [*model.graph.node]:
        own = node.output[0]
        if node.op_type == "Constant" and own not in outputs:
            same[own] = known.setdefault(node.attribute[0].SerializeToString(), own)
            if same[own] != own:
                model.graph.node.remove(node)
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]


def _number_values(model: ModelProto) -> None:
    graph = model.graph
    fixed = {one.name for one in (*graph.input, *graph.output, *graph.initializer)}
    made = [name for node in graph.node for name in node.output if name and name not in fixed]
    short = {name: f"v{number}" for number, name in enumerate(made)}
    for node in graph.node:
        node.input[:] = [short.get(name, name) for name in node.input]
        node.output[:] = [short.get(name, name) for name in node.output]


def _widened(tensor: TensorProto) -> TensorProto:
    helper = required("onnx").numpy_helper
    wider = {6: "int32", 7: "int64"}[_WIDER[tensor.data_type]]
    widened: TensorProto = helper.from_array(helper.to_array(tensor).astype(wider), tensor.name)
    return widened


def _leave_out(node: NodeProto, empty: set[str]) -> None:
    kept = [name for name in node.input if name not in empty]
    if kept and len(kept) < len(node.input):
        node.input[:] = kept
