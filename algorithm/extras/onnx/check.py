"""Comparison of a graph, run by onnxruntime, with the policy that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array, Float
from algorithm.extras.onnx.errors import ExportError, required
from algorithm.extras.onnx.names import MEMORY_OUT, Ports
from algorithm.extras.onnx.reference import Answer, Reference, Situation

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

AnyArray = NDArray[Any]

BATCHES, STEPS, DRAWS = (1, 2, 7), 20, 20_000
"""Numbers of agents, steps of each, and samples."""

TOLERANCE = 1e-5
"""Largest difference, in units of the largest number of that output and at least 1."""

_ROWS = 8
"""Situations that samples are drawn in."""

_MODE = "deterministic_"
"""Prefix of the outputs that are no samples."""

_SIGMAS = 4.0
_NUMBERS = 4_000_000
"""Numbers of the observations at most that are given to the runtime at once."""

_FIXED = (
    "len(x), int(x) and loops over a tensor become constants when networks are traced, and numpy is not "
    "traced; use x.shape[0] and operations on tensors in nn.py"
)


@dataclass(frozen=True)
class Checked:
    """Outcome of a check: the largest difference, and samples that were compared with π."""

    difference: float
    draws: int


class Checker:
    """Check of one graph.

    data: the graph, as in its file
    """

    def __init__(self, data: bytes, ports: Ports, reference: Reference) -> None:
        self._session = session_of(data)
        self._ports, self._reference, self._spec = ports, reference, reference.spec
        self._difference = 0.0

    def __call__(self, seed: int = 0) -> Checked:
        """Check everything. Raises ExportError that names the output which is wrong."""
        rng = np.random.default_rng(seed)
        self._check_ports()
        self._check_constants(rng)
        for n in BATCHES:
            self._check_steps(n, rng)
        self._check_draws(rng)
        return Checked(self._difference, DRAWS)

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
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
        for found, ports in (
            (self._session.get_inputs(), self._ports.inputs),
            (self._session.get_outputs(), self._ports.outputs),
        ):
            has = [(one.name, kinds.get(one.type, one.type)) for one in found]
            wanted = [(port.name, port.dtype) for port in ports]
            if has != wanted:
                raise ExportError("the graph has other inputs or outputs", why=f"{has}, not {wanted}")

    def _check_constants(self, rng: np.random.Generator) -> None:
        """Compare what says the version and sizes, on zeros as Unity reads it, and on other numbers."""
        zeros = {port.name: np.zeros((1, *port.shape), port.dtype) for port in self._ports.inputs}
        situation = self._reference.situation(3, rng)
        others = self._reference.feeds(situation, self._ports, self._no_memory(3))
        for found in (self._run(zeros), self._run(others)):
            for port in self._ports.outputs:
                if port.batched:
                    continue
                wanted = np.array(port.values, np.float32).reshape(port.shape)
                if not np.array_equal(found[port.name], wanted):
                    raise _wrong(port.name, "on zeros and random numbers", found[port.name], wanted)

    def _check_steps(self, n: int, rng: np.random.Generator) -> None:
        """Act for some steps, by samples and by modes, graph and policy each with a memory of its own."""
        memory, initial = self._no_memory(n), self._reference.initial_carry(n)
        befores = dict.fromkeys(("", _MODE), (self._spec.action.padding(n), initial))
        for step in range(STEPS):
            situation = self._reference.situation(n, rng)
            found = self._run(self._reference.feeds(situation, self._ports, memory))
            where, remembered = f"a batch of {n}, step {step + 1}", []
            for prefix, before in befores.items():
                answer = self._reference.answer(situation, *before)
                befores[prefix] = self._flat(found, prefix), answer.carry
                remembered += [(answer.carry - initial).reshape(n, -1), befores[prefix][0]]
            self._compare(found, answer, situation, where)  # of the modes
            if memory is not None:
                memory = found[MEMORY_OUT]
                self._close(MEMORY_OUT, where, memory[:, 0], np.concatenate(remembered, 1))

    def _compare(self, found: Mapping[str, Any], answer: Answer, situation: Situation, where: str) -> None:
        for port in self._ports.outputs:
            got = found[port.name]
            if port.batched and got.shape != (situation.size, *port.shape):
                raise _wrong(port.name, where, got.shape, (situation.size, *port.shape))
        if self._spec.action.continuous:
            name = f"{_MODE}continuous_actions"
            self._close(name, where, found[name], answer.u)
        if self._spec.action.branches:
            name = f"{_MODE}discrete_actions"
            for each in ("discrete_actions", name):
                self._check_allowed(each, found[each], situation, where)
            self._check_largest(name, found[name], answer.scores, situation, where)

    def _close(self, name: str, where: str, found: AnyArray, wanted: AnyArray) -> None:
        difference = float(np.abs(found - wanted).max(initial=0.0))
        share = difference / max(1.0, float(np.abs(wanted).max(initial=0.0)))
        if not share <= TOLERANCE:  # NaN, too
            raise _wrong(name, where, found, wanted)
        self._difference = max(self._difference, difference)

    def _check_allowed(self, name: str, found: AnyArray, situation: Situation, where: str) -> None:
        for branch, part in enumerate(self._spec.action.branch_slices):
            mask, rows = situation.mask[:, part], np.arange(situation.size)
            inside = (found[:, branch] >= 0) & (found[:, branch] < mask.shape[1])
            allowed = inside & mask[rows, np.where(inside, found[:, branch], 0)]
            if not allowed.all():
                row = int(np.flatnonzero(~allowed)[0])
                raise ExportError(
                    f"the graph's {name} violate the mask",
                    where=f"{where}, branch {branch}",
                    why=f"{found[row, branch]} was chosen, allowed are {np.flatnonzero(mask[row]).tolist()}",
                )

    def _check_largest(
        self, name: str, found: AnyArray, scores: Float, situation: Situation, where: str
    ) -> None:
        """Compare choices with the largest scores; either of two that are equal but for rounding is right."""
        for branch, part in enumerate(self._spec.action.branch_slices):
            own = np.where(situation.mask[:, part], scores[:, part], -np.inf)
            best, chosen = own.max(1), own[np.arange(len(own)), found[:, branch]]
            if not (best - chosen <= TOLERANCE * np.maximum(1.0, np.abs(best))).all():
                raise _wrong(name, f"{where}, branch {branch}", found[:, branch], own.argmax(1))

    def _flat(self, found: Mapping[str, Any], prefix: str) -> Float:
        """Return the flat actions [N, A] of a graph: its samples, or with the prefix its modes."""
        kind = "continuous" if self._spec.action.continuous else "discrete"
        n = len(found[f"{prefix}{kind}_actions"])
        flat = self._spec.action.padding(n)
        for branch, part in enumerate(self._spec.action.branch_slices):
            flat[np.arange(n), part.start + found[f"{prefix}discrete_actions"][:, branch]] = 1.0
        if self._spec.action.continuous:
            flat[:, self._spec.action.discrete :] = found[f"{prefix}continuous_actions"]
        return flat

    def _no_memory(self, n: int) -> Float | None:
        return np.zeros((n, 1, self._ports.memory), np.float32) if self._ports.memory else None

    def _check_draws(self, rng: np.random.Generator) -> None:
        """Compare samples with π; what is outside once is drawn anew, for of many numbers one may be."""
        situation = self._reference.situation(_ROWS, rng)
        wrong = self._outside(situation)
        again = self._outside(situation) if wrong else []
        if both := [one for one in again if one in wrong]:
            raise ExportError(
                f"the samples of the graph are not those of the policy: {both[0]}",
                where=f"{DRAWS:,} draws for {_ROWS} observations",
                why=f"they differ by more than {_SIGMAS:g} standard deviations, twice",
            )

    def _outside(self, situation: Situation) -> list[str]:
        times = DRAWS // _ROWS
        found = self._drawn(situation, times)
        probs, grid = self._reference.distribution(situation)
        repeated, wrong = situation.repeated(times), []
        if self._spec.action.branches:
            indices = found["discrete_actions"]
            self._check_allowed("discrete_actions", indices, repeated, f"{DRAWS:,} draws")
            if self._reference.greedy:
                u = found.get("continuous_actions", np.zeros((len(indices), 0), np.float32))
                scores = self._reference.scores_at(repeated, u)
                self._check_largest("discrete_actions", indices, scores, repeated, "of draws")
            else:
                wrong += self._frequencies(indices.reshape(times, _ROWS, -1), probs)
        if self._spec.action.continuous:
            u = found["continuous_actions"].reshape(times, _ROWS, -1).astype(np.float64)
            wrong += _moments(u, grid.astype(np.float64))
        return wrong

    def _frequencies(self, indices: Array, probs: Float) -> list[str]:
        """Return the choices whose counts are unlikely, of indices [T, R, branches]."""
        wrong, times = [], len(indices)
        for branch, part in enumerate(self._spec.action.branch_slices):
            for choice, p in enumerate(probs[:, part].T.astype(np.float64)):
                count = (indices[:, :, branch] == choice).sum(0)
                # Of a rare choice the counts are those of Poisson, which are wider than the normal ones.
                limit = _SIGMAS * np.sqrt(times * p * (1.0 - p)) + _SIGMAS
                if (np.abs(count - times * p) > limit).any():
                    wrong.append(f"discrete_actions, branch {branch}, choice {choice}")
        return wrong

    def _drawn(self, situation: Situation, times: int) -> dict[str, Any]:
        """Return what the graph draws in each row of a situation, so many times one after the other."""
        numbers = sum(int(np.prod(port.shape)) for port in self._ports.inputs)
        step = max(1, min(times, _NUMBERS // (numbers * situation.size)))
        parts = []
        for start in range(0, times, step):
            many = situation.repeated(min(step, times - start))
            feeds = self._reference.feeds(many, self._ports, self._no_memory(many.size))
            parts.append(self._run(feeds))
        wanted = [port.name for port in self._ports.outputs if port.batched]
        return {name: np.concatenate([part[name] for part in parts]) for name in wanted}


def _moments(u: Array, grid: Array) -> list[str]:
    """Return what is unlikely of samples u [T, R, A_c], π's being grid [R, G, A_c]."""
    wrong = []
    for name, power in (("mean", 1), ("square", 2)):
        found, wanted = (u**power).mean(0), (grid**power).mean(1)
        limit = _SIGMAS * (grid**power).std(1) / np.sqrt(len(u)) + 10 * TOLERANCE
        inside = (np.abs(found - wanted) <= limit).all(0)
        wrong += [f"continuous_actions {index}, the {name}" for index in np.flatnonzero(~inside)]
    return wrong


def _wrong(name: str, where: str, found: object, wanted: object) -> ExportError:
    shown = [
        np.array2string(np.asarray(one), precision=6, threshold=8, edgeitems=2) for one in (found, wanted)
    ]
    return ExportError(
        f"the graph's output {name} is not that of the policy",
        where=where,
        why=" ".join(f"got {shown[0]}, expected {shown[1]}".split()),
        fix=_FIXED,
    )


def session_of(data: bytes | str) -> InferenceSession:
    """Return a session of one thread. Raises UsageError without onnxruntime, ExportError for no graph."""
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
