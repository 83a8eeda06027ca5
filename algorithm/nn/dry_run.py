"""Dry runs of networks on zero batches before training, with errors that name class, method and shapes."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from algorithm.core.errors import COMMON_BLOCK, ModelError, described, import_fix
from algorithm.core.spec import AgentSpec
from algorithm.nn.normalise import NoNormaliser
from algorithm.nn.protocols import HybridAction, Memory, Obs, Rep, q_size

_LEADS = (2, 3), (1, 1)  # batch size and time steps of the dry runs: as in learning, and as in acting


class blame:  # noqa: N801 - reads as a statement: with blame(...)
    """Context that turns an exception of the user's code into a :class:`ModelError`.

    The error names class, method and line, and has ``details`` such as the arguments.
    """

    def __init__(self, name: str, method: str, where: str, details: str = "") -> None:
        self.name, self.method, self.where, self.details = name, method, where, details

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, ModelError):
            return
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == self.where]
        line = f":{frames[-1].lineno}" if frames else ""
        raise ModelError(
            f"{'.'.join(filter(None, (self.name, self.method)))} failed{self.details}",
            where=f"{self.where}{line}",
            why=described(error),
            fix=import_fix(error) or "",
        ) from error


def file_of(network: nn.Module) -> str:
    """Return the file that defines ``forward``; ``sys.modules`` may lack the module of a task's class."""
    file: str = inspect.unwrap(type(network).forward).__code__.co_filename
    return file


@torch.no_grad()
def shape_of(
    network: nn.Module,
    inputs: Sequence[object],
    expected: Sequence[int | str],
    *,
    name: str = "",
    where: str = "",
    fix: str = "",
) -> tuple[int, ...]:
    """Run a network and return the shape of its result; ``expected`` has letters for free sizes.

    name, where, fix: class, file and advice of the error
    Raises ModelError if the result has another shape or is no tensor, or if the network fails.
    """
    name, where = name or type(network).__name__, where or file_of(network)
    with blame(name, "forward", where):
        result = network(*inputs)
    return fitting_shape(name, where, "shape", expected, result, fix=fix)


def fitting_shape(
    name: str, where: str, what: str, expected: Sequence[int | str], value: object, *, fix: str = ""
) -> tuple[int, ...]:
    """Return the shape of a value. Raises ModelError unless it is a tensor of the ``expected`` shape.

    name, where, what, fix: class, file, name of the value and advice of the error
    """
    got = tuple(value.shape) if isinstance(value, torch.Tensor) else None
    pairs = zip(expected, got or (), strict=False)
    same = all(isinstance(size, str) or size == actual for size, actual in pairs)
    if got is None or len(got) != len(expected) or not same:
        shown = str(tuple(expected)).replace("'", "")
        why = f"expected {shown}, got {type(value).__name__ if got is None else got}"
        raise ModelError(f"{name}.forward returned a wrong {what}", where=where, why=why, fix=fix)
    return got


def _expect(name: str, method: str, where: str, what: str, expected: object, got: object) -> None:
    if expected != got:
        raise ModelError(
            f"{name}.{method} returned a wrong {what}", where=where, why=f"expected {expected}, got {got}"
        )


def _zeros(spec: AgentSpec, *lead: int) -> Mapping[str, torch.Tensor]:
    obs = {name: torch.from_numpy(value) for name, value in spec.obs.zeros(*lead).items()}
    seen: Mapping[str, torch.Tensor] = NoNormaliser()(obs)
    return seen


@torch.no_grad()
def check_rep(rep: nn.Module, spec: AgentSpec, where: str, memory: Memory | None) -> int:
    """Check a ``ModelRep`` by dry runs; return the width S of its states.

    memory: the kind that ``seq_encoder`` requires
    Raises :class:`ModelError` if it returns a wrong shape, has another memory, or depends on padding.
    """
    if not isinstance(rep, Rep):
        raise ModelError("ModelRep must be a subclass of algorithm.nn.Rep", where=where)
    rep.eval()
    _check_carry_shapes(rep, where, memory)
    size, size_acting = (_run_window(rep, spec, where, *lead) for lead in _LEADS)
    _expect("ModelRep", "forward", where, "state width", size, size_acting)
    if memory:
        _check_acting(rep, spec, where, size)
        _check_padding(rep, spec, where)
    return size


def _check_carry_shapes(rep: Rep, where: str, memory: Memory | None) -> None:
    carry, stored = rep.carry_shape, rep.stored_carry_shape
    for name in ("carry_shape", "stored_carry_shape"):
        shape = getattr(rep, name)
        if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
            raise ModelError(
                f"ModelRep.{name} is not a tuple of whole numbers", where=where, why=f"it is {shape}"
            )
    expected = {None: (0,), "RNN": carry, "ATTN": (0,)}[memory]
    if (carry != (0,)) == bool(memory) and stored == expected:
        return
    kinds = {
        None: "null, which is for one without memory: both shapes are (0,)",
        "RNN": "RNN, which stores what it carries: both shapes are the same and not empty",
        "ATTN": "ATTN, which carries a cache and stores nothing: carry_shape is not empty, "
        "stored_carry_shape is (0,)",
    }
    raise ModelError(
        "ModelRep does not have the memory that is configured",
        where=where,
        why=f"its carry_shape is {carry}, its stored_carry_shape {stored}; "
        f"{COMMON_BLOCK}.seq_encoder is {kinds[memory]}",
        fix=f"change {COMMON_BLOCK}.seq_encoder, or the shapes of the class",
    )


def _run_window(rep: Rep, spec: AgentSpec, where: str, batch: int, time: int) -> int:
    with blame("ModelRep", "forward", where):
        result = rep(
            _zeros(spec, batch, time),
            torch.zeros(batch, time, spec.action.size),
            torch.zeros(batch, *rep.stored_carry_shape),
            torch.ones(batch, time, dtype=torch.bool),
        )
    if not isinstance(result, tuple) or len(result) != 2:
        _expect("ModelRep", "forward", where, "value", "a pair (state, carry)", type(result).__name__)
    state, carry = result
    got = fitting_shape("ModelRep", where, "state shape", (batch, time, "S"), state)
    _expect("ModelRep", "forward", where, "state dtype", torch.get_default_dtype(), state.dtype)
    if rep.stored_carry_shape != (0,):
        fitting_shape("ModelRep", where, "carry shape", (batch, time, *rep.carry_shape), carry)
    return got[2]


def _check_acting(rep: Rep, spec: AgentSpec, where: str, state_size: int) -> None:
    """Check the initial carry, and the shapes for a token at an episode's start."""
    with blame("ModelRep", "initial_carry", where):
        initial = rep.initial_carry(2)
    shape = (2, *rep.carry_shape)
    _expect("ModelRep", "initial_carry", where, "shape", shape, tuple(initial.shape))
    if initial.requires_grad or initial.any():
        raise ModelError(
            "ModelRep.initial_carry is not all zeros",
            where=where,
            why="zeros mark an episode's start in the replay and wherever agents are reset",
            fix="leave the method out; learn the start in forward instead",
        )
    obs, action = _halves(spec, 2, 1), torch.zeros(2, 1, spec.action.size)
    with blame("ModelRep", "forward", where):
        state, carry = rep(obs, action, initial, torch.ones(2, 1, dtype=torch.bool))
    fitting_shape("ModelRep", where, "state shape while acting", (2, 1, state_size), state)
    fitting_shape("ModelRep", where, "carry shape while acting", (2, 1, *rep.carry_shape), carry)


def _check_padding(rep: Rep, spec: AgentSpec, where: str) -> None:
    """Check that windows with a missing first or last token have the states of windows without it."""

    def run(obs: Obs, action: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        state: torch.Tensor
        carry = torch.full((len(valid), *rep.stored_carry_shape), 0.5)
        with blame("ModelRep", "forward", where):
            state, _ = rep(obs, action, carry, valid)
        return state

    obs, action = _halves(spec, 2, 3), torch.zeros(2, 3, spec.action.size)
    valid = torch.tensor([[False, True, True], [True, True, False]])
    for value in (action, *(v for v in obs.values() if v.is_floating_point())):
        value[~valid] = 1.0
    here = [slice(1, 3), slice(0, 2)]
    short = {
        name: torch.stack([value[row, cut] for row, cut in enumerate(here)]) for name, value in obs.items()
    }
    window = run(obs, action, valid)
    if not torch.equal(window, run(obs, action, valid)):
        return  # the network draws random numbers, so results cannot be compared
    alone = run(short, torch.zeros(2, 2, spec.action.size), torch.ones(2, 2, dtype=torch.bool))
    if not torch.allclose(window[valid].view_as(alone), alone, atol=1e-4):
        raise ModelError(
            "ModelRep.forward lets tokens that do not exist change the states of others",
            where=where,
            why="windows can begin before an episode's first step and end after its last",
            fix="pass `valid` on to the memory: m.GRU, m.LSTM and m.Attention handle it",
        )


def _halves(spec: AgentSpec, *lead: int) -> dict[str, torch.Tensor]:
    """Return observations [*lead, ...] of 0.5 for real numbers and 0 for all others."""
    return {name: v + 0.5 if v.is_floating_point() else v for name, v in _zeros(spec, *lead).items()}


def check_q(q: nn.Module, spec: AgentSpec, state_size: int, where: str) -> None:
    """Raise :class:`ModelError` if a critic does not return [B, N]."""
    q.eval()
    outputs = f"{COMMON_BLOCK}.value_head has {spec.action.values} outputs for each value"
    fix = f"use m.q_size(spec.action) as the width of the last layer: {outputs}" * (spec.action.values > 1)
    for batch, _ in _LEADS:
        inputs = torch.zeros(batch, state_size), torch.zeros(batch, spec.action.continuous)
        shape_of(q, inputs, (batch, q_size(spec.action)), name="ModelQ", where=where, fix=fix)


def check_v(v: nn.Module, spec: AgentSpec, state_size: int, where: str) -> None:
    """Raise :class:`ModelError` if a value function does not return [B]."""
    v.eval()
    for batch, _ in _LEADS:
        inputs = torch.zeros(batch, state_size), _zeros(spec, batch)
        shape_of(v, inputs, (batch,), name="ModelV", where=where)


@torch.no_grad()
def check_policy(policy: nn.Module, spec: AgentSpec, state_size: int, where: str) -> None:
    """Raise :class:`ModelError` if a policy does not return a distribution that fits the actions."""
    policy.eval()
    action = spec.action
    for batch, _ in _LEADS:
        with blame("ModelPolicy", "forward", where):
            result = policy(torch.zeros(batch, state_size), _zeros(spec, batch))
        if not isinstance(result, HybridAction):
            _expect("ModelPolicy", "forward", where, "value", "HybridAction", type(result).__name__)
        if action.continuous and result.continuous is None:
            _expect("ModelPolicy", "forward", where, "continuous part", "TanhNormal", None)
        for name, value in vars(result.continuous).items() if action.continuous else ():
            fitting_shape("ModelPolicy", where, f"shape of {name}", (batch, action.continuous), value)
        if action.branches:
            fitting_shape("ModelPolicy", where, "shape of logits", (batch, action.discrete), result.logits)
