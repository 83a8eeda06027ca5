"""From a task's ``nn.py`` to checked networks; what it leaves out gets a default for the spec."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import nn

from algorithm.errors import ModelError
from algorithm.nn import defaults
from algorithm.nn.distributions import HybridAction
from algorithm.nn.protocols import Rep, q_size
from algorithm.spec import AgentSpec

REQUIRED = ("ModelRep", "ModelQ", "ModelPolicy")
OPTIONAL = (
    "ModelTransition",
    "ModelReward",
    "ModelObservation",
    "ModelForwardDynamic",
    "ModelInverseDynamic",
    "ModelRND",
    "ModelRepProjection",
    "ModelRepPrediction",
)
_LEADS = (2, 3), (1, 1)  # batch and time of the dry runs: learning, and acting alone


@dataclass(frozen=True)
class Networks:
    """Single networks of one agent, checked on zero batches."""

    rep: Rep
    make_q: Callable[[], nn.Module]  # a new critic with its own initial weights at each call
    policy: nn.Module
    state_size: int  # S
    sources: Mapping[str, str] = field(default_factory=dict)  # class name -> where it came from


def load_networks(
    spec: AgentSpec,
    file: Path | None,
    *,
    rep: Mapping[str, Any] | None = None,
    q: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
) -> Networks:
    """Build and dry-run the three networks of an agent.

    file:           the ``nn.py``; None takes every class from the defaults.
    rep, q, policy: keyword arguments of ``nn_config``.
    Raises :class:`ModelError` if the file does not import, a class does not build or returns a wrong shape.
    """
    module = _import(file) if file else None
    classes = {name: _pick(module, name) for name in REQUIRED}
    where = {name: str(file) if module and hasattr(module, name) else "default" for name in REQUIRED}

    def build(name: str, kwargs: Mapping[str, Any] | None, *args: object) -> nn.Module:
        with _blame(name, "__init__", where[name]):
            return cast(nn.Module, classes[name](*args, **(kwargs or {})))

    rep_module = build("ModelRep", rep, spec)
    state_size = _check_rep(rep_module, spec, where["ModelRep"])
    _check_q(build("ModelQ", q, spec, state_size), spec, state_size, where["ModelQ"])
    policy_module = build("ModelPolicy", policy, spec, state_size)
    _check_policy(policy_module, spec, state_size, where["ModelPolicy"])
    sources = {name: "nn.py" if source != "default" else "default" for name, source in where.items()}
    return Networks(
        rep=cast(Rep, rep_module),
        make_q=lambda: build("ModelQ", q, spec, state_size),
        policy=policy_module,
        state_size=state_size,
        sources=sources,
    )


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        raise ModelError(
            "the model file was not found", where=file, fix="create it, or set sac_config.nn to another name"
        )
    module_spec = importlib.util.spec_from_file_location(f"task_nn_{abs(hash(file.resolve()))}", file)
    if module_spec is None or module_spec.loader is None:
        raise ModelError("the model file is not a Python file", where=file, fix="give it the ending .py")
    module = importlib.util.module_from_spec(module_spec)
    with _blame("the file", "import", str(file)):
        module_spec.loader.exec_module(module)
    _check_names(module, file)
    return module


def _check_names(module: ModuleType, file: Path) -> None:
    """A misspelt class would silently be replaced by a default, so every ``Model…`` must be one we know."""
    for name, value in vars(module).items():
        own = inspect.isclass(value) and value.__module__ == module.__name__
        if not own or not name.startswith("Model") or name in REQUIRED:
            continue
        if name in OPTIONAL:
            raise ModelError(f"{name} is not available in this version", where=file, fix="remove the class")
        close = difflib.get_close_matches(name, (*REQUIRED, *OPTIONAL), n=1)
        hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join((*REQUIRED, *OPTIONAL))
        raise ModelError(
            f"unknown model class {name}",
            where=file,
            why="only classes with a known name are used, this one would be ignored",
            fix=f"{hint} A helper class may have any name that does not begin with Model.",
        )


def _pick(module: ModuleType | None, name: str) -> type[nn.Module]:
    cls = getattr(module, name, None) or getattr(defaults, name)
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        raise ModelError(f"{name} must be a subclass of torch.nn.Module", where=module and module.__file__)
    return cls


class _blame:  # noqa: N801 - reads as a statement: with _blame(...)
    """Turns an exception of the user's code into a :class:`ModelError` that names class, method and line."""

    def __init__(self, name: str, method: str, where: str) -> None:
        self.name, self.method, self.where = name, method, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, ModelError):
            return
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == self.where]
        line = f":{frames[-1].lineno}" if frames else ""
        raise ModelError(
            f"{self.name}.{self.method} failed",
            where=f"{self.where}{line}",
            why=f"{type(error).__name__}: {error}",
        ) from error


def _expect(name: str, method: str, where: str, what: str, expected: object, got: object) -> None:
    if expected != got:
        raise ModelError(
            f"{name}.{method} returned a wrong {what}", where=where, why=f"expected {expected}, got {got}"
        )


def _zeros(spec: AgentSpec, *lead: int) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in spec.obs.zeros(*lead).items()}


@torch.no_grad()
def _check_rep(rep: nn.Module, spec: AgentSpec, where: str) -> int:
    if not isinstance(rep, Rep):
        raise ModelError("ModelRep must be a subclass of algorithm.nn.Rep", where=where)
    many, one = (_rep_state_size(rep.eval(), spec, where, *lead) for lead in _LEADS)
    _expect("ModelRep", "forward", where, "state width", many, one)
    return many


def _rep_state_size(rep: Rep, spec: AgentSpec, where: str, batch: int, time: int) -> int:
    with _blame("ModelRep", "forward", where):
        result = rep(
            _zeros(spec, batch, time),
            torch.zeros(batch, time, spec.action.size),
            rep.initial_carry(batch),
            torch.ones(batch, time, dtype=torch.bool),
        )
    if not isinstance(result, tuple) or len(result) != 2:
        _expect("ModelRep", "forward", where, "value", "a pair (state, carry)", type(result).__name__)
    state, carry = result
    got = tuple(state.shape)
    shown = (*got[:2], "S") if len(got) == 3 else got
    _expect("ModelRep", "forward", where, "state shape", (batch, time, "S"), shown)
    _expect("ModelRep", "forward", where, "state dtype", torch.get_default_dtype(), state.dtype)
    if rep.carry_shape != (0,):
        shape = (batch, time, *rep.carry_shape)
        _expect("ModelRep", "forward", where, "carry shape", shape, tuple(carry.shape))
    return got[2]


@torch.no_grad()
def _check_q(q: nn.Module, spec: AgentSpec, state_size: int, where: str) -> None:
    q.eval()
    for batch, _ in _LEADS:
        with _blame("ModelQ", "forward", where):
            value = q(torch.zeros(batch, state_size), torch.zeros(batch, spec.action.continuous))
        _expect("ModelQ", "forward", where, "shape", (batch, q_size(spec.action)), tuple(value.shape))


@torch.no_grad()
def _check_policy(policy: nn.Module, spec: AgentSpec, state_size: int, where: str) -> None:
    policy.eval()
    for batch, _ in _LEADS:
        with _blame("ModelPolicy", "forward", where):
            result = policy(torch.zeros(batch, state_size), _zeros(spec, batch))
        if not isinstance(result, HybridAction):
            _expect("ModelPolicy", "forward", where, "value", "HybridAction", type(result).__name__)
        _check_continuous(result, spec, where, batch)
        _check_logits(result, spec, where, batch)


def _check_continuous(result: HybridAction, spec: AgentSpec, where: str, batch: int) -> None:
    if not spec.action.continuous:
        return
    if result.continuous is None:
        _expect("ModelPolicy", "forward", where, "continuous part", "TanhNormal", None)
    shape = (batch, spec.action.continuous)
    for name, value in vars(result.continuous).items():
        _expect("ModelPolicy", "forward", where, f"shape of {name}", shape, tuple(value.shape))


def _check_logits(result: HybridAction, spec: AgentSpec, where: str, batch: int) -> None:
    if not spec.action.branches:
        return
    got = None if result.logits is None else tuple(result.logits.shape)
    _expect("ModelPolicy", "forward", where, "shape of logits", (batch, spec.action.discrete), got)
