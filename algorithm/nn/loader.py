"""Construction and checks of the networks of a task's ``nn.py``, with defaults for missing classes."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import nn

import algorithm.nn as offered
from algorithm.core.errors import COMMON_BLOCK, ModelError
from algorithm.core.spec import AgentSpec
from algorithm.nn.critic_only import BlindPolicy, CriticRep, seen_by_policy, width
from algorithm.nn.dry_run import blame, check_rep
from algorithm.nn.models import defaults
from algorithm.nn.process import others_modes
from algorithm.nn.protocols import Memory, Rep

OF_FAMILIES = ("ModelRep", "ModelQ", "ModelPolicy", "ModelV")
"""Names of the classes of all families; a file may have those of several families."""

OPTIONAL = tuple(name for name in offered.__all__ if name.startswith("Model") and name not in OF_FAMILIES)
"""Classes of the extensions, which any family may have; the defaults are those of :mod:`algorithm.nn`."""


_Made = TypeVar("_Made")

_LOADED = itertools.count()
"""Counter for names of loaded files: a file that is loaded again is another module."""


@dataclass(frozen=True)
class Network:
    """Class in an ``nn.py`` that an algorithm family uses besides ``ModelRep``.

    It is built from the spec, the state's width S and a block of ``nn_config``.
    """

    options: str  # name of that block
    check: Callable[[nn.Module, AgentSpec, int, str], None]  # dry run with S and the file's name
    default: type[nn.Module] | None  # None: an ``nn.py`` must define the class


@dataclass(frozen=True)
class Networks:
    """Networks of an agent, one of each kind, checked by dry runs."""

    rep: Rep
    state_size: int  # S
    built: Mapping[str, nn.Module]  # class name -> an instance, for each class of the family
    # A new instance, by class name, ModelRep too; of an optional class by its arguments as well.
    make: Callable[..., nn.Module]
    sources: Mapping[str, str]  # class name -> nn.py or default


def load_networks(
    spec: AgentSpec,
    file: Path | None,
    classes: Mapping[str, Network],
    *,
    seq_encoder: Memory | None = None,
    context: int = 1,
    critic_only: Sequence[str] = (),
    **options: Mapping[str, Any] | None,
) -> Networks:
    """Build and dry-run the networks of an agent.

    file:        the ``nn.py``; None takes every class from the defaults
    classes:     those of the family, by name and in the order of construction
    seq_encoder: memory that ``ModelRep`` must have
    context:     tokens in attention's reach; with ``ATTN`` an argument of ``ModelRep``
    critic_only: observations that ``ModelRep`` and ``ModelPolicy`` do not get; states end with them
    options:     keyword arguments by block of ``nn_config``
    Raises :class:`ModelError` if the file cannot be imported or lacks a class, or if a class cannot be built,
    returns a wrong shape or has another memory.
    """
    known = ("ModelRep", *classes)
    module = _with_known_names(import_networks(file), known) if file else None
    place = str(file) if file else "default"
    default_rep = defaults.REPS_WITH_MEMORY[seq_encoder] if seq_encoder else defaults.ModelRep
    fallback = {"ModelRep": default_rep, **{name: network.default for name, network in classes.items()}}
    types = {name: _pick(module, name, fallback[name]) for name in known}
    where = {name: place if hasattr(module, name) else "default" for name in known}
    blocks = {"ModelRep": "rep", **{name: network.options for name, network in classes.items()}}
    options["rep"] = _with_context(options.get("rep") or {}, seq_encoder, context)

    def make(name: str, *args: object) -> nn.Module:
        if name in OPTIONAL:
            return _optional(module, place, name, *args)
        user_args, key = options.get(blocks[name]) or {}, f"nn_config.{blocks[name]}"
        args = {"ModelRep": (seen,), "ModelPolicy": (seen, own_size)}.get(name, (spec, state_size))
        made = instance(types[name], args, user_args, name=name, key=key, where=where[name])
        if critic_only and name == "ModelRep":
            return CriticRep(cast(Rep, made), critic_only)
        return BlindPolicy(made, own_size, critic_only) if critic_only and name == "ModelPolicy" else made

    seen = seen_by_policy(spec, critic_only) if critic_only else spec
    state_size = own_size = 0
    rep = make("ModelRep")
    state_size = check_rep(rep, spec, where["ModelRep"], seq_encoder)
    own_size = state_size - width(spec, critic_only)
    built = {}
    for name, network in classes.items():
        built[name] = make(name)
        network.check(built[name], spec, state_size, where[name])
    return Networks(cast(Rep, rep), state_size, built, make, _sources(where))


def _sources(where: Mapping[str, str]) -> dict[str, str]:
    """Return the origin of each class: ``nn.py`` or ``default``."""
    return {name: "nn.py" if source != "default" else "default" for name, source in where.items()}


def _with_context(
    user_args: Mapping[str, Any], seq_encoder: Memory | None, context: int
) -> Mapping[str, Any]:
    """Return the arguments of ``ModelRep``, with ``context`` for attention; ModelError if a user set it."""
    if seq_encoder != "ATTN":
        return user_args
    if "context" in user_args:
        raise ModelError(
            "nn_config.rep.context cannot be set",
            why="with attention it is burn_in_step + 1, in training and acting",
            fix=f"change {COMMON_BLOCK}.burn_in_step",
        )
    return {"context": context, **user_args}


def instance(
    cls: type[_Made], args: Sequence[object], user_args: Mapping[str, Any], *, name: str, key: str, where: str
) -> _Made:
    """Construct a class with keyword arguments that a user set under a configuration key.

    args:      its positional arguments
    user_args: its keyword arguments
    name, where: name of the class, and its file or ``default``, for messages
    Raises ModelError for an unknown argument, a value of a wrong type, and an exception of the constructor.
    """
    checked = _keywords(cls, len(args), user_args, name, key, where)
    with blame(name, "__init__", where, f" with {key} = {checked}" if checked else ""):
        return cls(*args, **checked)


def _keywords(
    cls: type[object], positional: int, user_args: Mapping[str, Any], name: str, key: str, where: str
) -> dict[str, Any]:
    """Return the keyword arguments of the configuration for a class, after a check against its signature.

    Values for a class of ours or a dataclass are checked too, and converted to the declared types. A class
    with ``**kwargs`` gets all arguments as they are.

    positional: number of leading arguments that the program passes itself
    name, key, where: name of the class, its configuration key and its file, for messages
    Raises ModelError for an unknown argument or a wrong value.
    """
    named = dict([*inspect.signature(cls).parameters.items()][positional:])
    if any(arg.kind is arg.VAR_KEYWORD for arg in named.values()):
        return dict(user_args)
    if unknown := [arg for arg in user_args if arg not in named]:
        close = difflib.get_close_matches(unknown[0], named, n=1)
        raise ModelError(
            f"{key} has no key {unknown[0]!r}",
            where=f"the default {name}" if where == "default" else where,
            why=f"the arguments of {name} are {', '.join(named)}" if named else f"{name} takes no arguments",
            fix=f"did you mean {close[0]!r}?" if close else f"leave it out, or write a {name} that takes it",
        )
    if not user_args or not (is_dataclass(cls) or cls.__init__.__module__.startswith("algorithm.")):
        return dict(user_args)
    kinds = get_type_hints(cls.__init__, include_extras=True)
    return {
        arg: _checked(value, kinds[arg], f"{key}.{arg}", named[arg].default)
        for arg, value in user_args.items()
    }


def _checked(value: object, kind: Any, key: str, default: object) -> object:  # noqa: ANN401 - a type form
    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise ModelError(
            f"{key} is {value!r}",
            where=key,
            why=f"it {error.errors()[0]['msg'].removeprefix('Input ')}",
            fix="change it, or leave it out" + f"; the default is {default}" * (default is not None),
        ) from error


def _optional(module: ModuleType | None, file: str, name: str, *args: object) -> nn.Module:
    """Build a class of ``OPTIONAL``. Raises ModelError if its constructor fails."""
    where = file if hasattr(module, name) else "default"
    with blame(name, "__init__", where):
        return _pick(module, name, getattr(offered, name))(*args)


def import_networks(file: Path) -> ModuleType:
    """Import an ``nn.py``, and return its module. Raises ModelError if that fails."""
    if not file.is_file():
        raise ModelError(
            "the model file was not found",
            where=file,
            fix=f"create it, or set {COMMON_BLOCK}.nn to another name",
        )
    module_spec = importlib.util.spec_from_file_location(f"task_nn_{next(_LOADED)}", file)
    if module_spec is None or module_spec.loader is None:
        raise ModelError("the model file is not a Python file", where=file, fix="give it the ending .py")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module.__name__] = module  # a compiler looks there for the global names of a function
    with blame(f"the import of {file.name}", "", str(file)), others_modes():
        module_spec.loader.exec_module(module)
    return module


def _with_known_names(module: ModuleType, of_family: Sequence[str]) -> ModuleType:
    """Return the module; ModelError for an unknown ``Model…`` class, which would silently be ignored."""
    known = tuple(dict.fromkeys((*of_family, *OF_FAMILIES, *OPTIONAL)))
    for name, value in vars(module).items():
        defined_here = inspect.isclass(value) and value.__module__ == module.__name__
        if not defined_here or not name.startswith("Model") or name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join(known)
        raise ModelError(
            f"unknown model class {name}",
            where=module.__file__ or "",
            why="only classes with a known name are used, this one would be ignored",
            fix=f"{hint} A helper class may have any name that does not start with Model.",
        )
    return module


def _pick(module: ModuleType | None, name: str, default: type[nn.Module] | None) -> type[nn.Module]:
    cls = getattr(module, name, None) or default
    if cls is None:
        raise ModelError(
            f"nn.py lacks {name}",
            where=(module and module.__file__) or "",
            why="the algorithm has no default for it",
            fix="define the class there",
        )
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        raise ModelError(f"{name} must be a subclass of torch.nn.Module", where=module and module.__file__)
    return cls
