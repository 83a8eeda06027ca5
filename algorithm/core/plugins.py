"""Plug-ins: kinds of environments, extensions and networks of other packages, by their entry points."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from algorithm.core.errors import COMMON_BLOCK, UsageError, UserError, described

_Kind = TypeVar("_Kind")

_INSTALL = f"{sys.executable} -m pip"


@dataclass(frozen=True)
class Group:
    """What plug-ins of one group of entry points are.

    entry_points: name of the group
    noun:         what one of them is
    key:          of the configuration that names them
    own:          names of the built-in ones
    instead:      built-in name -> the key that it has for itself, where ``key`` does not take it
    """

    entry_points: str
    noun: str
    key: str
    own: Sequence[str] = ()
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def known(self) -> tuple[str, ...]:
        """All built-in names."""
        return (*self.own, *self.instead)


EXTENSIONS = Group(
    "asac.extensions",
    "extension",
    f"{COMMON_BLOCK}.extensions",
    instead={
        "atc": f"{COMMON_BLOCK}.siamese",
        "byol": f"{COMMON_BLOCK}.siamese",
        "curiosity": f"{COMMON_BLOCK}.curiosity",
        "extrinsic": "reward_signals.extrinsic",
        "gail": "reward_signals.gail",
        "prediction": f"{COMMON_BLOCK}.use_prediction",
        "rnd": f"{COMMON_BLOCK}.use_rnd or reward_signals.rnd",
    },
)
SAMPLERS = Group("asac.samplers", "sampler", "replay_config.sampler")
NETWORKS = Group("asac.networks", "file of networks", f"{COMMON_BLOCK}.nn", own=("nn",))

PLUGIN_METRICS = "plugin/"
"""First part of the names of what an extension of another package logs."""


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package, or a ``module:attribute`` that a configuration names itself.

    value:   ``module:attribute``, or a module
    package, version: empty where no package has registered it
    """

    group: Group
    name: str
    value: str
    package: str = ""
    version: str = ""

    @property
    def origin(self) -> str:
        """Package and version, or the module."""
        return f"{self.package} {self.version}" if self.package else self.value

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return (
            f"the plug-in {self.name} of {self.origin}"
            if self.package
            else f"the {self.group.noun} {self.name}"
        )

    def load(self) -> Any:  # noqa: ANN401 - whatever stands there
        """Import and return what the entry point names. Raises UsageError for whatever its module raises."""
        module, _, attribute = self.value.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                found = getattr(found, part)
        except (Exception, SystemExit) as error:
            where = "it is searched for in the task's folder and on Python's module path"
            raise self.error("cannot be loaded", described(error), self._mend(where)) from error
        return found

    def make(self, kind: type[_Kind], *given: object, **kwargs: Any) -> _Kind:  # noqa: ANN401 - a person's
        """Return what a maker, or a class, returns for what it is given and a person's arguments.

        Raises UsageError for what cannot be called or does not take them, and unless a ``kind`` is returned;
        and as :meth:`refused`.
        """
        make = self.load()
        if not callable(make):
            fix = "its entry point must name a function or a class"
            raise self.error("has no maker", f"{self.value} is {make!r}", fix)
        if why := accepts(make, *given, **kwargs):
            takes = [str(one) for one in inspect.signature(make).parameters.values()][len(given) :]
            fix = f"its arguments are: {', '.join(takes) or 'none'}"
            raise self.error(f"does not take {kwargs}", why, fix)
        try:
            made = make(*given, **kwargs)
        except (Exception, SystemExit) as error:
            raise self.refused(error, "cannot be made") from error
        return self._of_kind(kind, made, "has returned", "its maker must return an")

    def instance(self, kind: type[_Kind]) -> _Kind:
        """Return the ``kind`` that it names. Raises UsageError for anything else, and as :meth:`load`."""
        return self._of_kind(kind, self.load(), "is", "it must name an")

    def _of_kind(self, kind: type[_Kind], value: object, verb: str, must: str) -> _Kind:
        if not isinstance(value, kind):
            fix = f"{must} {kind.__module__}.{kind.__name__}"
            raise self.error(f"is not a valid {self.group.noun}", f"{self.value} {verb} {value!r}", fix)
        return value

    def error(self, what: str, why: str, fix: str) -> UsageError:
        """Return the error of this plug-in. what: the rest of a sentence."""
        return UsageError(f"{self.label} {what}", where=f"{self.group.key}, {self.value}", why=why, fix=fix)

    def refused(self, error: BaseException, what: str) -> UserError:
        """Return what code of it has raised as an error for a person. what: as of :meth:`error`."""
        if isinstance(error, UserError):
            return error
        why = "\n".join(filter(None, (described(error), self.last_line(error))))
        return self.error(what, why, self._mend("correct it there; train.log of a run has the traceback"))

    def last_line(self, error: BaseException) -> str:
        """Return the last line of its own in a traceback; empty without one, or before it is loaded."""
        files, _ = self.sources()
        lines = [one for one in extract_tb(error.__traceback__) if Path(one.filename) in files]
        return f"{lines[-1].filename}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""

    def _mend(self, own: str) -> str:
        """Return what to do about it; own: where it is a person's own."""
        if not self.package:
            return own
        return f"{_INSTALL} install --upgrade {self.package}; if that does not help, its author must fix it"

    @property
    def top(self) -> str:
        """Name of the outermost package of its module."""
        return self.value.partition(":")[0].partition(".")[0]

    def sources(self) -> tuple[list[Path], Path]:
        """Return the source files beside it, and the folder they lie in; call it once it is loaded."""
        modules = (sys.modules.get(name) for name in (self.top, self.value.partition(":")[0]))
        places = (getattr(one, "__file__", None) for one in modules)
        file = next((Path(one) for one in places if one), Path())
        if file.name != "__init__.py":  # a single module, or one of a namespace
            return [file], file.parent
        return list(file.parent.rglob("*.py")), file.parent


def describe(plugins: Sequence[Plugin]) -> str:
    """Return the origins of plug-ins, for a sentence."""
    return " and ".join(f"{one.origin} ({one.value})" for one in plugins)


@cache
def installed(group: Group) -> Mapping[str, tuple[Plugin, ...]]:
    """Return name -> the plug-ins registered under it, in the order of names. Nothing of them is imported."""
    found: dict[str, tuple[Plugin, ...]] = {}
    for one in metadata.entry_points(group=group.entry_points):
        dist = one.dist
        package, version = (dist.metadata["Name"], dist.version) if dist is not None else ("?", "?")
        value = one.value.partition("[")[0].strip()  # extras behind it are obsolete
        plugin = Plugin(group, one.name, value, str(package), str(version))
        found[one.name] = (*found.get(one.name, ()), plugin)
    return {name: tuple(sorted(found[name], key=lambda one: one.origin)) for name in sorted(found)}


def find(group: Group, name: str) -> Plugin | None:
    """Return the plug-in that a configuration names; None for a built-in kind. Nothing is imported.

    name: that of an installed one, or ``module:attribute``
    Raises UsageError for a name that nobody has, that several packages have, or that is built in as well.
    """
    if ":" in name:
        return Plugin(group, name, name)
    plugins = installed(group).get(name, ())
    if fault := _fault(group, name, plugins):
        raise fault
    if not plugins and name in group.own:
        return None
    if name.lower() in group.instead:
        raise UsageError(
            f"the {group.noun} `{name}` is built in",
            where=group.key,
            why=f"{group.key} is for those of other packages",
            fix=f"it has its own keys: {group.instead[name.lower()]}",
        )
    if not plugins:
        raise unknown(group, name)
    return plugins[0]


def _fault(group: Group, name: str, plugins: Sequence[Plugin]) -> UsageError | None:
    """Return why a registered name cannot be used; None if it can."""
    own = next((one for one in group.known if one.lower() == name.lower()), None)
    remove = " ".join(dict.fromkeys(one.package for one in plugins))
    if plugins and own is not None:
        return UsageError(
            f"the plug-in `{name}` of {describe(plugins)} is refused",
            where=group.key,
            why=f"the {group.noun} `{own}` is built in, and names must be unique",
            fix=f"{_INSTALL} uninstall {remove}; its author must choose another name",
        )
    if len(plugins) > 1:
        return UsageError(
            f"several packages have the {group.noun} `{name}`",
            where=group.key,
            why=describe(plugins),
            fix=f"keep one of them: {_INSTALL} uninstall {plugins[-1].package}",
        )
    return None


def unknown(group: Group, name: str, *, files: Sequence[str] | None = None, why: str = "") -> UsageError:
    """Return the error for a name that nobody has.

    files: whose names are valid, instead of those of built-in kinds; why: where else it was looked for
    """
    ours = group.own if files is None else files
    by_lower = {one.lower(): one for one in (*ours, *installed(group))}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    meant = f"did you mean `{by_lower[close[0]]}`? " if close else ""
    own = f"{'built in' if files is None else 'files'}: {', '.join(ours)}; " if ours else ""
    return UsageError(
        f"there is no {group.noun} `{name}`",
        where=group.key,
        why=why or "it is neither built in nor a plug-in of an installed package",
        fix=f"{meant}{own}installed plug-ins: {', '.join(installed(group)) or 'none'}\n{_INSTALL} install "
        "PACKAGE adds a package's plug-ins; a run's manifest.json names the package",
    )


def listed(*groups: Group) -> Iterator[tuple[str, str]]:
    """Yield name and origin of each installed plug-in, and why it cannot be used if that is so."""
    for group in groups:
        for name, plugins in installed(group).items():
            fault = _fault(group, name, plugins)
            refused = f"; refused: {fault.why}" if fault else ""
            yield name, f"{group.noun}, {', '.join(one.origin for one in plugins)}{refused}"


def accepts(call: Callable[..., object], *args: object, **kwargs: object) -> str:
    """Return why a function does not take these arguments; empty if it does."""
    try:
        inspect.signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:  # a builtin without a signature
        return ""
    return ""
