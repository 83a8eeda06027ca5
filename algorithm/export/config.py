"""Configuration of exports to ONNX."""

from __future__ import annotations

from algorithm.core.fields import Block, Whole, option

OLDEST, NEWEST = 9, 20
"""Operator sets: 9 is Barracuda's, 20 the newest that torch's TorchScript exporter is documented to write."""


class ExportConfig(Block):
    """A policy as an ONNX graph, which `--export FILE.onnx` writes."""

    opset: Whole = option(
        15,
        "Operator set. 15: the newest that Unity's Sentis reads, for whatever runs ONNX. 9: for Barracuda, "
        "without attention.",
        ge=OLDEST,
        le=NEWEST,
        resume="free",
    )
    sampled: bool = option(
        False,
        "With memory there is one action a step, since the next one depends on it. true: a sample. false: "
        "the mode. Without memory the graph has both.",
        resume="free",
    )
    check: bool = option(
        True,
        "Compare the graph with the policy, numbers and draws, before it is kept; needs onnxruntime. false: "
        "look at its operators alone.",
        resume="free",
    )
