"""Comparison of an exported graph, run by onnxruntime, with its policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array, Float
from algorithm.extras.onnx.errors import ExportError, required
from algorithm.extras.onnx.names import MEMORY_OUT, Ports
from algorithm.extras.onnx.reference import Reference, Situation

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

AnyArray = NDArray[Any]

BATCHES, STEPS = (1, 2, 7), 20
"""Numbers of agents, and steps of each."""

TOLERANCE = 1e-5
"""Largest difference, in units of the largest number of that output and at least 1."""

TIES = 2
"""Most agents of all steps with another choice: of two with the same score by rounding, either is right."""

_MODE = "deterministic_"
"""Prefix of the outputs that are modes instead of samples."""

_FIXED = (
    "len(x), int(x) and loops over a tensor become constants when networks are traced, and numpy is not "
    "traced; use x.shape[0] and operations on tensors in nn.py"
)


class Checker:
    """Check of one graph, given as the bytes of its file.

    ports:     expected inputs and outputs
    reference: the policy to compare with
    """

    def __init__(self, data: bytes, ports: Ports, reference: Reference) -> None:
        self._session = session_of(data)
        self._ports, self._reference, self._spec = ports, reference, reference.spec
        self._difference, self._other_choices = 0.0, 0

    def __call__(self) -> float:
        """Run all checks; return the largest difference. Raises ExportError that names the wrong output."""
        rng = np.random.default_rng(0)
        self._check_ports()
        self._check_constants(rng)
        for n in BATCHES:
            self._check_steps(n, rng)
        return self._difference

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Run the graph; return its outputs by name. Raises ExportError."""
        names = [port.name for port in self._ports.outputs]
        try:
            return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))
        except Exception as error:  # the runtime has classes of its own, all below RuntimeError or not
            n = len(next(iter(feeds.values())))
            why = str(error).partition("\n")[0]
            raise ExportError(f"the graph does not run for a batch of {n}", why=why, fix=_FIXED) from error

    def _check_ports(self) -> None:
        """Compare names, element types and shapes with those that ML-Agents expects."""
        kinds = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64"}
        for nodes, ports in (
            (self._session.get_inputs(), self._ports.inputs),
            (self._session.get_outputs(), self._ports.outputs),
        ):
            has = [(node.name, kinds.get(node.type, node.type)) for node in nodes]
            wanted = [(port.name, port.dtype) for port in ports]
            if has != wanted:
                raise ExportError("the graph has other inputs or outputs", why=f"{has}, not {wanted}")

    def _check_constants(self, rng: np.random.Generator) -> None:
        """Compare the constant outputs (version, sizes), for zeros, as in Unity, and other inputs."""
        zeros = {port.name: np.zeros((1, *port.shape), port.dtype) for port in self._ports.inputs}
        situation = self._reference.situation(3, rng)
        others = self._reference.feeds(situation, self._ports, self._no_memory(3))
        for outputs in (self._run(zeros), self._run(others)):
            for port in self._ports.outputs:
                if port.batched:
                    continue
                wanted = np.array(port.values, np.float32).reshape(port.shape)
                if not np.array_equal(outputs[port.name], wanted):
                    raise _wrong(port.name, "on zeros and random numbers", outputs[port.name], wanted)

    def _check_steps(self, n: int, rng: np.random.Generator) -> None:
        """Compare actions over some steps, samples and modes; graph and policy keep their memories apart."""
        memory, initial = self._no_memory(n), self._reference.initial_carry(n)
        befores = dict.fromkeys(("", _MODE), (self._spec.action.padding(n), initial))
        for step in range(STEPS):
            situation = self._reference.situation(n, rng)
            outputs = self._run(self._reference.feeds(situation, self._ports, memory))
            where, remembered = f"a batch of {n}, step {step + 1}", []
            self._check_shapes(outputs, n, where)
            for prefix, before in befores.items():
                mode, after = self._reference.act(situation, *before)
                if self._spec.action.branches:
                    name = f"{prefix}discrete_actions"
                    self._check_allowed(name, outputs[name], situation, where)
                taken = self._flat(outputs, prefix)
                if prefix:
                    self._compare_modes(taken, mode, where)
                befores[prefix] = taken, after
                remembered += [(after - initial).reshape(n, -1), taken]
            if memory is not None:
                memory = outputs[MEMORY_OUT]
                self._compare_numbers(MEMORY_OUT, where, memory[:, 0], np.concatenate(remembered, 1))

    def _check_shapes(self, outputs: Mapping[str, Any], n: int, where: str) -> None:
        """Raise ExportError for outputs of another shape than for n agents."""
        for port in self._ports.outputs:
            shape = outputs[port.name].shape
            if port.batched and shape != (n, *port.shape):
                raise _wrong(port.name, where, shape, (n, *port.shape))

    def _compare_modes(self, taken: Float, mode: Float, where: str) -> None:
        """Compare flat actions [N, A] of the graph with the policy's. Raises ExportError."""
        discrete = self._spec.action.discrete
        self._compare_numbers(f"{_MODE}continuous_actions", where, taken[:, discrete:], mode[:, discrete:])
        self._other_choices += int((taken[:, :discrete] != mode[:, :discrete]).any(1).sum())
        if self._other_choices > TIES:
            raise _wrong(f"{_MODE}discrete_actions", where, taken[:, :discrete], mode[:, :discrete])

    def _compare_numbers(self, name: str, where: str, output: AnyArray, wanted: AnyArray) -> None:
        """Compare an output with the expected numbers. Raises ExportError."""
        difference = float(np.abs(output - wanted).max(initial=0.0))
        share = difference / max(1.0, float(np.abs(wanted).max(initial=0.0)))
        if not share <= TOLERANCE:  # NaN, too
            raise _wrong(name, where, output, wanted)
        self._difference = max(self._difference, difference)

    def _check_allowed(self, name: str, output: AnyArray, situation: Situation, where: str) -> None:
        """Check that the mask allows all choices [N, branches]. Raises ExportError."""
        for branch, part in enumerate(self._spec.action.branch_slices):
            mask, rows = situation.mask[:, part], np.arange(situation.size)
            inside = (output[:, branch] >= 0) & (output[:, branch] < mask.shape[1])
            allowed = inside & mask[rows, np.where(inside, output[:, branch], 0)]
            if not allowed.all():
                row = int(np.flatnonzero(~allowed)[0])
                raise ExportError(
                    f"the graph's {name} violate the mask",
                    where=f"{where}, branch {branch}",
                    why=f"{output[row, branch]} was chosen, allowed are {np.flatnonzero(mask[row]).tolist()}",
                )

    def _flat(self, outputs: Mapping[str, Any], prefix: str) -> Float:
        """Return the flat actions [N, A] of a graph: its samples, or with the prefix its modes."""
        kind = "continuous" if self._spec.action.continuous else "discrete"
        n = len(outputs[f"{prefix}{kind}_actions"])
        flat = self._spec.action.padding(n)
        for branch, part in enumerate(self._spec.action.branch_slices):
            flat[np.arange(n), part.start + outputs[f"{prefix}discrete_actions"][:, branch]] = 1.0
        if self._spec.action.continuous:
            flat[:, self._spec.action.discrete :] = outputs[f"{prefix}continuous_actions"]
        return flat

    def _no_memory(self, n: int) -> Float | None:
        """Return the memory of n agents at a start; None for a graph without one."""
        return np.zeros((n, 1, self._ports.memory), np.float32) if self._ports.memory else None


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
