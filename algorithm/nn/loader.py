"""Checked networks from a task's ``nn.py``, with defaults for missing classes."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from torch import nn

from algorithm.errors import ModelError
from algorithm.nn import defaults, optional
from algorithm.nn.dry_run import blame, check_policy, check_q, check_rep
from algorithm.nn.memories import REPS_WITH_MEMORY
from algorithm.nn.protocols import Memory, Rep
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


def unavailable(name: str, *args: object) -> nn.Module:
    """Raise for an optional class: networks that were not loaded from a task have none."""
    raise ModelError(f"{name} is not there")


@dataclass(frozen=True)
class Networks:
    """Single networks of one agent, checked on zero batches."""

    rep: Rep
    make_q: Callable[[], nn.Module]  # a new critic with its own initial weights at each call
    policy: nn.Module
    state_size: int  # S
    sources: Mapping[str, str] = field(default_factory=dict)  # class name -> where it came from
    # One of the optional classes, by its name and arguments; the task's own, else a default.
    make: Callable[..., nn.Module] = unavailable


def load_networks(
    spec: AgentSpec,
    file: Path | None,
    *,
    rep: Mapping[str, Any] | None = None,
    q: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    seq_encoder: Memory | None = None,
    context: int = 1,
) -> Networks:
    """Build and dry-run the three networks of an agent.

    file:           the ``nn.py``; None takes every class from the defaults.
    rep, q, policy: keyword arguments of ``nn_config``.
    seq_encoder:    the memory that ``ModelRep`` has.
    context:        tokens in attention's reach; with ``ATTN`` an argument of ``ModelRep``.
    Raises :class:`ModelError` if the file does not import, a class does not build, returns a wrong shape or
    has another memory.
    """
    module = _import(file) if file else None
    classes = {name: _pick(module, name, seq_encoder) for name in REQUIRED}
    where = {name: str(file) if module and hasattr(module, name) else "default" for name in REQUIRED}

    def build(name: str, kwargs: Mapping[str, Any] | None, *args: object) -> nn.Module:
        with blame(name, "__init__", where[name]):
            return classes[name](*args, **(kwargs or {}))

    seen = {"context": context} if seq_encoder == "ATTN" else {}
    if seen.keys() & (rep or {}).keys():
        raise ModelError(
            "nn_config.rep.context cannot be set",
            why="with attention it is burn_in_step + 1, in training as while acting",
            fix="change sac_config.burn_in_step",
        )
    rep_module = build("ModelRep", {**seen, **(rep or {})}, spec)
    state_size = check_rep(rep_module, spec, where["ModelRep"], seq_encoder)
    check_q(build("ModelQ", q, spec, state_size), spec, state_size, where["ModelQ"])
    policy_module = build("ModelPolicy", policy, spec, state_size)
    check_policy(policy_module, spec, state_size, where["ModelPolicy"])
    sources = {name: "nn.py" if source != "default" else "default" for name, source in where.items()}
    return Networks(
        rep=cast(Rep, rep_module),
        make_q=lambda: build("ModelQ", q, spec, state_size),
        policy=policy_module,
        state_size=state_size,
        sources=sources,
        make=partial(_optional, module, str(file) if file else "default"),
    )


def _optional(module: ModuleType | None, file: str, name: str, *args: object) -> nn.Module:
    """Build one of the ``OPTIONAL`` classes. Raises ModelError, as of the others."""
    where = file if hasattr(module, name) else "default"
    with blame(name, "__init__", where):
        return _pick(module, name, None)(*args)


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        raise ModelError(
            "the model file was not found", where=file, fix="create it, or set sac_config.nn to another name"
        )
    module_spec = importlib.util.spec_from_file_location(f"task_nn_{abs(hash(file.resolve()))}", file)
    if module_spec is None or module_spec.loader is None:
        raise ModelError("the model file is not a Python file", where=file, fix="give it the ending .py")
    module = importlib.util.module_from_spec(module_spec)
    with blame("the file", "import", str(file)):
        module_spec.loader.exec_module(module)
    _check_names(module, file)
    return module


def _check_names(module: ModuleType, file: Path) -> None:
    """Raise for an unknown ``Model…`` class, which would silently be replaced by a default."""
    for name, value in vars(module).items():
        own = inspect.isclass(value) and value.__module__ == module.__name__
        if not own or not name.startswith("Model") or name in (*REQUIRED, *OPTIONAL):
            continue
        close = difflib.get_close_matches(name, (*REQUIRED, *OPTIONAL), n=1)
        hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join((*REQUIRED, *OPTIONAL))
        raise ModelError(
            f"unknown model class {name}",
            where=file,
            why="only classes with a known name are used, this one would be ignored",
            fix=f"{hint} A helper class may have any name that does not begin with Model.",
        )


def _pick(module: ModuleType | None, name: str, seq_encoder: Memory | None) -> type[nn.Module]:
    cls = getattr(module, name, None) or _default(name, seq_encoder)
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        raise ModelError(f"{name} must be a subclass of torch.nn.Module", where=module and module.__file__)
    return cls


def _default(name: str, seq_encoder: Memory | None) -> type[nn.Module]:
    if name == "ModelRep" and seq_encoder:
        return REPS_WITH_MEMORY[seq_encoder]
    place = optional if name in OPTIONAL else defaults
    return cast(type[nn.Module], getattr(place, name))
