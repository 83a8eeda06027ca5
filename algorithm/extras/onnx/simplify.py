"""Rewriting of torch's graph into what Unity's runtimes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.extras.onnx.errors import required

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_WIDER = {2: 6, 3: 6, 4: 6, 5: 6, 12: 7, 13: 7}
"""uint8, int8, uint16, int16 -> int32; uint32, uint64 -> int64, as the numbers of ONNX's element types."""


def simplified(model: ModelProto) -> ModelProto:
    """Return the graph with wider whole numbers, and without empty inputs of a Concat.

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
    return model


def _widened(tensor: TensorProto) -> TensorProto:
    """Return a constant with a wider type of whole numbers."""
    helper = required("onnx").numpy_helper
    wider = {6: "int32", 7: "int64"}[_WIDER[tensor.data_type]]
    widened: TensorProto = helper.from_array(helper.to_array(tensor).astype(wider), tensor.name)
    return widened


def _drop_inputs(node: NodeProto, empty: set[str]) -> None:
    """Remove the empty inputs of a Concat, unless all are empty."""
    kept = [name for name in node.input if name not in empty]
    if kept:
        node.input[:] = kept
