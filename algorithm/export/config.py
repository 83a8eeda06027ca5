"""Configuration of exports to ONNX."""

from __future__ import annotations

from algorithm.core.fields import Block, Whole, option

OLDEST, NEWEST = 9, 20
"""Operator sets: 9 is Barracuda's, 20 the newest that torch's TorchScript exporter is documented to write."""


class ExportConfig(Block):
    """A policy as an ONNX graph, which `--export FILE.onnx` writes."""

    opset: Whole = option(
        15,
        "ONNX operator set. 15: newest for Unity's Sentis. 9: Barracuda, without attention.",
        ge=OLDEST,
        le=NEWEST,
        resume="free",
    )
    per_checkpoint: bool = option(
        False,
        "Write a graph for each behavior into the folder onnx of every checkpoint, too.",
        resume="free",
    )
    check: bool = option(
        True,
        "Compare the graph with the policy before keeping it; needs onnxruntime. false: check operators "
        "only.",
        resume="free",
    )
