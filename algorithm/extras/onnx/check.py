"""Comparison of an exported graph, run by onnxruntime, with its policy in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.errors import ExportError, required
from algorithm.extras.onnx.graph import PolicyGraph
from algorithm.extras.onnx.names import MASKS, MEMORY_IN, MEMORY_OUT
from algorithm.nn.normalise import Normaliser

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

AnyArray = NDArray[Any]
Arrays = dict[str, AnyArray]

BATCHES, STEPS = (1, 2, 7), 20
"""Numbers of agents, and steps of each."""

TOLERANCE = 1e-5
"""Largest difference, in units of the largest number of that output and at least 1."""

TIES = 2
"""Most agents of all steps with another choice: of two with the same score by rounding, either is right."""

_CHOICES = "deterministic_discrete_actions"
_FIXED = (
    "len(x), int(x) and loops over a tensor become constants when networks are traced, and numpy is not "
    "traced; use x.shape[0] and operations on tensors in nn.py"
)


class Checker:
    """Check of one graph, given as the bytes of its file.

    policy: module from the graph's inputs to its outputs, with the networks as they were trained
    """

    def __init__(self, data: bytes, policy: PolicyGraph, spec: AgentSpec) -> None:
        self._session, self._policy, self._spec = session_of(data), policy, spec
        self._difference, self._other_choices = 0.0, 0

    @torch.inference_mode()
    def __call__(self) -> float:
        """Run all checks; return the largest difference. Raises ExportError that names the wrong output."""
        rng, names = np.random.default_rng(0), [port.name for port in self._policy.ports.outputs]
        for n in BATCHES:
            memory = np.zeros((n, 1, self._policy.ports.memory), np.float32)
            for step in range(STEPS):
                feeds = self._feeds(n, rng) | ({MEMORY_IN: memory} if memory.size else {})
                outputs = dict(zip(names, self._run(feeds, names), strict=True))
                results = self._policy(*map(torch.from_numpy, feeds.values()))
                wanted = dict(zip(names, (tensor.numpy() for tensor in results), strict=True))
                self._compare(outputs, wanted, feeds, f"a batch of {n}, step {step + 1}")
                memory = outputs.get(MEMORY_OUT, memory)
        return self._difference

    def _feeds(self, n: int, rng: np.random.Generator) -> Arrays:
        """Return random inputs but for the memory: observations near those that were seen, and some masks."""
        ports, normaliser = self._policy.ports.inputs, self._policy.model.normaliser
        feeds: Arrays = {}
        for port, name, dtype, categories in zip(
            ports, self._spec.obs.names, self._spec.obs.dtypes, self._spec.obs.categories, strict=False
        ):
            values: AnyArray = rng.normal(size=(n, *port.shape))
            if categories:
                values = rng.integers(np.reshape(categories, port.shape), size=values.shape)
            elif isinstance(normaliser, Normaliser) and name in normaliser.names and len(port.shape) < 3:
                shift, scale = (tensor.numpy().reshape(port.shape) for tensor in normaliser.of(name))
                values = values / scale + shift
            elif dtype != "float32":
                values = rng.random(values.shape)
            if np.dtype(dtype).kind in "iu" and len(port.shape) < 3:
                values = values.round().clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
            feeds[port.name] = values.astype(port.dtype)
        if self._spec.action.branches:
            mask = rng.random((n, self._spec.action.discrete)) < 0.6
            for where in self._spec.action.branch_slices:
                mask[np.arange(n), rng.integers(where.start, where.stop, n)] = True
            feeds[MASKS] = mask.astype(np.float32)
        return feeds

    def _run(self, feeds: Arrays, names: list[str]) -> list[AnyArray]:
        """Run the graph; return its outputs. Raises ExportError."""
        try:
            outputs: list[AnyArray] = self._session.run(names, feeds)
        except Exception as error:  # the runtime has classes of its own, all below RuntimeError or not
            n = len(next(iter(feeds.values())))
            why = str(error).partition("\n")[0]
            raise ExportError(f"the graph does not run for a batch of {n}", why=why, fix=_FIXED) from error
        return outputs

    def _compare(self, outputs: Arrays, wanted: Arrays, feeds: Arrays, where: str) -> None:
        """Compare all outputs but samples, which the mask has to allow. Raises ExportError."""
        for name in outputs:
            if outputs[name].shape != wanted[name].shape:
                raise _wrong(name, where, outputs[name].shape, wanted[name].shape)
        for name in (name for name in outputs if name.endswith("discrete_actions")):
            self._check_allowed(name, outputs[name], feeds[MASKS] > 0, where)
        others = 0
        if _CHOICES in outputs:
            others = int((outputs[_CHOICES] != wanted[_CHOICES]).any(1).sum())
            self._other_choices += others
            if self._other_choices > TIES:
                raise _wrong(_CHOICES, where, outputs[_CHOICES], wanted[_CHOICES])
        for name, output in outputs.items():
            expected = wanted[name]
            if name in ("discrete_actions", "continuous_actions", _CHOICES):
                continue
            if name == MEMORY_OUT:
                if others:
                    continue  # it holds the choices
                modes = self._policy.memory_of_modes
                output, expected = output[:, 0, modes], expected[:, 0, modes]
            self._compare_numbers(name, where, output, expected)

    def _compare_numbers(self, name: str, where: str, output: AnyArray, wanted: AnyArray) -> None:
        """Compare an output with the expected numbers. Raises ExportError."""
        difference = float(np.abs(output - wanted).max(initial=0.0))
        share = difference / max(1.0, float(np.abs(wanted).max(initial=0.0)))
        if not share <= TOLERANCE:  # NaN, too
            raise _wrong(name, where, output, wanted)
        self._difference = max(self._difference, difference)

    def _check_allowed(self, name: str, output: AnyArray, mask: AnyArray, where: str) -> None:
        """Check that the mask allows all choices [N, branches]. Raises ExportError."""
        for branch, part in enumerate(self._spec.action.branch_slices):
            if not mask[:, part][np.arange(len(mask)), output[:, branch]].all():
                raise ExportError(f"the graph's {name} violate the mask", where=f"{where}, branch {branch}")


def _wrong(name: str, where: str, output: object, wanted: object) -> ExportError:
    """Return the error of an output that differs from the expected values."""
    shown = [
        np.array2string(np.asarray(values), precision=6, threshold=8, edgeitems=2)
        for values in (output, wanted)
    ]
    return ExportError(
        f"the graph's output {name} is not that of the policy",
        where=where,
        why=" ".join(f"got {shown[0]}, expected {shown[1]}".split()),
        fix=_FIXED,
    )


def session_of(data: bytes | str) -> InferenceSession:
    """Return a session of one thread. Raises UsageError without onnxruntime, ExportError for bad data."""
    runtime = required("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session: InferenceSession = runtime.InferenceSession(
            data, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise ExportError("onnxruntime cannot read the graph", why=str(error).partition("\n")[0]) from error
    return session
